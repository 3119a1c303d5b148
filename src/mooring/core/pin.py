"""What servers were approved to be: the values that a lock holds."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.core.types import EMPTY, Snapshot
from mooring.core.values import Value

__all__ = ["Lock", "Pin"]


class Pin(Value):
    """What one server was approved to be."""

    fingerprint: str
    """Of the server's configuration; it holds no secret."""
    snapshot: Snapshot
    """What counts of what it offered: in order, without resources, which are data and come and go."""

    @property
    def server(self) -> str:
        return self.snapshot.server


class Lock(Value):
    servers: Mapping[str, Pin] = EMPTY
    """In order of name."""
