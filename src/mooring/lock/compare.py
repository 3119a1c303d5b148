"""Comparison of servers with their approved definitions in the lock.

A pin contains the definitions themselves: it is the catalog before a server runs, the reference for its
listings, and the contract that CI checks. Its fingerprint binds it to the launch command or address: with
another fingerprint nothing in it is approved.

All functions are pure. `decide` approves nothing; only `build` and `approve` do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, TypeVar, cast

from mooring.core.apps import apps_meta
from mooring.core.text import nearest
from mooring.core.types import (
    EMPTY,
    Extension,
    Json,
    Page,
    Prompt,
    Resource,
    ResourceTemplate,
    ServerInfo,
    Skill,
    Snapshot,
    Tool,
)
from mooring.core.value import Value, replace
from mooring.errors import UnknownTool
from mooring.lock import NO_MARKS, Lock, Mark, Marks, Pin
from mooring.lock.definitions import HASH, condensed, condensed_meta, first_of_each, is_pinnable, key_of
from mooring.lock.diff import Change, Subject, changes_between, same, same_text, volatile_between, warnings_of
from mooring.lock.schema_diff import Difference

__all__ = [
    "Admission",
    "Drift",
    "Lock",
    "Pin",
    "Pinning",
    "approve",
    "as_reported",
    "before_start",
    "build",
    "compare",
    "decide",
    "merged",
    "pin_of",
    "volatile_between",
]

Pinning = Literal["block", "warn", "off"]

E = TypeVar("E", Tool, Resource, ResourceTemplate, Prompt, Extension, Skill, Page)


class Drift(Value):
    """All differences of a server from its pin; false if there are none."""

    server: str
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def of(self, subject: Subject) -> dict[str, Change]:
        """Return the changes of one subject, by name."""
        return {change.name: change for change in self.changes if change.subject == subject}


class Admission(Value):
    """The visible part of a snapshot."""

    visible: Snapshot
    drift: Drift
    set_aside: Mapping[str, Change] = EMPTY
    """Hidden tools by the server's own names, with the change."""
    set_aside_templates: Mapping[str, Change] = EMPTY
    set_aside_prompts: Mapping[str, Change] = EMPTY
    set_aside_resources: Mapping[str, Change] = EMPTY
    set_aside_skills: Mapping[str, Change] = EMPTY
    warnings: tuple[str, ...] = ()


def pin_of(
    snapshot: Snapshot,
    fingerprint: str,
    *,
    previous: Pin | None = None,
    whole: bool = True,
    volatile: Marks = NO_MARKS,
) -> Pin:
    """Return the pin of a snapshot; see `Pin` for `whole` and `volatile`.

    Entries of `previous` with the same meaning are kept unchanged, so that order of keys or the server
    version do not change the lock. A definition that is not JSON or is nested too deeply is left out, and
    counts as new in every comparison.
    """
    kept = previous.snapshot if previous is not None else Snapshot(server=snapshot.server)
    if not whole:
        snapshot = _bare_snapshot(snapshot)
    known = NO_MARKS if previous is None else _still_offered(previous.volatile, snapshot)
    # A text that was volatile and is now stable has changed.
    loose = {mark: how for mark, how in known.items() if how == "order"} | dict(volatile)
    marks = {
        **volatile,
        **{mark: how for mark, how in known.items() if how == "text" or mark not in volatile},
    }
    info, instructions = _kept_texts(_self_description(snapshot), snapshot.instructions, kept, loose)
    fresh = Snapshot(
        server=snapshot.server,
        info=info,
        instructions=instructions,
        tools=_pinned(snapshot.tools, kept.tools, loose, "tool"),
        resources=_pinned(snapshot.resources, kept.resources, loose, "resource"),
        templates=_pinned(snapshot.templates, kept.templates, loose, "template"),
        prompts=_pinned(snapshot.prompts, kept.prompts, loose, "prompt"),
        extensions=_pinned(snapshot.extensions, kept.extensions),
        skills=_pinned(snapshot.skills, kept.skills),
        pages=kept.pages if snapshot.pages is None else _pinned(snapshot.pages, kept.pages or ()),
    )
    if replace(fresh, info=replace(info, version=kept.info.version)) == kept:
        fresh = kept
    return Pin(fingerprint=fingerprint, snapshot=fresh, whole=whole, volatile=marks)


def _still_offered(marks: Marks, snapshot: Snapshot) -> Marks:
    """Return the volatile fields of the server and of its current entries."""
    if not marks:
        return NO_MARKS
    offered = {("server", ""), *(("tool", tool.remote_name) for tool in snapshot.tools)}
    offered |= {("resource", one.uri) for one in snapshot.resources}
    offered |= {("template", one.uri_template) for one in snapshot.templates}
    offered |= {("prompt", one.name) for one in snapshot.prompts}
    return {mark: how for mark, how in marks.items() if mark[:2] in offered}


def _kept_texts(
    info: ServerInfo, instructions: str | None, kept: Snapshot, volatile: Marks
) -> tuple[ServerInfo, str | None]:
    """Return the server's texts, with the pinned ones where only volatile fields differ."""
    texts = {
        name: old
        for name in ("name", "title", "description")
        if same_text(name, old := getattr(kept.info, name), getattr(info, name), volatile)
    }
    if same_text("instructions", kept.instructions, instructions, volatile):
        instructions = kept.instructions
    return replace(info, **texts), instructions


def as_reported(snapshot: Snapshot, fingerprint: str) -> Pin:
    """Return the pin of a snapshot for a comparison with a cached one, even if not all of it can be
    pinned."""
    return Pin(
        fingerprint=fingerprint,
        whole=False,
        snapshot=Snapshot(
            server=snapshot.server,
            info=_self_description(snapshot),
            instructions=snapshot.instructions,
            tools=tuple(map(_bare, first_of_each(snapshot.tools).values())),
            templates=tuple(map(_bare, first_of_each(snapshot.templates).values())),
            prompts=tuple(map(_bare, first_of_each(snapshot.prompts).values())),
            extensions=tuple(first_of_each(snapshot.extensions).values()),
            skills=tuple(map(_bare, first_of_each(snapshot.skills).values())),
        ),
    )


def _self_description(snapshot: Snapshot) -> ServerInfo:
    """Return the info without details of capabilities and without who chose the protocol version."""
    capabilities: dict[str, Json] = {name: {} for name in sorted(snapshot.info.capabilities)}
    return replace(snapshot.info, capabilities=capabilities, chosen=False)


def merged(first: Snapshot, second: Snapshot) -> Snapshot:
    """Merge two listings that were requested with different client capabilities. The newer protocol version
    is used, because mooring chose the older one, and its extensions: older ones may not declare them."""
    info, declaring = first.info, (first, second)
    if info.chosen and (second.info.protocol or "") > (info.protocol or ""):
        info = replace(info, protocol=second.info.protocol)
        declaring = (second, first)
    return replace(
        first,
        info=info,
        tools=_merged(first.tools, second.tools),
        resources=_merged(first.resources, second.resources),
        templates=_merged(first.templates, second.templates),
        prompts=_merged(first.prompts, second.prompts),
        extensions=_merged(declaring[0].extensions, declaring[1].extensions),
        skills=_merged(first.skills, second.skills),
    )


def _merged(first: tuple[E, ...], second: tuple[E, ...]) -> tuple[E, ...]:
    known = {key_of(entry) for entry in first}
    return (*first, *(entry for entry in second if key_of(entry) not in known))


def before_start(known: Snapshot) -> Snapshot:
    """Return the snapshot of a pin before its server runs, without resources, without values of which the
    pin has only a hash, and without tools of which an older version hashed who may use them."""
    return replace(
        known,
        resources=(),
        tools=tuple(
            replace(entry, meta=_held(entry.meta), extra=_held(entry.extra))
            if entry.meta or entry.extra
            else entry
            for entry in known.tools
            if "ui" not in entry.meta or "ui" in _held(entry.meta)
        ),
        pages=None,
        templates=tuple(replace(entry, extra=_held(entry.extra)) for entry in known.templates),
        prompts=tuple(replace(entry, extra=_held(entry.extra)) for entry in known.prompts),
    )


def _held(fields: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the fields without the values of which the pin has only a hash."""
    found: dict[str, Json] = {}
    for name, value in fields.items():
        if not _is_hashed(value):
            found[name] = value
        elif rest := {key: inner for key, inner in cast("dict[str, Json]", value).items() if key != HASH}:
            found[name] = rest
    return found


def _is_hashed(value: Json) -> bool:
    return isinstance(value, dict) and HASH in value


def build(
    snapshots: Iterable[Snapshot],
    fingerprints: Mapping[str, str],
    *,
    previous: Lock | None = None,
    volatile: Mapping[str, Marks] = EMPTY,
) -> Lock:
    """Return the lock of the current snapshots.

    Args:
        snapshots: One per server that was reached.
        fingerprints: Of every configured server, by name. The lock contains no others.
        previous: The old lock: pins of servers that were not reached and unchanged entries are kept.
        volatile: By server: the fields that differ between starts.
    """
    old = (previous or Lock()).servers
    pins = {name: known for name, known in old.items() if name in fingerprints}
    for snapshot in snapshots:
        if (name := snapshot.server) in fingerprints:
            known = old.get(name)
            marks = {**_permuted(known, snapshot), **volatile.get(name, NO_MARKS)}
            pins[name] = pin_of(snapshot, fingerprints[name], previous=known, volatile=marks)
    return _lock(pins)


def _permuted(known: Pin | None, snapshot: Snapshot) -> dict[Mark, str]:
    """Return the texts with the words of the pin in another order, which differ between starts."""
    if known is None:
        return {}
    found = volatile_between(known.snapshot, snapshot)
    texts = ("title", "description", "instructions")
    return {
        mark: how for mark, how in found.items() if how == "order" and mark[2].rpartition(".")[2] in texts
    }


def compare(known: Pin, snapshot: Snapshot, *, fingerprint: str | None = None) -> Drift:
    """Return how a server differs from its pin.

    Args:
        known: The approved pin.
        snapshot: The server's listing.
        fingerprint: Of the current configuration; None skips this comparison.
    """
    offered = snapshot if known.whole else _without_unknown_meta(_bare_snapshot(snapshot), known.snapshot)
    changes = changes_between(known.snapshot, offered, known.volatile)
    if fingerprint is not None and fingerprint != known.fingerprint:
        prints = Difference(
            path="fingerprint", weight="breaking", before=known.fingerprint, after=fingerprint
        )
        name = snapshot.server
        launch = Change(server=name, subject="server", name=name, kind="launch", differences=(prints,))
        changes = (launch, *changes)
    return Drift(server=snapshot.server, changes=changes)


def decide(
    known: Pin | None, snapshot: Snapshot, pinning: Pinning, *, fingerprint: str | None = None
) -> Admission:
    """Return the visible part of a snapshot.

    `off` shows all. `warn` shows all and reports changes. `block` shows only unchanged approved entries and
    the approved texts of the server; nothing of a server without a pin or with another fingerprint. For trust
    on first use, pin the first snapshot before.

    Unchanged entries are taken from the pin, so that a model's prompt stays identical.
    """
    if pinning == "off" or (known is None and pinning == "warn"):
        return Admission(visible=snapshot, drift=Drift(server=snapshot.server))
    if known is None:
        known, fingerprint = Pin(fingerprint="", snapshot=Snapshot(server=snapshot.server)), None
    drift = compare(known, snapshot, fingerprint=fingerprint)
    # Removed entries need no action, and may depend on the declared capabilities.
    warnings = warnings_of([change for change in drift.changes if change.kind != "removed"])
    seen = _to_the_letter(known, snapshot, drift)
    if pinning == "warn":
        return Admission(visible=seen, drift=drift, warnings=warnings)
    launch = next((change for change in drift.changes if change.kind == "launch"), None)
    tools, tools_aside = _approved(seen.tools, drift.of("tool"), launch)
    templates, templates_aside = _approved(seen.templates, drift.of("template"), launch)
    prompts, prompts_aside = _approved(seen.prompts, drift.of("prompt"), launch)
    skills, skills_aside = _approved(seen.skills, drift.of("skill"), launch)
    extensions, _ = _approved(seen.extensions, drift.of("extension"), launch)
    resources, resources_aside = _approved(seen.resources, drift.of("resource"), launch)
    said = known.snapshot.info
    return Admission(
        visible=replace(
            seen,
            info=replace(seen.info, name=said.name, title=said.title, description=said.description),
            instructions=known.snapshot.instructions,
            tools=tools,
            templates=templates,
            prompts=prompts,
            resources=resources,
            skills=skills,
            extensions=extensions,
        ),
        drift=drift,
        set_aside=tools_aside,
        set_aside_templates=templates_aside,
        set_aside_prompts=prompts_aside,
        set_aside_resources=resources_aside,
        set_aside_skills=skills_aside,
        warnings=warnings,
    )


def approve(
    lock: Lock,
    snapshot: Snapshot,
    *,
    fingerprint: str,
    tools: Collection[str] | None = None,
    volatile: Marks = NO_MARKS,
) -> Lock:
    """Return the lock with changes of one server accepted; every other pin is the same object.

    Args:
        lock: The current lock.
        snapshot: The listing that the approving person saw.
        fingerprint: Of the server's configuration.
        tools: Accept only these tools, by the server's names (old or new), not the server's texts or a
            changed launch command. None accepts everything.
        volatile: The fields that differ between starts.

    Raises:
        UnknownTool: a name is neither in the lock nor in the listing.
    """
    server = snapshot.server
    known = lock.servers.get(server)
    if tools is None:
        pin = pin_of(snapshot, fingerprint, previous=known, volatile=volatile)
        return _lock({**lock.servers, server: pin})
    if known is None:
        known = Pin(fingerprint=fingerprint, snapshot=Snapshot(server=server))
    pinned = first_of_each(known.snapshot.tools)
    offered = first_of_each(snapshot.tools)
    for name in tools:
        if name not in pinned and name not in offered:
            raise UnknownTool(name, nearest(name, {**pinned, **offered}))
    for change in compare(known, snapshot).of("tool").values():
        before = None if change.before is None else key_of(change.before)
        if change.name in tools or before in tools:
            if before is not None:
                del pinned[before]
            if change.after is not None:
                pinned[change.name] = offered[change.name]
    accepted = replace(known.snapshot, tools=_pinned(pinned.values(), known.snapshot.tools))
    marks = {mark: how for mark, how in volatile.items() if mark[0] == "tool" and mark[1] in tools}
    pin = replace(known, snapshot=accepted, volatile={**known.volatile, **marks})
    return _lock({**lock.servers, server: pin})


def _lock(pins: Mapping[str, Pin]) -> Lock:
    return Lock(servers=MappingProxyType({name: pins[name] for name in sorted(pins)}))


def _pinned(
    entries: Iterable[E], previous: Iterable[E], volatile: Marks = NO_MARKS, subject: Subject = "tool"
) -> tuple[E, ...]:
    """Return the pinned form of the entries, in order of key, reusing unchanged ones."""
    known = first_of_each(previous)
    kept: list[E] = []
    for key, entry in first_of_each(entries).items():
        old = known.get(key)
        if old is not None and same(old, entry, volatile, subject):
            kept.append(old)
        elif is_pinnable(entry):
            kept.append(_counted(entry))
    return tuple(kept)


def _counted(entry: E) -> E:
    """Return the entry in its pinned form."""
    if isinstance(entry, Tool):
        if entry.name == entry.remote_name and not entry.meta and not entry.extra:
            return entry
        meta, extra = condensed_meta(entry.meta) or EMPTY, condensed(entry.extra) or EMPTY
        return replace(entry, name=entry.remote_name, meta=meta, extra=extra)
    if isinstance(entry, Extension):
        return replace(entry, settings=condensed(entry.settings) or EMPTY)
    if isinstance(entry, Page):
        return entry
    if isinstance(entry, Resource) and entry.size is not None:
        return replace(entry, size=None, extra=condensed(entry.extra) or EMPTY)
    return replace(entry, extra=condensed(entry.extra)) if entry.extra else entry


def _bare_snapshot(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        tools=tuple(map(_bare, snapshot.tools)),
        resources=(),
        templates=tuple(map(_bare, snapshot.templates)),
        prompts=tuple(map(_bare, snapshot.prompts)),
        skills=tuple(map(_bare, snapshot.skills)),
        pages=None,
    )


def _without_unknown_meta(snapshot: Snapshot, known: Snapshot) -> Snapshot:
    """Return the snapshot without `_meta` of tools that have none in the pin: older locks did not keep it."""
    kept = {tool.remote_name for tool in known.tools if tool.meta}
    tools = (
        tool if not tool.meta or tool.remote_name in kept else replace(tool, meta=EMPTY)
        for tool in snapshot.tools
    )
    return replace(snapshot, tools=tuple(tools))


def _bare(entry: E) -> E:
    """Return the entry without extras, as in a pin that is not `whole`. Of `_meta`, it has what decides who
    may use a tool."""
    if isinstance(entry, Tool):
        if entry.name == entry.remote_name and not entry.meta and not entry.extra:
            return entry
        meta = condensed_meta(apps_meta(entry.meta)) or EMPTY
        return replace(entry, name=entry.remote_name, meta=meta, extra=EMPTY)
    if isinstance(entry, Extension | Page):
        return entry
    return replace(entry, extra=EMPTY) if entry.extra else entry


def _to_the_letter(pin: Pin, snapshot: Snapshot, drift: Drift) -> Snapshot:
    """Return the snapshot in order of key, with pinned entries where unchanged."""
    known = pin.snapshot
    others = snapshot.templates or snapshot.prompts or snapshot.skills
    if snapshot.tools is known.tools and not others:
        return snapshot
    counts = Counter(tool.remote_name for tool in snapshot.tools)
    return replace(
        snapshot,
        repeated=tuple(name for name, count in counts.items() if count > 1),
        tools=_settled(snapshot.tools, known.tools, drift.of("tool"), pin, "tool"),
        resources=_settled(snapshot.resources, known.resources, drift.of("resource"), pin, "resource")
        if pin.whole
        else snapshot.resources,
        templates=_settled(snapshot.templates, known.templates, drift.of("template"), pin, "template"),
        prompts=_settled(snapshot.prompts, known.prompts, drift.of("prompt"), pin, "prompt"),
        skills=_settled(snapshot.skills, known.skills, drift.of("skill"), pin, "skill"),
    )


def _settled(
    entries: tuple[E, ...], pinned: tuple[E, ...], changes: Mapping[str, Change], pin: Pin, subject: Subject
) -> tuple[E, ...]:
    if entries is pinned:
        return entries
    known = first_of_each(pinned)
    return tuple(
        entry if key in changes else _with_unpinned_values(known[key], entry, pin, subject)
        for key, entry in first_of_each(entries).items()
    )


def _with_unpinned_values(known: E, entry: E, pin: Pin, subject: Subject) -> E:
    """Return the pinned entry plus the current values that are not in the pin."""
    if isinstance(entry, Extension | Page) or isinstance(known, Extension | Page):
        return known
    if isinstance(entry, Resource):
        known = replace(known, size=entry.size)
    if not (entry.extra or known.extra or getattr(entry, "meta", None) or getattr(known, "meta", None)):
        return known
    mark = (subject, key_of(entry))
    extra = _shown(known.extra, entry.extra, pin, (*mark, "more"))
    if isinstance(entry, Tool) and isinstance(known, Tool):
        return replace(known, meta=_shown(known.meta, entry.meta, pin, (*mark, "meta")), extra=extra)
    return replace(known, extra=extra)


def _shown(known: Mapping[str, Json], sent: Mapping[str, Json], pin: Pin, mark: Mark) -> Mapping[str, Json]:
    """Return the approved fields; for those that are only hashed in the pin, the current ones unless
    volatile."""
    if not pin.whole:
        return sent
    hashed = {name for name, value in known.items() if _is_hashed(value)}
    if not hashed:
        return known
    subject, key, field = mark
    stable = {name for name in hashed if (subject, key, f"{field}.{name}") not in pin.volatile}
    return {**_held(known), **{name: sent.get(name) for name in stable}}


def _approved(
    entries: tuple[E, ...], changes: Mapping[str, Change], launch: Change | None
) -> tuple[tuple[E, ...], dict[str, Change]]:
    """Return the visible entries, and the changes of the hidden ones."""
    if launch is None and not changes:
        return entries, {}
    shown: list[E] = []
    aside: dict[str, Change] = {}
    for entry in entries:
        if (reason := launch or changes.get(key_of(entry))) is None:
            shown.append(entry)
        else:
            aside[key_of(entry)] = reason
    return tuple(shown), aside
