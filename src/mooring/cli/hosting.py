"""A host for one command, and the servers that the command is about."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from mooring.cli.options import Options
from mooring.cli.output import Output
from mooring.cli.progress import one_line, show_progress, summary
from mooring.core.text import clean, nearest
from mooring.errors import ConfigError, UnknownServer

if TYPE_CHECKING:
    import logging

    from mooring.config.models import HostConfig
    from mooring.core.types import Snapshot
    from mooring.host import Host
    from mooring.policy import Approver
    from mooring.transport.forwarding import ClientBridge


@asynccontextmanager
async def open_host(
    options: Options,
    out: Output,
    *,
    style: Any = None,
    servers: Sequence[str] = (),
    idle: bool = False,
    lock: bool = True,
    on_approval: Approver | None = None,
    on_elicit: Any = None,
    relay: ClientBridge | None = None,
    declare: bool = True,
) -> AsyncGenerator[Host]:
    """The host that the options describe, with its servers starting in the background.

    Args:
        options: Of the command line.
        out: Where warnings go.
        style: How tools are named, when that is not as configured.
        servers: Names that must be configured.
        idle: Start no server before it is asked for.
        lock: Look at the lock or the cache, unless the options forbid it.
        on_approval: Asked before a call that needs a yes.
        on_elicit: Answers what servers ask.
        relay: Takes what servers say to a client behind the gateway. Every command has one, so that all
            declare the same capabilities and are shown the same tools.
        declare: False: declare no capabilities at all, as an application without `on_elicit` does.

    Raises:
        ConfigError: a file cannot be read, or nothing in it can be used.
        UnknownServer: one of `servers` is not configured; nothing has been started.
    """
    from mooring.host import Host, runtime_of
    from mooring.transport.forwarding import ClientBridge

    log_to_stderr(options.verbose)
    with _told_afterwards("mooring.lock.enforce", out):
        host = Host.from_config(
            *options.config,
            style=style,
            lock=lock and not options.no_lock,
            on_approval=on_approval,
            on_elicit=on_elicit,
            relay=(relay or ClientBridge()) if declare else None,
        )
        _check(host, out, servers)
        if idle:
            runtime_of(host).current.config = _all_lazy(host.config)
        async with host:
            yield host


def _check(host: Host, out: Output, servers: Sequence[str]) -> None:
    warnings = [str(warning) for warning in host.config.warnings]
    if warnings and not host.config.servers:
        raise ConfigError("\n".join(warnings))
    for warning in warnings:
        out.warning(warning)
    if not host.config.servers:
        out.note(
            "No servers are configured here. Name a file with `--config mcp.json`, "
            "or see servers at work with `mooring demo`."
        )
    known = [server.name for server in host.config.servers]
    for name in servers:
        if name not in known:
            raise UnknownServer(name, nearest(name, known), hint="See `mooring list`.")


def _all_lazy(config: HostConfig) -> HostConfig:
    lazy = tuple(replace(server, start="lazy") for server in config.servers)
    return replace(config, servers=lazy)


async def watch(
    host: Host,
    out: Output,
    wait: Callable[[], Awaitable[object]],
    *,
    timeout: float | None,
    names: Collection[str] | None = None,
) -> None:
    """Wait for something of the host, at most `timeout` seconds, with progress on a terminal.

    `names` are the servers that are waited for; None: all of them.
    """
    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as tasks:
            if out.interactive:
                tasks.start_soon(show_progress, host, out, names)
            await wait()
            tasks.cancel_scope.cancel()


def log_to_stderr(verbose: bool) -> None:
    """Show the log to those who ask for it: what went wrong with a server is in its status anyway."""
    import logging

    class Cleaned(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return clean(super().format(record))

    # Without any handler, logging would print warnings by itself.
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(Cleaned("%(levelname).1s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    if verbose:
        logging.getLogger().setLevel(logging.DEBUG)


@contextmanager
def _told_afterwards(logger: str, out: Output) -> Generator[None]:
    """Show the warnings of one logger when all is done, since they would tear what is drawn meanwhile."""
    import logging

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.setdefault(record.getMessage())

    said: dict[str, None] = {}
    kept = Kept(logging.WARNING)
    source = logging.getLogger(logger)
    if not out.options.verbose:  # else the log is shown anyway
        source.addHandler(kept)
    try:
        yield
    finally:
        source.removeHandler(kept)
        for message in said:
            out.warning(message)


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
    from mooring.core.injection_scan import doubts

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
