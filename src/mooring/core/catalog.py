"""Many snapshots merged into one immutable catalog."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from mooring.core.names import Style, assign, imitates, prefix
from mooring.core.near import nearest
from mooring.core.prompts import prompt_tools
from mooring.core.text import without_hidden
from mooring.core.types import EMPTY, Group, Prompt, Resource, ResourceTemplate, Snapshot, Tool
from mooring.core.values import Value
from mooring.errors import UnknownTool

__all__ = ["Catalog", "Diff", "Filter", "diff", "merge"]

LONGEST = 4_096
"""Characters of a server's description that a model is shown."""
_SHOWN = 5
"""Names that one warning lists; the rest it counts, so that no server can flood the warnings."""


class Filter(Value):
    """Which tools of a server are offered: globs on the server's own names, `deny` over `allow`."""

    allow: tuple[str, ...] = ()
    """Empty: all of them."""
    deny: tuple[str, ...] = ()

    def passes(self, remote_name: str) -> bool:
        """Return whether a tool of this remote name is offered."""
        if any(fnmatchcase(remote_name, glob) for glob in self.deny):
            return False
        return not self.allow or any(fnmatchcase(remote_name, glob) for glob in self.allow)


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Everything that is on offer at one instant. Never changes: a refresh makes another one."""

    tools: Mapping[str, Tool] = field(default_factory=lambda: EMPTY)
    """By local name, in order of local name."""
    groups: tuple[Group, ...] = ()
    """In order of id. A group without a visible tool is left out."""
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    servers: tuple[str, ...] = ()
    """Ids of the servers that were merged, in order; the providers of static tools are not among them."""
    style: Style = "mcp"
    warnings: tuple[str, ...] = ()
    """What the merge hid or finds doubtful, and why."""
    sources: Mapping[str, Tool] = field(default_factory=lambda: EMPTY, repr=False, compare=False)
    """The tool of the snapshot behind each tool of a server, for the next merge."""

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
            if (known := before.get(name)) is not None and known is not tool and not _same(known, tool)
        ),
        resources=(old.resources, old.templates) != (new.resources, new.templates),
    )


def merge(
    snapshots: Iterable[Snapshot],
    *,
    style: Style = "mcp",
    filters: Mapping[str, Filter] = EMPTY,
    static: Iterable[Snapshot] = (),
    description_prefix: bool = False,
    previous: Catalog | None = None,
) -> Catalog:
    """Return the catalog of all snapshots.

    Args:
        snapshots: One per server; of two for the same server the last counts. Their order matters
            in style `raw` only, where the last server wins a name.
        style: How local names are made.
        filters: By server; a tool that does not pass leaves no trace.
        static: The application's own tools: names verbatim, and a server's tool that comes to the
            same name is hidden.
        description_prefix: Start the description of each server's tool with `[MCP: <server>]`.
        previous: An older catalog, whose tools are used again where they are the same.
    """
    own = tuple(static)
    latest = {snapshot.server: snapshot for snapshot in snapshots}
    ordered = tuple(latest[server] for server in sorted(latest))
    warnings: list[str] = []
    tools, visible = _static_tools(own, filters, warnings)
    offers = {
        snapshot.server: _genuine(snapshot.server, _offer(snapshot, filters, warnings), style, warnings)
        for snapshot in ordered
    }
    names = assign([(server, remote) for server in latest for remote in offers[server]], style)
    taken = frozenset(tools)
    old = previous if previous is not None else Catalog()
    sources: dict[str, Tool] = {}
    for server, offer in offers.items():
        routes = _routes(server, offer, names, taken, warnings)
        visible.append(routes)
        lead = f"[MCP: {server}] " if description_prefix else ""
        for remote, name in routes.items():
            sources[name] = offer[remote]
            tools[name] = _localised(offer[remote], name, server, lead, old)
    warnings += _lookalikes(dict(zip(offers, visible[len(own) :], strict=True)), style)
    everyone = own + ordered
    return Catalog(
        tools=MappingProxyType({name: tools[name] for name in sorted(tools)}),
        groups=_groups(own, ordered, visible),
        resources=tuple(sorted((r for s in everyone for r in s.resources), key=lambda r: (r.server, r.uri))),
        templates=tuple(
            sorted((t for s in everyone for t in s.templates), key=lambda t: (t.server, t.uri_template))
        ),
        prompts=tuple(sorted((p for s in everyone for p in s.prompts), key=lambda p: (p.server, p.name))),
        servers=tuple(offers),
        style=style,
        warnings=tuple(warnings),
        sources=sources,
    )


_Routes = dict[str, str]
"""Of one provider: its own name of a tool -> the local name, for each tool that can be seen."""


def _offer(snapshot: Snapshot, filters: Mapping[str, Filter], warnings: list[str]) -> dict[str, Tool]:
    """Return the tools of one provider that pass its filter, by its own names; the first of a name counts."""
    passing = filters.get(snapshot.server)
    offer: dict[str, Tool] = {}
    repeated: dict[str, None] = {}
    for tool in snapshot.tools:
        if passing is not None and not passing.passes(tool.remote_name):
            continue
        if offer.setdefault(tool.remote_name, tool) is not tool:
            repeated[tool.remote_name] = None
    _warn(warnings, snapshot.server, "is offered more than once; the first counts", repeated)
    hidden = [
        name
        for name, tool in prompt_tools(snapshot.prompts).items()
        if (passing is None or passing.passes(name)) and offer.setdefault(name, tool) is not tool
    ]
    _warn(warnings, snapshot.server, "hides a prompt that would have the same name", hidden)
    return offer


def _genuine(server: str, offer: dict[str, Tool], style: Style, warnings: list[str]) -> dict[str, Tool]:
    """Return the tools that do not pass themselves off as mooring's own."""
    false = [remote for remote in offer if imitates(server, remote, style)]
    _warn(warnings, server, "has the name of a tool of mooring and is set aside", false)
    return {remote: tool for remote, tool in offer.items() if remote not in false} if false else offer


def _static_tools(
    own: tuple[Snapshot, ...], filters: Mapping[str, Filter], warnings: list[str]
) -> tuple[dict[str, Tool], list[_Routes]]:
    """Return the application's tools by name, and the routes of each of its providers."""
    tools: dict[str, Tool] = {}
    visible: list[_Routes] = []
    for snapshot in own:
        offer = _offer(snapshot, filters, warnings)
        routes = {remote: tool.name for remote, tool in offer.items() if tool.name not in tools}
        hidden = offer.keys() - routes.keys()
        _warn(warnings, snapshot.server, "is hidden by an earlier tool of the application", hidden)
        tools.update((offer[remote].name, offer[remote]) for remote in routes)
        visible.append(routes)
    return tools, visible


def _routes(
    server: str,
    offer: Mapping[str, Tool],
    names: Mapping[tuple[str, str], str],
    taken: frozenset[str],
    warnings: list[str],
) -> _Routes:
    """Return the routes of one server: without the tools that lost their name to somebody else."""
    named = {remote: name for remote in offer if (name := names.get((server, remote))) is not None}
    routes = {remote: name for remote, name in named.items() if name not in taken}
    _warn(warnings, server, "is hidden by a later server's tool of that name", offer.keys() - named.keys())
    _warn(warnings, server, "is hidden by a tool of the application", named.keys() - routes.keys())
    return routes


def _localised(tool: Tool, name: str, server: str, lead: str, old: Catalog) -> Tool:
    """Return the tool under its local name, all else passed on as it is: the old object if it serves."""
    description = lead + _presentable(tool.description)
    known = old.tools.get(name)
    if (
        known is not None
        and old.sources.get(name) is tool
        and (known.server, known.description) == (server, description)
    ):
        return known
    # Spelled out: `dataclasses.replace` takes twice as long, and there may be 10,000.
    local = Tool(
        name=name,
        server=server,
        remote_name=tool.remote_name,
        title=tool.title,
        description=description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=tool.annotations,
        meta=tool.meta,
        extra=tool.extra,
        verb=tool.verb,
    )
    return known if known is not None and _same(known, local) else local


def _presentable(description: str) -> str:
    """Return a description as a model may read it: nothing hidden, and no longer than it needs to be."""
    shown = without_hidden(description[: 2 * LONGEST])
    if len(description) <= LONGEST:
        return shown
    return f"{shown[:LONGEST].rstrip()} […cut: {len(description):,} characters]"


def _same(one: Tool, other: Tool) -> bool:
    try:
        return one == other
    except RecursionError:  # schemas nested too deep to compare
        return False


def _lookalikes(routes: Mapping[str, _Routes], style: Style) -> list[str]:
    """Return a warning for each server whose tools read as if they belonged to another server."""
    warnings: list[str] = []
    if style == "raw":
        return warnings
    starts = {server: prefix(server, style) for server in routes}
    ranked = sorted(starts.items(), key=lambda entry: entry[1])
    for position, (server, start) in enumerate(ranked):
        # In this order, the prefixes that begin with this one are the next ones.
        for other, longer in ranked[position + 1 :]:
            if not longer.startswith(start):
                break
            if longer == start:
                continue
            doubtful = [remote for remote, name in routes[server].items() if name.startswith(longer)]
            _warn(warnings, server, f"reads like a tool of server {_cut(other)!r}", doubtful)
    return warnings


def _groups(
    own: tuple[Snapshot, ...], servers: tuple[Snapshot, ...], visible: list[_Routes]
) -> tuple[Group, ...]:
    """Return the groups that have a visible tool, in order of id; those of one id become one."""
    drafts: list[Group] = []
    for snapshot, routes in zip(own + servers, visible, strict=True):
        drafts += [_visible(group, routes) for group in snapshot.groups]
    drafts += [
        _group_of(snapshot, routes) for snapshot, routes in zip(servers, visible[len(own) :], strict=True)
    ]
    groups: dict[str, Group] = {}
    for draft in drafts:
        if draft.members:
            known = groups.get(draft.id)
            groups[draft.id] = draft if known is None else _joined(known, draft)
    return tuple(groups[group_id] for group_id in sorted(groups))


def _group_of(snapshot: Snapshot, routes: _Routes) -> Group:
    """Return the group that every server has."""
    server = snapshot.server
    return Group(
        id=f"mcp:{server}",
        title=snapshot.info.title or f"MCP server `{server}`",
        description=snapshot.info.description or f"The tools of MCP server `{server}`.",
        instructions=snapshot.instructions or None,
        members=tuple(sorted(routes.values())),
    )


def _visible(group: Group, routes: _Routes) -> Group:
    """Return a declared group with local names, without the members that cannot be seen."""
    members = {routes[member] for member in group.members if member in routes}
    return replace(group, members=tuple(sorted(members)))


def _joined(first: Group, second: Group) -> Group:
    """Return one group for two of the same id: what the first leaves open, the second says."""
    return Group(
        id=first.id,
        title=first.title or second.title,
        description=first.description or second.description,
        instructions=first.instructions or second.instructions,
        members=tuple(sorted({*first.members, *second.members})),
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


def _warn(warnings: list[str], server: str, what: str, tools: Collection[str]) -> None:
    """Add one warning that names the first few tools it is about."""
    if tools:
        shown = ", ".join(repr(_cut(tool)) for tool in sorted(tools)[:_SHOWN])
        more = f" and {len(tools) - _SHOWN} more" if len(tools) > _SHOWN else ""
        warnings.append(f"Server {_cut(server)!r}, tool {shown}{more}: {what}.")


def _cut(name: str) -> str:
    return name if len(name) <= 80 else name[:79] + "…"
