"""The lock on disk: `mooring.lock` beside the configuration.

It belongs to the user: what cannot be read is an error, and is never written over unasked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.config.files import read_bytes, replace_file
from mooring.config.homes import cache_home, state_home
from mooring.config.kept import keep, kept
from mooring.config.logs import logger
from mooring.core import prepared
from mooring.core.pin import Lock, LockError

if TYPE_CHECKING:
    from mooring.config.load import FoundFile
    from mooring.core.config import Scope

__all__ = ["NAME", "lock_path", "own_lock_path", "read", "speaks_of", "write"]

NAME = "mooring.lock"
_PREPARED = 16
"""Locks that this user need not wait for to be checked again."""

_log = logger("mooring.lockfile")


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
    return own_lock_path()


def own_lock_path() -> Path:
    """Return where the lock of the user's own servers is, whether or not it exists."""
    return state_home() / NAME


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
    lock = _prepared(raw)
    if lock is not None:
        return lock
    from mooring.core.locktext import parse  # not needed for one that was read before

    try:
        lock = parse(raw.decode().removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LockError("is damaged: not UTF-8 text", file=file, place=f"line {line}") from None
    except LockError as error:
        raise type(error)(error.problem, file=file, place=error.place) from None
    _prepare(raw, lock)
    return lock


def _prepared(raw: bytes) -> Lock | None:
    """The lock of this very content, if it was checked before for this user."""
    try:
        body = kept(_place(raw))
        return None if body is None else prepared.read(body)
    except (OSError, ValueError, TypeError) as problem:
        _log.debug("What was kept of a lock is ignored: %s", problem)
        return None


def _prepare(raw: bytes, lock: Lock) -> None:
    """Keep a lock that was checked; where that fails it is checked again the next time."""
    try:
        keep(_place(raw), prepared.write(lock), most=_PREPARED)
    except (OSError, ValueError) as problem:
        _log.debug("A lock is checked again the next time: %s", problem)


def _place(raw: bytes) -> Path:
    return cache_home() / "locks" / f"{sha256(raw).hexdigest()}.json"


def write(path: Path, lock: Lock, *, force: bool = False) -> None:
    """Put a lock in place of what the file holds: all of it or nothing, whoever else writes or reads.

    Raises:
        LockError: the file holds what this mooring cannot read, and `force` is false; or it cannot
            be written.
    """
    from mooring.core.locktext import render

    target = Path(os.path.realpath(path))  # a link stays a link
    if not force:
        read(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, render(lock).encode(), mode=0o644)
    except OSError as error:
        raise LockError(f"cannot be written: {error.strerror or error}", file=str(path)) from None
