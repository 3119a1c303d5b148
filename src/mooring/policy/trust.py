"""Decide whether a server of a project file may be started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mooring.config.models import HostConfig, ServerConfig
from mooring.core.types import EMPTY
from mooring.errors import NotTrusted
from mooring.policy.approvals import ANSWER_TIMEOUT, approved_by

if TYPE_CHECKING:
    from mooring.config.trust import Approval, TrustRequest

Ask = Callable[["TrustRequest"], "bool | Awaitable[bool]"]
"""Called once for each file and content. The answer is used by this host only and is not stored."""


class Trust:
    """The approvals of one host. Only project files that were found automatically need one."""

    def __init__(self, answer: bool | Ask | None) -> None:
        self._answer = answer
        self._answers: dict[tuple[str, str], bool] = {}
        """Answers of this run, by file, server name and mark. The settings of a file have an empty name."""

    def approval(self, file: str) -> Approval:
        """Return which parts of a project file are approved, on this machine or in this run."""
        from mooring.config.trust import Approval, approval_of

        if self._answer is True:
            return Approval(everything=True)
        known = approval_of(file)
        marks = {key: mark for (key, mark), yes in self._answers.items() if yes}
        servers = {key.partition("\0")[2]: mark for key, mark in marks.items() if key.startswith(f"{file}\0")}
        settings = servers.pop("", known.settings)
        return Approval(servers={**known.servers, **servers}, settings=settings)

    async def approved_more(self, config: HostConfig) -> bool:
        """Ask the application to approve the settings and servers of a project file.

        Returns:
            Whether something was approved: then the configuration must be read again with `approval`.
        """
        withheld = config.withheld
        if withheld is None or not callable(self._answer):
            return False
        from mooring.config.trust import forbidden

        found = [one for one in config.active if one.scope == "project" and one.file == withheld.file]
        servers = [server for server in (*found, *withheld.servers) if not forbidden(server)]
        before = dict(self._answers)
        await self._unapproved(withheld.file, servers, withheld.settings)
        return any(yes and not before.get(key) for key, yes in self._answers.items())

    async def held(self, servers: Iterable[ServerConfig]) -> dict[str, NotTrusted]:
        """Return the servers that must not be started, with the error for each."""
        found = [server for server in servers if server.scope == "project"]
        if not found:
            return {}
        from mooring.config.trust import forbidden

        held = {server.name: _forbidden(server, names) for server in found if (names := forbidden(server))}
        by_file: dict[str, list[ServerConfig]] = {}
        for server in found:
            if server.name not in held:
                by_file.setdefault(server.file or "", []).append(server)
        for file, own in by_file.items():
            held |= await self._unapproved(file, own)
        return held

    async def _unapproved(
        self, file: str, servers: list[ServerConfig], settings: Mapping[str, Any] = EMPTY
    ) -> dict[str, NotTrusted]:
        if self._answer is True:
            return {}
        from mooring.config.trust import TrustRequest, approved, mark, settings_mark

        known = approved(file)
        open_ones = [server for server in servers if known.get(server.name) != mark(server)]
        changed = tuple(server.name for server in open_ones if server.name in known)
        new = tuple(server for server in open_ones if _key(server) not in self._answers)
        asked = (f"{file}\0", settings_mark(settings))
        fresh = settings if settings and asked not in self._answers else EMPTY
        if (new or fresh) and callable(self._answer):
            request = TrustRequest(file=file, servers=new, changed=changed, settings=fresh)
            yes = await approved_by(self._answer, request, ANSWER_TIMEOUT)
            self._answers |= {_key(server): yes for server in new}
            if fresh:
                self._answers[asked] = yes
        refused = [server for server in open_ones if not self._answers.get(_key(server))]
        return {server.name: _unapproved(server, changed=server.name in changed) for server in refused}


def _key(server: ServerConfig) -> tuple[str, str]:
    from mooring.config.trust import mark

    return f"{server.file}\0{server.name}", mark(server)


def _unapproved(server: ServerConfig, *, changed: bool) -> NotTrusted:
    why = "has changed since it was approved" if changed else "was found here and is not approved"
    return NotTrusted(
        f"{server.name!r} is not started: its entry in {server.file} {why} on this machine; "
        "read what it would run and approve it with `mooring trust`",
        server=server.name,
        file=server.file,
    )


def _forbidden(server: ServerConfig, names: tuple[str, ...]) -> NotTrusted:
    listed = ", ".join(map(repr, names))
    return NotTrusted(
        f"{server.name!r} is not started: {server.file} sets {listed}, which can make a program run other "
        "code, and project files found automatically may not do that; move the entry into your own "
        "configuration, or name the file with `--config`",
        server=server.name,
        file=server.file,
    )
