"""A directory of files that mooring makes: private, with names of its own, within a size and an age."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock

__all__ = ["Folder"]

GRACE = 3600.0
"""Seconds for which a file is nobody's but its writer's, who may be another process."""
_RESCAN = 60.0
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Folder:
    """Files that are written once. What is old goes; what is too much goes, the oldest first.

    Safe to use from several threads, and beside other processes that use the same directory.
    """

    def __init__(self, path: Path, *, names: str, size: int, age: float, private: bool = True) -> None:
        self.path = path
        self._names = re.compile(names)
        """Which files are ours to delete."""
        self._size, self._age, self._private = size, age, private
        self._lock = Lock()
        self._used = 0
        self._scanned: float | None = None

    def write(self, name: str, chunks: Iterable[bytes]) -> Path:
        """Write a file, all of it or nothing.

        Raises:
            OSError: that is not possible; `FileExistsError`: the name is taken.
        """
        self._prepare()
        path = self.path / name
        descriptor = os.open(path, _FLAGS, 0o600)
        written = 0
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for chunk in chunks:
                    written += len(chunk)
                    if self._used + written > self._size:
                        raise OSError(errno.ENOSPC, f"it holds {self._size >> 20} MiB, and that is its limit")
                    stream.write(chunk)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        with self._lock:
            self._used += written
        return path

    def remove(self, path: Path) -> None:
        """Delete a file of this folder, if it is still there."""
        with suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            with self._lock:
                self._used -= size

    def tidy(self) -> None:
        """Delete what is too old, and of the rest the oldest while it is too much."""
        now = time.time()
        files = self._files()
        used = sum(size for _, size, _ in files)
        for changed, size, path in sorted(files):
            age = now - changed
            if age > self._age or (used > 0.9 * self._size and age > GRACE):
                with suppress(OSError):
                    os.unlink(path)
                    used -= size
        with self._lock:
            self._used, self._scanned = used, time.monotonic()

    def _prepare(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._private:
            found = self.path.lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise OSError(errno.ENOTDIR, "it is no directory of its own")
            if found.st_mode & 0o077:
                self.path.chmod(0o700)
        if self._scanned is None or time.monotonic() - self._scanned > _RESCAN:
            self.tidy()

    def _files(self) -> list[tuple[float, int, str]]:
        found: list[tuple[float, int, str]] = []
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if self._names.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    with suppress(OSError):  # another process was quicker
                        known = entry.stat(follow_symlinks=False)
                        found.append((known.st_mtime, known.st_size, entry.path))
        return found
