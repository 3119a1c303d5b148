"""Open a transport for a configuration, and always close it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

from mooring.config.models import ServerConfig, Target
from mooring.core.redact import Redactor
from mooring.transport.base import Transport
from mooring.transport.pool import HttpPool
from mooring.transport.process import Child, child_environment
from mooring.transport.stdio import StdioTransport

if TYPE_CHECKING:
    from mooring.auth.credentials import Credentials

Wire = Literal["stdio", "http", "sse"]


class CannotStart(Exception):
    """The child cannot be started as configured; a retry cannot succeed."""


def wires(config: ServerConfig) -> tuple[Wire, ...]:
    """Return the transports to try, in order."""
    order: Mapping[str, tuple[Wire, ...]] = {
        "stdio": ("stdio",),
        "sse": ("sse",),
        "streamable-http": ("http",),
    }
    return order.get(config.transport or "", ("http", "sse"))


@asynccontextmanager
async def open_channel(
    wire: Wire,
    config: ServerConfig,
    target: Target,
    pool: HttpPool,
    redact: Redactor,
    access: Credentials | None = None,
) -> AsyncGenerator[Transport]:
    """An open transport that is running; closed within the grace of the server on exit.

    Raises:
        CannotStart: The command does not exist or is not executable.
        OSError: The system cannot start another process.
    """
    channel = await _make(wire, config, target, pool, redact, access)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.pump)
        try:
            await channel.opened()
            yield channel
        finally:
            # Closing has its own timeouts; a cancellation must not leave children behind.
            with anyio.CancelScope(shield=True, deadline=math.inf):
                await channel.close(config.shutdown_grace)


async def _make(
    wire: Wire,
    config: ServerConfig,
    target: Target,
    pool: HttpPool,
    redact: Redactor,
    access: Credentials | None,
) -> Transport:
    if wire == "stdio":
        return StdioTransport(await _spawn(config, target, redact), max_message=config.max_message)
    # aiohttp is imported only where there is an HTTP server.
    from mooring.transport.endpoint import HttpEndpoint
    from mooring.transport.http import HttpTransport, SseTransport

    endpoint = HttpEndpoint(
        config.name,
        target.url or "",
        headers=target.headers,
        pool=pool,
        max_message=config.max_message,
        redact=redact,
        access=access,
        way=await pool.ways.to(config, target),
        sign=target.sign,
    )
    return HttpTransport(config.name, endpoint) if wire == "http" else SseTransport(config.name, endpoint)


async def _spawn(config: ServerConfig, target: Target, redact: Redactor) -> Child:
    env = child_environment(config.inherit_env, target.env)
    argv = [target.command or "", *target.args]
    try:
        return await Child.spawn(config.name, argv, env=env, cwd=target.cwd, redact=redact)
    except FileNotFoundError:
        raise CannotStart(_not_found(argv[0], target.cwd)) from None
    except NotADirectoryError:
        raise CannotStart(f"{target.cwd or argv[0]!r} is not a directory") from None
    except PermissionError:
        raise CannotStart(f"the command {argv[0]!r} may not be run; is it executable?") from None
    except ValueError as problem:
        raise CannotStart(f"the command cannot be run: {problem}") from None


def _not_found(command: str, cwd: str | None) -> str:
    if cwd is not None and not Path(cwd).is_dir():
        return f"its working directory {cwd!r} does not exist"
    return f"the command {command!r} was not found; install it, or write its full path"
