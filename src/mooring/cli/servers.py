"""The servers that a command is about: which they are, that they settle, and what keeps them away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from mooring.cli.hosting import watch
from mooring.cli.output import Output
from mooring.cli.progress import one_line, summary

if TYPE_CHECKING:
    from mooring.core.types import Snapshot
    from mooring.host import Host

__all__ = [
    "chosen",
    "gather",
    "listed",
    "report_doubts",
    "report_failed",
    "report_missing",
    "report_warnings",
    "settle",
    "warnings_of",
]

T = TypeVar("T")


def chosen(host: Host, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The named servers, or all that are not disabled when none is named."""
    return tuple(names) or tuple(s.name for s in host.status() if s.state != "disabled")


async def gather(host: Host, out: Output, names: Collection[str], timeout: float | None) -> None:
    """Wait for those of these servers that neither the lock nor the cache knows, and say who is missing."""
    for problem in host.held.values():
        out.warning(str(problem))
    known = host.catalog.servers
    asked = [name for name in names if name not in known]
    if asked:
        await watch(host, out, lambda: settle(host, asked), timeout=timeout, names=asked)
    report_missing(host, out, asked)
    report_warnings(host, out)


async def settle(host: Host, names: Collection[str]) -> None:
    """Wait until each of these servers has connected or failed; lazy ones are started for it."""
    lazy = [server.name for server in host.config.active if server.start == "lazy" and server.name in names]
    events = host.events()
    if lazy:
        await host.refresh(*lazy)
    while any(status.state == "pending" for status in host.status() if status.name in names):
        await anext(events)


async def listed(
    host: Host, out: Output, ask: Callable[..., Awaitable[T]], server: str | None, timeout: float | None
) -> T:
    """What `ask` brings of the named server or of all, with progress; in time, or what there is by then."""
    found: list[T] = []

    async def wait() -> None:
        found.append(await ask(server))

    await watch(host, out, wait, timeout=timeout, names=None if server is None else [server])
    return found[0] if found else await ask(server, timeout=0)


def report_missing(host: Host, out: Output, names: Collection[str]) -> None:
    """Say on standard error which of these servers are absent from the result, and why."""
    for status in host.status():
        if status.name in names and status.state not in ("connected", "disabled"):
            out.warning(f"{status.name} is missing: {summary(status)}")


def report_failed(errors: Mapping[str, str], out: Output) -> None:
    """Say on standard error which servers are absent from the result, and why."""
    for name, why in errors.items():
        out.warning(f"{name} is missing: {one_line(why)}")


def report_warnings(host: Host, out: Output) -> None:
    """Say on standard error what was set aside of what the servers offered."""
    for warning in _of_servers(host):
        out.warning(": ".join(text for text in (warning["server"], warning["message"]) if text))


def report_doubts(snapshots: Iterable[Snapshot], out: Output) -> None:
    """Say on standard error what is doubtful in the descriptions of servers that are about to be approved."""
    from mooring.core.poison import doubts

    for snapshot in snapshots:
        for text in doubts(snapshot):
            out.warning(f"{text}; read it before you approve it")


def warnings_of(host: Host) -> list[dict[str, str | None]]:
    """What was set aside, of the configuration and of what the servers offered, as the JSON form shows it."""
    written = [
        {"file": w.file, "server": w.server, "field": w.field, "message": w.message}
        for w in host.config.warnings
    ]
    return [*written, *_of_servers(host)]


def _of_servers(host: Host) -> list[dict[str, str | None]]:
    place = {"file": None, "field": None}
    offered = [
        {**place, "server": status.name, "message": text}
        for status in host.status()
        for text in status.warnings
    ]
    merged = [{**place, "server": None, "message": text} for text in host.catalog.warnings]
    return [*offered, *merged]
