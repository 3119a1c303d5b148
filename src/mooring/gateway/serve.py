"""Start a gateway for a running host, reload its settings, and stop it: transports, signals, drain."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from mooring.config import default_lookup
from mooring.config.audit import AuditSettings
from mooring.config.formats import GUARDED
from mooring.config.logs import logger
from mooring.config.models import ConfigSource, HostConfig, ServerConfig
from mooring.config.plan import reached
from mooring.config.references import expand
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.core.events import ConfigRejected
from mooring.errors import ConfigError
from mooring.gateway.app import Gateway
from mooring.gateway.auth import Authenticator, is_loopback
from mooring.gateway.http_server import WebServer
from mooring.gateway.workers import check_workers, shared_key
from mooring.host import Host, runtime_of

log = logger("mooring.gateway")


MOST_KEYS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A gateway that listens."""

    gateway: Gateway
    port: int
    url: str
    """Of the whole catalog."""


@asynccontextmanager
async def serve_http(
    host: Host,
    bind: str = "127.0.0.1",
    port: int = 0,
    *,
    whole: ProfileSettings | None = None,
    audit: str | None = None,
    shared: bool = False,
    sse: bool = False,
) -> AsyncGenerator[Serving]:
    """Serve a running host while the block runs; at its end, drain.

    Args:
        host: Inside its own `async with`.
        bind: The address to listen on.
        port: 0 lets the system choose.
        whole: What `/mcp` shows of the catalog, and how; everything when left out.
        audit: A file for the audit log.
        shared: Whether other processes listen on the same port. Then clients get no session and are
            not asked anything, and settings that need common state are refused.
        sse: Also serve the HTTP+SSE of 2024.

    Raises:
        ConfigError: the address is not loopback and no token would be asked for, or a setting does not
            work with `shared`.
    """
    shown = f"[{bind}]" if ":" in bind else bind
    if shared:
        check_workers(host.config, whole or ProfileSettings(), sse=sse)
    door = _door(host, host.config, bind, f"http://{shown}:{port}")
    await _note_in(host, audit)
    gateway = Gateway(host, whole=whole, stateless=shared, key=shared_key(), logins=door.open)
    web = WebServer(gateway, door, sse=sse)
    try:
        chosen = await web.start(bind, port, shared=shared)
    except OSError as problem:
        raise ConfigError(f"cannot listen on {bind}:{port}: {problem.strerror or problem}") from None
    url = f"http://{shown}:{chosen}"
    if host.config.gateway.url is None:
        door.url = url

    def vet(config: HostConfig) -> Callable[[], Awaitable[None]]:
        if shared:
            check_workers(config, whole or ProfileSettings(), sse=sse)
        return partial(web.take, config.gateway, _door(host, config, bind, url))

    runtime_of(host).config.vet = vet
    running = asyncio.create_task(gateway.run())
    try:
        yield Serving(gateway=gateway, port=chosen, url=f"{door.url}/mcp")
    finally:
        runtime_of(host).config.vet = None
        web.refuse_new()
        await gateway.drain()
        await web.stop()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await gateway.close()


def _door(host: Host, config: HostConfig, bind: str, url: str) -> Authenticator:
    """The checks that this configuration asks for.

    Raises:
        ConfigError: a setting, a reference or a key file is no good, or others could come in without a
            token. What protects the gateway is never left at its default because it was misspelled.
    """
    _refuse_doubtful(config)
    settings = config.gateway
    tokens = resolved_tokens(settings)
    if not is_loopback(bind) and not tokens and settings.oauth is None:
        raise ConfigError(
            f"{bind!r} can be reached by others, and nobody would be asked for a token; "
            "set `gateway.tokens` or `gateway.oauth`, or listen on 127.0.0.1"
        )
    return Authenticator(settings, bind=bind, url=url, tokens=tokens, fetch=partial(_fetch, host))


def _refuse_doubtful(config: HostConfig) -> None:
    """Refuse to serve while a setting that protects something may have been ignored.

    Raises:
        ConfigError: naming the setting.
    """
    for warning in config.warnings:
        guarded = (warning.field or "").partition(".")[0] in GUARDED and warning.server is None
        if warning.serious or guarded:
            raise ConfigError(warning.message, file=warning.file, place=warning.field)


async def serve_stdio(host: Host, *, whole: ProfileSettings | None = None, audit: str | None = None) -> None:
    """Serve a running host on standard input and output, until the input ends.

    Raises:
        ConfigError: a setting that protects something may have been ignored.
    """
    from mooring.gateway.stdio import serve_stdio as pipe

    _refuse_doubtful(host.config)
    await _note_in(host, audit)
    gateway = Gateway(host, whole=whole)
    running = asyncio.create_task(gateway.run())
    try:
        await pipe(gateway)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await gateway.close()


async def _note_in(host: Host, path: str | None) -> None:
    """Have every request noted where the command, the gateway's or the host's settings say.

    Raises:
        ConfigError: nothing can be written there.
    """
    settings = host.config.gateway.audit
    if path is not None:
        known = settings or host.config.audit
        settings = AuditSettings(path=path) if known is None else replace(known, path=path)
    if settings is not None:
        await runtime_of(host).audits.switch(settings)
    audit = runtime_of(host).audit
    if audit is not None and (problem := await audit.problem()) is not None:
        raise ConfigError(f"the audit log {audit.settings.path!r} cannot be written: {problem}")


def resolved_tokens(settings: GatewaySettings) -> list[tuple[str, str, Sequence[str]]]:
    """Name, value and scopes of each fixed token.

    Raises:
        ConfigError: a reference has no value, or one that is too easy to guess.
    """
    lookup = default_lookup(os.environ, source=ConfigSource(scope="explicit"))
    found: list[tuple[str, str, Sequence[str]]] = []
    for token in settings.tokens:
        value = expand(token.token, lookup)
        if len(value) < 16:
            raise ConfigError(f"the token of {token.name!r} is shorter than 16 characters")
        found.append((token.name, value, token.scopes))
    return found


async def _fetch(host: Host, url: str) -> bytes:
    """The body of a document of keys, fetched the way that the host's own `tls` and `proxy` say."""
    import aiohttp

    from mooring.config.secrets import resolve_within
    from mooring.transport.pool import HttpRoutes

    issuer = ServerConfig(name="issuer", url=url, source=ConfigSource(scope="explicit"))
    lookup = default_lookup(os.environ, source=issuer.source)
    target = await resolve_within(10, reached(issuer, host.config), lookup, slow=False)
    way = await HttpRoutes().to(issuer, target)
    timeout = aiohttp.ClientTimeout(total=10)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(url, ssl=way.ssl, proxy=way.proxy_for(url)) as response,
    ):
        response.raise_for_status()
        return await response.content.read(MOST_KEYS)


GARBAGE = 50_000
"""New objects between two collections; a call makes some hundreds, and nearly all end with it."""


async def until_told(host: Host, warn: Callable[[str], None]) -> None:
    """Wait for SIGTERM or SIGINT; SIGHUP reloads the configuration, and clients notice only what changed.

    A configuration that is not taken, by a signal or by its files being followed, is told to `warn`.
    """
    loop = asyncio.get_running_loop()
    # What is there by now stays: the collector need not look at it between calls.
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 50)
    told = asyncio.Event()
    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, told.set)
        loop.add_signal_handler(signal.SIGINT, told.set)
    reloading = asyncio.create_task(follow_hangups(host, warn))
    try:
        await told.wait()
    finally:
        reloading.cancel()


async def follow_hangups(host: Host, warn: Callable[[str], None]) -> None:
    """Read the configuration again at each SIGHUP, until cancelled; `warn` gets each one that is refused."""
    reload = asyncio.Event()
    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    refused = asyncio.create_task(_tell_refused(host, warn))
    try:
        while True:
            await reload.wait()
            reload.clear()
            try:
                await host.reload()
            except (ConfigError, OSError) as problem:
                _refused(str(problem), warn)
    finally:
        refused.cancel()


async def _tell_refused(host: Host, warn: Callable[[str], None]) -> None:
    async for event in host.events(ConfigRejected):
        if isinstance(event, ConfigRejected):
            _refused(event.problem, warn)


def _refused(problem: str, warn: Callable[[str], None]) -> None:
    log.error("the configuration stays as it was: %s", problem)
    warn(f"The configuration stays as it was: {problem}")
