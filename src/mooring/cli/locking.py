"""Compare servers with `mooring.lock`: shared by `lock`, `check` and `approve`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mooring.cli.hosting import chosen, open_host, watch
from mooring.cli.options import Options
from mooring.cli.output import GAP, Output, Style, fields, plural, table, wrap
from mooring.config import found_files
from mooring.config.models import ServerConfig
from mooring.config.plan import fingerprint
from mooring.core.text import clean, clean_line
from mooring.core.types import ServerStatus, Snapshot, Tool
from mooring.errors import ConfigError
from mooring.lock import Marks
from mooring.lock.cache import lock_path, own_lock_path, speaks_of
from mooring.lock.compare import Lock, Pin, compare, merged, volatile_between
from mooring.lock.diff import Change, describe

if TYPE_CHECKING:
    from mooring.config.sections import ProfileSettings
    from mooring.host import Host

DRIFT, UNREACHABLE = 10, 11

Status = Literal["same", "new", "changed", "removed", "unreachable", "unpinned"]

_SYMBOLS: dict[Status, tuple[str, Style]] = {
    "same": ("✓", "green"),
    "new": ("+", "cyan"),
    "changed": ("~", "yellow"),
    "removed": ("-", "yellow"),
    "unreachable": ("✗", "red"),
    "unpinned": ("·", "dim"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """How one server compares with the lock."""

    server: str
    status: Status
    """`removed`: in the lock, but no longer configured. `unpinned`: configured with `pins: off`."""
    tools: int = 0
    changes: tuple[Change, ...] = ()
    error: str | None = None
    shown: tuple[tuple[str, Tool], ...] = ()
    """Tools with a transform, as clients see them, each with its profile (empty: everywhere)."""
    partial: bool = False
    """Whether an older version wrote its pin, without resources, `_meta` and unknown fields."""

    @property
    def drifted(self) -> bool:
        return self.status in ("new", "changed", "removed")


def lock_file(options: Options) -> Path:
    """Path of the lock, whether or not it exists."""
    named = [Path(file) for file in options.config]
    return lock_path(found_files(named or None), Path.cwd())


def own_lock_file(options: Options) -> Path | None:
    """Path of a separate lock for the user's own servers; None if `lock_file` covers them."""
    files = found_files(options.files)
    beside = any(file.scope == "user" for file in files) and not speaks_of(files, "user")
    return own_lock_path() if beside else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Snapshots of the configured servers that could be reached."""

    configured: Mapping[str, ServerConfig]
    """The servers that the lock covers."""
    statuses: Sequence[ServerStatus]
    snapshots: Mapping[str, Snapshot]
    """Of connected servers."""
    volatile: Mapping[str, Marks]
    """By server: the fields that differ at each start."""
    profiles: Mapping[str, ProfileSettings]
    """The profiles of the gateway, whose transforms are shown in the review."""

    def fingerprint(self, server: str) -> str:
        return fingerprint(self.configured[server])


async def listing(
    options: Options,
    out: Output,
    servers: Sequence[str] = (),
    *,
    again: Callable[[Listing], Collection[str]] | None = None,
    own: bool = False,
) -> Listing:
    """List the servers that the lock covers.

    Args:
        options: Options of the command line.
        out: Receives the warnings.
        servers: The servers to list; empty: all.
        again: Returns the servers to list a second time; None: all. They are restarted without client
            capabilities, to find text that differs at each start, and tools that are only offered to
            clients without these capabilities.
        own: Use the lock of the user's own servers instead of the project's.

    Raises:
        ConfigError: one of `servers` does not belong into this lock.
        NotTrusted: one of the servers is not approved, so that it cannot be started.
    """
    first = await _listed(options, out, servers, own=own, declare=True)
    names = first.snapshots.keys() if again is None else again(first)
    if not names:
        return first
    quiet = Output(replace(options, quiet=True))  # the first listing printed the warnings
    second = await _listed(options, quiet, sorted(names), own=own, declare=False)
    snapshots, volatile = dict(first.snapshots), dict[str, Marks]()
    for name, snapshot in second.snapshots.items():
        if name in names:
            volatile[name] = volatile_between(snapshots[name], snapshot)
            snapshots[name] = merged(snapshots[name], snapshot)
    return replace(first, snapshots=snapshots, volatile=volatile)


async def _listed(
    options: Options, out: Output, servers: Sequence[str], *, own: bool, declare: bool
) -> Listing:
    async with open_host(options, out, servers=servers, idle=True, lock=False, declare=declare) as host:
        excluded = uncovered(host, options)
        if own:
            excluded = {server.name for server in host.config.servers} - excluded
        if excluded.intersection(servers):
            raise ConfigError(
                f"{min(excluded.intersection(servers))!r} is defined in your own configuration, which "
                "the lock of a project does not cover"
            )
        names = tuple(name for name in chosen(host, servers) if name not in excluded)
        for name, problem in host.held.items():
            if name not in excluded and (not servers or name in servers):
                raise problem
        if names:
            await watch(host, out, lambda: host.refresh(*names), timeout=options.timeout, names=names)
        statuses = host.status()
        snapshots = {
            one.name: host.provider(one.name).snapshot for one in statuses if one.state == "connected"
        }
        if declare:  # once is enough: a page does not depend on capabilities
            for name, snapshot in snapshots.items():
                snapshots[name] = await _with_pages(host, out, snapshot)
        configured = {server.name: server for server in host.config.servers if server.name not in excluded}
        profiles = host.config.gateway.profiles
    return Listing(
        configured=configured, statuses=statuses, snapshots=snapshots, volatile={}, profiles=profiles
    )


async def _with_pages(host: Host, out: Output, snapshot: Snapshot) -> Snapshot:
    """The snapshot with the state of the pages of its tools (MCP Apps), which are read for that."""
    from mooring.extensions.views import pages_of
    from mooring.host import runtime_of

    pages, problems = await pages_of(runtime_of(host).resources, snapshot)
    for problem in problems:
        out.warning(problem)
    return replace(snapshot, pages=pages)


def uncovered(host: Host, options: Options) -> set[str]:
    """Names of the configured servers that the lock does not cover: those of the user's own file."""
    files = found_files(options.files)
    return {server.name for server in host.config.servers if not speaks_of(files, server.source.scope)}


def review(listed: Listing, lock: Lock, names: Sequence[str] = ()) -> list[Review]:
    """Compare the named servers, or all in the configuration and the lock; sorted by name."""
    configured = listed.configured
    reviews = [Review(server=name, status="removed") for name in lock.servers if name not in configured]
    for status in listed.statuses:
        name = status.name
        if name not in configured or (status.state == "disabled" and name not in names):
            continue
        if status.state != "connected":
            reason = status.error or f"the server is {status.state}"
            reviews.append(Review(server=name, status="unreachable", error=reason))
            continue
        snapshot = listed.snapshots[name]
        pin = lock.servers.get(name)
        changes = compared(pin, snapshot, listed.fingerprint(name))
        kind: Status = "new" if pin is None else "changed" if changes else "same"
        if configured[name].pins == "off":
            kind, changes = "unpinned", ()
        partial = pin is not None and not pin.whole
        tools = len(snapshot.tools)
        shown = transformed(listed, name)
        reviews.append(
            Review(server=name, status=kind, tools=tools, changes=changes, partial=partial, shown=shown)
        )
    return sorted((one for one in reviews if not names or one.server in names), key=lambda one: one.server)


def transformed(listed: Listing, server: str) -> tuple[tuple[str, Tool], ...]:
    """The tools of a server with a transform, as clients see them, each with its profile."""
    from mooring.core import transforms

    profiles = {name: profile.transforms for name, profile in listed.profiles.items()}
    config = listed.configured[server]
    return transforms.transformed(server, listed.snapshots[server].tools, config.transforms, profiles)


def shown_document(profile: str, tool: Tool) -> dict[str, Any]:
    """The JSON form of a tool with a transform: as the server defines it, and as clients see it."""
    assert tool.shape is not None

    def definition(one: Tool) -> dict[str, Any]:
        texts = fields(one, "title", "description")
        return {**texts, "input_schema": dict(one.input_schema), "annotations": dict(one.annotations)}

    return {
        "tool": tool.remote_name,
        "name": tool.own_name,
        "profile": profile or None,
        "original": definition(tool.shape.definition),
        "shown": definition(tool),
    }


def shown_lines(shown: Iterable[tuple[str, Tool]], out: Output, indent: str = "") -> list[str]:
    """Describe how clients see the tools that have a transform."""
    from mooring.core.transforms import described

    lines: list[str] = []
    for profile, tool in shown:
        where = f" in profile {profile}" if profile else ""
        lines += wrap(f"transform of tool {clean_line(tool.remote_name)}{where}:", out.width, indent)
        for text in described(tool):
            lines += (out.paint(part, "dim") for part in wrap(clean_line(text), out.width, f"{indent}  "))
    return lines


def compared(pin: Pin | None, snapshot: Snapshot, mark: str) -> tuple[Change, ...]:
    """The changes since the pin; without a pin, everything is new."""
    if pin is None:
        pin = Pin(fingerprint=mark, snapshot=Snapshot(server=snapshot.server))
    return compare(pin, snapshot, fingerprint=mark).changes


def report(reviews: Iterable[Review], file: Path, *, written: bool = False) -> dict[str, Any]:
    """The JSON form of `mooring lock` and `mooring check`."""
    servers = [
        {
            "name": one.server,
            "status": one.status,
            "tools": one.tools,
            "error": one.error,
            "partial": one.partial,
            "changes": [change_document(change) for change in one.changes],
            "transforms": [shown_document(profile, tool) for profile, tool in one.shown],
        }
        for one in reviews
    ]
    drift = any(one.drifted for one in reviews)
    return {"lock": str(file), "written": written, "drift": drift, "servers": servers}


def partial_note(reviews: Iterable[Review]) -> str | None:
    """A note about fields that a lock of an older version does not cover; None if there are none."""
    names = ", ".join(clean_line(one.server) for one in reviews if one.partial)
    if not names:
        return None
    return (
        f"An older version wrote the lock, which does not pin resources, `_meta`, icons and other "
        f"fields of {names}. `mooring lock` adds them."
    )


def change_document(change: Change) -> dict[str, Any]:
    return {
        "subject": change.subject,
        "name": change.name,
        "kind": change.kind,
        "differences": [
            {"path": d.path, "weight": d.weight, "before": d.before, "after": d.after}
            for d in change.differences
        ],
    }


def review_lines(reviews: Sequence[Review], out: Output, *, approvable: bool = True) -> list[str]:
    """A line for each server, followed by its changes."""
    rows = [[clean_line(one.server), one.status, _amount(one)] for one in reviews]
    lines: list[str] = []
    width = None if out.width is None else out.width - 2
    for one, cells in zip(reviews, table(rows, width=width), strict=True):
        symbol, style = _SYMBOLS[one.status]
        cells[1] = out.paint(cells[1], style)
        lines.append(f"{out.paint(symbol, style)} {GAP.join(cells)}".rstrip())
        if one.error:
            lines.extend(out.paint(line, "dim") for line in wrap(clean(one.error), out.width, "    "))
        if one.status == "changed":
            lines.extend(change_lines(one.changes, out, approvable=approvable, indent="    "))
        lines.extend(shown_lines(one.shown, out, "    "))
    return lines


def change_lines(changes: Iterable[Change], out: Output, *, approvable: bool, indent: str = "") -> list[str]:
    """Describe each change; with `approvable`, add the command that accepts it."""
    lines: list[str] = []
    for change in changes:
        described = clean(describe(change)).splitlines()
        # The last line is the command that accepts the change.
        for line in described if approvable else described[:-1]:
            text = line.lstrip()
            shown = wrap(text, out.width, indent + line[: len(line) - len(text)])
            style: Style = "red" if text.startswith("- ") else "green" if text.startswith("+ ") else "plain"
            lines.extend(out.paint(part, style) for part in shown)
    return lines


def _amount(one: Review) -> str:
    match one.status:
        case "changed":
            return plural(len(one.changes), "change")
        case "removed":
            return "no longer configured"
        case "unreachable":
            return ""
        case _:
            return plural(one.tools, "tool")
