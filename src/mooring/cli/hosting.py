"""A host for one command: opened from the options, waited for with progress, closed at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from mooring.cli.options import Options
from mooring.cli.output import Output
from mooring.cli.progress import show_progress
from mooring.core.near import nearest
from mooring.core.text import clean
from mooring.errors import ConfigError, UnknownServer

if TYPE_CHECKING:
    import logging

    from mooring.approval import Approver
    from mooring.core.config import HostConfig
    from mooring.host import Host
    from mooring.net.passage import Relay

__all__ = ["log_to_stderr", "open_host", "watch"]


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
    relay: Relay | None = None,
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
    from mooring.host import Host
    from mooring.net.passage import Relay

    log_to_stderr(options.verbose)
    with _told_afterwards("mooring.pins", out):
        host = Host.from_config(
            *options.config,
            style=style,
            lock=lock and not options.no_lock,
            on_approval=on_approval,
            on_elicit=on_elicit,
            relay=(relay or Relay()) if declare else None,
        )
        _check(host, out, servers)
        if idle:
            host.config = _all_lazy(host.config)
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
