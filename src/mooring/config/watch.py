"""Watching of configuration files while the host runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mooring.config.logs import logger
from mooring.config.models import HostConfig
from mooring.core.events import ConfigRejected, Event
from mooring.errors import ConfigError

LONGEST = 20
"""Continuous changes are reported after this many quiet periods at the latest."""


async def changes(files: Sequence[Path], quiet: float) -> AsyncGenerator[None]:
    """Yield when one of `files` changed and then nothing for `quiet` seconds.

    Raises:
        ConfigError: the `watch` extra is not installed.
    """
    try:
        watch: Any = import_module("watchfiles")  # an extra
    except ImportError:
        raise ConfigError("watching files needs the watch extra: pip install 'mooring[watch]'") from None
    wanted = {str(file.resolve()) for file in files}

    def concerns(_change: object, path: str) -> bool:
        return path in wanted

    # Folders, because editors replace a file by another one of the same name.
    folders = {file.resolve().parent for file in files}
    pause = max(int(quiet * 1000), 1)
    async for _ in watch.awatch(
        *(folder for folder in folders if folder.is_dir()),
        watch_filter=concerns,
        debounce=pause * LONGEST,
        step=pause,
        rust_timeout=500,
        recursive=False,
    ):
        yield


log = logger("mooring.host")


async def follow(
    files: Sequence[Path],
    quiet: float,
    *,
    reload: Callable[[], HostConfig],
    apply: Callable[[HostConfig], Awaitable[object]],
    emit: Callable[[Event], None],
) -> None:
    """Call `apply` with the result of `reload` whenever one of `files` changed. Never raises for a file."""
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
