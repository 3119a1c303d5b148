"""Where mooring keeps its files, and how they are written: whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from mooring.errors import ConfigError

_MAC = "~/Library/Application Support"
_WINDOWS = r"~\AppData\Local"


def state_home() -> Path:
    """Return the directory for approvals, logins, stored results, backups and the user's own lock."""
    return _own_home() or _usual("XDG_STATE_HOME", unix="~/.local/state", mac=_MAC)


def cache_home() -> Path:
    """Return the directory for files that can be made again."""
    if (home := _own_home()) is not None:
        return home / "cache"
    usual = _usual("XDG_CACHE_HOME", unix="~/.cache", mac="~/Library/Caches")
    return usual / "Cache" if sys.platform == "win32" else usual


def config_homes() -> tuple[Path, ...]:
    """Return the directories in which the user's configuration is looked for; the last one is written to."""
    usual = _usual("XDG_CONFIG_HOME", unix="~/.config", mac=_MAC)
    return (usual,) if (home := _own_home()) is None else (usual, home)


def _usual(variable: str, *, unix: str, mac: str) -> Path:
    """The directory that programs of this system use."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or os.path.expanduser(_WINDOWS), "mooring")
    given = os.environ.get(variable, "").strip()
    if not os.path.isabs(given):  # as the XDG specification wants it
        given = os.path.expanduser(mac if sys.platform == "darwin" else unix)
    return Path(given, "mooring")


def _own_home() -> Path | None:
    given = os.environ.get("MOORING_HOME")
    return Path(given).expanduser() if given else None


SIZE_LIMIT = 64 * 2**20
_BOM = b"\xef\xbb\xbf"
_KEPT = 20
"""Backups of one file; the oldest go first."""


def save(path: Path, text: str, *, before: str | None, private: bool = False) -> Path | None:
    """Put `text` in place of what the file holds and return where that is kept now.

    Args:
        path: The file. A link stays a link: what it points at is written.
        text: Its new content.
        before: What it held when `text` was made of it; None when it did not exist.
        private: Whether a new file is for its owner's eyes alone.

    Raises:
        ConfigError: somebody else has changed the file meanwhile, or it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        old = target.read_bytes() if target.exists() else None
        if (None if old is None else old.removeprefix(_BOM).decode()) != before:
            raise ConfigError("has been changed meanwhile; nothing was written: try again", file=str(path))
        mark = _BOM if old is not None and old.startswith(_BOM) else b""
        target.parent.mkdir(parents=True, exist_ok=True)
        backup = None if old is None else _keep(target, old)
        mode = 0o600 if private else 0o644
        replace_file(target, mark + text.encode(), mode=mode if old is None else _mode(target))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"cannot be written: {reason}", file=str(path)) from None
    return backup


def backup_folder(path: Path) -> Path:
    """Where earlier contents of a file are kept: in the user's state directory, away from repositories."""
    unique = sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return state_home() / "backups" / f"{path.name}-{unique}"


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Put `data` in place of a file, all of it or nothing, whoever else reads or writes."""
    import tempfile  # slow to import, and most starts write nothing

    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


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


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _keep(path: Path, content: bytes) -> Path:
    from datetime import UTC, datetime

    folder = backup_folder(path)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{path.suffix}"
    replace_file(kept, content, mode=0o600)
    for old in sorted(folder.iterdir())[:-_KEPT]:
        old.unlink(missing_ok=True)
    return kept


def keep(path: Path, body: bytes, *, most: int) -> None:
    """Write a file for the next time. Of its folder the `most` stay that were used last.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    replace_file(path, _seal(body) + b"\n" + body, mode=0o600)
    files = list(path.parent.glob(f"*{path.suffix}"))
    if len(files) > most:
        files.sort(key=lambda file: file.stat().st_mtime)
        for file in files[:-most]:
            file.unlink(missing_ok=True)


def kept(path: Path) -> bytes | None:
    """Return what was kept, and count it as used; None when it is not there, or not whole.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        seal, _, body = read_bytes(path).partition(b"\n")
    except FileNotFoundError:
        return None
    if seal != _seal(body):
        return None
    with suppress(OSError):
        os.utime(path)
    return body


def _seal(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode()
