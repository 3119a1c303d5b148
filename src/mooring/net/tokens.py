"""Logins between runs: the system keyring where there is one, else a file that only its owner can read.

A file exists for each login either way. Without secrets in it, it tells that the keyring has them: a
server that nobody has logged in to costs no look into the keyring.

Everything here but `locked` may block: call it from a worker thread.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from mooring.config.homes import state_home
from mooring.config.logs import logger
from mooring.core.grants import Grant, grant_from_json, grant_to_json

log = logger("mooring.tokens")

SERVICE = "mooring-oauth"
"""Not the service that `${keyring:…}` reads: no configuration can have a token put into a header."""
LIMIT = 256 * 1024
LOCK_PATIENCE = 30.0
# Neither through a link, nor waiting for whoever would write into a pipe; Windows knows neither.
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_warned: set[str] = set()

Place = Literal["keyring", "file", "memory"]


class UnsafeStoreError(Exception):
    """The place for tokens is not ours alone; the text names it."""


class TokenStore:
    """The kept login for one server address and one client: this user's, or that of one principal whom the
    host serves."""

    def __init__(self, url: str, client: str | None, principal: str | None = None) -> None:
        whose = [url, client] if principal is None else [url, client, principal]
        unique = sha256(json.dumps(whose).encode()).hexdigest()[:32]
        readable = re.sub(r"[^a-z0-9.-]+", "-", (urlsplit(url).hostname or "").lower())[:60]
        self._key = f"{readable}-{unique}"
        self.place: Place = "memory"
        """Where the login was last found or put."""
        self._stamp = 0

    # --- what is kept ---------------------------------------------------------------------------

    def load(self) -> Grant | None:
        """The login that was kept, if any.

        Raises:
            UnsafeStoreError: somebody else could have put it there.
        """
        self._stamp = self._now()
        raw = self._read()
        if raw is None:
            return None
        place: Place = "file"
        if raw.get("secrets") == SERVICE:
            place, raw["secrets"] = "keyring", self._from_keyring()
        grant = grant_from_json(raw)
        if grant is None:
            log.warning("the kept login %s is damaged, or gone from the keyring; log in again", self._path())
        else:
            self.place = place
        return grant

    def save(self, grant: Grant) -> None:
        """Keep a login for the next run. Where that cannot be, it lives as long as this process."""
        document = grant_to_json(grant)
        self.place = "file"
        if self._to_keyring(json.dumps(document["secrets"])):
            self.place, document["secrets"] = "keyring", SERVICE
        try:
            self._write(json.dumps(document).encode())
            if self.place == "file":
                _explain_file()
        except (OSError, UnsafeStoreError) as problem:
            self.place = "memory"
            _warn_once(f"tokens are not kept for the next run: {problem}")
        self._stamp = self._now()

    def changed(self) -> bool:
        """Whether somebody else has kept something since we looked."""
        return self._now() not in (0, self._stamp)

    def _now(self) -> int:
        try:
            return self._path().lstat().st_mtime_ns
        except OSError:
            return 0

    def delete(self) -> None:
        """Forget the login."""
        with suppress(UnsafeStoreError):
            raw = self._read()
            if raw is not None and raw.get("secrets") == SERVICE and (keyring := _keyring()) is not None:
                with suppress(Exception):  # backends raise what they like
                    keyring.delete_password(SERVICE, self._key)
        with suppress(OSError):
            self._path().unlink(missing_ok=True)

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Alone with this login, among all processes of this user. Where no lock can be had, go on: a
        second refresh is better than none."""
        from filelock import AsyncFileLock, Timeout

        try:
            _own_folder(self._path().parent)
            lock = AsyncFileLock(
                f"{self._path()}.lock", timeout=LOCK_PATIENCE, mode=0o600, run_in_executor=False
            )
            await lock.acquire()
        except (OSError, Timeout, UnsafeStoreError) as problem:
            log.warning("a login is renewed without a lock: %s", problem)
            yield
            return
        try:
            yield
        finally:
            await lock.release()

    # --- the file -------------------------------------------------------------------------------

    def _path(self) -> Path:
        return state_home() / "oauth" / f"{self._key}.json"

    def _read(self) -> dict[str, Any] | None:
        path = self._path()
        try:
            _check_folder(path.parent)
            descriptor = os.open(path, _OPEN)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            if path.is_symlink():
                raise UnsafeStoreError(f"{path} is a link; remove it") from None
            raise UnsafeStoreError(f"{path} cannot be read: {problem.strerror}") from None
        with os.fdopen(descriptor, "rb") as stream:
            _check_owner(os.fstat(descriptor), path)
            data = stream.read(LIMIT + 1)
        try:
            raw: object = json.loads(data) if len(data) <= LIMIT else None
        except (ValueError, RecursionError):
            raw = None
        return cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}

    def _write(self, data: bytes) -> None:
        import tempfile  # slow to import, and most starts write nothing

        path = self._path()
        _own_folder(path.parent)
        if path.is_symlink():
            raise UnsafeStoreError(f"{path} is a link; remove it")
        # mkstemp makes the file with mode 0600: at no moment can others read it.
        descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(descriptor)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    # --- the keyring ----------------------------------------------------------------------------

    def _from_keyring(self) -> Any:
        keyring = _keyring()
        try:
            text = keyring.get_password(SERVICE, self._key) if keyring is not None else None
            return json.loads(text) if text else None
        except Exception as problem:  # backends raise what they like
            log.warning("the keyring cannot be read: %s", type(problem).__name__)
            return None

    def _to_keyring(self, text: str) -> bool:
        keyring = _keyring()
        if keyring is None:
            return False
        try:
            keyring.set_password(SERVICE, self._key, text)
            return keyring.get_password(SERVICE, self._key) == text
        except Exception as problem:  # backends raise what they like
            log.warning("the keyring takes no token: %s", type(problem).__name__)
            return False


def _keyring() -> Any:
    """The keyring, where the extra is installed and a real one is behind it."""
    try:
        keyring: Any = import_module("keyring")
        return keyring if keyring.get_keyring().priority > 0 else None
    except Exception:  # not installed, or no backend: both mean there is none
        return None


def _own_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_folder(folder)
    if os.name == "posix" and stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def _check_folder(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeStoreError(f"{folder} is no directory of its own; remove it")
    _check_owner(found, folder, directory=True)


def _check_owner(found: os.stat_result, path: Path, *, directory: bool = False) -> None:
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid():
        raise UnsafeStoreError(f"{path} belongs to another user; remove it")
    if not directory and (not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077):
        raise UnsafeStoreError(f"{path} can be read by others; remove it, then log in again")


def _explain_file() -> None:
    """Log once where tokens are. The extra is advised only where the system has a keyring for it: elsewhere
    it would change nothing."""
    text = "tokens are kept in a file that only you can read"
    if sys.platform in ("darwin", "win32") and find_spec("keyring") is None:
        _warn_once(f"{text}; `pip install 'mooring[keyring]'` keeps them in the keyring of the system")
    elif text not in _warned:
        _warned.add(text)
        log.info("%s", text)


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        log.warning("%s", text)
