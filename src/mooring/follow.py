"""Configuration files followed while the host runs: a change is applied, a bad one changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from mooring.config.logs import logger
from mooring.core.config import HostConfig
from mooring.core.events import ConfigRejected, Event
from mooring.errors import ConfigError

log = logger("mooring.host")


async def follow(
    files: Sequence[Path],
    quiet: float,
    *,
    reload: Callable[[], HostConfig],
    apply: Callable[[HostConfig], Awaitable[object]],
    emit: Callable[[Event], None],
) -> None:
    """Apply what `reload` reads whenever one of `files` has changed. Never raises for a file."""
    from mooring.config.watch import changes  # few hosts follow their files

    try:
        async for _ in changes(files, quiet):
            try:
                await apply(_read(files, reload))
            except (ConfigError, OSError) as problem:
                log.warning("the last good configuration stays: %s", problem)
                emit(ConfigRejected(problem=str(problem)))
    except Exception as problem:  # without watching, the host goes on
        log.warning("configuration files are not watched: %s", problem)
        emit(ConfigRejected(problem=f"files are not watched: {problem}"))


def _read(files: Sequence[Path], reload: Callable[[], HostConfig]) -> HostConfig:
    if gone := [str(file) for file in files if not file.is_file()]:
        raise ConfigError("the file is gone", file=gone[0])
    return reload()
