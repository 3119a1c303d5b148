"""Handlers for the requests of clients, shared by all transports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import ref

from mooring.core.builtin_tools import SCRIPT_RUN, is_login
from mooring.core.elicitation import URL_REQUIRED, addresses_in
from mooring.core.extensions import qualified
from mooring.core.text import clean_for_model
from mooring.core.types import Result, Tool
from mooring.errors import AuthNeeded, MooringError, PolicyDenied, ServerError
from mooring.extensions.verbs import call_for_page
from mooring.gateway.auth import check_parameters
from mooring.gateway.clients import Client, ClientExchange
from mooring.gateway.era_bridge import EraBridge, SuspendedCall
from mooring.gateway.extensions import (
    advertised,
    check_contents,
    check_skill_address,
    owner_of_method,
    page_tool,
    server_cursor,
    server_of_skill,
    shown_contents,
    shown_directory,
    shown_result,
    shows_pages,
    skill_entry,
    skills_page,
)
from mooring.gateway.lists import HINTS, Lists, tools_page
from mooring.gateway.logins import RemoteLogins, login_state
from mooring.gateway.profiles import resource_server
from mooring.gateway.protocol import (
    CAPABILITIES,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL,
    METHOD_NOT_FOUND,
    MODERN_VERSIONS,
    SERVER_INFO,
    Refusal,
    fields,
    forwarded_meta,
    no_resource,
    notice_body,
    outcome,
    refusal,
    shaped,
    stamped,
    text,
)
from mooring.gateway.subscriptions import LogLevels
from mooring.local import Progress
from mooring.servers.active import LEVELS, header_map
from mooring.servers.waiting import one_wait
from mooring.transport.forwarding import ForwardedRequest

MAX_INSTRUCTIONS = 8_000
PROGRESS = "notifications/progress"


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request of a client, with its channel for messages before the response."""

    client: Client
    method: str
    params: dict[str, Any]
    exchange: ClientExchange

    @property
    def meta(self) -> dict[str, Any]:
        return fields(self.params.get("_meta"))


def progress(request: ClientRequest) -> Progress:
    """Return a callback for the progress of a task, which the gateway polls. See `forward_notification` for
    other progress."""

    async def forward(progress: float, total: float | None, message: str | None) -> None:
        params = {"progress": progress, "total": total, "message": message}
        forward_notification(
            request, PROGRESS, {key: value for key, value in params.items() if value is not None}
        )

    return forward


def forward_notification(
    request: ClientRequest, method: str, params: Mapping[str, Any], server: str = ""
) -> None:
    """Forward a notification of the server that belongs to this request: progress under the client's own
    token, log messages only at the level that the client asked for."""
    if method == "notifications/resources/updated" and isinstance(params.get("uri"), str):
        params = {**params, "uri": qualified(params["uri"], server)}
    if method == PROGRESS:
        token = request.meta.get("progressToken")
        if isinstance(token, int | str):
            request.exchange.send(notice_body(method, {**params, "progressToken": token}))
    elif method != "notifications/message" or request.client.wants_log(
        params.get("level"), request.meta.get(LOG_LEVEL)
    ):
        request.exchange.send(notice_body(method, params))


async def ask_client(request: ClientRequest, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return await request.client.ask(method, params, request.exchange)


def instructions(client: Client) -> dict[str, str]:
    """Return the instructions of all servers as one text, each under the server's name."""
    parts = [
        f"# {group.id.removeprefix('mcp:')}\n{group.instructions}"
        for group in client.profile.catalog.groups
        if group.instructions
    ]
    joined = "\n\n".join(parts)
    return {"instructions": joined[:MAX_INSTRUCTIONS]} if joined else {}


Answer = Mapping[str, Any] | bytes

ALL_CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
"""All capabilities: servers may connect later, but the handshake cannot be repeated."""
_LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
METHODS = frozenset(
    (
        *_LISTS,
        *("tools/call", "resources/read", "prompts/get", "completion/complete", "initialize", "ping"),
        *("logging/setLevel", "resources/subscribe", "resources/unsubscribe", "server/discover"),
    )
)
"""All methods that are handled; others are `unknown` in metrics and the access log."""
_HANDLED_PARAMS = frozenset(
    ("name", "arguments", "uri", "ref", "argument", "context", "cursor", "_meta", "task")
)
_MAX_HEADER_MAPS = 10_000


def _without_answers(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key not in ("requestState", "inputResponses")}


Handler = Callable[[ClientRequest], Awaitable[Answer]]
Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class RequestHandlers:
    """Answers requests. Holds no state of clients."""

    def __init__(self, era_bridge: EraBridge, log_levels: LogLevels, logins: RemoteLogins) -> None:
        self._era_bridge, self._log_levels, self._logins = era_bridge, log_levels, logins
        shared: dict[str, Handler] = {
            **dict.fromkeys(_LISTS, self._list),
            "tools/call": self._call,
            "resources/read": self._read,
            "prompts/get": self._prompt,
            "completion/complete": self._complete,
            "skills/list": self._skills,
            "skills/get": self._skill,
            "resources/directory/read": self._directory,
        }
        self._legacy: dict[str, Handler] = {
            **shared,
            "initialize": self._initialize,
            "ping": self._ping,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        self._modern: dict[str, Handler] = {**shared, "server/discover": self._discover}
        self._lists: dict[str, Lists] = {}
        self._maps: dict[str, tuple[Lists, Mapping[tuple[str, ...], str]]] = {}

    async def answer(self, client: Client, message: Mapping[str, Any], exchange: ClientExchange) -> Answer:
        """Return the result of one request.

        Raises:
            Refusal: The response is an error.
        """
        method = message["method"]
        params: object = message.get("params", {})
        known = self._modern if client.era == "modern" else self._legacy
        handler = known.get(method, self._extension)
        given = fields(params)
        if given is not params:
            raise Refusal(INVALID_PARAMS, "params must be an object")
        return await handler(ClientRequest(client, method, given, exchange))

    # --- handshake ------------------------------------------------------------------------------

    async def _initialize(self, request: ClientRequest) -> Answer:
        capabilities = {**ALL_CAPABILITIES, "extensions": advertised(request.client.profile)}
        basics = {"protocolVersion": request.client.protocol, "capabilities": capabilities}
        return {**basics, "serverInfo": SERVER_INFO, **instructions(request.client)}

    async def _discover(self, request: ClientRequest) -> Answer:
        capabilities = {**ALL_CAPABILITIES, "extensions": advertised(request.client.profile)}
        about = {"supportedVersions": list(MODERN_VERSIONS), "capabilities": capabilities}
        return stamped({**about, **instructions(request.client)}, **HINTS)

    async def _ping(self, request: ClientRequest) -> Answer:
        return {}

    async def _set_level(self, request: ClientRequest) -> Answer:
        level = request.params.get("level")
        if level not in LEVELS:
            raise Refusal(INVALID_PARAMS, f"'level' must be one of {', '.join(LEVELS)}")
        request.client.log_level = level
        await self._log_levels.changed(request.client)
        return {}

    # --- lists ----------------------------------------------------------------------------------

    async def _list(self, request: ClientRequest) -> Answer:
        if request.params.get("cursor") is not None:
            raise Refusal(INVALID_PARAMS, "invalid cursor: the list has one page only")
        client, lists = request.client, self._profile_lists(request.client)
        client.listed[request.method] = ref(lists.contents)
        profile, pages = client.profile, shows_pages(client)
        searching = profile.settings.discovery != "never" or profile.scripts.enabled
        if request.method == "tools/list" and searching:
            chosen = client.session.tools()
            if pages:
                chosen += profile.shown_to(client.session, lists.reserved(chosen))
            page = tools_page(lists.shown(chosen, pages), client.era)
            if (record := request.exchange.record) is not None:
                record.saved = max(len(lists.page(request.method, client.era, pages=pages)) - len(page), 0)
            return page
        if request.method == "tools/list" and profile.by_caller:
            listed = profile.shown_to(client.session, tuple(lists.tools(pages)))
            return tools_page(lists.shown(listed, pages), client.era)
        return lists.page(request.method, client.era, pages=pages)

    def _profile_lists(self, client: Client) -> Lists:
        """Return the lists of the client's profile."""
        contents, name = client.profile.contents, client.profile.name
        known = self._lists.get(name)
        if known is None or known.contents is not contents:
            known = self._lists[name] = Lists(contents)
        return known

    # --- calls ----------------------------------------------------------------------------------

    async def _call(self, request: ClientRequest) -> Answer:
        with one_wait():
            return await self._route(request)

    async def _route(self, request: ClientRequest) -> Answer:
        client, name = request.client, text(request.params, "name")
        arguments: object = request.params.get("arguments", {})
        given = fields(arguments)
        if given is not arguments and arguments is not None:
            raise Refusal(INVALID_PARAMS, "'arguments' must be an object")
        if client.era == "modern" and request.exchange.headers:
            check_parameters(request.exchange.headers, self._header_map(client, name), given)
        tool = await self._tool(client, name)
        if tool is None and name == SCRIPT_RUN.name and self._era_bridge.must_suspend_scripts(client):
            return await self._suspendable_call(request, SCRIPT_RUN, name, given)
        if tool is not None and login_state(params := request.params):
            key = self._era_bridge.login_key(client, tool.server, name, params["requestState"])
            if key is not None:
                ended = await self._logins.answered(client, key, params["inputResponses"])
                if ended is not None:
                    return ended
                request = replace(request, params=_without_answers(params))
        if tool is not None and is_login(tool) and self._logins.serves(client, tool.server):
            return await self._log_in(request, tool.server, name)
        if tool is not None and await self._era_bridge.must_suspend(client, tool):
            return await self._suspendable_call(request, tool, name, given)
        return await self._plain_call(request, tool, name, given)

    async def _tool(self, client: Client, name: str) -> Tool | None:
        """Return the tool of a call. Waits for its server if that is starting: how the call is made, and for
        which server its state is sealed, depends on it."""
        profile = client.profile
        if name not in profile.catalog.tools:
            absent = profile.absence(name)
            if absent is not None and absent.state == "pending":
                await profile.arrival(name, profile.settings.call_timeout)
        tool = profile.catalog.tools.get(name)
        return page_tool(profile.catalog, name) if tool is None and shows_pages(client) else tool

    async def _plain_call(
        self,
        request: ClientRequest,
        tool: Tool | None,
        name: str,
        given: dict[str, Any],
        asked: Ask | None = None,
    ) -> dict[str, Any]:
        client, server = request.client, "" if tool is None else tool.server
        if server and server != SCRIPT_RUN.server:
            await self._log_levels.apply(client, server, request.meta.get(LOG_LEVEL))
        result = await self._session_call(request, tool, name, given, asked)
        if isinstance(result.error, AuthNeeded) and self._logins.helps(client, result.error):
            seal = partial(self._era_bridge.login_state, client, server, name)
            offered = await self._logins.offer(client, request.exchange, result.error.server, seal)
            if offered is not None:
                return offered
            result = await self._session_call(request, tool, name, given, asked)
        if isinstance(result.error, ServerError) and (text := self._addresses(client, result.error)):
            return self._logins.text_result(client, text, failed=True)
        if name == "tools_select" and not result.is_error:
            request.exchange.send(notice_body("notifications/tools/list_changed"))
        shown = shown_result(outcome(result, client.era), server)
        return self._era_bridge.outgoing(client, server, name, shown)

    async def _session_call(
        self,
        request: ClientRequest,
        tool: Tool | None,
        name: str,
        given: dict[str, Any],
        asked: Ask | None,
    ) -> Result:
        client, server = request.client, "" if tool is None else tool.server
        timeout = client.profile.settings.call_timeout
        with self._forwarding(request, server, name, asked):
            if tool is not None and tool is not SCRIPT_RUN and name not in client.profile.catalog.tools:
                result = await call_for_page(client.session, tool, given, timeout, progress(request))
            else:
                # The client decides how much its model sees.
                result = await client.session.call(
                    name, given, timeout=timeout, on_progress=progress(request), budget=0
                )
        if (record := request.exchange.record) is not None:
            record.result(result)
        return result

    async def _log_in(self, request: ClientRequest, server: str, name: str) -> Answer:
        """Answer a call of the tool `authenticate`: the login in the browser of the client's user."""
        client = request.client
        provider: Any = client.profile.provider(server, client.session)
        try:
            await getattr(provider, "connection", provider).supervisor.refresh()
        except MooringError as problem:
            if not isinstance(problem, AuthNeeded) or not self._logins.helps(client, problem):
                return self._logins.text_result(client, str(problem), failed=True)
            seal = partial(self._era_bridge.login_state, client, server, name)
            offered = await self._logins.offer(client, request.exchange, server, seal)
            if offered is not None:
                return offered
        return self._logins.text_result(
            client, f"Logged in to {server!r}. Its tools can be used now.", failed=False
        )

    def _addresses(self, client: Client, problem: ServerError) -> str | None:
        """Return as text the URLs that the user must open, for clients that cannot open URLs."""
        if problem.code != URL_REQUIRED or client.can("elicitation/create", {"mode": "url"}):
            return None
        asked = addresses_in(problem.data) or {}
        lines = [f"{one['params']['message']}: {one['params']['url']}" for one in asked.values()]
        if not lines:
            return None
        text = clean_for_model("\n".join(lines), MAX_INSTRUCTIONS)
        return f"The server asks the user to open a URL first. Then call the tool again.\n{text}"

    async def _suspendable_call(
        self, request: ClientRequest, tool: Tool, name: str, given: dict[str, Any]
    ) -> dict[str, Any]:
        """Run a call that is suspended while the client answers a request of the server."""
        client, params, era_bridge, server = request.client, request.params, self._era_bridge, tool.server

        async def work(suspended: SuspendedCall) -> dict[str, Any]:
            async def ask(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
                if not client.can(method, params):
                    raise Refusal(METHOD_NOT_FOUND, f"the client behind the gateway does not do {method!r}")
                return await suspended.ask(method, params)

            return await self._plain_call(request, tool, name, given, ask)

        seal = partial(era_bridge.suspended_state, client, server, name)
        if "requestState" in params:
            key = era_bridge.suspended_key(client, server, name, params["requestState"])
            return await era_bridge.suspended_calls.resume(key or "", params.get("inputResponses"), seal)
        return await era_bridge.suspended_calls.begin(client.principal.name, work, seal)

    def _forwarding(
        self, request: ClientRequest, server: str, about: str, asked: Ask | None = None
    ) -> AbstractContextManager[None]:
        """Forward the client's `_meta` and extra parameters to the server, and the server's notifications and
        requests to the client, while the block runs."""
        client = request.client
        stamp: dict[str, Any] = {CAPABILITIES: self._era_bridge.capabilities_for(client, server)}
        if level := request.meta.get(LOG_LEVEL) or client.log_level:
            stamp[LOG_LEVEL] = level
        more = {key: value for key, value in request.params.items() if key not in _HANDLED_PARAMS}
        forwarded = ForwardedRequest(
            client=client,
            era=self._era_bridge.era(client),
            meta=forwarded_meta(request.meta),
            stamp=stamp,
            params=self._era_bridge.incoming(client, server, about, more) if more else more,
            answers=client.era == "modern",
            opens_addresses=client.can("elicitation/create", {"mode": "url"}),
            heard=partial(forward_notification, request, server=server),
            asked=asked or partial(ask_client, request),
        )
        return self._era_bridge.under_way(forwarded)

    def _header_map(self, client: Client, name: str) -> Mapping[tuple[str, ...], str]:
        """Return the arguments of a tool that must also be sent as headers."""
        lists = self._profile_lists(client)
        known = self._maps.get(f"{client.profile.name}/{name}")
        if known is not None and known[0] is lists:
            return known[1]
        found: Mapping[tuple[str, ...], str] = {}
        tool = client.profile.catalog.tools.get(name)
        if tool is not None:
            found = header_map(tool.input_schema)
        if len(self._maps) >= _MAX_HEADER_MAPS:
            self._maps.clear()
        self._maps[f"{client.profile.name}/{name}"] = (lists, found)
        return found

    # --- resources, prompts, completion ---------------------------------------------------------

    async def _read(self, request: ClientRequest) -> Answer:
        uri, era = text(request.params, "uri"), request.client.era
        found = resource_server(request.client.profile, uri)
        if found is None:
            raise no_resource(uri, era)
        server, own = found
        check_skill_address(request.client.profile, server, own, uri)
        raw = await self._forward(server, request, {"uri": own}, own)
        if raw.get("resultType") != "input_required" or "contents" in raw:
            check_contents(request.client.profile, server, own, uri, raw)
        raw = shown_contents(raw, server, own, uri)
        return shaped(raw if raw.get("resultType") == "input_required" else {**HINTS, **raw}, era)

    async def _prompt(self, request: ClientRequest) -> Answer:
        name = text(request.params, "name")
        prompt = request.client.profile.contents.prompts.get(name)
        if prompt is None:
            raise Refusal(INVALID_PARAMS, f"unknown prompt {name[:80]!r}")
        given = {"name": prompt.name, "arguments": fields(request.params.get("arguments"))}
        raw = shown_result(await self._forward(prompt.server, request, given, name), prompt.server)
        return shaped(raw, request.client.era)

    async def _complete(self, request: ClientRequest) -> Answer:
        params, profile = request.params, request.client.profile
        ref = fields(params.get("ref"))
        if ref.get("type") == "ref/prompt":
            prompt = profile.contents.prompts.get(text(ref, "name"))
            server = None if prompt is None else prompt.server
            ref = ref if prompt is None else {**ref, "name": prompt.name}
        else:
            found = resource_server(profile, text(ref, "uri"))
            server = None if found is None else found[0]
            ref = ref if found is None else {**ref, "uri": found[1]}
        if server is None:
            raise Refusal(INVALID_PARAMS, "unknown prompt or resource template")
        given = {key: params[key] for key in ("argument", "context") if key in params}
        try:
            raw = await self._forward(server, request, {**given, "ref": ref}, "completion")
        except Refusal as refused:
            if refused.code != METHOD_NOT_FOUND:
                raise
            raw: dict[str, Any] = {"completion": {"values": []}}  # the server has no completion
        return shaped(raw, request.client.era)

    # --- extensions -----------------------------------------------------------------------------

    async def _skills(self, request: ClientRequest) -> Answer:
        page = skills_page(request.client.profile.catalog, request.params.get("cursor"))
        return stamped(page, **HINTS) if request.client.era == "modern" else page

    async def _skill(self, request: ClientRequest) -> Answer:
        profile, uri = request.client.profile, text(request.params, "uri")
        server, own = server_of_skill(profile, uri)
        listed = (one for one in profile.catalog.skills if (one.server, one.uri) == (server, own))
        if (skill := next(listed, None)) is None:
            problem = f"unknown skill: {server!r} does not list it, or it is not approved"
            raise Refusal(INVALID_PARAMS, problem, {"uri": uri[:2_000]})
        return shaped({**HINTS, "skill": skill_entry(skill)}, request.client.era)

    async def _directory(self, request: ClientRequest) -> Answer:
        server, own = server_of_skill(request.client.profile, text(request.params, "uri"))
        given = {"uri": own, **server_cursor(server, request.params.get("cursor"))}
        raw = await self._forward(server, request, given, own)
        return shaped({**HINTS, **shown_directory(raw, server)}, request.client.era)

    async def _extension(self, request: ClientRequest) -> Answer:
        """Forward a method of an extension that the gateway does not know to the server that declares it."""
        method = str(request.method)
        server = owner_of_method(request.client, method, request.meta)
        given = {key: value for key, value in request.params.items() if key != "_meta"}
        return shaped(await self._forward(server, request, given, method), request.client.era)

    async def _subscribe(self, request: ClientRequest) -> Answer:
        await self._era_bridge.watch(request.client, text(request.params, "uri"))
        return {}

    async def _unsubscribe(self, request: ClientRequest) -> Answer:
        await self._era_bridge.unwatch(request.client, text(request.params, "uri"))
        return {}

    async def _forward(
        self, server: str, request: ClientRequest, params: dict[str, Any], about: str
    ) -> dict[str, Any]:
        """Forward a request to a server under the server's own names and return the raw result."""
        client = request.client
        await self._log_levels.apply(client, server, request.meta.get(LOG_LEVEL))
        with self._forwarding(request, server, about):
            try:
                raw = await self._era_bridge.ask(client, server, request.method, params, about)
            except ServerError as problem:
                raise refusal(problem, client.era) from None
            except PolicyDenied as problem:
                raise Refusal(INVALID_PARAMS, str(problem)) from None
            except AuthNeeded as problem:
                helps = self._logins.helps(client, problem)
                text = self._logins.link(client, problem.server) if helps else str(problem)
                raise Refusal(INTERNAL_ERROR, text) from None
            except MooringError as problem:
                raise Refusal(INTERNAL_ERROR, str(problem)) from None
        return self._era_bridge.outgoing(client, server, about, raw)
