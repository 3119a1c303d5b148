"""Limits of clients over the nodes of a cluster."""

from __future__ import annotations

from mooring.gateway.routes import ClientLimits

__all__ = ["DividedLimits"]


class DividedLimits(ClientLimits):
    """`rate` and `burst` divided by the number of nodes. The limit of concurrent requests is that of a node.

    A load balancer that spreads the requests of a client evenly gives it the whole rate; another one less,
    never more.
    """

    def __init__(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self._nodes = 1
        self._whole = (rate, burst, concurrency)
        super().__init__(rate=rate, burst=burst, concurrency=concurrency)

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self._whole = (rate, burst, concurrency)
        part = None if rate is None else rate / self._nodes
        super().set(rate=part, burst=max(1, burst // self._nodes), concurrency=concurrency)

    def share(self, nodes: int) -> None:
        """Set the number of nodes that share the limits."""
        if nodes != self._nodes:
            self._nodes = nodes
            rate, burst, concurrency = self._whole
            self.set(rate=rate, burst=burst, concurrency=concurrency)
