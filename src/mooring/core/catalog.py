"""Everything that is on offer at one instant, and in what two such instants differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from mooring.core.names import Style
from mooring.core.near import nearest
from mooring.core.types import EMPTY, Group, Prompt, Resource, ResourceTemplate, Tool
from mooring.core.values import Value, field
from mooring.errors import UnknownTool

if TYPE_CHECKING:
    from mooring.core.merging import Part

__all__ = ["Catalog", "Diff", "diff", "same"]


class Catalog(Value):
    """Everything that is on offer at one instant. Never changes: a refresh makes another one."""

    tools: Mapping[str, Tool] = EMPTY
    """By local name, in order of local name."""
    groups: tuple[Group, ...] = ()
    """In order of id. A group without a visible tool is left out."""
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    servers: tuple[str, ...] = ()
    """Ids of the servers that were merged, in order; the providers of static tools are not among them."""
    configured: frozenset[str] = field(default=frozenset(), shown=False, compare=False)
    """Ids of all servers there may be, connected or not."""
    style: Style = "mcp"
    warnings: tuple[str, ...] = ()
    """What the merge hid or finds doubtful, and why."""
    parts: Mapping[str, Part] = field(default=EMPTY, shown=False, compare=False)
    """By server: what it was merged from, for the next merge."""

    @cached_property
    def revision(self) -> str:
        """Hash of what a model can see: the same for the same content, in whatever order it came."""
        digest = sha256()
        for definition in _definitions(self):
            digest.update(_canonical(definition))
        return digest.hexdigest()[:16]

    def route(self, name: str) -> Tool:
        """Return the tool of this local name.

        Raises:
            UnknownTool: there is none; the error names the nearest.
        """
        tool = self.tools.get(name)
        if tool is None:
            raise UnknownTool(_cut(name), nearest(name, self.tools))
        return tool

    def group(self, group_id: str) -> Group | None:
        """Return the group of this id, or None."""
        return self._by_id.get(group_id)

    @cached_property
    def _by_id(self) -> dict[str, Group]:
        return {group.id: group for group in self.groups}


class Diff(Value):
    """Local names of tools, each tuple sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    resources: bool = False
    """Whether the resources or their templates are others."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.resources)


def diff(old: Catalog, new: Catalog) -> Diff:
    """Return which tools came, went, or are defined otherwise in the new catalog."""
    before, after = old.tools, new.tools
    return Diff(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(
            name
            for name, tool in after.items()
            if (known := before.get(name)) is not None and known is not tool and not same(known, tool)
        ),
        resources=(old.resources, old.templates) != (new.resources, new.templates),
    )


def _definitions(catalog: Catalog) -> Iterator[list[Any]]:
    """Yield what a model can see of each entry, as JSON values. Resources are data, which comes and goes."""
    for tool in catalog.tools.values():
        texts = [tool.name, tool.title, tool.description]
        yield ["tool", *texts, tool.input_schema, tool.output_schema, tool.annotations]
    for group in catalog.groups:
        yield ["group", group.id, group.title, group.description, group.instructions, group.members]
    for item in catalog.templates:
        yield ["template", item.server, item.uri_template, item.name, item.title, item.description]
    for item in catalog.prompts:
        yield ["prompt", item.server, item.name, item.title, item.description, item.arguments]


def _canonical(definition: list[Any]) -> bytes:
    try:
        return json.dumps(definition, sort_keys=True, default=dict).encode()
    except (TypeError, ValueError, RecursionError):
        # Not JSON, or nested too deep: only programs can build that. Its texts identify it.
        return repr([part for part in definition if isinstance(part, str)]).encode(
            "utf-8", "backslashreplace"
        )


def same(one: Tool, other: Tool) -> bool:
    """Return whether two tools are defined alike."""
    try:
        return one == other
    except RecursionError:  # schemas nested too deep to compare
        return False


def _cut(name: str) -> str:
    return name if len(name) <= 80 else name[:79] + "…"
