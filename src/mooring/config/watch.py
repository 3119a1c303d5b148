"""Configuration files watched while the host runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mooring.errors import ConfigError

LONGEST = 20
"""Changes that keep coming are told after so many quiet times at the latest."""


async def changes(files: Sequence[Path], quiet: float) -> AsyncGenerator[None]:
    """Yields when one of `files` has changed and then nothing for `quiet` seconds.

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
