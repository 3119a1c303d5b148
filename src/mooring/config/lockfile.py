"""The lock on disk: `mooring.lock` beside the configuration, and a private cache where there is none.

The lock belongs to the user: what cannot be read is an error, and is never written over unasked. The
cache belongs to mooring: what cannot be read is not there, and what cannot be written is let go.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.config.files import replace_file
from mooring.config.logs import logger
from mooring.core.locktext import LockError, parse, render
from mooring.core.pin import Lock, Pin

if TYPE_CHECKING:
    from mooring.config.load import FoundFile
    from mooring.core.config import Scope

__all__ = [
    "NAME",
    "SIZE_LIMIT",
    "cache_path",
    "lock_path",
    "read",
    "recall",
    "remember",
    "speaks_of",
    "write",
]

NAME = "mooring.lock"
SIZE_LIMIT = 64 * 2**20
_CACHED = 512
"""Servers that the cache remembers; the longest unused go first."""

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
        raw = _bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LockError(f"cannot be read: {error.strerror or error}", file=file) from None
    try:
        return parse(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LockError("is damaged: not UTF-8 text", file=file, place=f"line {line}") from None
    except LockError as error:
        raise type(error)(error.problem, file=file, place=error.place) from None


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


def cache_path(server: str, fingerprint: str) -> Path:
    """Return where the pin of a server without a lock is kept for this user."""
    home = os.environ.get("MOORING_HOME")
    if home:
        base = Path(home) / "cache"
    else:
        import platformdirs

        base = platformdirs.user_cache_path("mooring", appauthor=False)
    readable = re.sub(r"[^a-z0-9]+", "-", server.lower())[:40].strip("-")
    unique = sha256(f"{server}\0{fingerprint}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return base / "servers" / f"{readable}-{unique}.lock"


def remember(pin: Pin) -> None:
    """Keep a pin for the next start; where that fails there is no cache, and nothing else is lost."""
    path = cache_path(pin.server, pin.fingerprint)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        body = render(Lock(servers={pin.server: pin}), compact=True).encode("utf-8", "replace")
        replace_file(path, _seal(body) + body, mode=0o600)
        _forget_oldest(path.parent)
    except OSError as error:
        _log.debug("No cache for server %r: %s", pin.server, error)


def recall(server: str, fingerprint: str) -> Pin | None:
    """Return the pin that was remembered of a server under this very configuration."""
    path = cache_path(server, fingerprint)
    try:
        pin = _unsealed(_bytes(path)).servers.get(server)
    except FileNotFoundError:
        return None
    except (LockError, OSError) as error:
        _log.debug("The cache of server %r is ignored: %s", server, error)
        return None
    if pin is None or pin.fingerprint != fingerprint:
        return None
    with suppress(OSError):
        os.utime(path)
    return pin


def _seal(body: bytes) -> bytes:
    """The first line of a cached pin: half a file, or one that something else wrote over, is noticed."""
    return sha256(body).hexdigest().encode() + b"\n"


def _unsealed(raw: bytes) -> Lock:
    body = raw[raw.find(b"\n") + 1 :]
    if not raw.startswith(_seal(body)):
        raise LockError("is damaged")
    return parse(body.decode(), compact=True)


def _bytes(path: Path) -> bytes:
    # Not to wait for whoever would write into a pipe of that name.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is no regular file")
    with path.open("rb") as stream:
        raw = stream.read(SIZE_LIMIT + 1)
    if len(raw) > SIZE_LIMIT:
        raise OSError(f"it is larger than {SIZE_LIMIT >> 20} MiB")
    return raw


def _forget_oldest(folder: Path) -> None:
    files = list(folder.glob("*.lock"))
    if len(files) > _CACHED:
        files.sort(key=lambda file: file.stat().st_mtime)
        for file in files[:-_CACHED]:
            file.unlink(missing_ok=True)
