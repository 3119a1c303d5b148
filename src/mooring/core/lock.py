"""The lock: what each server was approved to be, and what to do about a server that is something else.

A pin holds the definitions themselves, so the same value is the catalog before any server runs, the
measure of what a server reports, and the contract that CI checks. It is bound to the launch command
or address by the fingerprint beside the definitions: under another one, nothing in it is approved.

Every function here is pure and `decide` never returns a pin, so judging a server, however often and
in whatever order its snapshots come, approves nothing: only `build` and `approve` do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeVar

from mooring.core.changes import Change, Subject, changes_between, same
from mooring.core.changetext import warnings_of
from mooring.core.definitions import first_of_each, is_pinnable, key_of
from mooring.core.near import nearest
from mooring.core.pin import Lock, Pin
from mooring.core.schemachange import Difference
from mooring.core.types import EMPTY, Prompt, ResourceTemplate, ServerInfo, Snapshot, Tool
from mooring.errors import UnknownTool

__all__ = [
    "Admission",
    "Drift",
    "Lock",
    "Pin",
    "Pinning",
    "approve",
    "as_reported",
    "build",
    "compare",
    "decide",
    "pin_of",
]

Pinning = Literal["block", "warn", "off"]

E = TypeVar("E", Tool, ResourceTemplate, Prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Everything in which a server differs from its pin; false when there is nothing."""

    server: str
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def of(self, subject: Subject) -> dict[str, Change]:
        """Return the changes of one kind of thing, by name."""
        return {change.name: change for change in self.changes if change.subject == subject}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What may be shown of a snapshot."""

    visible: Snapshot
    drift: Drift
    set_aside: Mapping[str, Change] = field(default_factory=lambda: EMPTY)
    """Tools that are offered and not shown, by the server's name of them, and why."""
    set_aside_templates: Mapping[str, Change] = field(default_factory=lambda: EMPTY)
    set_aside_prompts: Mapping[str, Change] = field(default_factory=lambda: EMPTY)
    set_aside_resources: Mapping[str, Change] = field(default_factory=lambda: EMPTY)
    warnings: tuple[str, ...] = ()


def pin_of(snapshot: Snapshot, fingerprint: str, *, previous: Pin | None = None) -> Pin:
    """Return the pin of what a server offers now.

    Where `previous` means the same, it is kept to the letter: order of keys, server version and all.
    So nothing that a server changes at every start ever shows up as a change of the lock. A definition
    that is no JSON or nested too deep is left out, and stays a new tool whenever it is compared.
    """
    kept = previous.snapshot if previous is not None else Snapshot(server=snapshot.server)
    info = _self_description(snapshot)
    fresh = Snapshot(
        server=snapshot.server,
        info=info,
        instructions=snapshot.instructions,
        tools=_pinned(snapshot.tools, kept.tools),
        templates=_pinned(snapshot.templates, kept.templates),
        prompts=_pinned(snapshot.prompts, kept.prompts),
    )
    if replace(fresh, info=replace(info, version=kept.info.version)) == kept:
        fresh = kept
    return Pin(fingerprint=fingerprint, snapshot=fresh)


def as_reported(snapshot: Snapshot, fingerprint: str) -> Pin:
    """Return the pin of what a server offers, whether or not all of it can be pinned: to compare with one
    that is kept."""
    return Pin(
        fingerprint=fingerprint,
        snapshot=Snapshot(
            server=snapshot.server,
            info=_self_description(snapshot),
            instructions=snapshot.instructions,
            tools=tuple(map(_bare, first_of_each(snapshot.tools).values())),
            templates=tuple(map(_bare, first_of_each(snapshot.templates).values())),
            prompts=tuple(map(_bare, first_of_each(snapshot.prompts).values())),
        ),
    )


def _self_description(snapshot: Snapshot) -> ServerInfo:
    """Which capabilities there are decides what a host offers; their details change nothing."""
    return replace(snapshot.info, capabilities={name: {} for name in sorted(snapshot.info.capabilities)})


def build(
    snapshots: Iterable[Snapshot], fingerprints: Mapping[str, str], *, previous: Lock | None = None
) -> Lock:
    """Return the lock of what the servers offer now.

    Args:
        snapshots: One per server that was reached.
        fingerprints: Of every configured server, by name. Others are not in the lock.
        previous: Keeps the pins of servers that were not reached, and the letter of what is the same.
    """
    old = (previous or Lock()).servers
    pins = {name: known for name, known in old.items() if name in fingerprints}
    for snapshot in snapshots:
        if (name := snapshot.server) in fingerprints:
            pins[name] = pin_of(snapshot, fingerprints[name], previous=old.get(name))
    return _lock(pins)


def compare(known: Pin, snapshot: Snapshot, *, fingerprint: str | None = None) -> Drift:
    """Return how a server differs from its pin.

    Args:
        known: What was approved.
        snapshot: What the server reports.
        fingerprint: Of the configuration in use; None leaves it out of the comparison.
    """
    changes = changes_between(known.snapshot, snapshot)
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
    """Return what may be shown of what a server reports.

    `off` shows all. `warn` shows all and says what changed. `block` shows what was approved and is
    still the same; the server's description of itself as it was approved; and of a server without a
    pin, or launched otherwise than approved, nothing. Trust on first use is the caller's: make a pin
    of the first snapshot, then decide.

    What is the same is shown to the letter of the pin, so that a model's prompt stays the same bytes.
    """
    if pinning == "off" or (known is None and pinning == "warn"):
        return Admission(visible=snapshot, drift=Drift(server=snapshot.server))
    if known is None:
        known, fingerprint = Pin(fingerprint="", snapshot=Snapshot(server=snapshot.server)), None
    drift = compare(known, snapshot, fingerprint=fingerprint)
    warnings = warnings_of(drift.changes)
    seen = _to_the_letter(known.snapshot, snapshot, drift)
    if pinning == "warn":
        return Admission(visible=seen, drift=drift, warnings=warnings)
    launch = next((change for change in drift.changes if change.kind == "launch"), None)
    tools, tools_aside = _approved(seen.tools, drift.of("tool"), launch)
    templates, templates_aside = _approved(seen.templates, drift.of("template"), launch)
    prompts, prompts_aside = _approved(seen.prompts, drift.of("prompt"), launch)
    said = known.snapshot.info
    return Admission(
        visible=replace(
            seen,
            info=replace(seen.info, name=said.name, title=said.title, description=said.description),
            instructions=known.snapshot.instructions,
            tools=tools,
            templates=templates,
            prompts=prompts,
            resources=() if launch is not None else seen.resources,
        ),
        drift=drift,
        set_aside=tools_aside,
        set_aside_templates=templates_aside,
        set_aside_prompts=prompts_aside,
        warnings=warnings,
    )


def approve(
    lock: Lock, snapshot: Snapshot, *, fingerprint: str, tools: Collection[str] | None = None
) -> Lock:
    """Return the lock with changes of one server accepted; every other pin is the same object.

    Args:
        lock: As it is.
        snapshot: What the server reports, as it was shown to whoever approves.
        fingerprint: Of the server's configuration.
        tools: Accept these tools alone, by the server's names (a renamed one by either): not the
            server's texts, nor another launch command. None accepts everything.

    Raises:
        UnknownTool: a name is neither approved nor offered.
    """
    server = snapshot.server
    known = lock.servers.get(server)
    if tools is None:
        return _lock({**lock.servers, server: pin_of(snapshot, fingerprint, previous=known)})
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
    return _lock({**lock.servers, server: replace(known, snapshot=accepted)})


def _lock(pins: Mapping[str, Pin]) -> Lock:
    return Lock(servers=MappingProxyType({name: pins[name] for name in sorted(pins)}))


def _pinned(entries: Iterable[E], previous: Iterable[E]) -> tuple[E, ...]:
    """What counts of the entries, in order of key; the previous one where it is the same."""
    known = first_of_each(previous)
    kept: list[E] = []
    for key, entry in first_of_each(entries).items():
        old = known.get(key)
        if old is not None and same(old, entry):
            kept.append(old)
        elif is_pinnable(entry):
            kept.append(_bare(entry))
    return tuple(kept)


def _bare(entry: E) -> E:
    """The entry without what does not count."""
    if isinstance(entry, Tool):
        if entry.name == entry.remote_name and not entry.meta and not entry.extra:
            return entry
        return replace(entry, name=entry.remote_name, meta=EMPTY, extra=EMPTY)
    return replace(entry, extra=EMPTY) if entry.extra else entry


def _to_the_letter(known: Snapshot, snapshot: Snapshot, drift: Drift) -> Snapshot:
    """The snapshot in order of key, with the pinned entry for each that is the same."""
    if snapshot.tools is known.tools and not snapshot.templates and not snapshot.prompts:
        return snapshot
    surplus = len(snapshot.tools) - len({tool.remote_name for tool in snapshot.tools})
    note = f"{snapshot.server}: set aside {surplus} tools whose name is offered twice; the first counts"
    return replace(
        snapshot,
        warnings=(*snapshot.warnings, note) if surplus else snapshot.warnings,
        tools=_settled(snapshot.tools, known.tools, drift.of("tool")),
        templates=_settled(snapshot.templates, known.templates, drift.of("template")),
        prompts=_settled(snapshot.prompts, known.prompts, drift.of("prompt")),
    )


def _settled(entries: tuple[E, ...], pinned: tuple[E, ...], changes: Mapping[str, Change]) -> tuple[E, ...]:
    if entries is pinned:
        return entries
    known = first_of_each(pinned)
    return tuple(
        entry if key in changes else _dressed(known[key], entry)
        for key, entry in first_of_each(entries).items()
    )


def _dressed(known: E, entry: E) -> E:
    """The pinned entry, with what does not count as the server sent it now."""
    if isinstance(entry, Tool):
        bare = not entry.meta and not entry.extra
        return known if bare else replace(known, meta=entry.meta, extra=entry.extra)
    return known if not entry.extra else replace(known, extra=entry.extra)


def _approved(
    entries: tuple[E, ...], changes: Mapping[str, Change], launch: Change | None
) -> tuple[tuple[E, ...], dict[str, Change]]:
    """The entries that may be shown, and why each of the others may not."""
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
