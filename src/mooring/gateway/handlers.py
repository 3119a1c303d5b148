"""Answers of the gateway to each request of a client, for every transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from mooring.core.types import Era, Prompt, Resource, ResourceTemplate, Tool
from mooring.errors import MooringError, PolicyDenied, ServerError
from mooring.gateway.auth import check_parameters
from mooring.gateway.clients import Client, ClientExchange
from mooring.gateway.era_bridge import EraBridge
from mooring.gateway.log_levels import LogLevels
from mooring.gateway.profiles import ProfileTools, resource_server
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
from mooring.gateway.suspended_calls import SuspendedCall
from mooring.local import Progress
from mooring.servers.active import LEVELS, header_map
from mooring.transport.forwarding import ForwardedRequest
from mooring.transport.message import encode

MOST_INSTRUCTIONS = 8_000
PROGRESS = "notifications/progress"


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request of a client."""

    client: Client
    method: str
    params: dict[str, Any]
    exchange: ClientExchange

    @property
    def meta(self) -> dict[str, Any]:
        return fields(self.params.get("_meta"))


def progress(request: ClientRequest) -> Progress:
    """Takes the progress of a task, which we follow ourselves; see `heard` for all other."""

    async def forward(progress: float, total: float | None, message: str | None) -> None:
        said = {"progress": progress, "total": total, "message": message}
        heard(request, PROGRESS, {key: value for key, value in said.items() if value is not None})

    return forward


def heard(request: ClientRequest, method: str, params: Mapping[str, Any]) -> None:
    """A notice of the server that belongs to a request of this client: passed on as it is, if it is wanted;
    progress under the client's own token."""
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
    """What the servers say of themselves, each under its own name, as one text."""
    parts = [
        f"# {group.id.removeprefix('mcp:')}\n{group.instructions}"
        for group in client.view.catalog.groups
        if group.instructions
    ]
    joined = "\n\n".join(parts)
    return {"instructions": joined[:MOST_INSTRUCTIONS]} if joined else {}


HINTS: Mapping[str, Any] = {"ttlMs": 0, "cacheScope": "private"}
"""Of the 2026 era: changes are told, so nothing needs to be kept."""


def tool_entry(name: str, tool: Tool, era: Era) -> dict[str, Any]:
    """A tool as it was defined, under the name that the client uses."""
    entry: dict[str, Any] = {**tool.extra, "name": name}
    if tool.title:
        entry["title"] = tool.title
    if tool.description:
        entry["description"] = tool.description
    entry["inputSchema"] = tool.input_schema
    output = tool.output_schema
    # Before 2026 the output was an object, and clients set a whole list aside for one that is not.
    if output is not None and (era == "modern" or output.get("type") == "object"):
        entry["outputSchema"] = output
    if tool.annotations:
        entry["annotations"] = tool.annotations
    if tool.meta:
        entry["_meta"] = tool.meta
    return entry


def resource_entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {**resource.extra, "uri": resource.uri, "name": resource.name}
    return entry | _texts(resource) | ({} if resource.size is None else {"size": resource.size})


def template_entry(template: ResourceTemplate) -> dict[str, Any]:
    entry: dict[str, Any] = {**template.extra, "uriTemplate": template.uri_template, "name": template.name}
    return entry | _texts(template)


def _texts(item: Resource | ResourceTemplate) -> dict[str, Any]:
    texts = {"title": item.title, "description": item.description, "mimeType": item.mime_type}
    return {key: text for key, text in texts.items() if text}


def prompt_entry(name: str, prompt: Prompt) -> dict[str, Any]:
    entry: dict[str, Any] = {**prompt.extra, "name": name}
    if prompt.title:
        entry["title"] = prompt.title
    if prompt.description:
        entry["description"] = prompt.description
    if prompt.arguments:
        entry["arguments"] = list(prompt.arguments)
    return entry


def tools_page(tools: Iterable[Tool], era: Era) -> bytes:
    """The result of `tools/list`."""
    return _page("tools", [tool_entry(tool.name, tool, era) for tool in tools], era)


def _page(key: str, entries: list[dict[str, Any]], era: Era) -> bytes:
    page: dict[str, Any] = {key: entries}
    return encode(stamped(page, **HINTS) if era == "modern" else page)


class Lists:
    """All lists of one offer, each made when it is first asked for."""

    def __init__(self, offer: ProfileTools) -> None:
        self.offer = offer
        self._made: dict[tuple[str, Era], bytes] = {}

    def page(self, method: str, era: Era) -> bytes:
        made = self._made.get((method, era))
        if made is None:
            made = self._made[method, era] = self._make(method, era)
        return made

    def _make(self, method: str, era: Era) -> bytes:
        offer = self.offer
        match method:
            case "tools/list":
                return tools_page(offer.catalog.tools.values(), era)
            case "resources/list":
                return _page("resources", [resource_entry(item) for item in offer.resources.values()], era)
            case "resources/templates/list":
                entries = [template_entry(item) for item in offer.templates.values()]
                return _page("resourceTemplates", entries, era)
            case "prompts/list":
                return _page(
                    "prompts", [prompt_entry(name, item) for name, item in offer.prompts.items()], era
                )
            case _:
                raise KeyError(method)


Answer = Mapping[str, Any] | bytes

OFFERED: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
"""Servers come and go behind the gateway, while what it said at the handshake stays: so it says all."""
WITHOUT_SESSION: Mapping[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
"""What a handshake client gets that has no session: nothing can be sent to it between two requests."""
_LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
_OURS = frozenset(("name", "arguments", "uri", "ref", "argument", "context", "_meta", "task"))
_MOST_MAPS = 10_000


Handler = Callable[[ClientRequest], Awaitable[Answer]]
Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class RequestHandlers:
    """Answers requests. It keeps nothing of a client."""

    def __init__(self, crossing: EraBridge, loudness: LogLevels) -> None:
        self._crossing, self._loudness = crossing, loudness
        shared: dict[str, Handler] = {
            **dict.fromkeys(_LISTS, self._list),
            "tools/call": self._call,
            "resources/read": self._read,
            "prompts/get": self._prompt,
            "completion/complete": self._complete,
        }
        self._transient: dict[str, Handler] = {
            **shared,
            "initialize": self._initialize,
            "ping": self._ping,
        }
        self._legacy: dict[str, Handler] = {
            **self._transient,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        self._modern: dict[str, Handler] = {**shared, "server/discover": self._discover}
        self._lists: dict[str, Lists] = {}
        self._maps: dict[str, tuple[Lists, Mapping[tuple[str, ...], str]]] = {}

    async def answer(self, client: Client, message: Mapping[str, Any], exchange: ClientExchange) -> Answer:
        """The result of one request.

        Raises:
            Refusal: the answer is an error.
        """
        method = message["method"]
        params: object = message.get("params", {})
        known = self._modern if client.era == "modern" else self._legacy if client.lasts else self._transient
        handler = known.get(method)
        if handler is None:
            raise Refusal(METHOD_NOT_FOUND, f"the gateway does not know the method {str(method)[:80]!r}")
        given = fields(params)
        if given is not params:
            raise Refusal(INVALID_PARAMS, "params must be an object")
        return await handler(ClientRequest(client, method, given, exchange))

    # --- who we are -----------------------------------------------------------------------------

    async def _initialize(self, request: ClientRequest) -> Answer:
        offered = OFFERED if request.client.lasts else WITHOUT_SESSION
        said = {"protocolVersion": request.client.protocol, "capabilities": offered}
        return {**said, "serverInfo": SERVER_INFO, **instructions(request.client)}

    async def _discover(self, request: ClientRequest) -> Answer:
        about = {"supportedVersions": list(MODERN_VERSIONS), "capabilities": OFFERED}
        return stamped({**about, **instructions(request.client)}, **HINTS)

    async def _ping(self, request: ClientRequest) -> Answer:
        return {}

    async def _set_level(self, request: ClientRequest) -> Answer:
        level = request.params.get("level")
        if level not in LEVELS:
            raise Refusal(INVALID_PARAMS, f"'level' must be one of {', '.join(LEVELS)}")
        request.client.log_level = level
        await self._loudness.changed(request.client)
        return {}

    # --- lists ----------------------------------------------------------------------------------

    async def _list(self, request: ClientRequest) -> Answer:
        if request.params.get("cursor") is not None:
            raise Refusal(INVALID_PARAMS, "the cursor is not one of ours: all entries stand on one page")
        client = request.client
        if request.method == "tools/list" and client.view.settings.discovery != "never":
            return tools_page(client.session.tools(), client.era)
        return self._known(client).page(request.method, client.era)

    def _known(self, client: Client) -> Lists:
        """The lists of what the client's profile shows now."""
        offer, name = client.view.offer, client.view.name
        known = self._lists.get(name)
        if known is None or known.offer is not offer:
            known = self._lists[name] = Lists(offer)
        return known

    # --- calls ----------------------------------------------------------------------------------

    async def _call(self, request: ClientRequest) -> Answer:
        client, name = request.client, text(request.params, "name")
        arguments: object = request.params.get("arguments", {})
        given = fields(arguments)
        if given is not arguments and arguments is not None:
            raise Refusal(INVALID_PARAMS, "'arguments' must be an object")
        if client.era == "modern" and request.exchange.headers:
            check_parameters(request.exchange.headers, self._header_map(client, name), given)
        tool = client.view.catalog.tools.get(name)
        if tool is not None and await self._crossing.must_park(client, tool):
            return await self._parked_call(request, tool.server, name, given)
        return await self._plain_call(request, "" if tool is None else tool.server, name, given)

    async def _plain_call(
        self, request: ClientRequest, server: str, name: str, given: dict[str, Any], asked: Ask | None = None
    ) -> dict[str, Any]:
        client = request.client
        if server:
            await self._loudness.heed(client, server, request.meta.get(LOG_LEVEL))
        with self._passing(request, server, name, asked):
            result = await client.session.call(
                name,
                given,
                timeout=client.view.settings.call_timeout,
                on_progress=progress(request),
                budget=0,  # how much a model is shown is for the client to say
            )
        if name == "tools_select" and not result.is_error:
            request.exchange.send(notice_body("notifications/tools/list_changed"))
        return self._crossing.outgoing(client, server, name, outcome(result, client.era))

    async def _parked_call(
        self, request: ClientRequest, server: str, name: str, given: dict[str, Any]
    ) -> dict[str, Any]:
        """A call that may have to wait while the client goes and comes back with an answer."""
        client, params, crossing = request.client, request.params, self._crossing

        async def work(parked: SuspendedCall) -> dict[str, Any]:
            async def ask(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
                if not client.can(method, params):
                    raise Refusal(METHOD_NOT_FOUND, f"the client behind the gateway does not do {method!r}")
                return await parked.ask(method, params)

            return await self._plain_call(request, server, name, given, ask)

        seal = partial(crossing.parked_state, client, server, name)
        if "requestState" in params:
            key = crossing.parked_key(client, server, name, params["requestState"])
            return await crossing.parking.resume(key or "", params.get("inputResponses"), seal)
        return await crossing.parking.begin(client.principal.name, work, seal)

    def _passing(
        self, request: ClientRequest, server: str, about: str, asked: Ask | None = None
    ) -> AbstractContextManager[None]:
        """What goes through to the server, and back, while the block runs."""
        client = request.client
        stamp: dict[str, Any] = {CAPABILITIES: self._crossing.abilities(client)}
        if level := request.meta.get(LOG_LEVEL) or client.log_level:
            stamp[LOG_LEVEL] = level
        more = {key: value for key, value in request.params.items() if key not in _OURS}
        forwarded = ForwardedRequest(
            client=client,
            era=self._crossing.era(client),
            meta=forwarded_meta(request.meta),
            stamp=stamp,
            params=self._crossing.incoming(client, server, about, more) if more else more,
            answers=client.era == "modern",
            heard=partial(heard, request),
            asked=asked or partial(ask_client, request),
        )
        return self._crossing.under_way(forwarded)

    def _header_map(self, client: Client, name: str) -> Mapping[tuple[str, ...], str]:
        """Which arguments of a tool stand in headers, too."""
        lists = self._known(client)
        known = self._maps.get(f"{client.view.name}/{name}")
        if known is not None and known[0] is lists:
            return known[1]
        found: Mapping[tuple[str, ...], str] = {}
        tool = client.view.catalog.tools.get(name)
        if tool is not None:
            found = header_map(tool.input_schema)
        if len(self._maps) >= _MOST_MAPS:
            self._maps.clear()
        self._maps[f"{client.view.name}/{name}"] = (lists, found)
        return found

    # --- resources, prompts, completion ---------------------------------------------------------

    async def _read(self, request: ClientRequest) -> Answer:
        uri, era = text(request.params, "uri"), request.client.era
        server = resource_server(request.client.view, uri)
        if server is None:
            raise no_resource(uri, era)
        raw = await self._asked_of(server, request, {"uri": uri}, uri)
        return shaped(raw if raw.get("resultType") == "input_required" else {**HINTS, **raw}, era)

    async def _prompt(self, request: ClientRequest) -> Answer:
        name = text(request.params, "name")
        prompt = request.client.view.offer.prompts.get(name)
        if prompt is None:
            raise Refusal(INVALID_PARAMS, f"there is no prompt {name[:80]!r}")
        given = {"name": prompt.name, "arguments": fields(request.params.get("arguments"))}
        return shaped(await self._asked_of(prompt.server, request, given, name), request.client.era)

    async def _complete(self, request: ClientRequest) -> Answer:
        params, view = request.params, request.client.view
        ref = fields(params.get("ref"))
        if ref.get("type") == "ref/prompt":
            prompt = view.offer.prompts.get(text(ref, "name"))
            server = None if prompt is None else prompt.server
            ref = ref if prompt is None else {**ref, "name": prompt.name}
        else:
            server = resource_server(view, text(ref, "uri"))
        if server is None:
            raise Refusal(INVALID_PARAMS, "there is no such prompt or resource template")
        given = {key: params[key] for key in ("argument", "context") if key in params}
        try:
            raw = await self._asked_of(server, request, {**given, "ref": ref}, "completion")
        except Refusal as refused:
            if refused.code != METHOD_NOT_FOUND:
                raise
            raw: dict[str, Any] = {"completion": {"values": []}}  # this server has no advice to give
        return shaped(raw, request.client.era)

    async def _subscribe(self, request: ClientRequest) -> Answer:
        await self._crossing.watch(request.client, text(request.params, "uri"))
        return {}

    async def _unsubscribe(self, request: ClientRequest) -> Answer:
        await self._crossing.unwatch(request.client, text(request.params, "uri"))
        return {}

    async def _asked_of(
        self, server: str, request: ClientRequest, params: dict[str, Any], about: str
    ) -> dict[str, Any]:
        """The raw result of a request that goes on to a server under the server's own names."""
        client = request.client
        await self._loudness.heed(client, server, request.meta.get(LOG_LEVEL))
        with self._passing(request, server, about):
            try:
                raw = await self._crossing.ask(client, server, request.method, params, about)
            except ServerError as problem:
                raise refusal(problem, client.era) from None
            except PolicyDenied as problem:
                raise Refusal(INVALID_PARAMS, str(problem)) from None
            except MooringError as problem:
                raise Refusal(INTERNAL_ERROR, str(problem)) from None
        return self._crossing.outgoing(client, server, about, raw)
