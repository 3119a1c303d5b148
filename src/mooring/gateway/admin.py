"""The admin API of a gateway, at `/admin/v1`: for principals with the scope `admin`."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from mooring import __version__
from mooring.config.logs import logger
from mooring.core.events import shown_session
from mooring.core.text import did_you_mean
from mooring.errors import MooringError, UnknownServer
from mooring.gateway.host_admin import (
    Combine,
    HostAdmin,
    all_lines,
    all_principals,
    all_servers,
    all_sessions,
    first,
    last_lines,
    lock_changes,
    unlocked,
)
from mooring.gateway.protocol import fields
from mooring.gateway.tokens import UnknownToken, lifetime
from mooring.gateway.web import Denied, Response, WebRequest, document
from mooring.host import runtime_of
from mooring.transport.message import decode

if TYPE_CHECKING:
    from mooring.gateway.nodes import Cluster
    from mooring.gateway.serve import Service

__all__ = ["AdminApi"]

log = logger("mooring.gateway")

SCOPE = "admin"
PREFIX = "/admin/v1"
MAX_BODY = 65_536
MAX_LINES = 1_000
HEARTBEAT = 15.0

Handler = Callable[["AdminApi", "AdminRequest"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request to one route: the parts of its path, its query and its body."""

    request: WebRequest
    names: Sequence[str]
    body: Mapping[str, Any]
    principal: str

    @property
    def name(self) -> str:
        return self.names[0]

    def limit(self) -> int:
        text = self.request.query.get("limit", "100")
        if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MAX_LINES:
            raise Denied(400, f"'limit' must be a number from 1 to {MAX_LINES}")
        return int(text)

    def text(self, key: str, default: str | None = None) -> str:
        value: object = self.body.get(key, default)
        if not isinstance(value, str):
            raise Denied(400, f"{key!r} must be a text")
        return value

    def texts(self, key: str) -> list[str]:
        value: object = self.body.get(key, [])
        if not isinstance(value, list) or not all(
            isinstance(one, str) for one in cast("list[object]", value)
        ):
            raise Denied(400, f"{key!r} must be a list of texts")
        return cast("list[str]", value)

    def seconds(self, key: str) -> float | None:
        value: object = self.body.get(key)
        try:
            return None if value is None else lifetime(str(value))
        except ValueError as problem:
            raise Denied(400, f"{key!r}: {problem}") from None


class AdminApi:
    """Answers admin requests for one service. Changes are made one after the other."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._gateway = service.gateway
        self._host = service.gateway.host
        self._changes = HostAdmin(self._host)

    async def handle(self, request: WebRequest) -> Response | None:
        """Return the response; None if it was streamed.

        Raises:
            Denied: The token lacks the scope, or the request is wrong.
        """
        path = request.path.removeprefix(PREFIX)
        known = [(route, found) for route in ROUTES if (found := route.pattern.fullmatch(path)) is not None]
        if not known:
            raise Denied(404, f"unknown path; see {PREFIX}/openapi.json")
        route, found = next(((r, f) for r, f in known if r.method == request.method), known[0])
        request.route = PREFIX + route.path
        if route.method != request.method:
            allowed = ", ".join(sorted({one.method for one, _ in known}))
            raise Denied(405, f"this path accepts {allowed}", {"Allow": allowed})
        if route.path == "/openapi.json":
            return document(openapi(self._service.routes.authenticator.url))
        principal = await self._admitted(request)
        body = await self._body(request) if request.method in ("POST", "PUT") else {}
        for key in body:
            if key not in route.body:
                near = did_you_mean(key, route.body)
                hint = "" if near is None else f"; did you mean {near!r}?"
                raise Denied(400, f"{key[:80]!r} is not a known field{hint}")
        names = [unquote(one) for one in found.groups()]
        given = AdminRequest(request, names, body, principal)
        cluster = self._gateway.cluster
        if cluster is None or route.combine is None or request.hop is not None:
            answer = await self._answer(route, given)
        else:
            answer = await self._answer_of_all(cluster, route, route.combine, given)
        if request.method != "GET":
            target = [*names, *(body[key] for key in ("name", "server", "logger") if key in body), ""][0]
            log.info("admin action=%r by=%r target=%r", f"{request.method} {route.path}", principal, target)
        return None if answer is None else document(answer)

    async def _answer(self, route: Route, given: AdminRequest) -> Any:
        try:
            return await route.handler(self, given)
        except (UnknownServer, UnknownToken) as problem:
            raise Denied(404, str(problem)) from None
        except MooringError as problem:
            raise Denied(409, self._host.redact(str(problem))) from None

    async def _answer_of_all(
        self, cluster: Cluster, route: Route, combine: Combine, given: AdminRequest
    ) -> Any:
        """Return one answer of this worker and the others.

        Raises:
            Denied: All of them refuse.
        """
        refused: Denied | None = None
        answers: list[Any] = []
        try:
            answers.append(await self._answer(route, given))
        except Denied as denied:
            refused = denied
        body = json.dumps(given.body).encode() if given.request.method in ("POST", "PUT") else None
        answers += await cluster.admin(given.request, body)
        if refused is not None and not answers:
            raise refused
        return combine(answers, given.limit)

    async def _admitted(self, request: WebRequest) -> str:
        authenticator = self._service.routes.authenticator
        if authenticator.open:
            raise Denied(
                403,
                "the admin API needs a token with the scope 'admin'; "
                "create one with `mooring token create NAME --scope admin`",
            )
        return (await authenticator.principal(request, (SCOPE,))).name

    async def _body(self, request: WebRequest) -> dict[str, Any]:
        data = await request.read(MAX_BODY, self._gateway.settings.body_timeout)
        if not data:
            return {}
        try:
            decoded: object = decode(data)
        except (ValueError, RecursionError):
            decoded = None
        body = fields(decoded)
        if body is not decoded:
            raise Denied(400, "the body must be a JSON object")
        return body

    # --- servers --------------------------------------------------------------------------------

    async def servers(self, _: AdminRequest) -> Any:
        load = runtime_of(self._host).servers.load()
        keys = (
            "name", "state", "transport", "protocol", "tools", "resources", "prompts", "error",
            "connected_at", "breaker", "retry_in", "fresh_within", "announced_within",
            "warnings",
        )  # fmt: skip
        rows = [
            {key: getattr(status, key) for key in keys}
            | {"running": load[status.name].running, "waiting": load[status.name].waiting}
            | {"processes": load[status.name].processes, "connects": load[status.name].connects}
            for status in self._host.status()
        ]
        warnings = [
            {"file": w.file, "server": w.server, "field": w.field, "message": w.message}
            for w in self._host.config.warnings
        ]
        return self._host.redact.within({"servers": rows, "warnings": warnings})

    async def reconnect(self, given: AdminRequest) -> Any:
        return await self._switch(given.name, (True, False))

    async def enable(self, given: AdminRequest) -> Any:
        return await self._switch(given.name, (False,))

    async def disable(self, given: AdminRequest) -> Any:
        return await self._switch(given.name, (True,))

    async def _switch(self, name: str, steps: Sequence[bool]) -> Any:
        """Disable or enable a server until the configuration is next reloaded."""
        return {"name": name, "state": await self._changes.switch(name, steps)}

    # --- clients --------------------------------------------------------------------------------

    async def sessions(self, _: AdminRequest) -> Any:
        now = time.monotonic()
        rows = [
            {
                "id": client.id[:8],
                "principal": client.principal.name,
                "profile": client.profile.name or None,
                "protocol": client.protocol,
                "idle": round(now - client.used, 1),
                "running": len(client.under_way),
                "stream": client.event_stream is not None and not client.event_stream.closed,
            }
            for client in self._gateway.registry
        ]
        return {"sessions": rows}

    async def cluster(self, _: AdminRequest) -> Any:
        cluster = self._gateway.cluster
        return {"nodes": [], "owners": []} if cluster is None else await cluster.status()

    async def end_session(self, given: AdminRequest) -> Any:
        found = [client for client in self._gateway.registry if client.id[:8] == given.name]
        if not found:
            raise Denied(404, "there is no such session")
        if len(found) > 1:
            raise Denied(409, "more than one session has this id; end the token of its principal instead")
        await self._gateway.registry.end(found[0])
        return {"ended": given.name}

    async def principals(self, _: AdminRequest) -> Any:
        rows: dict[str, dict[str, Any]] = {}
        for token in self._service.tokens.tokens():
            state = {"token": token.state(time.time()), "last_used": token.last_used}
            rows[token.principal.name] = {"sessions": 0, **state}
        for fixed in self._gateway.settings.tokens:
            rows.setdefault(f"token:{fixed.name}", {"sessions": 0, "token": "fixed", "last_used": None})
        for client in self._gateway.registry:
            row = rows.setdefault(client.principal.name, {"sessions": 0, "token": None, "last_used": None})
            row["sessions"] += 1
        return {"principals": [{"name": name, **row} for name, row in sorted(rows.items())]}

    # --- tokens ---------------------------------------------------------------------------------

    async def tokens(self, _: AdminRequest) -> Any:
        now = time.time()
        rows = [token.document(now) for token in self._service.tokens.tokens()]
        return {"tokens": sorted(rows, key=lambda row: row["name"])}

    async def create_token(self, given: AdminRequest) -> Any:
        profiles = given.texts("profiles")
        if unknown := [name for name in profiles if name not in self._gateway.settings.profiles]:
            raise Denied(400, f"there is no profile {unknown[0][:80]!r}")
        token, entry = await asyncio.to_thread(
            self._service.tokens.file.create,
            given.text("name"),
            profiles=profiles,
            scopes=given.texts("scopes"),
            lifetime=given.seconds("expires"),
        )
        return {**entry.document(time.time()), "token": token}

    async def rotate_token(self, given: AdminRequest) -> Any:
        token, entry = await asyncio.to_thread(
            self._service.tokens.file.rotate,
            given.name,
            grace=given.seconds("grace") or 0.0,
            lifetime=given.seconds("expires"),
        )
        return {**entry.document(time.time()), "token": token}

    async def revoke_token(self, given: AdminRequest) -> Any:
        entry = await asyncio.to_thread(self._service.tokens.file.revoke, given.name)
        return entry.document(time.time())

    # --- lock -----------------------------------------------------------------------------------

    async def changes(self, _: AdminRequest) -> Any:
        return {"servers": lock_changes(self._host), "unlocked": unlocked(self._host)}

    async def approve(self, given: AdminRequest) -> Any:
        """Approve what the caller saw: the revision must still be the current one."""
        name, tool = given.text("server"), None if "tool" not in given.body else given.text("tool")
        left = await self._changes.approve(name, tool, given.body.get("revision"), given.principal)
        return {"server": name, "tool": tool, "approved": True, "left": left}

    # --- logs and events ------------------------------------------------------------------------

    async def audit(self, given: AdminRequest) -> Any:
        audit = runtime_of(self._host).audit
        if audit is None:
            raise Denied(409, "there is no audit log; set `gateway.audit`")
        return {"lines": await asyncio.to_thread(last_lines, audit.settings.path, given.limit())}

    async def application_log(self, given: AdminRequest) -> Any:
        server = given.request.query.get("server")
        lines = self._service.log.lines
        if server is not None:
            self._changes.server(server)
            lines = [
                one
                for one in lines
                if one["logger"] == "mooring.server" and one["message"].startswith(f"{server}: ")
            ]
        return {"lines": lines[-given.limit() :]}

    async def set_log_level(self, given: AdminRequest) -> Any:
        name, level = given.text("logger", "mooring"), given.text("level")
        self._service.log.set_level(name, level)
        return {"logger": name, "level": level}

    async def events(self, given: AdminRequest) -> Any:
        """Stream the events of the host until the client disconnects."""
        request = given.request
        await request.start_stream(
            {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        )
        events = self._host.events()
        waiting: asyncio.Task[Any] | None = None
        try:
            while not self._gateway.draining:
                waiting = waiting or asyncio.ensure_future(anext(events, None))
                done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT)
                if not done:
                    await request.write(b":\n\n")
                    continue
                event, waiting = waiting.result(), None
                if event is None:
                    break
                said: dict[str, Any] = {"event": type(event).__name__, "time": time.time(), **asdict(event)}
                if isinstance(said.get("session"), str):
                    said["session"] = shown_session(said["session"])
                line = json.dumps(self._host.redact.within(said), default=str)
                await request.write(b"data: " + line.encode() + b"\n\n")
            await request.end_stream()
        except OSError:
            request.abort()
        finally:
            if waiting is not None:
                waiting.cancel()
            events.end()


class Route:
    """One operation, with what the OpenAPI document says about it."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        summary: str,
        *,
        body: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        combine: Combine | None = None,
    ) -> None:
        self.method, self.path, self.handler, self.summary = method, path, handler, summary
        self.combine = combine
        self.body, self.query = body or {}, query or {}
        self.pattern = re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(path)))

    def document(self) -> dict[str, Any]:
        names = re.findall(r"\{(\w+)\}", self.path)
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ] + [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in self.query.items()
        ]
        answer: dict[str, Any] = {"description": "Done.", "content": {"application/json": {}}}
        if self.path == "/events":
            answer = {"description": "Events, one JSON object each.", "content": {"text/event-stream": {}}}
        made: dict[str, Any] = {
            "summary": self.summary,
            "operationId": self.handler.__name__,
            "responses": {
                "200": answer,
                "400": {"description": "The request is wrong; `error` says why."},
                "401": {"description": "No valid token."},
                "403": {"description": "The token lacks the scope `admin`."},
                "404": {"description": "There is no such server, session or token."},
                "409": {"description": "It cannot be done now; `error` says why."},
            },
        }
        if parameters:
            made["parameters"] = parameters
        if self.body:
            lists = ("profiles", "scopes")
            properties = {
                name: {"description": text}
                | ({"type": "array", "items": {"type": "string"}} if name in lists else {"type": "string"})
                for name, text in self.body.items()
            }
            schema: dict[str, Any] = {
                "type": "object",
                "properties": properties,
                "additionalProperties": False,
            }
            if required := [name for name in ("name", "server", "revision", "level") if name in self.body]:
                schema["required"] = required
            made["requestBody"] = {"content": {"application/json": {"schema": schema}}}
        return made


async def _described(api: AdminApi, _: AdminRequest) -> Any:
    return None  # answered before the token is checked


_described.__name__ = "openapi"
_EXPIRES = {"expires": "Lifetime, such as 90d; left out: never, or as before."}
_NEW = {"name": "Name of the token.", "profiles": "Profiles it is for.", "scopes": "Its scopes.", **_EXPIRES}
_APPROVE = {"server": "The server.", "tool": "One tool; left out: all.", "revision": "As listed."}
_LIMIT = {"limit": "Number of lines, at most 1000; default 100."}
ROUTES = (
    Route("GET", "/openapi.json", _described, "This document; needs no token."),
    Route("GET", "/servers", AdminApi.servers, "Servers with their states.", combine=all_servers),
    Route(
        "POST",
        "/servers/{name}/reconnect",
        AdminApi.reconnect,
        "Restart the connection of a server.",
        combine=first,
    ),
    Route(
        "POST",
        "/servers/{name}/enable",
        AdminApi.enable,
        "Enable a server until the next reload.",
        combine=first,
    ),
    Route(
        "POST",
        "/servers/{name}/disable",
        AdminApi.disable,
        "Disable a server until the next reload.",
        combine=first,
    ),
    Route("GET", "/sessions", AdminApi.sessions, "Open sessions of clients.", combine=all_sessions),
    Route("DELETE", "/sessions/{id}", AdminApi.end_session, "End a session.", combine=first),
    Route("GET", "/cluster", AdminApi.cluster, "Nodes and owners of the cluster."),
    Route(
        "GET",
        "/principals",
        AdminApi.principals,
        "Principals with a token or a session.",
        combine=all_principals,
    ),
    Route("GET", "/tokens", AdminApi.tokens, "Tokens, without their secrets."),
    Route("POST", "/tokens", AdminApi.create_token, "Create a token; it is shown once.", body=_NEW),
    Route(
        "POST",
        "/tokens/{name}/rotate",
        AdminApi.rotate_token,
        "Replace the secret of a token; it is shown once.",
        body={"grace": "How long the old secret stays valid, such as 1h.", **_EXPIRES},
    ),
    Route("DELETE", "/tokens/{name}", AdminApi.revoke_token, "Revoke a token and end its sessions."),
    Route("GET", "/lock/changes", AdminApi.changes, "Changes of servers since they were approved."),
    Route(
        "POST",
        "/lock/approve",
        AdminApi.approve,
        "Approve changes that were listed.",
        body=_APPROVE,
        combine=first,
    ),
    Route("GET", "/audit", AdminApi.audit, "Last lines of the audit log.", query=_LIMIT),
    Route(
        "GET",
        "/log",
        AdminApi.application_log,
        "Last lines of the application log.",
        query={**_LIMIT, "server": "Only the standard error of this server."},
        combine=all_lines,
    ),
    Route(
        "PUT",
        "/log",
        AdminApi.set_log_level,
        "Set the level of a logger while the gateway runs.",
        body={
            "logger": "Such as mooring.gateway; default mooring.",
            "level": "debug, info, warning or error.",
        },
        combine=first,
    ),
    Route("GET", "/events", AdminApi.events, "Events of the host, as they happen."),
)


def openapi(url: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = route.document()
    paths["/openapi.json"]["get"]["security"] = []
    return {
        "openapi": "3.1.0",
        "info": {"title": "mooring admin API", "version": __version__},
        "servers": [{"url": url + PREFIX}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
