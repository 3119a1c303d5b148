"""Verbs about servers, tools, search, changes and questions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from mooring.config.models import ServerConfig
from mooring.config.secret_scan import masked
from mooring.console.access import Visitor
from mooring.console.inbox import Inbox
from mooring.console.journal import Journal
from mooring.console.monitor import Monitor
from mooring.console.rows import hints
from mooring.console.web import Verb, VerbRefused
from mooring.core.apps import page_address
from mooring.core.callers import CallContext
from mooring.core.discovery import DISCOVERY, answer
from mooring.core.text import clean, estimate, line, tool_cost
from mooring.core.types import Tool
from mooring.errors import UnknownTool
from mooring.gateway.host_admin import HostAdmin
from mooring.gateway.web import Denied
from mooring.host import Host, runtime_of

__all__ = ["Body", "HostVerbs"]

LONGEST = 20_000
"""Characters of a text of a server that is shown on demand."""
MOST_HITS = 50
PING_TIMEOUT = 5.0


class Body:
    """The body of a request: each method returns a key of the right kind.

    Raises:
        VerbRefused: The key is missing or of another kind.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def text(self, key: str, default: str | None = None, *, limit: int = 10_000) -> str:
        value = self.given.get(key, default)
        if not isinstance(value, str) or len(value) > limit:
            raise VerbRefused(
                400, f"{key!r} must be a text of at most {limit:,} characters", kind="BadRequest"
            )
        return value

    def maybe(self, key: str) -> str | None:
        return None if self.given.get(key) is None else self.text(key)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.given.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise VerbRefused(400, f"{key!r} must be an object", kind="BadRequest")
        return cast("dict[str, Any]", value)

    def items(self, key: str, *, most: int) -> list[Any]:
        value = self.given.get(key, [])
        if not isinstance(value, list) or len(cast("list[Any]", value)) > most:
            raise VerbRefused(400, f"{key!r} must be a list of at most {most:,} entries", kind="BadRequest")
        return cast("list[Any]", value)

    def texts(self, key: str, *, most: int = 1_000) -> list[str]:
        found = self.items(key, most=most)
        if not all(isinstance(one, str) for one in found):
            raise VerbRefused(400, f"{key!r} must be a list of texts", kind="BadRequest")
        return found

    def flag(self, key: str) -> bool:
        value = self.given.get(key, False)
        if not isinstance(value, bool):
            raise VerbRefused(400, f"{key!r} must be true or false", kind="BadRequest")
        return value

    def number(self, key: str, default: float | None, *, least: float, most: float) -> float | None:
        value = self.given.get(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise VerbRefused(400, f"{key!r} must be a number from {least:g} to {most:g}", kind="BadRequest")
        return value


class HostVerbs:
    """What a page can do with the servers and tools of a host."""

    def __init__(self, host: Host, journal: Journal, monitor: Monitor, inbox: Inbox) -> None:
        self._host, self._journal, self._monitor, self._inbox = host, journal, monitor, inbox
        self._admin = HostAdmin(host)
        self.profiles: Any = lambda: ()
        """Returns the profiles of the gateway."""

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs by name."""
        return {
            "server": self.server,
            "reconnect": self.reconnect,
            "refresh": self.refresh,
            "ping": self.ping,
            "login": self.login,
            "login-complete": self.login_complete,
            "logout": self.logout,
            "tool": self.tool,
            "search": self.search,
            "approve": self.approve,
            "approve-all": self.approve_all,
            "answer": self.answer,
        }

    # --- servers --------------------------------------------------------------------------------

    async def server(self, given: Mapping[str, Any], _: Visitor) -> Any:
        config = self._admin.server(Body(given).text("server"))
        host, name = self._host, config.name
        status = next(one for one in host.status() if one.name == name)
        snapshot = runtime_of(host).builder.snapshot(name)
        info = None if snapshot is None else snapshot.info
        hidden = [one for one in host.hidden() if one.server == name]
        fields = {
            "name": name,
            "config": masked(_entry(config)),
            "info": None
            if info is None
            else {
                "name": _cut(info.name),
                "title": _cut(info.title),
                "version": _cut(info.version),
                "description": _cut(info.description),
                "capabilities": json.loads(json.dumps(dict(info.capabilities), default=str)),
            },
            "instructions": None if snapshot is None else _cut(snapshot.instructions),
            "stderr": list(self._monitor.stderr.get(name, ())),
            "warnings": [_cut(one) for one in status.warnings],
            "hidden": [
                {"kind": one.kind, "name": _cut(one.name), "by": one.by, "reason": _cut(one.reason)}
                for one in hidden[:1_000]
            ],
            "extensions": list(status.extensions),
            "reason": _cut(status.error),
        }
        return host.redact.within(fields)

    async def reconnect(self, given: Mapping[str, Any], _: Visitor) -> Any:
        name = Body(given).text("server")
        config = self._admin.server(name)
        if config.disabled:
            raise VerbRefused(
                409, f"Server {name!r} is disabled. Enable it first.", command=f"mooring enable {name}"
            )
        if (problem := self._host.held.get(name)) is not None:
            raise problem
        return {"server": name, "state": await self._admin.switch(name, (True, False))}

    async def refresh(self, given: Mapping[str, Any], _: Visitor) -> Any:
        name = Body(given).maybe("server")
        reports = await self._host.refresh(*([] if name is None else [name]))
        rows = {
            server: {"ok": one.ok, "tools": one.tools, "error": _cut(one.error)}
            for server, one in reports.items()
        }
        return {"servers": self._host.redact.within(rows)}

    async def ping(self, given: Mapping[str, Any], _: Visitor) -> Any:
        name = Body(given).text("server")
        took = await self._host.ping(name, PING_TIMEOUT)
        return {"server": name, "ms": round(took * 1000, 1)}

    async def login(self, given: Mapping[str, Any], _: Visitor) -> Any:
        name = Body(given).text("server")
        login = await self._host.login(name)
        item = self._inbox.start_following(login)
        return {"server": name, "url": login.url, "host": login.host, "item": item}

    async def login_complete(self, given: Mapping[str, Any], _: Visitor) -> Any:
        body = Body(given)
        await self._inbox.complete(body.text("item"), body.text("url"))
        return {"done": True}

    async def logout(self, given: Mapping[str, Any], _: Visitor) -> Any:
        name = Body(given).text("server")
        return {"server": name, "revoked": await self._host.logout(name)}

    # --- tools ----------------------------------------------------------------------------------

    async def tool(self, given: Mapping[str, Any], _: Visitor) -> Any:
        from mooring.scripts.stubs import stub_of

        key = Body(given).text("tool")
        row = self._journal.row("tools", key)
        tool = self._find(key, row)
        runtime = runtime_of(self._host)
        decision = runtime.policy.decision(tool, {}, CallContext())
        schema = None if tool.output_schema is None else dict(tool.output_schema)
        icons = tool.extra.get("icons")
        fields: dict[str, Any] = {
            "name": None if row is not None and row["name"] is None else tool.name,
            "server": tool.server,
            "remote_name": tool.remote_name,
            "title": tool.title,
            "description": _cut(tool.description),
            "signature": _cut(stub_of(_identifier(tool.name), tool).text),
            "input_schema": dict(tool.input_schema),
            "output_schema": schema,
            "annotations": dict(tool.annotations),
            "hints": hints(tool.annotations),
            "meta": dict(tool.meta),
            "icons": icons if isinstance(icons, list) else [],
            "tokens": tool_cost(tool),
            "pinned": runtime.builder.pins.is_pinned(tool),
            "policy": "allow" if runtime.policy.allows(tool) else decision.verdict,
            "policy_reason": decision.reason,
            "shown": None if row is None else row["shown"],
            "hidden": None if row is None else row["hidden"],
            "profiles": [one.name for one in self.profiles() if tool.name in one.catalog.tools],
            "app": page_address(tool) is not None,
            "command": f"mooring call {tool.name}",
        }
        return self._host.redact.within(fields)

    def _find(self, key: str, row: Mapping[str, Any] | None) -> Tool:
        catalog = self._host.catalog
        found = catalog.tools.get(key) or catalog.app_tools.get(key)
        if found is None and row is not None:
            snapshot = runtime_of(self._host).builder.snapshot(row["server"])
            connection = runtime_of(self._host).servers.connections.get(row["server"])
            for known in (connection and connection.snapshot, snapshot):
                for tool in known.tools if known else ():
                    if line(self._host.redact(tool.remote_name), 300) == row["remote"]:
                        return tool
        if found is None:
            raise UnknownTool(line(key, 80), (), hint="The list may have changed.")
        return found

    async def search(self, given: Mapping[str, Any], _: Visitor) -> Any:
        body = Body(given)
        query = body.text("query", limit=1_000)
        limit = int(body.number("limit", 10, least=1, most=MOST_HITS) or 10)
        host, runtime = self._host, runtime_of(self._host)
        await runtime.builder.build_index()
        hits = host.search(query, limit)
        asked = {"query": query, "limit": limit}
        reply = answer("tools_search", asked, host.catalog, runtime.index, ranker=runtime.ranker)
        visible = runtime.exposure("always").names
        first = [*DISCOVERY, *(host.catalog.tools[name] for name in visible)]
        totals = self._journal.values.get("totals", {})
        tokens = {
            "all": totals.get("tokens", 0),
            "first": sum(map(tool_cost, first)),
            "answer": estimate(reply.text),
        }
        rows = [
            {
                "name": hit.name,
                "server": hit.tool.server,
                "score": round(hit.score, 3),
                "why": list(hit.why),
                "description": line(hit.tool.description, 300),
                "tokens": tool_cost(hit.tool),
            }
            for hit in hits
        ]
        return host.redact.within({"hits": rows, "answer": reply.structured, "tokens": tokens})

    # --- changes and questions --------------------------------------------------------------------

    async def approve(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        body = Body(given)
        name, tool = body.text("server"), body.maybe("tool")
        left = await self._approved(name, tool, given.get("revision"), visitor)
        return {"server": name, "tool": tool, "approved": True, "left": left}

    async def approve_all(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        done: list[str] = []
        refused: list[dict[str, str]] = []
        for one in Body(given).items("servers", most=1_000):
            body = Body(cast("Mapping[str, Any]", one) if isinstance(one, Mapping) else {})
            name = body.text("server")
            try:
                await self._approved(name, None, body.given.get("revision"), visitor)
                done.append(name)
            except VerbRefused as problem:
                refused.append({"server": name, "message": str(problem)})
        return {"approved": done, "refused": refused}

    async def _approved(self, name: str, tool: str | None, revision: object, visitor: Visitor) -> int:
        try:
            left = await self._admin.approve(name, tool, revision, visitor.principal)
        except Denied as problem:
            raise VerbRefused(problem.status, str(problem)) from None
        self._monitor.set_changes()
        return left

    async def answer(self, given: Mapping[str, Any], _: Visitor) -> Any:
        body = Body(given)
        key, action = body.text("id"), body.text("action")
        await self._inbox.answer(key, action, body.mapping("content") if "content" in given else None)
        return {"id": key, "action": action}


def _entry(config: ServerConfig) -> dict[str, Any]:
    """Return the fields of a server that are not the default, as JSON."""
    defaults = ServerConfig.field_defaults()
    names = sorted(ServerConfig.field_names() - {"name", "source"})
    found = {name: getattr(config, name) for name in names}
    given = {name: value for name, value in found.items() if value != defaults.get(name)}
    return json.loads(json.dumps(given, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return (
        {name: getattr(value, name) for name in value.field_names()}
        if hasattr(value, "field_names")
        else str(value)
    )


def _cut(text: str | None) -> str | None:
    return None if text is None else clean(text)[:LONGEST]


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)
