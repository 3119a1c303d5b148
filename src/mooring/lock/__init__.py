"""Approved definitions of servers: `mooring.lock`, its comparison with listings, and the cache."""

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
"""How fields differ between starts: `order`, the same words in another order; `text`, in any way."""
NO_MARKS: Marks = MappingProxyType({})


class LockError(ConfigError):
    """A lock file is invalid."""


class NewerLockError(LockError):
    """A lock was written by a newer version of mooring."""


class Pin(Value):
    """The approved definitions of one server."""

    fingerprint: str
    """Hash of the server's configuration, without secrets."""
    snapshot: Snapshot
    """The pinned fields of its lists, in order."""
    whole: bool = True
    """False for pins of older versions and of the cache, without resources, `_meta` and unknown fields, which
    are then not compared."""
    volatile: Marks = NO_MARKS
    """Fields that differ between starts. They are not compared, or only by their words. The approved values
    are shown."""

    @property
    def server(self) -> str:
        return self.snapshot.server


class Lock(Value):
    """The pins of all servers of a configuration."""

    servers: Mapping[str, Pin] = EMPTY
    """In order of name."""
    words: InvertedIndex | None = field(default=None, shown=False, compare=False)
    """Search index of all tools, numbered in order, if it was cached."""

    @property
    def tools(self) -> Iterator[Tool]:
        """The tools of all servers, in order."""
        return (tool for pin in self.servers.values() for tool in pin.snapshot.tools)
