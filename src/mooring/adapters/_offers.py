"""Tools with their schemas compiled for a dialect, each schema once."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from threading import Lock
from typing import Any

from mooring.config.logs import logger
from mooring.core import schema as schemas
from mooring.core.schema import Compiled, Dialect, SetAside
from mooring.core.types import Tool
from mooring.core.untrusted import clean

log = logger("mooring.adapters")

KEPT = 20_000
"""Compiled schemas that are kept. One schema can take hundreds of milliseconds to compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One tool as a framework gets it."""

    tool: Tool
    compiled: Compiled
    deferred: bool = False
    """Whether the provider should load it only when its own search finds it."""

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def schema(self) -> dict[str, Any]:
        """The arguments in the dialect: a copy, since frameworks write into what they are given."""
        return deepcopy(dict(self.compiled.schema))

    def description(self, limit: int = 4_000) -> str:
        """What the server says of the tool, fit to be shown. Never empty: some providers refuse that."""
        return clean(self.tool.description or self.tool.title or self.name, limit) or self.name


_kept: dict[tuple[int, Dialect], tuple[Mapping[str, Any], Compiled | None]] = {}
"""By the identity of a schema, which the entry keeps alive: catalogs use tools again that did not change."""

_writing = Lock()
"""Agents list their tools from many threads."""


def compiled_for(tool: Tool, dialect: Dialect) -> Compiled | None:
    """The tool's schema in the dialect; None, and a warning the first time, when it cannot be offered."""
    schema = tool.input_schema
    key = (id(schema), dialect)
    known = _kept.get(key)
    if known is not None:
        return known[1]
    compiled: Compiled | None = None
    try:
        compiled = schemas.compile(schema, dialect)
    except SetAside as problem:
        log.warning("tool %r is not offered to the model: %s", tool.name, problem.reason)
    with _writing:
        while len(_kept) >= KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = (schema, compiled)
    return compiled


def is_kept(tool: Tool, dialect: Dialect) -> bool:
    """Whether `compiled_for` has its answer already."""
    return (id(tool.input_schema), dialect) in _kept
