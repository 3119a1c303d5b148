"""Approvals of project files on this machine, and the effects of unapproved ones."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.config.files import replace_file, state_home
from mooring.config.formats import DEFAULTS
from mooring.config.models import ConfigSource, ConfigWarning, ServerConfig, Withheld
from mooring.core.types import EMPTY
from mooring.core.value import Value
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.config.formats import Entry


_SIZE_LIMIT = 2**20


class Approval(Value):
    """The approved parts of one project file."""

    servers: Mapping[str, str] = EMPTY
    """Hash of each approved server, by name."""
    settings: str | None = None
    """Hash of its host-wide settings."""
    everything: bool = False
    """Whether all of it is approved for this run."""

    def __bool__(self) -> bool:
        return self.everything or bool(self.servers) or self.settings is not None


def approved(file: str) -> Mapping[str, str]:
    """Return the hashes of the approved servers in `file`, by name."""
    return approval_of(file).servers


def approval_of(file: str) -> Approval:
    """Return the approved parts of `file` on this machine."""
    return _read(_place(file)).get(_key(file), Approval())


def approve(file: str, marks: Mapping[str, str], *, settings: str | None = None) -> None:
    """Approve the servers and host-wide settings of `file` with exactly these hashes.

    Raises:
        ConfigError: the approval cannot be saved.
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
    """Remove the approval of `file`. Return whether there was one."""
    path = _place(file)
    there = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return there


def approved_files() -> tuple[str, ...]:
    """Return every approved file, in order."""
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
    return sys.platform == "win32" or (info.st_uid == os.getuid() and not info.st_mode & 0o022)


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


WAYS = frozenset(("tls", "proxy"))


class ProjectFile:
    """The content of a project file found automatically.

    Its servers do not start before they are approved. Its host-wide settings apply only while they are
    approved, except defaults for its own servers, which are part of each entry.
    """

    def __init__(self, source: ConfigSource, approval: Approval) -> None:
        self.source, self.approval = source, approval
        self.entries: dict[str, Entry] = {}
        self.settings: dict[str, Any] = {}
        """Host-wide settings, as they are written."""
        self.fill: dict[str, Any] = {}
        """Defaults for its own servers."""
        self.doubtful: frozenset[str] = frozenset()
        self.replacing: list[ServerConfig] = []
        """Unapproved servers with the name of a server of the user."""

    def set(self, name: str, value: object) -> None:
        """Add one setting."""
        (self.fill if name in WAYS | DEFAULTS else self.settings)[name] = value

    def complete(self, entry: Entry) -> None:
        """Apply the defaults to the servers of this file."""
        if "url" in entry.fields:
            entry.fields.update(
                {name: self.fill[name] for name in WAYS & self.fill.keys() - entry.fields.keys()}
            )

    def approves(self, server: ServerConfig) -> bool:
        """Whether the entry is approved and may replace one of the user."""
        from mooring.config.trust import forbidden, mark

        if forbidden(server):
            return False
        return self.approval.everything or self.approval.servers.get(server.name) == mark(server)

    @property
    def in_force(self) -> bool:
        """Whether its host-wide settings are approved."""
        if not self.settings or self.approval.everything:
            return True
        from mooring.config.trust import settings_mark

        return self.approval.settings == settings_mark(self.settings)

    def warnings(self) -> list[ConfigWarning]:
        """Return warnings for settings and servers that do not apply."""
        file, found = self.source.file, list[ConfigWarning]()
        if not self.in_force:
            names = sorted([*self.settings, *(() if self.approval else self.fill)])
            why = "changed after their approval" if self.approval.settings else "are not approved"
            message = (
                f"host-wide settings are ignored ({', '.join(map(repr, names))}): they {why} on this "
                "machine; read them and approve them with `mooring trust`"
            )
            found.append(ConfigWarning(file=file, message=message))
        for server in self.replacing:
            message = (
                "does not replace your own server of that name: it is not approved on this machine; "
                "read what it would run and approve it with `mooring trust`"
            )
            found.append(ConfigWarning(file=file, server=server.name, message=message))
        return found

    def withheld(self) -> Withheld | None:
        """Return what needs approval, or None."""
        settings = {} if self.in_force else dict(self.settings)
        if not settings and not self.replacing:
            return None
        return Withheld(file=self.source.file or "", settings=settings, servers=tuple(self.replacing))
