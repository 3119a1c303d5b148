"""What servers were approved to be: the values that a lock holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mooring.core.types import EMPTY, Snapshot, Tool
from mooring.core.values import Value, field
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.core.inverted import Inverted

__all__ = ["Lock", "LockError", "NewerLockError", "Pin"]


class LockError(ConfigError):
    """A lock cannot be used as it is written."""


class NewerLockError(LockError):
    """A lock was written by a newer mooring."""


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
    """What all servers of a configuration were approved to be."""

    servers: Mapping[str, Pin] = EMPTY
    """In order of name."""
    words: Inverted | None = field(default=None, shown=False, compare=False)
    """The words of all tools, numbered in their order, where they have been read before."""

    @property
    def tools(self) -> Iterator[Tool]:
        """The tools of all servers, in order."""
        return (tool for pin in self.servers.values() for tool in pin.snapshot.tools)
