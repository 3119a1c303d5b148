"""Which project files were approved on this machine: one small file for each, outside of any project.

A file here counts only if it is a regular file that belongs to this user and that nobody else may
write. Anything else in its place approves nothing.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from mooring.config.files import replace_file
from mooring.config.homes import state_home
from mooring.core.types import EMPTY
from mooring.core.values import Value
from mooring.errors import ConfigError

__all__ = ["Approval", "approval_of", "approve", "approved", "approved_files", "revoke"]

_SIZE_LIMIT = 2**20


class Approval(Value):
    """What was approved of one project file."""

    servers: Mapping[str, str] = EMPTY
    """The mark of each approved server, by name."""
    settings: str | None = None
    """The mark of its host-wide settings."""
    everything: bool = False
    """Whether all of it is approved for this run, whatever it says."""

    def __bool__(self) -> bool:
        return self.everything or bool(self.servers) or self.settings is not None


def approved(file: str) -> Mapping[str, str]:
    """Return the marks of the approved servers in `file`, by name; empty when there is none."""
    return approval_of(file).servers


def approval_of(file: str) -> Approval:
    """Return what was approved of `file` on this machine."""
    return _read(_place(file)).get(_key(file), Approval())


def approve(file: str, marks: Mapping[str, str], *, settings: str | None = None) -> None:
    """Approve the servers and host-wide settings of `file` in exactly the form that these marks identify.

    Raises:
        ConfigError: it cannot be written down.
    """
    path = _place(file)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise OSError("something else than a file stands in its place; remove it")
        document = {"version": 1, "file": _key(file), "servers": dict(marks), "settings": settings}
        text = json.dumps(document, indent=2)
        replace_file(path, f"{text}\n".encode("utf-8", "surrogatepass"), mode=0o600)
    except OSError as error:
        raise ConfigError(
            f"the approval cannot be written: {error.strerror or error}", file=str(path)
        ) from None


def revoke(file: str) -> bool:
    """Forget the approval of `file`; whether there was one."""
    path = _place(file)
    there = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return there


def approved_files() -> tuple[str, ...]:
    """Every file that is approved, in order."""
    folder = _folder()
    found = [_read(path) for path in folder.glob("*.json")] if folder.is_dir() else []
    return tuple(sorted(file for one in found for file in one))


def _folder() -> Path:
    return state_home() / "trust"


def _key(file: str) -> str:
    return os.path.realpath(file)


def _place(file: str) -> Path:
    return _folder() / f"{sha256(_key(file).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"


def _read(path: Path) -> dict[str, Approval]:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return {}
    try:
        raw = os.read(descriptor, _SIZE_LIMIT) if _ours(os.fstat(descriptor)) else b""
    finally:
        os.close(descriptor)
    try:
        data: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return _checked(data)


def _ours(info: os.stat_result) -> bool:
    if not stat.S_ISREG(info.st_mode):
        return False
    return not hasattr(os, "getuid") or (info.st_uid == os.getuid() and not info.st_mode & 0o022)


def _checked(data: object) -> dict[str, Approval]:
    if not isinstance(data, dict):
        return {}
    fields = cast("dict[str, object]", data)
    file, servers = fields.get("file"), fields.get("servers")
    if fields.get("version") != 1 or not isinstance(file, str) or not isinstance(servers, dict):
        return {}
    marks = cast("dict[str, object]", servers)
    known = {name: value for name, value in marks.items() if isinstance(value, str)}
    settings = fields.get("settings")
    return {file: Approval(servers=known, settings=settings if isinstance(settings, str) else None)}
