"""Who may be started: servers of files that were merely found wait for somebody's approval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from mooring.core.config import ServerConfig
from mooring.errors import NotTrusted

if TYPE_CHECKING:
    from mooring.core.trust import TrustRequest

__all__ = ["Ask", "Trust"]

PATIENCE = 300.0
"""Seconds that a person has to answer."""

Ask = Callable[["TrustRequest"], "bool | Awaitable[bool]"]
"""Asked once for each file and form; a yes holds for this host and is not written down."""


class Trust:
    """What one host believes. Only files that were merely found need somebody's yes."""

    def __init__(self, answer: bool | Ask | None) -> None:
        self._answer = answer
        self._said: dict[tuple[str, str], bool] = {}
        """Answers of this run, by name and mark."""

    async def held(self, servers: Iterable[ServerConfig]) -> dict[str, NotTrusted]:
        """Which of these servers must not be started, and why."""
        found = [server for server in servers if server.scope == "project"]
        if not found:
            return {}
        from mooring.core.trust import forbidden  # most hosts were told which files to read

        held = {server.name: _forbidden(server, names) for server in found if (names := forbidden(server))}
        by_file: dict[str, list[ServerConfig]] = {}
        for server in found:
            if server.name not in held:
                by_file.setdefault(server.file or "", []).append(server)
        for file, own in by_file.items():
            held |= await self._unapproved(file, own)
        return held

    async def _unapproved(self, file: str, servers: list[ServerConfig]) -> dict[str, NotTrusted]:
        if self._answer is True:
            return {}
        from mooring.config.approvals import approved
        from mooring.core.trust import TrustRequest, mark

        known = approved(file)
        open_ones = [server for server in servers if known.get(server.name) != mark(server)]
        changed = tuple(server.name for server in open_ones if server.name in known)
        new = tuple(server for server in open_ones if _key(server) not in self._said)
        if new and callable(self._answer):
            from mooring.asking import said_yes

            yes = await said_yes(
                self._answer, TrustRequest(file=file, servers=new, changed=changed), PATIENCE
            )
            self._said |= {_key(server): yes for server in new}
        refused = [server for server in open_ones if not self._said.get(_key(server))]
        return {server.name: _unapproved(server, changed=server.name in changed) for server in refused}


def _key(server: ServerConfig) -> tuple[str, str]:
    from mooring.core.trust import mark

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
        "code, and a file that was merely found may not do that; move the entry into your own "
        "configuration, or name the file with `--config`",
        server=server.name,
        file=server.file,
    )
