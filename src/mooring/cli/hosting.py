"""A host for one command: opened from the options, waited for with progress, closed at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from mooring.cli.options import Options
from mooring.cli.output import Output
from mooring.cli.progress import show_progress
from mooring.core.text import clean

if TYPE_CHECKING:
    import logging

    from mooring.host import Host

__all__ = ["log_to_stderr", "open_host", "settle", "warnings_of"]


@asynccontextmanager
async def open_host(options: Options, out: Output, *, style: Any = None) -> AsyncGenerator[Host]:
    """The host that the options describe, with its servers starting in the background.

    Raises:
        ConfigError: a file cannot be read or used as written.
    """
    from mooring.host import Host

    log_to_stderr(options.verbose)
    host = Host.from_config(*options.config, style=style)
    for warning in host.config.warnings:
        out.warning(str(warning))
    if not host.config.servers:
        out.note(
            "No servers are configured here. Name a file with `--config mcp.json`, "
            "or see servers at work with `mooring demo`."
        )
    async with host:
        yield host


async def settle(
    host: Host, out: Output, *, timeout: float | None, enough: Callable[[], bool] | None = None
) -> None:
    """Wait until every server has connected or failed, `enough()` holds, or the time is up."""
    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as waits:

            async def everything() -> None:
                await host.ready()
                waits.cancel_scope.cancel()

            async def something(holds: Callable[[], bool]) -> None:
                if not holds():
                    async for _ in host.events():
                        if holds():
                            break
                waits.cancel_scope.cancel()

            waits.start_soon(everything)
            if enough is not None:
                waits.start_soon(something, enough)
            if out.interactive:
                waits.start_soon(show_progress, host, out)


def warnings_of(host: Host) -> list[dict[str, str | None]]:
    """What was set aside while loading the configuration, as the JSON form shows it."""
    return [
        {"file": w.file, "server": w.server, "field": w.field, "message": w.message}
        for w in host.config.warnings
    ]


def log_to_stderr(verbose: bool) -> None:
    """Show the log to those who ask for it: what went wrong with a server is in its status anyway."""
    import logging

    class Cleaned(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return clean(super().format(record))

    handler = logging.StreamHandler()
    handler.setFormatter(Cleaned("%(levelname).1s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.CRITICAL, force=True)
