"""The gateway of one host: clients, handlers and subscriptions, shared by all transports."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from mooring.audit import CALLER, Caller
from mooring.auth.subject import SUBJECT
from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.gateway.clients import Client, ClientExchange, Principal, SessionRegistry
from mooring.gateway.era_bridge import EraBridge
from mooring.gateway.handlers import Answer, RequestHandlers
from mooring.gateway.logins import RemoteLogins
from mooring.gateway.profiles import Profile
from mooring.gateway.protocol import INTERNAL_ERROR, METHOD_NOT_FOUND, Refusal, fields
from mooring.gateway.subscriptions import LogLevels, Subscriptions
from mooring.host import Host, runtime_of
from mooring.transport.message import ClientBridge

__all__ = ["Gateway", "Metrics"]

log = logger("mooring.gateway")

FIRST_LIST_WAIT = 10.0
"""Longest time in seconds that the first list request waits for servers that are still starting."""

_NOTED = {"tools/call": "call", "resources/read": "read", "prompts/get": "prompt"}


class Gateway:
    """Serves one running host. Start transports that feed it, and run `run()` alongside them."""

    def __init__(
        self,
        host: Host,
        *,
        default_profile: ProfileSettings | None = None,
        stateless: bool = False,
        key: bytes | None = None,
        logins: bool = True,
    ) -> None:
        self.host = host
        self.stateless = stateless
        """Whether handshake clients get no session. Required when several processes share a port."""
        self.settings: GatewaySettings = host.config.gateway
        self._default = Profile(host, default_profile or ProfileSettings(), logins=logins)
        self._profiles = {
            name: Profile(host, settings, name, logins=logins)
            for name, settings in self.settings.profiles.items()
        }
        self.era_bridge = EraBridge(runtime_of(host).relay or ClientBridge(), key, asks=not stateless)
        self.registry = SessionRegistry(
            limit=self.settings.max_sessions,
            per_account=self.settings.client_sessions,
            ttl=host.config.session_ttl,
            on_close=self.era_bridge.leave,
        )
        self.logins = RemoteLogins(host)
        self.handlers = RequestHandlers(self.era_bridge, LogLevels(self.registry), self.logins)
        self.subscriptions = Subscriptions(self)
        self.metrics = Metrics()
        self.under_way = 0
        self.draining = False
        self._settled = False
        self._idle = asyncio.Event()

    def profile(self, name: str) -> Profile | None:
        """Return the profile of this name, None if there is none. The empty name is the default profile."""
        return self._profiles.get(name) if name else self._default

    def profiles(self) -> list[Profile]:
        return [self._default, *self._profiles.values()]

    async def reconfigure(
        self, settings: GatewaySettings, still_valid: Callable[[Principal], bool], *, logins: bool
    ) -> None:
        """Apply new settings. Clients stay connected unless their profile was removed or `still_valid`
        returns False for their principal."""
        self.settings = settings
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
            return still_valid(client.principal) and self.profile(client.profile.name) is client.profile

        self.subscriptions.close(stays)
        self.subscriptions.changed()
        await self.registry.end_unless(stays)

    async def run(self) -> None:
        """Deliver subscriptions and end idle sessions until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.subscriptions.run())
            tasks.create_task(self._keep_reaping())

    async def _wait_for_servers(self) -> None:
        """Wait for starting servers: many clients list once, directly after connecting."""
        await self.host.ready(FIRST_LIST_WAIT)
        self._settled = True

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
        outcome = "cancelled"
        caller = _caller(client)
        token, subject = CALLER.set(caller), SUBJECT.set(client.principal.subject)
        self.under_way += 1
        try:
            if not self._settled and message["method"].endswith("/list"):
                await self._wait_for_servers()
            answer = await self.handlers.answer(client, message, exchange)
            failed = not isinstance(answer, bytes) and answer.get("isError") is True
            outcome = "error" if failed else "ok"
            return answer
        except Refusal as refusal:
            outcome = f"refused {refusal.code}"
            raise
        except Exception:
            outcome = "failed"
            log.exception("request failed with an internal error method=%r", message.get("method"))
            raise Refusal(INTERNAL_ERROR, "internal error in the gateway; its log has the details") from None
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()
            self._count(message, outcome, time.monotonic() - started)
            self._note(caller, message, outcome, time.monotonic() - started)
            CALLER.reset(token)
            SUBJECT.reset(subject)

    def _count(self, message: Mapping[str, Any], outcome: str, seconds: float) -> None:
        known = "unknown" if outcome == f"refused {METHOD_NOT_FOUND}" else str(message["method"])
        self.metrics.answered(known, outcome.split()[0], seconds)

    def _note(self, caller: Caller, message: Mapping[str, Any], outcome: str, seconds: float) -> None:
        """Write requests to the audit log that no session records: reads, prompts, and calls refused before
        they reached a session."""
        audit, verb = runtime_of(self.host).audit, _NOTED.get(str(message["method"]))
        waits = (
            verb == "call" and outcome == "ok"
        )  # suspended until the client answers; recorded when it ends
        if audit is None or verb is None or caller.noted or waits:
            return
        params = fields(message.get("params"))
        audit.note(
            verb,
            name=str(params.get("name") or params.get("uri")),
            arguments=params.get("arguments"),
            outcome=outcome.split()[0],
            error=outcome.partition(" ")[2] or None,
            seconds=seconds,
        )

    async def drain(self) -> None:
        """Refuse new requests, end streams, and wait up to `gateway.drain` seconds for running requests."""
        self.draining = True
        self.subscriptions.close()
        for client in self.registry:
            if client.event_stream is not None:
                client.event_stream.close()
        self._idle.clear()
        if self.under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.drain):
                    await self._idle.wait()

    async def close(self) -> None:
        self.era_bridge.suspended_calls.close()
        await self.registry.close()


def _caller(client: Client) -> Caller:
    # Only a prefix: the full id would give access to the session.
    session = client.id[:8] if client.era == "legacy" else None
    return Caller(client.principal.name, profile=client.profile.name or None, session=session)


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Histogram buckets in seconds."""
MAX_SERIES = 1_000


class Metrics:
    """Request counts by method and outcome, and durations."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._refused: defaultdict[str, int] = defaultdict(int)

    def answered(self, method: str, outcome: str, seconds: float) -> None:
        if len(self._requests) >= MAX_SERIES and (method, outcome) not in self._requests:
            method = "other"
        self._requests[method, outcome] += 1
        self._buckets[method][bisect_left(BOUNDS, seconds)] += 1
        self._sums[method] += seconds

    def refused(self, status: int) -> None:
        """Count a request that was rejected with an HTTP status."""
        self._refused[str(status)] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]], servers: Iterable[tuple[str, bool, int]]) -> str:
        """Return all metrics as text; `gauges` maps names to (help text, value)."""
        lines: list[str] = []
        _head(lines, "mooring_gateway_requests_total", "counter", "Requests answered.")
        for (method, outcome), count in sorted(self._requests.items()):
            labels = f'method="{_escaped(method)}",outcome="{outcome}"'
            lines.append(f"mooring_gateway_requests_total{{{labels}}} {count}")
        _head(lines, "mooring_gateway_request_seconds", "histogram", "Time from a request to its response.")
        for method, counts in sorted(self._buckets.items()):
            label, total = f'method="{_escaped(method)}"', 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'mooring_gateway_request_seconds_bucket{{{label},le="{bound}"}} {total}')
            lines.append(f"mooring_gateway_request_seconds_sum{{{label}}} {self._sums[method]:.6f}")
            lines.append(f"mooring_gateway_request_seconds_count{{{label}}} {total}")
        _head(lines, "mooring_gateway_refused_total", "counter", "Requests rejected, by HTTP status.")
        lines += [
            f'mooring_gateway_refused_total{{status="{s}"}} {n}' for s, n in sorted(self._refused.items())
        ]
        for name, (meaning, value) in gauges.items():
            _head(lines, f"mooring_gateway_{name}", "gauge", meaning)
            lines.append(f"mooring_gateway_{name} {value:g}")
        _head(lines, "mooring_server_up", "gauge", "Whether a server is connected.")
        known = list(servers)
        lines += [f'mooring_server_up{{server="{_escaped(name)}"}} {int(up)}' for name, up, _ in known]
        _head(lines, "mooring_server_tools", "gauge", "Number of tools of a server.")
        lines += [f'mooring_server_tools{{server="{_escaped(name)}"}} {tools}' for name, _, tools in known]
        return "\n".join(lines) + "\n"


def _head(lines: list[str], name: str, kind: str, meaning: str) -> None:
    lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
