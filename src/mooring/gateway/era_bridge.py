"""Translation between the protocol eras: sealed request state, and resource subscriptions."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mooring.core.extensions import OURS, TASKS, declared_by_client, original
from mooring.core.types import Era, Tool
from mooring.errors import CallError, MooringError
from mooring.gateway.clients import Client
from mooring.gateway.nodes import Cluster, NodeId
from mooring.gateway.profiles import resource_server
from mooring.gateway.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, Refusal, fields, no_resource
from mooring.gateway.seal import Seal
from mooring.host import runtime_of
from mooring.transport.forwarding import ClientBridge

STATE_TTL = 3600.0
"""Seconds for which a sealed request state is valid."""
STATE = "request state"
"""What a sealed request state is sealed for."""


ANSWERABLE = ("elicitation", "sampling", "roots")
PASSED = (*ANSWERABLE, "experimental")


class EraBridge:
    """Forwards requests to servers and translates between the protocol eras."""

    def __init__(self, relay: ClientBridge, cluster: Cluster | None = None) -> None:
        self.under_way = relay.under_way
        self._passed = PASSED if relay.capabilities else ()
        self._seal = Seal([os.urandom(32)]) if cluster is None else cluster.seal
        self._me = None if cluster is None else cluster.me
        self._cluster = cluster
        self.suspended_calls = SuspendedCalls()
        self._asked: dict[str, float] = {}
        """When states of servers were sealed that have not come back, in a cluster."""
        self._watched: Counter[tuple[str, str, str]] = Counter()
        """Subscribers by server, URI, and session (for servers with `isolation: session`)."""

    def capabilities_for(self, client: Client, server: str) -> dict[str, Any]:
        """Return the client capabilities to send to a server.

        Of the client's extensions, those that the server declares, and those that the gateway serves: many
        servers with pages do not declare `ui`. Tasks are always included: the gateway polls them itself.
        """
        able = {key: client.capabilities[key] for key in self._passed if key in client.capabilities}
        declared = {one.name for one in client.profile.catalog.extensions if one.server == server}
        routed = declared.union(OURS)
        given = declared_by_client(client.capabilities)
        return {**able, "extensions": {**{name: given[name] for name in given if name in routed}, TASKS: {}}}

    # --- state ----------------------------------------------------------------------------------

    def _binding(self, client: Client, server: str, about: str) -> dict[str, str]:
        return {
            "who": client.principal.name,
            "profile": client.profile.name,
            "server": server,
            "about": about,
        }

    def incoming(self, client: Client, server: str, about: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the extra parameters of a request, with the server's own state instead of the sealed one.

        Raises:
            Refusal: The state was not issued to this client for this request.
        """
        if "requestState" not in params:
            return params
        state = self._opened(client, server, about, params["requestState"])
        self._asked.pop(params["requestState"], None)
        return {**params, "requestState": state.get("state")}

    def outgoing(self, client: Client, server: str, about: str, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result with the server's state sealed."""
        state = result.get("requestState")
        if result.get("resultType") != "input_required" or state is None:
            return result
        sealed = self._closed(client, server, about, {"state": state})
        if self._cluster is not None:
            while len(self._asked) >= MAX_CALLS:
                del self._asked[next(iter(self._asked))]
            self._asked[sealed] = time.monotonic()
        return {**result, "requestState": sealed}

    async def answered(self) -> None:
        """Wait until clients have answered what they were asked in the last minutes, until now."""
        since = time.monotonic() - WAIT
        open_states = {state for state, at in self._asked.items() if at > since}
        await self.suspended_calls.ended()
        while not open_states.isdisjoint(self._asked):  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.05)

    def suspended_key(self, client: Client, server: str, about: str, state: object) -> str | None:
        """Return the key of the suspended call that the state refers to, if any."""
        return self._opened(client, server, about, state).get("suspended")

    def suspended_state(self, client: Client, server: str, about: str, key: str) -> str:
        return self._closed(client, server, about, {"suspended": key})

    def login_state(self, client: Client, server: str, about: str, key: str) -> str:
        return self._closed(client, server, about, {"login": key})

    def login_key(self, client: Client, server: str, about: str, state: object) -> str | None:
        """Return the key of the login that the state refers to, if any."""
        found = self._content(client, server, about, state)
        return None if found is None else found.get("login")

    def owner(self, state: object) -> NodeId | None:
        """Return the node that keeps what a state refers to; None if the state is not valid."""
        data = self._seal.open(state, STATE)
        owner = None if data is None else json.loads(data)["node"]
        return None if owner is None else NodeId(*owner)

    def _closed(self, client: Client, server: str, about: str, payload: Mapping[str, Any]) -> str:
        content = {
            "node": self._me,
            "for": self._binding(client, server, about),
            "until": round(time.time() + STATE_TTL),
            "content": payload,
        }
        return self._seal.close(json.dumps(content, separators=(",", ":")).encode(), STATE)

    def _content(self, client: Client, server: str, about: str, state: object) -> dict[str, Any] | None:
        """Return what a state holds; None if it is forged, of another request, or expired."""
        data = self._seal.open(state, STATE)
        if data is None:
            return None
        found = json.loads(data)
        if found["for"] != self._binding(client, server, about) or time.time() > found["until"]:
            return None
        return found["content"]

    def _opened(self, client: Client, server: str, about: str, state: object) -> dict[str, Any]:
        found = self._content(client, server, about, state)
        if found is None:
            raise Refusal(INVALID_PARAMS, "the requestState is invalid or expired")
        return found

    def era(self, client: Client) -> Era | None:
        """Return the era to use with a server that supports both: the client's own, so that it can answer
        the server's requests. None (either) for a handshake client that answers none."""
        return client.era if client.era == "modern" or _answers(client) else None

    async def must_suspend(self, client: Client, tool: Tool) -> bool:
        """Whether the server may send requests during a call, and this client answers only between calls."""
        if client.era == "legacy" or not self._passed or not _answers(client):
            return False
        provider: Any = client.profile.provider(tool.server, client.session)
        connection = getattr(provider, "connection", provider)
        if not hasattr(connection, "era_for"):
            return False
        timeout = client.profile.settings.call_timeout
        return await connection.era_for(tool.remote_name, client.era, timeout) == "legacy"

    def must_suspend_scripts(self, client: Client) -> bool:
        """Whether the plan of a script is approved by this client, which answers only between calls."""
        return (
            client.era == "modern"
            and bool(client.profile.scripts.enabled)
            and client.can("elicitation/create", {"mode": "form"})
        )

    # --- requests other than calls --------------------------------------------------------------

    async def ask(
        self, client: Client, server: str, method: str, params: dict[str, Any], about: str
    ) -> dict[str, Any]:
        """Return the raw result of a request other than `tools/call`.

        Raises:
            MooringError: The request failed.
            Refusal: The provider supports calls only.
        """
        if method in ("resources/read", "resources/directory/read"):
            await runtime_of(client.profile.host).resources.check((server, about))
        timeout = client.profile.settings.call_timeout
        find = partial(self._connection, client, server, method)
        return await ask_server(find, method, params, about=about, timeout=timeout)

    def _connection(self, client: Client, server: str, method: str) -> Any:
        provider: Any = client.profile.provider(server, client.session)
        connection = getattr(provider, "connection", provider)  # a session's own connection is wrapped
        if not hasattr(connection, "ask"):
            raise Refusal(METHOD_NOT_FOUND, f"{server!r} does not support {method!r}")
        return connection

    # --- resource subscriptions -----------------------------------------------------------------

    @property
    def watching(self) -> int:
        """Number of subscribed resources."""
        return len(self._watched)

    def watched_shared(self) -> frozenset[tuple[str, str]]:
        """Return server and URI of each resource of a shared server that clients are subscribed to."""
        return frozenset((server, uri) for server, uri, session in self._watched if not session)

    async def watch(self, client: Client, uri: str) -> None:
        """Subscribe the client to changes of a resource.

        Raises:
            Refusal: The resource is unknown, or its server does not support subscriptions.
        """
        if uri in client.subscribed:
            return
        found = resource_server(client.profile, uri)
        if found is None:
            raise no_resource(uri, client.era)
        server, own = found
        key = self._subscription_key(client, server, own)
        if key not in self._watched:
            try:
                await runtime_of(client.profile.host).resources.check((server, own))
                await self._connection(client, server, "resources/subscribe").watch(own)
            except MooringError as problem:
                raise Refusal(INVALID_PARAMS, str(problem)) from None
        self._watched[key] += 1
        client.subscribed[uri] = server
        if self._cluster is not None and not key[2]:
            await self._cluster.watched()

    async def unwatch(self, client: Client, uri: str) -> None:
        """End a subscription; unsubscribe from the server after the last one."""
        server = client.subscribed.pop(uri, None)
        if server is None:
            return
        found = original(uri)
        own = uri if found is None else found[1]
        key = self._subscription_key(client, server, own)
        self._watched[key] -= 1
        if self._watched[key] <= 0:
            del self._watched[key]
            if self._cluster is not None and not key[2] and self._cluster.wants(server, own):
                return  # clients of other nodes are subscribed
            with suppress(MooringError, Refusal):
                await self._connection(client, server, "resources/unsubscribe").unwatch(own)

    def _subscription_key(self, client: Client, server: str, uri: str) -> tuple[str, str, str]:
        return server, uri, "" if client.profile.shares(server) else client.session.id

    async def watch_all(self, client: Client, uris: list[str]) -> list[str]:
        """Subscribe to several resources and return those that the client is subscribed to."""
        for uri in uris:
            with suppress(Refusal):
                await self.watch(client, uri)
        return sorted(client.subscribed)

    async def leave(self, client: Client) -> None:
        """End all subscriptions of the client."""
        for uri in list(client.subscribed):
            await self.unwatch(client, uri)


async def ask_server(
    find: Callable[[], Any], method: str, params: dict[str, Any], *, about: str, timeout: float | None
) -> dict[str, Any]:
    """Send a request on the connection that `find` returns; once more if the connection was replaced before
    the request was sent."""
    connection = find()
    try:
        return await connection.ask(method, params, about=about, timeout=timeout)
    except CallError as problem:
        if problem.outcome != "not sent" or (other := find()) is connection:
            raise
        return await other.ask(method, params, about=about, timeout=timeout)


def _answers(client: Client) -> bool:
    """Whether the client answers any requests of servers."""
    return any(key in client.capabilities for key in ANSWERABLE)


WAIT = 300.0
"""Seconds after which a suspended call is cancelled."""
MAX_CALLS, MAX_CALLS_PER_PRINCIPAL = 1_000, 100
KEY = "question"


@dataclass(slots=True, eq=False)
class SuspendedCall:
    """One call whose server may send requests to the client."""

    principal: str
    """The name of its principal."""
    questions: asyncio.Queue[tuple[str, Mapping[str, Any]]] = field(
        default_factory=lambda: asyncio.Queue[tuple[str, Mapping[str, Any]]](1)
    )
    answer: asyncio.Future[dict[str, Any]] | None = None
    task: asyncio.Task[dict[str, Any]] | None = None
    asked: tuple[str, Mapping[str, Any]] | None = None
    timer: asyncio.TimerHandle | None = None

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the client and return its answer."""
        await self.questions.put((method, params))
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer


class SuspendedCalls:
    """The suspended calls of all clients."""

    def __init__(self) -> None:
        self._waiting: dict[str, SuspendedCall] = {}
        self._tasks: set[asyncio.Task[dict[str, Any]]] = set()
        """All calls, from their begin to their end, whether they wait for an answer or not."""

    async def begin(
        self,
        principal: str,
        work: Callable[[SuspendedCall], Coroutine[Any, Any, dict[str, Any]]],
        seal: Callable[[str], str],
    ) -> dict[str, Any]:
        """Start a call. Return its result, or an `input_required` result with a state made by `seal`."""
        suspended = SuspendedCall(principal)
        suspended.task = asyncio.create_task(work(suspended))
        self._tasks.add(suspended.task)
        suspended.task.add_done_callback(self._tasks.discard)
        return await self._next(suspended, seal)

    async def resume(self, key: str, responses: object, seal: Callable[[str], str]) -> dict[str, Any]:
        """Resume a call with the client's answer.

        Raises:
            Refusal: The call is not suspended any more.
        """
        suspended = self._waiting.pop(key, None)
        if suspended is None or suspended.answer is None or suspended.asked is None:
            raise Refusal(
                INVALID_PARAMS,
                f"no call waits for this answer: it was answered before, or was cancelled after {WAIT:g} s. "
                "The tool may have had effects and may still be running; check before you call it again",
            )
        assert suspended.timer is not None
        suspended.timer.cancel()
        given = fields(fields(responses).get(KEY))
        if not given:
            return self._suspend(suspended, suspended.asked, seal)  # repeat the request
        if not suspended.answer.done():
            suspended.answer.set_result(given)
        return await self._next(suspended, seal)

    async def _next(self, suspended: SuspendedCall, seal: Callable[[str], str]) -> dict[str, Any]:
        assert suspended.task is not None
        question = asyncio.ensure_future(suspended.questions.get())
        try:
            await asyncio.wait({suspended.task, question}, return_when=asyncio.FIRST_COMPLETED)
            if not suspended.task.done():
                return self._suspend(suspended, question.result(), seal)
        except BaseException:
            suspended.task.cancel()
            raise
        finally:
            question.cancel()
        return await suspended.task

    def _suspend(
        self, suspended: SuspendedCall, asked: tuple[str, Mapping[str, Any]], seal: Callable[[str], str]
    ) -> dict[str, Any]:
        assert suspended.task is not None
        own = [key for key, other in self._waiting.items() if other.principal == suspended.principal]
        if len(own) >= MAX_CALLS_PER_PRINCIPAL:
            self._cancel(own[0])
        if len(self._waiting) >= MAX_CALLS:
            suspended.task.cancel()
            raise Refusal(INVALID_PARAMS, "too many suspended calls; try again later")
        key = secrets.token_hex(16)
        suspended.asked = asked
        self._waiting[key] = suspended
        suspended.timer = asyncio.get_running_loop().call_later(WAIT, self._cancel, key)
        request = {"method": asked[0], "params": dict(asked[1])}
        return {
            "resultType": "input_required",
            "inputRequests": {KEY: request},
            "requestState": seal(key),
        }

    def _cancel(self, key: str) -> None:
        if (suspended := self._waiting.pop(key, None)) is not None and suspended.task is not None:
            if suspended.timer is not None:
                suspended.timer.cancel()
            suspended.task.cancel()

    async def ended(self) -> None:
        """Wait until the present calls have ended. Their clients can answer meanwhile."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        for key in list(self._waiting):
            self._cancel(key)
