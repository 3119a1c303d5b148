"""Limits of clients over the nodes of a cluster."""

from __future__ import annotations

import json
import time
from base64 import b32encode
from collections.abc import Callable
from hashlib import sha256

from mooring.cluster.engine import EngineError, NatsEngine
from mooring.gateway.routes import ClientLimits, RateLimited

__all__ = ["DividedLimits", "ExactRate", "placement_key"]

MAX_TRIES = 50
"""How often a count is tried again that another node changed in the same moment."""


def placement_key(kind: str, name: str) -> str:
    """Return the key for something that runs once; the engine allows few characters in it."""
    return f"{kind}.{b32encode(sha256(name.encode()).digest()[:20]).decode().lower()}"


class ExactRate:
    """A token bucket for each client, in the engine. The clocks of the nodes must agree to some milliseconds.

    Args:
        engine: The engine.
        key: Returns the key in the engine for a kind and a name.
    """

    def __init__(self, engine: NatsEngine, key: Callable[[str, str], str]) -> None:
        self._engine, self._key = engine, key

    async def take(self, client: str, rate: float, burst: int) -> None:
        """Count one request.

        Raises:
            RateLimited: There are too many; this one was not counted.
            EngineError: The engine does not answer.
        """
        key = self._key("rate", client)
        for _ in range(MAX_TRIES):
            value, last = await self._engine.read("counts", key)
            now = time.time()
            tokens, at = (float(burst), now) if value is None else json.loads(value)
            tokens = min(float(burst), tokens + max(now - at, 0.0) * rate)
            if tokens < 1:
                raise RateLimited(
                    f"more than {rate:g} requests per second (gateway.rate)", (1 - tokens) / rate
                )
            kept = json.dumps([tokens - 1, max(now, at)]).encode()
            if await self._engine.write("counts", key, kept, last) is not None:
                return
        raise RateLimited("requests of this client come on all nodes at once (gateway.rate)", 1.0)


class DividedLimits(ClientLimits):
    """`rate` and `burst` divided by the number of nodes. The limit of concurrent requests is that of a node.

    A load balancer that spreads the requests of a client evenly gives it the whole rate; another one less,
    never more. With `exact`, the engine counts the rate, and these shares hold while it does not answer.
    """

    def __init__(
        self, *, rate: float | None, burst: int, concurrency: int, exact: ExactRate | None = None
    ) -> None:
        self._nodes = 1
        self._exact = exact
        self._by_node = ClientLimits(rate=rate, burst=burst, concurrency=concurrency)
        self._whole = (rate, burst, concurrency)
        super().__init__(rate=rate, burst=burst, concurrency=concurrency)

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self._whole = (rate, burst, concurrency)
        part = None if rate is None else rate / self._nodes
        share = max(1, burst // self._nodes)
        self._by_node.set(rate=part, burst=share, concurrency=concurrency)
        here = part if self._exact is None else None
        super().set(rate=here, burst=share, concurrency=concurrency)

    async def count(self, client: str) -> None:
        """Count a request in the engine, if the rate is exact.

        Raises:
            RateLimited: There are too many.
        """
        rate, burst, _ = self._whole
        if self._exact is None or rate is None:
            return
        try:
            await self._exact.take(client, rate, burst)
        except EngineError:
            self._by_node.enter(client, time.monotonic())
            self._by_node.leave(client)

    def share(self, nodes: int) -> None:
        """Set the number of nodes that share the limits."""
        if nodes != self._nodes:
            self._nodes = nodes
            rate, burst, concurrency = self._whole
            self.set(rate=rate, burst=burst, concurrency=concurrency)
