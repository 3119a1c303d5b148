"""Directories of mooring's files, and atomic writes."""

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
    """Return the directory that is usual on this system."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or os.path.expanduser(_WINDOWS), "mooring")
    given = os.environ.get(variable, "").strip()
    if not os.path.isabs(given):  # as the XDG specification requires
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
    """Replace the content of a file and return the path of a backup, None for a new file.

    Args:
        path: The file. For a symbolic link, its target is written.
        text: Its new content.
        before: The content that `text` was made from; None when the file did not exist.
        private: Whether only the owner may read a new file.

    Raises:
        ConfigError: the file changed since it was read, or it cannot be written.
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
    """Return the directory of backups of a file, in the user's state directory."""
    unique = sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return state_home() / "backups" / f"{path.name}-{unique}"


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Replace a file atomically. Until it is complete, only its owner can read the new content."""
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
    """Return the content of a regular file of at most 64 MiB.

    Raises:
        OSError: it is not such a file, or cannot be read.
    """
    # Opening a named pipe would block.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is not a regular file")
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
    """Write a file to a cache directory and delete all but the `most` files that were used last.

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
    """Return the content of a cached file and mark it as used; None when it does not exist or is damaged.

    Raises:
        OSError: it exists and cannot be read.
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
