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

from mooring.auth.vault import Vault
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
from mooring.gateway.http_server import WebServer, check_workers, is_worker, shared_key
from mooring.gateway.logins import check_public
from mooring.host import Host, runtime_of

log = logger("mooring.gateway")


MAX_JWKS_SIZE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A gateway that is listening."""

    gateway: Gateway
    port: int
    """The TCP port; chosen by the system for port 0."""
    url: str
    """The endpoint of the default profile, such as `http://127.0.0.1:8080/mcp`."""


@asynccontextmanager
async def serve_http(
    host: Host,
    bind: str = "127.0.0.1",
    port: int = 0,
    *,
    default_profile: ProfileSettings | None = None,
    audit: str | None = None,
    shared: bool = False,
    sse: bool = False,
) -> AsyncGenerator[Serving]:
    """Serve a running host over Streamable HTTP while the block runs.

    At the end of the block the gateway stops listening and waits up to `gateway.drain` seconds for running
    requests.

    Args:
        host: An entered host. Give it `relay=ClientBridge()` to forward elicitation, sampling and roots
            requests of servers to clients.
        bind: The address to listen on.
        port: The TCP port; 0 lets the system choose.
        default_profile: The tools, resources and prompts that `/mcp` serves. Default: all of them.
        audit: Path of the audit log. Default: `gateway.audit` of the configuration, then `audit`.
        shared: Whether other processes listen on the same port. Clients then get no session and are sent
            no requests, and settings that need shared state are refused.
        sse: Whether to serve the HTTP+SSE transport of 2024-11-05 at `/sse` as well.

    Yields:
        The port and URL of the gateway.

    Raises:
        ConfigError: The address is not loopback and neither tokens nor OAuth are configured; or the port,
            the audit log, a token or a key file cannot be used; or a setting does not work with `shared`.
    """
    shown = f"[{bind}]" if ":" in bind else bind
    if shared:
        check_workers(host.config, default_profile or ProfileSettings(), sse=sse)
    authenticator = _make_authenticator(host, host.config, bind, f"http://{shown}:{port}")
    await _open_audit_log(host, audit)
    gateway = Gateway(
        host, default_profile=default_profile, stateless=shared, key=shared_key(), logins=authenticator.open
    )
    web = WebServer(gateway, authenticator, sse=sse)
    try:
        chosen = await web.start(bind, port, shared=shared)
    except OSError as problem:
        raise ConfigError(f"Cannot listen on {bind}:{port}: {problem.strerror or problem}") from None
    url = f"http://{shown}:{chosen}"
    if host.config.gateway.url is None:
        authenticator.url = url

    def vet(config: HostConfig) -> Callable[[], Awaitable[None]]:
        if shared:
            check_workers(config, default_profile or ProfileSettings(), sse=sse)
        return partial(web.reconfigure, config.gateway, _make_authenticator(host, config, bind, url))

    runtime_of(host).config.vet = vet
    running = asyncio.create_task(gateway.run())
    try:
        yield Serving(gateway=gateway, port=chosen, url=f"{authenticator.url}/mcp")
    finally:
        runtime_of(host).config.vet = None
        web.refuse_new()
        await gateway.drain()
        await web.stop()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await gateway.close()


def _make_authenticator(host: Host, config: HostConfig, bind: str, url: str) -> Authenticator:
    """Return the request checks of this configuration.

    Raises:
        ConfigError: A setting, a reference or a key file is invalid, or the gateway would be reachable from
            other machines without a token.
    """
    _refuse_doubtful(config)
    settings = config.gateway
    check_public(settings)
    if settings.key is not None:
        Vault(settings.key).key()
    tokens = resolved_tokens(settings)
    if not is_loopback(bind) and not tokens and settings.oauth is None:
        raise ConfigError(
            f"{bind!r} can be reached from other machines, but no token is required; "
            "set `gateway.tokens` or `gateway.oauth`, or listen on 127.0.0.1"
        )
    return Authenticator(settings, bind=bind, url=url, tokens=tokens, fetch=partial(_fetch, host))


def _refuse_doubtful(config: HostConfig) -> None:
    """Refuse to serve when a security setting may have been ignored, for example because it is misspelled.

    Raises:
        ConfigError: Names the setting.
    """
    for warning in config.warnings:
        guarded = (warning.field or "").partition(".")[0] in GUARDED and warning.server is None
        if warning.serious or guarded:
            raise ConfigError(warning.message, file=warning.file, place=warning.field)


async def serve_stdio(
    host: Host, *, default_profile: ProfileSettings | None = None, audit: str | None = None
) -> None:
    """Serve a running host on standard input and output until the input ends.

    While it runs, `print` and other writes to standard output go to standard error.

    Args:
        host: An entered host; see `serve_http`.
        default_profile: The tools, resources and prompts that the client sees. Default: all of them.
        audit: Path of the audit log. Default: `gateway.audit` of the configuration, then `audit`.

    Raises:
        ConfigError: A security setting may have been ignored, or the audit log cannot be written.
    """
    from mooring.gateway.stdio import serve_stdio as pipe

    _refuse_doubtful(host.config)
    await _open_audit_log(host, audit)
    gateway = Gateway(host, default_profile=default_profile)
    running = asyncio.create_task(gateway.run())
    try:
        await pipe(gateway)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await gateway.close()


async def _open_audit_log(host: Host, path: str | None) -> None:
    """Open the audit log: `path`, else `gateway.audit`, else `audit`.

    Raises:
        ConfigError: It cannot be written.
    """
    settings = host.config.gateway.audit
    if path is not None:
        known = settings or host.config.audit
        settings = AuditSettings(path=path) if known is None else replace(known, path=path)
    if settings is not None:
        await runtime_of(host).audits.switch(settings)
    audit = runtime_of(host).audit
    if audit is not None and (problem := await audit.problem()) is not None:
        raise ConfigError(f"The audit log {audit.settings.path!r} cannot be written: {problem}")


def resolved_tokens(settings: GatewaySettings) -> list[tuple[str, str, Sequence[str]]]:
    """Return the name, value and scopes of each fixed token.

    Raises:
        ConfigError: A reference has no value, or the token is too short.
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
    """Fetch a JWKS document with the host's `tls` and `proxy` settings."""
    import aiohttp

    from mooring.config.secrets import resolve_within
    from mooring.transport.pool import HttpRoutes

    issuer = ServerConfig(name="issuer", url=url, source=ConfigSource(scope="explicit"))
    lookup = default_lookup(os.environ, source=issuer.source)
    target = await resolve_within(10, reached(issuer, host.config), lookup, slow=False)
    route = await HttpRoutes().to(issuer, target)
    timeout = aiohttp.ClientTimeout(total=10)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(url, ssl=route.ssl, proxy=route.proxy_for(url)) as response,
    ):
        response.raise_for_status()
        return await response.content.read(MAX_JWKS_SIZE)


GC_THRESHOLD = 50_000
"""Allocations between two garbage collections. A call makes some hundreds, most of them short-lived."""


async def wait_for_shutdown(host: Host, warn: Callable[[str], None]) -> None:
    """Wait for SIGTERM or SIGINT, in a worker also for the end of the process that started it. SIGHUP reloads
    the configuration; clients stay connected.

    `warn` is called with the reason for each configuration that is rejected.
    """
    loop = asyncio.get_running_loop()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)
    stop = asyncio.Event()
    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, stop.set)
        if is_worker():
            loop.add_reader(sys.stdin.fileno(), _stop_at_end, stop)
    reloading = asyncio.create_task(reload_on_hangup(host, warn))
    try:
        await stop.wait()
    finally:
        reloading.cancel()


def _stop_at_end(stop: asyncio.Event) -> None:
    """Stop a worker when its standard input ends: the process that started it is gone."""
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


async def reload_on_hangup(host: Host, warn: Callable[[str], None]) -> None:
    """Reload the configuration at each SIGHUP until cancelled; `warn` is called for each rejected one."""
    reload = asyncio.Event()
    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    rejected = asyncio.create_task(_report_rejected(host, warn))
    try:
        while True:
            await reload.wait()
            reload.clear()
            try:
                await host.reload()
            except (ConfigError, OSError) as problem:
                _reject(str(problem), warn)
    finally:
        rejected.cancel()


async def _report_rejected(host: Host, warn: Callable[[str], None]) -> None:
    async for event in host.events(ConfigRejected):
        if isinstance(event, ConfigRejected):
            _reject(event.problem, warn)


def _reject(problem: str, warn: Callable[[str], None]) -> None:
    log.error("configuration rejected, the old one stays in use: %s", problem)
    warn(f"Configuration rejected, the old one stays in use: {problem}")
