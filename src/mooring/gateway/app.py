"""The gateway of one host: clients, handlers and subscriptions, shared by all transports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from mooring.audit import CALLER, Caller
from mooring.auth.subject import SUBJECT
from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.gateway.access import AccessLog, RequestRecord, trace_of
from mooring.gateway.clients import Client, ClientExchange, Principal, SessionRegistry, random_id
from mooring.gateway.era_bridge import EraBridge
from mooring.gateway.handlers import METHODS, Answer, RequestHandlers
from mooring.gateway.logins import RemoteLogins
from mooring.gateway.metrics import Metrics
from mooring.gateway.nodes import Cluster
from mooring.gateway.profiles import Profile
from mooring.gateway.protocol import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Refusal,
    fields,
)
from mooring.gateway.subscriptions import LogLevels, Subscriptions
from mooring.host import Host, runtime_of
from mooring.transport.forwarding import ClientBridge

__all__ = ["Gateway"]

log = logger("mooring.gateway")

FIRST_WAIT = 10.0
"""Longest time in seconds that the first requests wait for servers that are still starting."""
DISCOVER_WAIT = 4.0
"""The same for `server/discover`: a client may take a longer silence for a server of the older era."""

_KINDS = {
    METHOD_NOT_FOUND: "unknown_method",
    INVALID_PARAMS: "invalid_params",
    INVALID_REQUEST: "invalid_request",
    HEADER_MISMATCH: "header_mismatch",
    INTERNAL_ERROR: "internal",
}
"""Kinds of errors by JSON-RPC code. Others are codes of servers."""
_NOTED = {"tools/call": "call", "resources/read": "read", "prompts/get": "prompt"}


class Gateway:
    """Serves one running host. Start transports that feed it, and run `run()` alongside them."""

    def __init__(
        self,
        host: Host,
        *,
        default_profile: ProfileSettings | None = None,
        cluster: Cluster | None = None,
        logins: bool = True,
    ) -> None:
        self.host = host
        self.cluster = cluster
        """The other nodes; None if there are none."""
        self.settings: GatewaySettings = host.config.gateway
        self._default = Profile(host, default_profile or ProfileSettings(), logins=logins)
        self._profiles = {
            name: Profile(host, settings, name, logins=logins)
            for name, settings in self.settings.profiles.items()
        }
        self.inner: dict[str, Profile] = {}
        """Profiles for the other nodes of a cluster; clients cannot name them."""
        self.era_bridge = EraBridge(runtime_of(host).relay or ClientBridge(), cluster)
        self.registry = SessionRegistry(
            limit=self.settings.max_sessions,
            per_account=self.settings.client_sessions,
            ttl=host.config.session_ttl,
            on_close=self.era_bridge.leave,
            new_id=random_id if cluster is None else cluster.new_id,
            counts=None if cluster is None else cluster.session_counts(),
        )
        self.logins = RemoteLogins(host, random_id if cluster is None else cluster.new_id)
        self.handlers = RequestHandlers(self.era_bridge, LogLevels(self.registry), self.logins)
        self.subscriptions = Subscriptions(self)
        self.metrics = Metrics(self.settings.metrics)
        self.access_log = AccessLog(host.redact)
        self.access_log.use(self.settings.access_log)
        self.certificate_expires: float | None = None
        """When the certificate of the gateway expires, in seconds since 1970; None without TLS."""
        self.under_way = 0
        self.draining = False
        self._settled = False
        self._first: float | None = None
        self._idle = asyncio.Event()

    def profile(self, name: str) -> Profile | None:
        """Return the profile of this name, None if there is none. The empty name is the default profile."""
        return self._profiles.get(name) if name else self._default

    def profiles(self) -> list[Profile]:
        return [self._default, *self._profiles.values()]

    def watched_profiles(self) -> list[Profile]:
        """Return the profiles whose clients are notified of changes."""
        return [*self.profiles(), *self.inner.values()]

    async def reconfigure(
        self, settings: GatewaySettings, still_valid: Callable[[Principal], bool], *, logins: bool
    ) -> None:
        """Apply new settings. Clients stay connected unless their profile was removed or `still_valid`
        returns False for their principal."""
        self.settings = settings
        self.metrics.settings = settings.metrics
        self.access_log.use(settings.access_log)
        self.registry.limit, self.registry.per_account = settings.max_sessions, settings.client_sessions
        self._default.reconfigure(self._default.settings, logins=logins)
        profiles = settings.profiles
        for name, profile in profiles.items():
            if name in self._profiles:
                self._profiles[name].reconfigure(profile, logins=logins)
            else:
                self._profiles[name] = Profile(self.host, profile, name, logins=logins)
        for name in self._profiles.keys() - profiles.keys():
            del self._profiles[name]

        def stays(client: Client) -> bool:
            known = self.profile(client.profile.name) is client.profile
            return client.profile.inner or (known and still_valid(client.principal))

        self.subscriptions.close(stays)
        self.subscriptions.changed()
        await self.registry.end_unless(stays)

    async def run(self) -> None:
        """Deliver subscriptions and end idle sessions until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.subscriptions.run())
            tasks.create_task(self._keep_reaping())

    async def _wait_for_servers(self, method: str) -> None:
        """Wait for starting servers, together at most `FIRST_WAIT` from the first request on: many clients
        list once, directly after connecting, and learn the extensions in the handshake alone."""
        handshake = method in ("initialize", "server/discover")
        if not handshake and not method.endswith("/list"):
            return
        now = time.monotonic()
        self._first = self._first or now
        if handshake and self._extensions_known():
            return
        limit = DISCOVER_WAIT if method == "server/discover" else FIRST_WAIT
        left = self._first + limit - now
        await self.host.ready(max(left, 0.0))
        self._settled = limit == FIRST_WAIT or all(one.state != "pending" for one in self.host.status())

    def _extensions_known(self) -> bool:
        """Whether every server that is starting has been listed before."""
        known = self.host.catalog.servers
        return all(one.state != "pending" or one.name in known for one in self.host.status())

    async def _keep_reaping(self) -> None:
        while True:
            await asyncio.sleep(self.host.config.idle_reap_interval)
            self.registry.ttl = self.host.config.session_ttl
            await self.registry.reap()

    async def answer(self, client: Client, message: Mapping[str, Any], exchange: ClientExchange) -> Answer:
        """Return the result of one request; count it and write it to the audit log.

        Raises:
            Refusal: The response is an error.
        """
        started = time.monotonic()
        params = fields(message.get("params"))
        record = exchange.record = RequestRecord(
            client, trace_of(exchange.headers, fields(params.get("_meta")))
        )
        caller = _caller(client, exchange.headers)
        token, subject = CALLER.set(caller), SUBJECT.set(client.principal.subject)
        self.under_way += 1
        code = ""
        try:
            if not self._settled:
                client.silenced += 1
                try:
                    await self._wait_for_servers(message["method"])
                finally:
                    client.silenced -= 1
            answer = await self.handlers.answer(client, message, exchange)
            failed = not isinstance(answer, bytes) and answer.get("isError") is True
            record.outcome = "error" if failed else "ok"
            return answer
        except Refusal as refusal:
            record.outcome, code = "refused", str(refusal.code)
            record.error = record.error or _KINDS.get(refusal.code, "server_error")
            raise
        except Exception:
            record.outcome, record.error = "failed", "internal"
            log.exception("request failed with an internal error method=%r", message.get("method"))
            raise Refusal(INTERNAL_ERROR, "internal error in the gateway; its log has the details") from None
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()
            record.seconds = time.monotonic() - started
            if record.outcome == "cancelled" and caller.outcome not in (None, "cancelled"):
                # The client left between the end of the call and its response.
                record.outcome = "ok" if caller.outcome == "ok" else "error"
            if message["method"] in METHODS:
                record.method = message["method"]
            if not client.profile.inner:  # the node that got the request counts and records it
                self._locate(record, client, params)
                self.metrics.answered(record)
                self._note(caller, message, record, code)
            CALLER.reset(token)
            SUBJECT.reset(subject)

    def _locate(self, record: RequestRecord, client: Client, params: Mapping[str, Any]) -> None:
        """Set the server and the tool of a call that has no result, if the client sees such a tool."""
        if record.method == "tools/call" and record.server is None:
            name: object = params.get("name")
            tool = client.profile.catalog.tools.get(name) if isinstance(name, str) else None
            if tool is not None:
                record.server, record.tool = tool.server, tool.remote_name

    def _note(self, caller: Caller, message: Mapping[str, Any], record: RequestRecord, code: str) -> None:
        """Write requests to the audit log that no session records: reads, prompts, and calls refused before
        they reached a session."""
        audit, verb = runtime_of(self.host).audit, _NOTED.get(str(message["method"]))
        # A call that is suspended until the client answers is recorded when it ends.
        waits = verb == "call" and record.outcome == "ok"
        if audit is None or verb is None or caller.outcome is not None or waits:
            return
        params = fields(message.get("params"))
        audit.note(
            verb,
            name=str(params.get("name") or params.get("uri")),
            arguments=params.get("arguments"),
            outcome=record.outcome,
            error=code or None,
            seconds=record.seconds,
        )

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, end streams, and wait up to `seconds` for running requests."""
        self.draining = True
        self.subscriptions.close()
        for client in self.registry:
            if client.event_stream is not None:
                client.event_stream.close()
        self._idle.clear()
        if self.under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._idle.wait()

    async def close(self) -> None:
        self.era_bridge.suspended_calls.close()
        await self.registry.close()
        await self.access_log.close()


def _caller(client: Client, headers: Mapping[str, str]) -> Caller:
    # Only a prefix: the full id would give access to the session.
    session = client.id[:8] if client.era == "legacy" else None
    profile = client.profile.name or None
    return Caller(client.principal.name, profile=profile, session=session, headers=headers)
