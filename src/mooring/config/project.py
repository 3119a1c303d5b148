"""A project file that was found: what it says, kept apart until it is known what of it is approved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mooring.config.formats import DEFAULTS
from mooring.core.config import ConfigWarning, ServerConfig, Source, Withheld

if TYPE_CHECKING:
    from mooring.config.approvals import Approval
    from mooring.config.fields import Entry

__all__ = ["WAYS", "ProjectFile"]

WAYS = frozenset(("tls", "proxy"))


class ProjectFile:
    """The content of a project file that was found.

    It may define servers, which do not start before they are approved. Its other settings are in force
    only while they are what was approved, except those that fill in its own entries: these are a part of
    each entry.
    """

    def __init__(self, source: Source, approval: Approval) -> None:
        self.source, self.approval = source, approval
        self.entries: dict[str, Entry] = {}
        self.settings: dict[str, Any] = {}
        """Host-wide settings, as they are written."""
        self.fill: dict[str, Any] = {}
        """Settings for its own servers, where an entry leaves them out."""
        self.doubtful: frozenset[str] = frozenset()
        self.replacing: list[ServerConfig] = []
        """Servers that are not approved and have the name of a server of the user's own."""

    def set(self, name: str, value: object) -> None:
        """Take in one setting."""
        (self.fill if name in WAYS | DEFAULTS else self.settings)[name] = value

    def complete(self, entry: Entry) -> None:
        """Fill in how the servers of this file are reached."""
        if "url" in entry.fields:
            entry.fields.update(
                {name: self.fill[name] for name in WAYS & self.fill.keys() - entry.fields.keys()}
            )

    def approves(self, server: ServerConfig) -> bool:
        """Return whether the entry may start, so that it may replace the user's own."""
        from mooring.core.trust import forbidden, mark

        if forbidden(server):
            return False
        return self.approval.everything or self.approval.servers.get(server.name) == mark(server)

    @property
    def in_force(self) -> bool:
        """Whether its host-wide settings are approved."""
        if not self.settings or self.approval.everything:
            return True
        from mooring.core.scopes import settings_mark

        return self.approval.settings == settings_mark(self.settings)

    def warnings(self) -> list[ConfigWarning]:
        """Return what is not in force, one warning for the settings and one for each server."""
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
        """Return what an approval would add; None when everything is in force."""
        settings = {} if self.in_force else dict(self.settings)
        if not settings and not self.replacing:
            return None
        return Withheld(file=self.source.file or "", settings=settings, servers=tuple(self.replacing))
