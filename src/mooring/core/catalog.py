"""The catalog: snapshots of all servers merged into one immutable value, and its changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from mooring.core.apps import for_model
from mooring.core.builtin_tools import prompt_tools
from mooring.core.names import Claim, Style, claim, prefix, reserved_clashes, settle
from mooring.core.text import nearest, without_hidden
from mooring.core.types import (
    EMPTY,
    Extension,
    Group,
    Prompt,
    Resource,
    ResourceTemplate,
    Skill,
    Snapshot,
    Tool,
)
from mooring.core.value import Value, field, replace
from mooring.errors import UnknownTool


class Catalog(Value):
    """The merged lists of all servers at one time. Immutable: a refresh makes a new one."""

    tools: Mapping[str, Tool] = EMPTY
    """By local name, in order of local name."""
    app_tools: Mapping[str, Tool] = EMPTY
    """Tools that servers keep for their own pages (MCP Apps), by local name. No model sees them."""
    groups: tuple[Group, ...] = ()
    """In order of id. A group without a visible tool is left out."""
    resources: tuple[Resource, ...] = ()
    """Resources of all servers."""
    templates: tuple[ResourceTemplate, ...] = ()
    """Resource templates of all servers."""
    prompts: tuple[Prompt, ...] = ()
    """Prompts of all servers, with local names."""
    skills: tuple[Skill, ...] = ()
    """Skills of all servers, named `<server>/<name>`, in this order."""
    extensions: tuple[Extension, ...] = ()
    """Extensions that the servers declare."""
    servers: tuple[str, ...] = ()
    """Ids of the merged servers, in order, without providers of static tools."""
    configured: frozenset[str] = field(default=frozenset(), shown=False, compare=False)
    """Ids of all configured servers, connected or not."""
    style: Style = "mcp"
    """How local names are built."""
    warnings: tuple[str, ...] = ()
    """Warnings about hidden and suspicious tools."""
    parts: Mapping[str, Part] = field(default=EMPTY, shown=False, compare=False)
    """The parts by server, reused by the next merge."""

    @cached_property
    def revision(self) -> str:
        """Hash of everything that a model sees, independent of order."""
        digest = sha256()
        for name, tool in self.tools.items():
            part = self.parts.get(tool.server)
            # Only tools of servers that changed are hashed again.
            known = part.hashes if part is not None and part.tools.get(name) is tool else {}
            if name not in known:
                known[name] = sha256(_canonical(_seen(tool))).digest()
            digest.update(known[name])
        for definition in _definitions(self):
            digest.update(_canonical(definition))
        return digest.hexdigest()[:16]

    def route(self, name: str) -> Tool:
        """Return the tool of this local name.

        Raises:
            UnknownTool: there is no such tool. The error suggests similar names.
        """
        tool = self.tools.get(name)
        if tool is None:
            raise UnknownTool(_cut(name), nearest(name, self.tools))
        return tool

    def only(self, names: Iterable[str]) -> Catalog:
        """Return the catalog with these tools and no others; groups keep those members."""
        tools = {name: self.tools[name] for name in names}
        kept = (
            replace(group, members=tuple(member for member in group.members if member in tools))
            for group in self.groups
        )
        groups = tuple(group for group in kept if group.members)
        return replace(self, tools=MappingProxyType(tools), groups=groups)

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
    """Whether resources, templates, skills or tools of pages changed."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.resources)


def diff(old: Catalog, new: Catalog) -> Diff:
    """Return the added, removed and changed tools."""
    before, after = old.tools, new.tools
    return Diff(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(
            name
            for name, tool in after.items()
            if (known := before.get(name)) is not None and known is not tool and not same(known, tool)
        ),
        resources=_beside_tools(old) != _beside_tools(new),
    )


def _beside_tools(catalog: Catalog) -> tuple[object, ...]:
    return catalog.resources, catalog.templates, catalog.skills, dict(catalog.app_tools)


def _seen(tool: Tool) -> list[Any]:
    """Return what a model sees of a tool, as JSON values."""
    texts = [tool.name, tool.title, tool.description]
    return ["tool", *texts, tool.input_schema, tool.output_schema, tool.annotations]


def _definitions(catalog: Catalog) -> Iterator[list[Any]]:
    """Yield what a model sees of each group, template, prompt and skill, as JSON values."""
    for group in catalog.groups:
        yield ["group", group.id, group.title, group.description, group.instructions, group.members]
    for item in catalog.templates:
        yield ["template", item.server, item.uri_template, item.name, item.title, item.description]
    for item in catalog.prompts:
        yield ["prompt", item.server, item.name, item.title, item.description, item.arguments]
    for item in catalog.skills:
        yield ["skill", item.name, item.description]


def _canonical(definition: list[Any]) -> bytes:
    try:
        return json.dumps(definition, sort_keys=True, default=dict).encode()
    except (TypeError, ValueError, RecursionError):
        # Not JSON, or nested too deeply: only possible for values made in Python. Hash its repr.
        return repr([part for part in definition if isinstance(part, str)]).encode(
            "utf-8", "backslashreplace"
        )


def same(one: Tool, other: Tool) -> bool:
    """Whether two tools have equal definitions."""
    try:
        return one == other
    except RecursionError:  # schemas nested too deep to compare
        return False


def _cut(name: str) -> str:
    return name if len(name) <= 80 else name[:79] + "…"


LONGEST = 4_096
"""Characters of a server's description that a model sees."""
_SHOWN = 5
"""Names that one warning lists; the rest are counted."""


class Filter(Value):
    """Filter of the tools of a server: globs of the server's own names, `deny` over `allow`."""

    allow: tuple[str, ...] = ()
    """Empty for all."""
    deny: tuple[str, ...] = ()

    @property
    def restricts(self) -> bool:
        """Whether any tool could be rejected."""
        return bool(self.deny) or self.allow not in ((), ("*",))

    def passes(self, remote_name: str) -> bool:
        """Whether a tool of this remote name passes."""
        if any(fnmatchcase(remote_name, glob) for glob in self.deny):
            return False
        return not self.allow or any(fnmatchcase(remote_name, glob) for glob in self.allow)


_ALL = Filter()
_Routes = dict[str, str]
"""Local names of the visible tools of one provider, by its own names."""


class Part(NamedTuple):
    """The part of one server in a catalog."""

    snapshot: Snapshot
    settings: tuple[Filter, Style, str]
    """Inputs beside the snapshot: filter, style and description prefix."""
    offer: dict[str, Tool]
    """Tools by the server's own names."""
    claim: Claim
    warnings: tuple[str, ...]
    routes: _Routes
    tools: dict[str, Tool]
    """Tools with their local names."""
    hashes: dict[str, bytes]
    """Hashes of those tools, filled by `Catalog.revision`."""


def merge(
    snapshots: Iterable[Snapshot],
    *,
    style: Style = "mcp",
    filters: Mapping[str, Filter] = EMPTY,
    static: Iterable[Snapshot] = (),
    description_prefix: bool = False,
    configured: frozenset[str] = frozenset(),
    previous: Catalog | None = None,
) -> Catalog:
    """Return the catalog of all snapshots.

    Args:
        snapshots: One per server; if there are two for a server, the last is used. Their order matters
            in style `raw` only, where the last server wins a name.
        style: How local names are made.
        filters: By server; tools that do not pass are left out.
        static: The application's own tools: names verbatim, and a server's tool that comes to the
            same name is hidden.
        description_prefix: Start the description of each server's tool with `[MCP: <server>]`.
        configured: Names of all configured servers, connected or not: no tool gets a name that could
            belong to another one.
        previous: An older catalog whose unchanged parts are reused.
    """
    own = tuple(static)
    latest = {snapshot.server: snapshot for snapshot in snapshots}
    old = previous if previous is not None else Catalog()
    warnings: list[str] = []
    tools, visible = _static_tools(own, filters, warnings)
    taken = frozenset(tools)
    app_tools: dict[str, Tool] = {}
    offers: dict[str, Part] = {}
    for server, snapshot in latest.items():
        lead = f"[MCP: {server}] " if description_prefix else ""
        offers[server] = _part(snapshot, (filters.get(server, _ALL), style, lead), old.parts.get(server))
    names = settle({server: part.claim for server, part in offers.items()}, style, configured)
    parts = {server: offers[server] for server in sorted(offers)}
    for part in parts.values():
        warnings += part.warnings
    for server, part in parts.items():
        routes = _routes(server, part, names[server], taken, warnings)
        parts[server] = part = _localised(part, routes, old)
        if reserved := {name: tool for name, tool in part.tools.items() if not for_model(tool)}:
            app_tools |= reserved
            routes = {remote: name for remote, name in routes.items() if name not in reserved}
        visible.append(routes)
        tools.update((name, tool) for name, tool in part.tools.items() if name not in reserved)
    warnings += _lookalikes({server: part.routes for server, part in parts.items()}, style)
    servers = tuple(part.snapshot for part in parts.values())
    listed = own + servers
    return Catalog(
        tools=MappingProxyType({name: tools[name] for name in sorted(tools)}),
        app_tools=MappingProxyType({name: app_tools[name] for name in sorted(app_tools)}),
        groups=_groups(own, servers, visible),
        resources=tuple(sorted((r for s in listed for r in s.resources), key=lambda r: (r.server, r.uri))),
        templates=tuple(
            sorted((t for s in listed for t in s.templates), key=lambda t: (t.server, t.uri_template))
        ),
        prompts=tuple(sorted((p for s in listed for p in s.prompts), key=lambda p: (p.server, p.name))),
        skills=_skills(servers, warnings),
        extensions=tuple(one for snapshot in servers for one in snapshot.extensions),
        servers=tuple(parts),
        configured=configured,
        style=style,
        warnings=tuple(warnings),
        parts=parts,
    )


def _skills(servers: tuple[Snapshot, ...], warnings: list[str]) -> tuple[Skill, ...]:
    """Return the skills under local names, so that none can take the place of another: `<server>/<name>`, or
    `<server>/<address>` for each of several skills of a server with the same name."""
    found: dict[str, Skill] = {}
    for snapshot in servers:
        skills = {skill.uri: skill for skill in reversed(snapshot.skills)}  # the first of an address counts
        counts = Counter(skill.name for skill in skills.values())
        for skill in skills.values():
            own = skill.name if counts[skill.name] == 1 else _address_name(skill.uri)
            name = f"{snapshot.server}/{own}"
            found[name] = replace(skill, name=name, server=snapshot.server)
        warnings += (
            f"{snapshot.server}: {count} skills are named {name!r}; each has its address as its name"
            for name, count in sorted(counts.items())
            if count > 1
        )
    return tuple(found[name] for name in sorted(found))


def _address_name(uri: str) -> str:
    """Return the address of the directory of a skill as part of a name. Different addresses give different
    names, and none is the plain name of a skill."""
    return quote(uri.removesuffix("/SKILL.md"), safe="/:")


# --- one server


def _part(snapshot: Snapshot, settings: tuple[Filter, Style, str], known: Part | None) -> Part:
    """Return the part of a server: the previous one if nothing changed."""
    if (
        known is not None
        and known.snapshot.tools is snapshot.tools
        and known.snapshot.prompts == snapshot.prompts
        and known.snapshot.repeated == snapshot.repeated
        and known.settings == settings
    ):
        return known._replace(snapshot=snapshot)
    passing, style, _ = settings
    server, warnings = snapshot.server, list[str]()
    offer = _offer(snapshot, passing, warnings)
    false = reserved_clashes(server, offer, style)
    _warn(warnings, server, "has the name of a tool of mooring and is left out", false)
    for remote in false:
        del offer[remote]
    return Part(snapshot, settings, offer, claim(server, offer, style), tuple(warnings), {}, {}, {})


def _offer(snapshot: Snapshot, passing: Filter, warnings: list[str]) -> dict[str, Tool]:
    """Return the tools of one provider that pass its filter, by its own names; the first of a name counts."""
    restricts = passing.restricts
    offer: dict[str, Tool] = {}
    repeated: dict[str, None] = {}
    for tool in snapshot.tools:
        if restricts and not passing.passes(tool.remote_name):
            continue
        if offer.setdefault(tool.own_name, tool) is not tool or tool.remote_name in snapshot.repeated:
            repeated[tool.own_name] = None
    _warn(warnings, snapshot.server, "is listed more than once; the first one is used", repeated)
    hidden = [
        name
        for name, tool in prompt_tools(snapshot.prompts).items()
        if passing.passes(name) and offer.setdefault(name, tool) is not tool
    ]
    _warn(warnings, snapshot.server, "hides a prompt that would have the same name", hidden)
    return offer


def _routes(server: str, part: Part, names: _Routes, taken: frozenset[str], warnings: list[str]) -> _Routes:
    """Return the routes of one server, without tools whose name another server has."""
    if len(names) == len(part.offer) and taken.isdisjoint(names.values()):
        return names
    routes = {remote: name for remote, name in names.items() if name not in taken}
    _warn(
        warnings, server, "is hidden by a later server's tool of that name", part.offer.keys() - names.keys()
    )
    _warn(warnings, server, "is hidden by a tool of the application", names.keys() - routes.keys())
    return routes


def _localised(part: Part, routes: _Routes, old: Catalog) -> Part:
    """Return the part with its tools under local names, reusing objects that did not change."""
    if part.tools and part.routes == routes:
        return part
    server, lead = part.snapshot.server, part.settings[2]
    tools = {
        name: _local(part.offer[remote], name, server, lead, old.tools.get(name))
        for remote, name in routes.items()
    }
    return part._replace(routes=routes, tools=tools, hashes={})


def _local(tool: Tool, name: str, server: str, lead: str, known: Tool | None) -> Tool:
    described = lead + _presentable(tool.description)
    local = Tool.holding({**vars(tool), "name": name, "server": server, "description": described})
    return known if known is not None and same(known, local) else local


def _presentable(description: str) -> str:
    """Return a description without invisible characters, cut to the limit."""
    shown = without_hidden(description[: 2 * LONGEST])
    if len(description) <= LONGEST:
        return shown
    return f"{shown[:LONGEST].rstrip()} […cut: {len(description):,} characters]"


# --- all of them


def _static_tools(
    own: tuple[Snapshot, ...], filters: Mapping[str, Filter], warnings: list[str]
) -> tuple[dict[str, Tool], list[_Routes]]:
    """Return the application's tools by name, and the routes of each of its providers."""
    tools: dict[str, Tool] = {}
    visible: list[_Routes] = []
    for snapshot in own:
        offer = _offer(snapshot, filters.get(snapshot.server, _ALL), warnings)
        routes = {remote: tool.name for remote, tool in offer.items() if tool.name not in tools}
        hidden = offer.keys() - routes.keys()
        _warn(warnings, snapshot.server, "is hidden by an earlier tool of the application", hidden)
        tools.update((offer[remote].name, offer[remote]) for remote in routes)
        visible.append(routes)
    return tools, visible


def _lookalikes(routes: Mapping[str, _Routes], style: Style) -> list[str]:
    """Return a warning for each server whose tools have the prefix of another server."""
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
            shadowed = [remote for remote, name in routes[server].items() if name.startswith(longer)]
            _warn(warnings, server, f"has a name like a tool of server {_cut(other)!r}", shadowed)
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
    return Group.holding({**vars(group), "members": tuple(sorted(members))})


def _joined(first: Group, second: Group) -> Group:
    """Merge two groups of the same id; values of the first one win."""
    return Group(
        id=first.id,
        title=first.title or second.title,
        description=first.description or second.description,
        instructions=first.instructions or second.instructions,
        members=tuple(sorted({*first.members, *second.members})),
    )


def _warn(warnings: list[str], server: str, what: str, tools: Collection[str]) -> None:
    """Add one warning that names the first few tools it is about."""
    if tools:
        shown = ", ".join(repr(_cut(tool)) for tool in sorted(tools)[:_SHOWN])
        more = f" and {len(tools) - _SHOWN} more" if len(tools) > _SHOWN else ""
        warnings.append(f"Server {_cut(server)!r}, tool {shown}{more}: {what}.")
