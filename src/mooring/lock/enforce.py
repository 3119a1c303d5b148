"""Enforcement of the lock for the servers of one host.

With a lock, only its entries are visible (`block`). Without one, the first listing of a server is cached for
this user, and changes cause warnings (trust on first use). In both cases the catalog of the last run exists
before any server runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from mooring.config.logs import logger
from mooring.config.models import ServerConfig
from mooring.config.plan import fingerprint
from mooring.core.names import Style, assign
from mooring.core.skills import root_of
from mooring.core.types import CachedSnapshot, Hidden, HiddenKind, Page, Snapshot, Tool
from mooring.core.uris import matches
from mooring.core.value import Value, replace
from mooring.errors import ToolChanged
from mooring.lock import NO_MARKS, Lock, LockError, Pin
from mooring.lock.cache import load_lock, lock_path, own_lock_path, remember, speaks_of, uri_line, written
from mooring.lock.definitions import key_of, shown_name

if TYPE_CHECKING:
    from mooring.config import FoundFile
    from mooring.lock.cache import SnapshotCache
    from mooring.lock.compare import Admission, Pinning
    from mooring.lock.diff import Change
    from mooring.servers.active import Guard

log = logger("mooring.lock.enforce")


class PinSource(Value):
    """The locks that a host uses."""

    lock: Lock | None = None
    """The lock beside the configuration; None if there is none and the private cache is used."""
    cache: bool = True
    own: Lock | None = None
    """The lock of the user's own servers, which a project's lock does not cover."""
    path: Path | None = None
    """Where `lock` is stored."""
    own_path: Path | None = None
    """Where `own` is stored."""


def memory_of(
    lock: str | os.PathLike[str] | bool, files: Sequence[FoundFile], folder: Path | None
) -> PinSource:
    """Return the locks beside `files` (True), at another path, or none (False).

    A lock that cannot be read approves nothing, with a warning: what it held is not known.
    """
    if lock is False:
        return PinSource(cache=False)
    beside = None if folder is None else lock_path(files, folder)
    path = beside if lock is True else Path(lock)
    if path is None:
        return PinSource()
    found = _read(path)
    if speaks_of(files, "user"):
        return PinSource(lock=found, own=found, path=path, own_path=path)
    own_path = own_lock_path() if lock is True else None
    own = None if own_path is None else _read(own_path)
    return PinSource(lock=found, own=own, path=path, own_path=own_path)


def _read(path: Path) -> Lock | None:
    """Return the lock of a file; an empty one, which approves nothing, if it cannot be read."""
    try:
        lock = load_lock(path)
    except LockError as problem:
        log.warning("the tools of the servers that the lock covers are not used: %s", problem)
        return Lock()
    if lock is not None and (old := [name for name, pin in lock.servers.items() if not pin.whole]):
        log.warning(
            "an older version wrote the lock, which does not say who may use the tools of %s: they are "
            "shown when the servers are connected. Run `mooring lock`.",
            ", ".join(map(shown_name, old)),
        )
    return lock


def _read_again(path: Path) -> Lock | None:
    try:
        return load_lock(path)
    except LockError as problem:
        log.warning("the lock cannot be read, and the previous one stays in force: %s", problem)
        return None


class LockEnforcer:
    """The pins of one host."""

    def __init__(self, memory: PinSource, withhold: Callable[[str], None], declared: str = "") -> None:
        self._memory = memory
        self._declared = declared
        """Client capabilities of this host. Servers may list other tools for other capabilities, so each set
        has its own cache. A lock covers all."""
        self._withhold = withhold
        self._fingerprints: dict[str, str] = {}
        self._pins: dict[str, Pin | None] = {}
        self._pinned: dict[str, tuple[Pin, frozenset[str]]] = {}
        self._snapshot_caches: dict[str, SnapshotCache] = {}
        """Pins in the cache that were not read yet."""
        self._uris: dict[str, bytes] = {}
        """The resources that the cache names, by server."""
        self._pinning: dict[str, Pinning] = {}
        self._aside: dict[str, Mapping[str, Change]] = {}
        """Hidden tools by server."""
        self._more_aside: dict[str, Sequence[tuple[HiddenKind, str, Change]]] = {}
        """Hidden resources, templates and prompts by server."""
        self._skills_aside: dict[str, Mapping[str, Change]] = {}
        self._warned: dict[str, frozenset[str]] = {}
        """Warnings about the latest listing, by server."""
        self._cached: set[str] = set()
        """Servers that no lock covers."""
        self._writers: list[Thread] = []
        """Tasks that write the cache in threads."""

    @property
    def lock(self) -> Lock | None:
        """The lock beside the configuration."""
        return self._memory.lock

    @property
    def path(self) -> Path | None:
        """Where that lock is stored."""
        return self._memory.path

    def stamp(self) -> tuple[object, ...]:
        """Return what differs after a lock file was written: its time and size."""
        return tuple(written(path) for path in (self._memory.path, self._memory.own_path) if path)

    def read_again(self, servers: Iterable[ServerConfig]) -> tuple[str, ...]:
        """Read the lock files again. A file that is missing or cannot be read changes nothing.

        Returns:
            The servers whose approved definitions are other ones. They must be listed again.
        """
        memory = self._memory
        lock = (memory.path and _read_again(memory.path)) or memory.lock
        own = lock if memory.own_path == memory.path else memory.own
        if memory.own_path not in (None, memory.path):
            own = _read_again(memory.own_path) or memory.own
        if (lock, own) == (memory.lock, memory.own):
            return ()
        self._memory = replace(memory, lock=lock, own=own)
        changed: list[str] = []
        for server in servers:
            name, used = server.name, self._lock_of(server)
            pin = None if used is None else used.servers.get(name)
            pinning: Pinning = server.pins or ("block" if used is not None else "warn")
            if used is None or (pin, pinning) == (self._pins.get(name), self._pinning.get(name)):
                continue
            self._fingerprints[name] = fingerprint(server)
            self._pins[name], self._pinning[name] = pin, pinning
            self._snapshot_caches.pop(name, None)
            changed.append(name)
        return tuple(changed)

    def hidden(self) -> Iterator[Hidden]:
        """Yield the tools, resources, templates and prompts that the lock hides."""
        for name, aside in self._aside.items():
            yield from (_hidden(name, "tool", tool, change) for tool, change in aside.items())
        for name, more in self._more_aside.items():
            yield from (_hidden(name, kind, key, change) for kind, key, change in more)

    def is_pinned(self, tool: Tool) -> bool:
        """Return whether a lock holds an approved definition of the tool. The cache does not count."""
        return tool.remote_name in self.pinned(tool.server)

    def pinned(self, server: str) -> Collection[str]:
        """Return the server's own names of the tools that a lock holds an approved definition of."""
        pin = None if server in self._cached else self._pins.get(server)
        if pin is None:
            return ()
        known = self._pinned.get(server)
        if known is None or known[0] is not pin:
            known = self._pinned[server] = (pin, frozenset(one.remote_name for one in pin.snapshot.tools))
        return known[1]

    def servers_with_resource(self, uri: str) -> list[str]:
        """Return the servers that had this resource when they were locked or last ran."""
        pins, caches = self._pins.items(), self._snapshot_caches.items()
        locked = [name for name, pin in pins if pin and uri in (one.uri for one in pin.snapshot.resources)]
        return locked + [name for name, cache in caches if cache.has_resource(uri)]

    def known(self, server: ServerConfig) -> CachedSnapshot | None:
        """Return the last known listing of a server before it connects, or None."""
        name = server.name
        self._fingerprints[name] = fingerprint(server)
        lock = self._lock_of(server)
        self._pinning[name] = server.pins or ("block" if lock is not None else "warn")
        self._aside.pop(name, None)
        self._more_aside.pop(name, None)
        self._skills_aside.pop(name, None)
        self._snapshot_caches.pop(name, None)
        if lock is None:
            self._fingerprints[name] += self._declared
            return self._recalled(name)
        pin = self._pins[name] = lock.servers.get(name)
        # An older pin does not say which tools are for pages only: models see none before the server runs.
        if pin is None or pin.fingerprint != self._fingerprints[name] or not pin.whole:
            return None
        offered = pin.snapshot

        def snapshot() -> Snapshot:
            from mooring.lock.compare import before_start

            return before_start(offered)

        return CachedSnapshot(
            snapshot,
            protocol=offered.info.protocol,
            tools=len(offered.tools),
            templates=len(offered.templates),
            prompts=len(offered.prompts),
            extensions=offered.extensions,
        )

    def _lock_of(self, server: ServerConfig) -> Lock | None:
        """Return the lock that covers this server; None if the private cache is used."""
        lock = self._memory.own if server.source.scope == "user" else self._memory.lock
        if lock is None:
            self._cached.add(server.name)
        else:
            self._cached.discard(server.name)
        return lock

    def _recalled(self, name: str) -> CachedSnapshot | None:
        self._pins[name] = None
        if not self._memory.cache:
            return None
        from mooring.lock.cache import recall

        found = recall(name, self._fingerprints[name])
        if found is None:
            return None
        self._snapshot_caches[name], self._uris[name] = found, found.uris

        def snapshot() -> Snapshot:
            return Snapshot(server=name) if found.pin is None else found.pin.snapshot

        return CachedSnapshot(
            snapshot,
            protocol=found.protocol,
            tools=found.tools,
            templates=found.templates,
            prompts=found.prompts,
            extensions=found.extensions,
        )

    def _as_remembered(self, snapshot: Snapshot) -> bool:
        """Whether the listing is identical to the cached one: the usual case. Does not read the cached
        definitions."""
        name = snapshot.server
        found = self._snapshot_caches.pop(name, None)
        if found is None:
            return False
        from mooring.lock.compare import as_reported

        reported = as_reported(snapshot, self._fingerprints[name])
        same = len(reported.snapshot.tools) == len(snapshot.tools) and found.says(reported)
        self._pins[name] = reported if same else found.pin
        return same and found.uris == uri_line(snapshot)

    def evaluate(self, snapshot: Snapshot) -> tuple[Snapshot, Guard | None]:
        """Return the visible part of a listing, and the check of requests against it."""
        name = snapshot.server
        if name not in self._fingerprints:
            return snapshot, None  # a provider of the application, not a configured server
        if self._as_remembered(snapshot) and self._pinning[name] != "block":
            return snapshot, None
        from mooring.lock.compare import decide, pin_of  # lazy: not needed for the first catalog

        pin, pinning, mark = self._pins[name], self._pinning[name], self._fingerprints[name]
        admission = decide(pin, snapshot, pinning, fingerprint=mark)
        self._report(name, admission)
        if admission.set_aside != self._aside.get(name, {}):
            for tool in admission.set_aside:
                self._withhold(f"{name}/{tool}")
        self._aside[name] = admission.set_aside
        self._more_aside[name] = _more_aside(admission)
        self._skills_aside[name] = admission.set_aside_skills
        if name in self._cached and self._memory.cache:
            fresh, uris = pin_of(snapshot, mark, previous=pin, whole=False), uri_line(snapshot)
            if fresh != pin or admission.drift or uris != self._uris.get(name):
                self._pins[name], self._uris[name] = fresh, uris
                self._remember(fresh, uris)
        return admission.visible, ApprovedListing(admission) if pinning == "block" else None

    def _remember(self, pin: Pin, uris: bytes) -> None:
        writer = Thread(target=remember, args=(pin, uris), name="mooring-cache")
        self._writers = [thread for thread in self._writers if thread.is_alive()] + [writer]
        writer.start()

    def _report(self, name: str, admission: Admission, already: frozenset[str] = frozenset()) -> None:
        """Log the changes, except warnings in `already`."""
        from mooring.lock.diff import since_last_run

        warnings: Sequence[str] = admission.warnings
        if name in self._cached:
            warnings, noted = since_last_run(admission.drift.changes)
            if noted:
                log.info("server %r differs from the last run: %s", name, ", ".join(noted))
        for warning in warnings:
            if warning not in already:
                log.warning("%s", warning)
        self._warned[name] = already.union(warnings)

    def guard_for(self, shown: Snapshot | None, snapshot: Snapshot) -> Guard | None:
        """Return the check of requests for another connection to a server: against the lock, or without one
        against `shown`. It changes no state and logs nothing."""
        from mooring.lock.compare import decide, pin_of

        name = snapshot.server
        pinning, known = self._pinning.get(name, "warn"), self._pins.get(name)
        if pinning == "block" and name not in self._cached:
            admission = decide(known, snapshot, pinning, fingerprint=self._fingerprints[name])
        else:
            whole = known is None or known.whole
            volatile = NO_MARKS if known is None else known.volatile
            pin = None if shown is None else pin_of(shown, "", whole=whole, volatile=volatile)
            admission = decide(pin, snapshot, pinning)
        self._report(name, admission, already=self._warned.get(name, frozenset()))
        return ApprovedListing(admission) if pinning == "block" else None

    def covers(self, server: ServerConfig) -> bool:
        """Whether there is a lock for a server, and it is in force."""
        return self._lock_of(server) is not None and self._pinning.get(server.name) != "off"

    def changes(self, server: ServerConfig, snapshot: Snapshot) -> tuple[Change, ...]:
        """Return how a listing differs from the lock; empty for a server that no lock covers."""
        if not self.covers(server):
            return ()
        from mooring.lock.compare import compare

        mark = fingerprint(server)
        pin = self._pins.get(server.name) or Pin(fingerprint=mark, snapshot=Snapshot(server=server.name))
        return compare(pin, snapshot, fingerprint=mark).changes

    def approve(self, server: ServerConfig, snapshot: Snapshot, tool: str | None) -> None:
        """Accept the changes of a listing, or of one of its tools: write them to the lock file and use them.
        The listing must be published again afterwards.

        Raises:
            LockError: There is no lock, or it cannot be written.
            UnknownTool: There is no such tool.
        """
        from mooring.lock.cache import save_lock
        from mooring.lock.compare import approve

        own = server.source.scope == "user"
        path = self._memory.own_path if own else self._memory.path
        lock = None if path is None else load_lock(path)
        if path is None or lock is None:
            raise LockError("there is no lock, so nothing is blocked; see `mooring lock`")
        known = lock.servers.get(server.name)
        accepted = approve(
            lock,
            snapshot,
            fingerprint=fingerprint(server),
            tools=None if tool is None else [tool],
            volatile=NO_MARKS if known is None else known.volatile,
        )
        save_lock(path, accepted)
        same = self._memory.path == self._memory.own_path
        self._memory = replace(
            self._memory,
            lock=accepted if same or not own else self._memory.lock,
            own=accepted if same or own else self._memory.own,
        )
        self._pins[server.name] = accepted.servers.get(server.name)

    def close(self) -> None:
        """Wait until the cache is written."""
        for writer in self._writers:
            writer.join()
        self._writers.clear()

    def check_page(self, page: Page) -> ToolChanged | None:
        """Return the error for a page that differs from the approved one. Logs it instead if the pins of the
        server only warn."""
        from mooring.lock.diff import changes_between, summary

        pin, pinning = self._pins.get(page.server), self._pinning.get(page.server, "off")
        if pin is None or pin.snapshot.pages is None or pinning == "off":
            return None
        before = tuple(one for one in pin.snapshot.pages if one.uri == page.uri)
        known = Snapshot(server=page.server, pages=before)
        changes = changes_between(known, Snapshot(server=page.server, pages=(page,)))
        if not changes:
            return None
        if pinning == "block":
            return tool_changed(changes[0])
        log.warning("%s", summary(changes[0]))
        return None

    @property
    def hides_skills(self) -> bool:
        """Whether a skill is hidden."""
        return any(self._skills_aside.values())

    def explain_skill(self, name: str) -> ToolChanged | None:
        """Return the error for a hidden skill of this local name, or None."""
        for server, aside in self._skills_aside.items():
            for change in aside.values():
                own = getattr(change.after or change.before, "name", "")
                if name in (own, f"{server}/{own}"):
                    return tool_changed(change)
        return None

    def explain(self, local_name: str, style: Style) -> ToolChanged | None:
        """Return the error for a hidden tool of this name, or None."""
        for server, aside in self._aside.items():
            for remote, change in aside.items():
                if assign([(server, remote)], style).get((server, remote)) == local_name:
                    return tool_changed(change)
        return None


class ApprovedListing:
    """Returns why a request must not be sent to a server whose pins say `block`, or None.

    Tools and prompts must be in the listing and approved. A resource may be read unless it is listed, or
    matches a template, and is not approved, because servers also return URIs that they never list.
    """

    def __init__(self, admission: Admission) -> None:
        shown = admission.visible
        self._server, self._drift = shown.server, admission.drift
        self._tools = frozenset(tool.remote_name for tool in shown.tools)
        self._prompts = frozenset(prompt.name for prompt in shown.prompts)
        self._resources = frozenset(resource.uri for resource in shown.resources)
        self._templates = tuple(template.uri_template for template in shown.templates)
        self._skills = frozenset(skill.uri for skill in shown.skills)
        self._aside = admission

    def __call__(self, method: str, params: Mapping[str, Any]) -> ToolChanged | None:
        match method:
            case "tools/call":
                name = params.get("name")
                return None if name in self._tools else self._missing("tool", str(name))
            case "prompts/get":
                return self._prompt(str(params.get("name")))
            case "resources/read" | "resources/directory/read":
                uri = str(params.get("uri"))
                return self._in_skill(uri) or self._resource(uri)
            case "skills/get":
                return self._skill(str(params.get("uri")))
            case "completion/complete":
                ref = cast("Mapping[str, Any]", params.get("ref"))
                if ref.get("type") == "ref/prompt":
                    return self._prompt(str(ref.get("name")))
                return self._template(str(ref.get("uri")))
            case _:
                return None

    def _in_skill(self, uri: str) -> ToolChanged | None:
        """Return the error for a file of a skill that is not approved."""
        for skill, change in self._aside.set_aside_skills.items():
            root = root_of(skill)
            if root is not None and (uri == root or uri.startswith(f"{root}/")):
                return tool_changed(change, uri)
        return None

    def _skill(self, uri: str) -> ToolChanged | None:
        """Return the error for a skill that is not approved, listed or not."""
        if uri in self._skills:
            return None
        if (change := self._aside.set_aside_skills.get(uri)) is not None:
            return tool_changed(change, uri)
        return self._unlisted("skill", uri)

    def _prompt(self, name: str) -> ToolChanged | None:
        return None if name in self._prompts else self._missing("prompt", name)

    def _resource(self, uri: str) -> ToolChanged | None:
        if uri in self._resources:
            return None
        change = self._aside.set_aside_resources.get(uri)
        if change is None and not any(matches(template, uri) for template in self._templates):
            aside = self._aside.set_aside_templates.items()
            change = next((change for template, change in aside if matches(template, uri)), None)
        return None if change is None else tool_changed(change, uri)

    def _template(self, template: str) -> ToolChanged | None:
        change = self._aside.set_aside_templates.get(template)
        return None if change is None else tool_changed(change, template)

    def _missing(self, subject: str, name: str) -> ToolChanged:
        """Return the error for an entry that changed or is not listed."""
        aside = self._aside.set_aside if subject == "tool" else self._aside.set_aside_prompts
        if (change := aside.get(name)) is not None:
            return tool_changed(change, name)
        for change in self._drift.changes:
            before = None if change.before is None else key_of(change.before)
            if change.subject == subject and name in (change.name, before):
                return tool_changed(change, name)
        return self._unlisted(subject, name)

    def _unlisted(self, subject: str, name: str) -> ToolChanged:
        problem = f"{subject.capitalize()} {shown_name(name)} of server {shown_name(self._server)}"
        return ToolChanged(
            f"{problem} is not in the server's list, so it cannot be compared with `mooring.lock`. "
            "See what the server offers with `mooring check`.",
            server=self._server,
            tool=name,
            reason="removed",
        )


def tool_changed(change: Change, name: str | None = None) -> ToolChanged:
    """Return the error for a change; `name` is the requested name if it differs."""
    from mooring.lock.diff import describe, summary

    return ToolChanged(
        summary(change),
        server=change.server,
        tool=change.name if name is None else name,
        reason=change.kind,
        details=describe(change),
    )


def _more_aside(admission: Admission) -> list[tuple[HiddenKind, str, Change]]:
    kinds: tuple[tuple[HiddenKind, Mapping[str, Change]], ...] = (
        ("resource", admission.set_aside_resources),
        ("template", admission.set_aside_templates),
        ("prompt", admission.set_aside_prompts),
        ("skill", admission.set_aside_skills),
    )
    return [(kind, key, change) for kind, aside in kinds for key, change in aside.items()]


def _hidden(server: str, kind: HiddenKind, name: str, change: Change) -> Hidden:
    why = "not in the lock" if change.kind == "added" else f"changed since approval: {change.kind}"
    return Hidden(server=server, kind=kind, name=name, by="lock", reason=why)
