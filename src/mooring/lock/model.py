"""What servers were approved to be: the values that a lock holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from mooring.core.types import EMPTY, Snapshot, Tool
from mooring.core.value import Value, field
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.core.search_index import InvertedIndex

__all__ = ["NO_MARKS", "Lock", "LockError", "Mark", "Marks", "NewerLockError", "Pin"]

Mark = tuple[str, str, str]
"""One field of a server or of one of its entries: the subject, its name (empty for the server), and the path
of the field, such as `description` or `input.properties.path.default`."""
Marks = Mapping[Mark, str]
"""How fields differ from start to start: `order`, the same words in another order; `text`, in any way."""
NO_MARKS: Marks = MappingProxyType({})


class LockError(ConfigError):
    """A lock cannot be used as it is written."""


class NewerLockError(LockError):
    """A lock was written by a newer mooring."""


class Pin(Value):
    """What one server was approved to be."""

    fingerprint: str
    """Of the server's configuration; it holds no secret."""
    snapshot: Snapshot
    """What counts of what it offered, in order."""
    whole: bool = True
    """False: made by an older mooring, or for the cache; without resources, `_meta` and unknown fields,
    which are then not compared."""
    volatile: Marks = NO_MARKS
    """The fields that differ from start to start. They are not compared, or only by their words; what was
    approved of them is what is shown."""

    @property
    def server(self) -> str:
        return self.snapshot.server


class Lock(Value):
    """What all servers of a configuration were approved to be."""

    servers: Mapping[str, Pin] = EMPTY
    """In order of name."""
    words: InvertedIndex | None = field(default=None, shown=False, compare=False)
    """The words of all tools, numbered in their order, where they have been read before."""

    @property
    def tools(self) -> Iterator[Tool]:
        """The tools of all servers, in order."""
        return (tool for pin in self.servers.values() for tool in pin.snapshot.tools)
