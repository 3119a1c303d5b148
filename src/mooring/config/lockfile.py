"""The lock on disk: `mooring.lock` beside the configuration.

It belongs to the user: what cannot be read is an error, and is never written over unasked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.config.files import replace_file
from mooring.config.verified import is_verified, note_verified
from mooring.core.locktext import LockError, parse, render
from mooring.core.pin import Lock

if TYPE_CHECKING:
    from mooring.config.load import FoundFile
    from mooring.core.config import Scope

__all__ = [
    "NAME",
    "SIZE_LIMIT",
    "lock_path",
    "read",
    "read_bytes",
    "speaks_of",
    "write",
]

NAME = "mooring.lock"
SIZE_LIMIT = 64 * 2**20


def lock_path(files: Sequence[FoundFile], cwd: Path) -> Path:
    """Return where the lock of a configuration is, whether or not it exists.

    Beside the explicit file (the last of several) or the project's; with the user's files alone, in
    the user's state directory; with no file at all, in `cwd`.
    """
    for file in reversed(files):
        if file.scope != "user":
            return file.path.absolute().parent / NAME
    if not files:
        return cwd.absolute() / NAME
    home = os.environ.get("MOORING_HOME")
    if home:
        return Path(home) / NAME
    import platformdirs

    return platformdirs.user_state_path("mooring", appauthor=False) / NAME


def speaks_of(files: Sequence[FoundFile], scope: Scope) -> bool:
    """Return whether the lock of these files is about servers of this scope.

    A project's lock is shared: what one of its users has configured for themselves is not in it.
    """
    return scope != "user" or all(file.scope == "user" for file in files)


def read(path: Path) -> Lock | None:
    """Return the lock in a file; None when there is no such file.

    Raises:
        NewerLockError: a newer mooring wrote it.
        LockError: it is damaged or cannot be read.
    """
    file = str(path)
    try:
        raw = read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LockError(f"cannot be read: {error.strerror or error}", file=file) from None
    verified = is_verified(raw)
    try:
        lock = parse(raw.decode().removeprefix("\ufeff"), verified=verified)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LockError("is damaged: not UTF-8 text", file=file, place=f"line {line}") from None
    except LockError as error:
        raise type(error)(error.problem, file=file, place=error.place) from None
    if not verified:
        note_verified(raw)
    return lock


def write(path: Path, lock: Lock, *, force: bool = False) -> None:
    """Put a lock in place of what the file holds: all of it or nothing, whoever else writes or reads.

    Raises:
        LockError: the file holds what this mooring cannot read, and `force` is false; or it cannot
            be written.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    if not force:
        read(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, render(lock).encode(), mode=0o644)
    except OSError as error:
        raise LockError(f"cannot be written: {error.strerror or error}", file=str(path)) from None


def read_bytes(path: Path) -> bytes:
    """Return what a regular file of bearable size holds.

    Raises:
        OSError: it is none, or cannot be read.
    """
    # Not to wait for whoever would write into a pipe of that name.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is no regular file")
    with path.open("rb") as stream:
        raw = stream.read(SIZE_LIMIT + 1)
    if len(raw) > SIZE_LIMIT:
        raise OSError(f"it is larger than {SIZE_LIMIT >> 20} MiB")
    return raw
