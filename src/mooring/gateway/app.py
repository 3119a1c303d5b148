"""The gateway itself: a host with a desk in front, and the doors that lead to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from mooring.audit import CALLER, Caller
from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.gateway.clients import Client, ClientExchange, Principal, SessionRegistry
from mooring.gateway.era_bridge import EraBridge
from mooring.gateway.handlers import Answer, RequestHandlers
from mooring.gateway.log_levels import LogLevels
from mooring.gateway.metrics import Metrics
from mooring.gateway.profiles import Profile
from mooring.gateway.protocol import INTERNAL_ERROR, METHOD_NOT_FOUND, Refusal, fields
from mooring.gateway.subscriptions import Subscriptions
from mooring.host import Host, runtime_of
from mooring.transport.forwarding import ClientBridge

__all__ = ["Gateway"]

log = logger("mooring.gateway")

FIRST_LOOK = 10.0
"""Seconds that the first lists wait at most for servers that are still starting."""


_NOTED = {"tools/call": "call", "resources/read": "read", "prompts/get": "prompt"}


class Gateway:
    """Serves one running host. Whoever makes it opens doors to it and runs `run()` beside them."""

    def __init__(
        self,
        host: Host,
        *,
        whole: ProfileSettings | None = None,
        stateless: bool = False,
        key: bytes | None = None,
        logins: bool = True,
    ) -> None:
        self.host = host
        self.stateless = stateless
        """Whether handshake clients get no session: needed where several processes share a port."""
        self.settings: GatewaySettings = host.config.gateway
        self._whole = Profile(host, whole or ProfileSettings(), logins=logins)
        self._profiles = {
            name: Profile(host, profile, name, logins=logins)
            for name, profile in self.settings.profiles.items()
        }
        self.crossing = EraBridge(runtime_of(host).relay or ClientBridge(), key, asks=not stateless)
        self.registry = SessionRegistry(
            limit=self.settings.max_sessions,
            each=self.settings.client_sessions,
            ttl=host.config.session_ttl,
            leave=self.crossing.leave,
        )
        self.desk = RequestHandlers(self.crossing, LogLevels(self.registry))
        self.hub = Subscriptions(self)
        self.metrics = Metrics()
        self.under_way = 0
        self.draining = False
        self._settled = False
        self._idle = asyncio.Event()

    def view(self, profile: str) -> Profile | None:
        """What a profile shows; the empty name is everything."""
        return self._profiles.get(profile) if profile else self._whole

    def views(self) -> list[Profile]:
        return [self._whole, *self._profiles.values()]

    async def take(
        self, settings: GatewaySettings, keeps: Callable[[Principal], bool], *, logins: bool
    ) -> None:
        """Go on under other settings. Clients stay, unless their profile is gone or `keeps` says no."""
        self.settings = settings
        self.registry.limit, self.registry.each = settings.max_sessions, settings.client_sessions
        self._whole.take(self._whole.settings, logins=logins)
        profiles = settings.profiles
        for name, profile in profiles.items():
            if name in self._profiles:
                self._profiles[name].take(profile, logins=logins)
            else:
                self._profiles[name] = Profile(self.host, profile, name, logins=logins)
        for name in self._profiles.keys() - profiles.keys():
            del self._profiles[name]

        def stays(client: Client) -> bool:
            return keeps(client.principal) and self.view(client.view.name) is client.view

        self.hub.close(stays)
        self.hub.changed()
        await self.registry.keep(stays)

    async def run(self) -> None:
        """Follow what happens behind, and let go of those who went away, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.hub.run())
            tasks.create_task(self._keep_reaping())

    async def _first_look(self) -> None:
        """Clients list once, early, and some never again: so the servers get a moment to come."""
        await self.host.ready(FIRST_LOOK)
        self._settled = True

    async def _keep_reaping(self) -> None:
        while True:
            await asyncio.sleep(self.host.config.idle_reap_interval)
            self.registry.ttl = self.host.config.session_ttl
            await self.registry.reap()

    async def answer(self, client: Client, message: Mapping[str, Any], exchange: ClientExchange) -> Answer:
        """The result of one request, counted and noted.

        Raises:
            Refusal: the answer is an error.
        """
        started = time.monotonic()
        outcome = "cancelled"
        caller = _caller(client)
        token = CALLER.set(caller)
        self.under_way += 1
        try:
            if not self._settled and message["method"].endswith("/list"):
                await self._first_look()
            answer = await self.desk.answer(client, message, exchange)
            failed = not isinstance(answer, bytes) and answer.get("isError") is True
            outcome = "error" if failed else "ok"
            return answer
        except Refusal as refusal:
            outcome = f"refused {refusal.code}"
            raise
        except Exception:
            outcome = "failed"
            log.exception("the gateway failed to answer %r", message.get("method"))
            raise Refusal(INTERNAL_ERROR, "the gateway failed to answer") from None
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()
            self._count(message, outcome, time.monotonic() - started)
            self._note(caller, message, outcome, time.monotonic() - started)
            CALLER.reset(token)

    def _count(self, message: Mapping[str, Any], outcome: str, seconds: float) -> None:
        known = "unknown" if outcome == f"refused {METHOD_NOT_FOUND}" else str(message["method"])
        self.metrics.answered(known, outcome.split()[0], seconds)

    def _note(self, caller: Caller, message: Mapping[str, Any], outcome: str, seconds: float) -> None:
        """Note what no session has: what is read, and calls that were refused before they were one."""
        audit, verb = runtime_of(self.host).audit, _NOTED.get(str(message["method"]))
        waits = verb == "call" and outcome == "ok"  # for an answer of the client: noted when it ends
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
        """Take nothing new; end streams; give what is under way some time."""
        self.draining = True
        self.hub.close()
        for client in self.registry:
            if client.standing is not None:
                client.standing.close()
        self._idle.clear()
        if self.under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.drain):
                    await self._idle.wait()

    async def close(self) -> None:
        self.crossing.parking.close()
        await self.registry.close()


def _caller(client: Client) -> Caller:
    # A whole session id would be as good as the session.
    session = client.id[:8] if client.era == "legacy" else None
    return Caller(client.principal.name, profile=client.view.name or None, session=session)
