"""A host for one command: opened from the options, waited for with progress, closed at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
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

    from mooring.host import Host

__all__ = ["log_to_stderr", "open_host", "watch"]


@asynccontextmanager
async def open_host(
    options: Options, out: Output, *, style: Any = None, servers: Sequence[str] = ()
) -> AsyncGenerator[Host]:
    """The host that the options describe, with its servers starting in the background.

    Raises:
        ConfigError: a file cannot be read, or nothing in it can be used.
        UnknownServer: one of `servers` is not configured; nothing has been started.
    """
    from mooring.host import Host

    log_to_stderr(options.verbose)
    host = Host.from_config(*options.config, style=style)
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
    async with host:
        yield host


async def watch(
    host: Host, out: Output, wait: Callable[[], Awaitable[object]], *, timeout: float | None
) -> None:
    """Wait for something of the host, at most `timeout` seconds, with progress on a terminal."""
    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as tasks:
            if out.interactive:
                tasks.start_soon(show_progress, host, out)
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
