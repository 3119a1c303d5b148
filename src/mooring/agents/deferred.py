"""Tools that a runtime registers by name and builds at first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from mooring.core.types import Result, Tool
from mooring.host import Host
from mooring.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredTool:
    """One tool, bound to the host or session that calls it."""

    tool: Tool
    source: Host | Session

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def input_schema(self) -> Mapping[str, Any]:
        return self.tool.input_schema

    async def __call__(self, arguments: Mapping[str, Any] | None = None, **options: Any) -> Result:
        """Call the tool; see `Session.call` for the options."""
        return await self.source.call(self.tool.name, arguments, **options)


Factory = Callable[[], DeferredTool]


def discovered_names(host: Host) -> tuple[str, ...]:
    """The sorted names of all tools: the allowlist of deferred tools."""
    return tuple(sorted(host.catalog.tools))


def register_factories(
    host: Host, registry: MutableMapping[str, Factory], source: Session | None = None
) -> tuple[str, ...]:
    """Add a factory for each tool to `registry`, and return the new names.

    Call it again when the tools change, for example from `on_tools_changed`: factories of removed tools are
    deleted. A factory looks up its tool when it is called. Entries of other origin are not changed.
    """
    names = discovered_names(host)
    removed = [
        name
        for name, entry in registry.items()
        if isinstance(entry, _ToolFactory) and entry.host is host and name not in host.catalog.tools
    ]
    for name in removed:
        del registry[name]
    new = tuple(name for name in names if name not in registry)
    for name in new:
        registry[name] = _ToolFactory(host=host, name=name, source=source or host)
    return new


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolFactory:
    host: Host
    name: str
    source: Host | Session

    def __call__(self) -> DeferredTool:
        """Build the tool from the current catalog.

        Raises:
            UnknownTool: the tool no longer exists.
        """
        return DeferredTool(tool=self.host.catalog.route(self.name), source=self.source)
