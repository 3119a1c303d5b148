"""Tools that a runtime registers by name and builds when a model first wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from mooring.core.types import Result, Tool
from mooring.host import Host
from mooring.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredTool:
    """One tool, bound to whom it is called through."""

    tool: Tool
    source: Host | Session

    @property
    def name(self) -> str:
        return self.tool.name

    async def __call__(self, arguments: Mapping[str, Any] | None = None, **options: Any) -> Result:
        """The outcome of the call; see `Session.call`."""
        return await self.source.call(self.tool.name, arguments, **options)


Factory = Callable[[], DeferredTool]


def discovered_names(host: Host) -> tuple[str, ...]:
    """The names that a model may ask for, sorted: the allowlist of deferred tools."""
    return tuple(sorted(host.catalog.tools))


def register_factories(
    host: Host, registry: MutableMapping[str, Factory], source: Session | None = None
) -> tuple[str, ...]:
    """Put a factory for each tool into `registry`, and return the new names. To be called again whenever
    the tools change: what is there stays, and a factory looks the tool up when it is used."""
    new = tuple(name for name in discovered_names(host) if name not in registry)
    for name in new:
        registry[name] = _factory(host, name, source or host)
    return new


def _factory(host: Host, name: str, source: Host | Session) -> Factory:
    return lambda: DeferredTool(tool=host.catalog.route(name), source=source)
