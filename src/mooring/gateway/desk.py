"""What the gateway answers to each request of a client, whatever wire it came on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from mooring.errors import MooringError, PolicyDenied, ServerError
from mooring.gateway.checks import check_parameters
from mooring.gateway.client import Client, Exchange
from mooring.gateway.crossing import Crossing
from mooring.gateway.listing import HINTS, Lists, tools_page
from mooring.gateway.loudness import Loudness
from mooring.gateway.parking import Parked
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
    notice_body,
    stamped,
)
from mooring.gateway.request import Request, ask_client, heard, instructions, progress
from mooring.gateway.routes import resource_server
from mooring.gateway.shapes import no_resource, outcome, refusal, shaped, text
from mooring.net.headers import header_map
from mooring.net.loglevel import LEVELS
from mooring.net.passage import Passage

__all__ = ["OFFERED", "Answer", "Desk"]

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


Handler = Callable[[Request], Awaitable[Answer]]
Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class Desk:
    """Answers requests. It keeps nothing of a client."""

    def __init__(self, crossing: Crossing, loudness: Loudness) -> None:
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

    async def answer(self, client: Client, message: Mapping[str, Any], exchange: Exchange) -> Answer:
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
        return await handler(Request(client, method, given, exchange))

    # --- who we are -----------------------------------------------------------------------------

    async def _initialize(self, request: Request) -> Answer:
        offered = OFFERED if request.client.lasts else WITHOUT_SESSION
        said = {"protocolVersion": request.client.protocol, "capabilities": offered}
        return {**said, "serverInfo": SERVER_INFO, **instructions(request.client)}

    async def _discover(self, request: Request) -> Answer:
        about = {"supportedVersions": list(MODERN_VERSIONS), "capabilities": OFFERED}
        return stamped({**about, **instructions(request.client)}, **HINTS)

    async def _ping(self, request: Request) -> Answer:
        return {}

    async def _set_level(self, request: Request) -> Answer:
        level = request.params.get("level")
        if level not in LEVELS:
            raise Refusal(INVALID_PARAMS, f"'level' must be one of {', '.join(LEVELS)}")
        request.client.log_level = level
        await self._loudness.changed(request.client)
        return {}

    # --- lists ----------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Answer:
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

    async def _call(self, request: Request) -> Answer:
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
        self, request: Request, server: str, name: str, given: dict[str, Any], asked: Ask | None = None
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
        self, request: Request, server: str, name: str, given: dict[str, Any]
    ) -> dict[str, Any]:
        """A call that may have to wait while the client goes and comes back with an answer."""
        client, params, crossing = request.client, request.params, self._crossing

        async def work(parked: Parked) -> dict[str, Any]:
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
        self, request: Request, server: str, about: str, asked: Ask | None = None
    ) -> AbstractContextManager[None]:
        """What goes through to the server, and back, while the block runs."""
        client = request.client
        stamp: dict[str, Any] = {CAPABILITIES: self._crossing.abilities(client)}
        if level := request.meta.get(LOG_LEVEL) or client.log_level:
            stamp[LOG_LEVEL] = level
        more = {key: value for key, value in request.params.items() if key not in _OURS}
        passage = Passage(
            client=client,
            era=self._crossing.era(client),
            meta=forwarded_meta(request.meta),
            stamp=stamp,
            params=self._crossing.incoming(client, server, about, more) if more else more,
            answers=client.era == "modern",
            heard=partial(heard, request),
            asked=asked or partial(ask_client, request),
        )
        return self._crossing.under_way(passage)

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

    async def _read(self, request: Request) -> Answer:
        uri, era = text(request.params, "uri"), request.client.era
        server = resource_server(request.client.view, uri)
        if server is None:
            raise no_resource(uri, era)
        raw = await self._asked_of(server, request, {"uri": uri}, uri)
        return shaped(raw if raw.get("resultType") == "input_required" else {**HINTS, **raw}, era)

    async def _prompt(self, request: Request) -> Answer:
        name = text(request.params, "name")
        prompt = request.client.view.offer.prompts.get(name)
        if prompt is None:
            raise Refusal(INVALID_PARAMS, f"there is no prompt {name[:80]!r}")
        given = {"name": prompt.name, "arguments": fields(request.params.get("arguments"))}
        return shaped(await self._asked_of(prompt.server, request, given, name), request.client.era)

    async def _complete(self, request: Request) -> Answer:
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

    async def _subscribe(self, request: Request) -> Answer:
        await self._crossing.watch(request.client, text(request.params, "uri"))
        return {}

    async def _unsubscribe(self, request: Request) -> Answer:
        await self._crossing.unwatch(request.client, text(request.params, "uri"))
        return {}

    async def _asked_of(
        self, server: str, request: Request, params: dict[str, Any], about: str
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
