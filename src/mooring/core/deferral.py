"""Tools for providers that can hold definitions back themselves and look them up when needed.

Data for adapters: which tools are loaded at once, which are deferred, and what namespace each belongs
to. The order is the catalog's, so that the list is the same bytes every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256

from mooring.core.catalog import Catalog
from mooring.core.types import Group, Tool
from mooring.core.untrusted import line

__all__ = ["Deferrable", "Namespace", "deferrable", "namespaces"]

_PURPOSE = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferrable:
    """One tool, and whether the provider should load it only when a search finds it."""

    tool: Tool
    defer_loading: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A group of tools under a name that providers accept."""

    name: str
    description: str
    tools: tuple[Deferrable, ...]


def deferrable(catalog: Catalog, loaded: Collection[str]) -> tuple[Deferrable, ...]:
    """Return every tool of the catalog; those in `loaded` are not deferred."""
    return tuple(
        Deferrable(tool=tool, defer_loading=name not in loaded) for name, tool in catalog.tools.items()
    )


def namespaces(catalog: Catalog, loaded: Collection[str]) -> tuple[Namespace, ...]:
    """Return the groups as namespaces, each tool in the first group that has it."""
    left = {entry.tool.name: entry for entry in deferrable(catalog, loaded)}
    counts = Counter(_name(group) for group in catalog.groups)
    found: list[Namespace] = []
    for group in catalog.groups:
        members = tuple(left.pop(name) for name in group.members if name in left)
        if members:
            name = _name(group)
            if counts[name] > 1:  # groups `mcp:a-b` and `mcp:a_b`
                name = f"{name[:55]}_{sha256(group.id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
            found.append(Namespace(name=name, description=line(group.description, _PURPOSE), tools=members))
    return tuple(found)


def _name(group: Group) -> str:
    """Group ids hold a colon, which providers refuse."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in group.id)[:64]
