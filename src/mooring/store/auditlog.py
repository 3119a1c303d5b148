"""The file of an audit log: appended to by several processes, put aside when it is full."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

__all__ = ["AuditLog"]

PATIENCE = 5.0
"""Seconds that another process may take for its own lines."""
_KEY_LENGTH = 64
# Neither through a link, nor waiting for whoever would read from a pipe; Windows knows neither.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE


class AuditLog:
    """`path`, the files that were put aside beside it (`path.1` is the newest), a lock and a key."""

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self.path, self._max, self._keep = path, max_bytes, keep

    def append(self, lines: list[bytes]) -> None:
        """Write the lines, each whole or not at all; what is written is taken out of the list.

        Raises:
            OSError: that is not possible now.
        """
        with self._alone():
            while lines:
                descriptor = self._opened(self.path)
                try:
                    used = os.fstat(descriptor).st_size
                    count = self._fitting(lines, used)
                    if count:
                        _write(descriptor, b"".join(lines[:count]), used)
                        del lines[:count]
                finally:
                    os.close(descriptor)
                if lines:
                    self._put_aside()

    def key(self) -> bytes:
        """What the digests of this log are made with: in a file beside it, made when there is none.

        Raises:
            OSError: it can neither be read nor made.
        """
        with self._alone():
            descriptor = self._opened(self._beside("key"))
            try:
                known = os.pread(descriptor, _KEY_LENGTH, 0)
                if len(known) < _KEY_LENGTH:
                    os.ftruncate(descriptor, 0)
                    known = token_hex(_KEY_LENGTH // 2).encode()
                    _write(descriptor, known, 0)
                return known
            finally:
                os.close(descriptor)

    def problem(self) -> str | None:
        """Why nothing can be written there, as far as that is seen without writing; None if nothing is."""
        try:
            try:
                os.close(self._opened(self.path, os.O_RDWR | os.O_APPEND | _SAFE))
            except FileNotFoundError:
                folder = next(one for one in self.path.absolute().parents if one.exists())
                if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                    return f"nothing can be made in {folder}"
        except OSError as fault:
            return fault.strerror or str(fault)
        return None

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Nobody else writes, or puts files aside, meanwhile."""
        from filelock import FileLock, Timeout

        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(self._beside("lock"), timeout=PATIENCE, mode=0o600):
                yield
        except Timeout:
            raise OSError(errno.ETIMEDOUT, "another process holds its lock") from None

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{what}")

    def _opened(self, path: Path, flags: int = _APPEND) -> int:
        """An open file that is ours alone.

        Raises:
            OSError: it is something else, or somebody else's.
        """
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as fault:
            if fault.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, f"{path} is a link, which is not followed") from None
            raise
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, f"{path} is no regular file")
            if os.name == "posix":
                if found.st_uid != os.geteuid():
                    raise OSError(errno.EPERM, f"{path} belongs to another user")
                if found.st_mode & 0o077 and flags & os.O_CREAT:
                    os.fchmod(descriptor, 0o600)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _fitting(self, lines: list[bytes], used: int) -> int:
        """How many of the lines this file still takes; an empty one takes at least one."""
        count = 0
        for text in lines:
            used += len(text)
            if used > self._max and (count or used > len(text)):
                break
            count += 1
        return count

    def _put_aside(self) -> None:
        with suppress(FileNotFoundError):
            for number in range(self._keep, self._keep + 1_000):  # more were kept before
                os.unlink(self._beside(str(number)))
        for number in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(self._beside(str(number)), self._beside(str(number + 1)))
        os.replace(self.path, self._beside("1"))


def _write(descriptor: int, data: bytes, used: int) -> None:
    """Append all of it, or nothing."""
    if used and os.pread(descriptor, 1, used - 1) != b"\n":
        data = b"\n" + data  # somebody was killed in the middle of a line
    if os.write(descriptor, data) != len(data):
        os.ftruncate(descriptor, used)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
