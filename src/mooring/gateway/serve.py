"""Start a gateway for a running host, reload its settings, and stop it: transports, signals, drain."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING

from mooring.auth.cipher import key_secrets
from mooring.concurrency import end_tasks, monotonic
from mooring.config import default_lookup
from mooring.config.audit import AuditSettings
from mooring.config.formats import GUARDED
from mooring.config.logs import logger
from mooring.config.models import ConfigSource, HostConfig, ServerConfig
from mooring.config.plan import reached
from mooring.config.references import expand
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.core.events import ConfigApplied, ConfigRejected
from mooring.errors import ConfigError
from mooring.gateway.app import Gateway
from mooring.gateway.auth import Authenticator, is_loopback
from mooring.gateway.clients import ANONYMOUS, Principal
from mooring.gateway.http_server import WebServer
from mooring.gateway.logins import check_public
from mooring.gateway.logs import ApplicationLog
from mooring.gateway.nodes import Cluster
from mooring.gateway.routes import Routes
from mooring.gateway.tls import Certificates
from mooring.gateway.tokens import CreatedTokens, TokenFile, token_path
from mooring.gateway.web import Response, WebRequest
from mooring.host import Host, runtime_of

if TYPE_CHECKING:
    from mooring.gateway.admin import AdminApi

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
    service: Service


class Service:
    """A gateway with everything beside its server: tokens, certificates, routes, reloads, background tasks.

    Args:
        host: An entered host.
        bind: The address on which it is served; None if another server listens.
        url: The URL of the gateway, unless the configuration has one.
        default_profile: The tools, resources and prompts that `/mcp` serves. Default: all of them.
        cluster: The other nodes, if there are any.
        sse: Whether the HTTP+SSE transport of 2024-11-05 is served as well.

    Raises:
        ConfigError: A setting, a reference, a token or a key file cannot be used.
    """

    def __init__(
        self,
        host: Host,
        bind: str | None,
        url: str,
        *,
        default_profile: ProfileSettings | None = None,
        cluster: Cluster | None = None,
        sse: bool = False,
    ) -> None:
        self._host, self._bind, self._url = host, bind, url
        self._profile = default_profile or ProfileSettings()
        self._cluster = cluster
        if cluster is not None:
            cluster.check(host.config, self._profile)
        settings = host.config.gateway
        self.tokens = CreatedTokens(TokenFile(token_path(settings)))
        self.tokens.load()
        self.certificates = Certificates(settings.tls) if settings.tls is not None and bind else None
        authenticator = self._authenticator(host.config)
        self.gateway = Gateway(
            host,
            default_profile=default_profile,
            cluster=cluster,
            logins=authenticator.open,
        )
        self.routes = Routes(self.gateway, authenticator, sse=sse)
        self.routes.admin = self._administer
        self.web: WebServer | None = None
        self.log = ApplicationLog()
        self.log.use(settings.log)
        self.report: list[str] = []
        """What the last reload did with the gateway's own settings."""
        self._tasks: list[asyncio.Task[None]] = []
        self._admin: AdminApi | None = None

    async def start(self, audit: str | None) -> None:
        """Open the logs, and start the background tasks.

        Raises:
            ConfigError: A log cannot be written.
        """
        await _open_audit_log(self._host, audit)
        self._check_access_log()
        if self._cluster is not None:
            await self._cluster.start(self.routes)
        self._tasks.append(asyncio.create_task(self.gateway.run()))
        self._tasks.append(asyncio.create_task(self.tokens.watch(self._tokens_changed)))
        if self.certificates is not None:
            self._tasks.append(asyncio.create_task(self.certificates.watch(self.renew_certificate)))
        runtime_of(self._host).config.vet = self._vet

    async def stop(self) -> None:
        """Refuse new requests, wait for running ones, and close everything."""
        runtime_of(self._host).config.vet = None
        drained = monotonic() + self.gateway.settings.drain
        if self._cluster is not None and self.web is not None:
            await self._cluster.leave()
        if self.web is not None:
            await asyncio.sleep(0)  # take what has connected already: closing the port resets it
            self.web.refuse_new()
        if self._cluster is not None and self.web is not None:
            self.gateway.draining = True
            await asyncio.sleep(self._cluster.grace)
        await self.gateway.drain(drained - monotonic())
        if self._cluster is not None:
            await self._cluster.stop()
        if self.web is not None:
            await self.web.stop()
        await end_tasks(self._tasks)
        await self.gateway.close()
        self.log.close()

    async def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS.

        Raises:
            ConfigError: The certificate or key cannot be used.
        """
        if self.certificates is None:
            return None
        made = await asyncio.to_thread(self.certificates.context)
        self.gateway.certificate_expires = self.certificates.expires
        return made

    async def renew_certificate(self) -> None:
        """Load the certificate again and use it for new connections. If an authority of client certificates
        was removed, the sessions of such clients end."""
        made = await self.context()
        if made is not None and self.web is not None and await self.web.use_tls(made):
            await self.routes.end_invalid(lambda principal: not principal.name.startswith("cert:"))

    async def _administer(self, request: WebRequest) -> Response | None:
        from mooring.gateway.admin import AdminApi  # most gateways are never asked

        if self._admin is None:
            self._admin = AdminApi(self)
        return await self._admin.handle(request)

    def listens_at(self, url: str) -> None:
        """Use this URL unless the configuration has one."""
        self._url = url
        if self.gateway.settings.url is None:
            self.routes.authenticator.url = url + self.gateway.settings.base_path

    def _check_access_log(self) -> None:
        if (problem := self.gateway.access_log.problem()) is not None:
            raise ConfigError(f"The access log cannot be written: {problem}", place="gateway.access_log")

    async def _tokens_changed(self, before: Mapping[str, int]) -> None:
        after = self.tokens.generations()

        def stays(principal: Principal) -> bool:
            if principal == ANONYMOUS:
                return self.routes.authenticator.open
            known = before.get(principal.name)
            return known is None or after.get(principal.name) == known

        await self.routes.end_invalid(stays)

    def _vet(self, config: HostConfig) -> Callable[[], Awaitable[None]]:
        """Check a new configuration; return the function that applies it."""
        if self._cluster is not None:
            self._cluster.check(config, self._profile)
        old, new = self.gateway.settings, config.gateway
        if (old.tls is None) != (new.tls is None):
            raise ConfigError("TLS cannot be switched on or off while it runs; restart", place="gateway.tls")
        if old.token_file != new.token_file:
            raise ConfigError("the file cannot change while it runs; restart", place="gateway.token_file")
        certificates = None
        if new.tls is not None and self.certificates is not None:
            certificates = Certificates(new.tls)
            certificates.context()
        return partial(self._apply, new, self._authenticator(config), certificates)

    async def _apply(
        self, new: GatewaySettings, authenticator: Authenticator, certificates: Certificates | None
    ) -> None:
        old = self.gateway.settings
        changed = [one.name for one in fields(new) if getattr(old, one.name) != getattr(new, one.name)]
        self.report = [f"gateway.{name} changed" for name in changed]
        if certificates is not None and self.certificates is not None:
            before, self.certificates.settings = self.certificates.seen, certificates.settings
            await self.renew_certificate()
            if self.certificates.seen != before:
                self.report.append(f"certificate loaded, valid until {self.certificates.expiry_date()}")
        if "log" in changed:
            self.log.use(new.log)
        if self.web is not None:
            self.web.limit_connections(new.max_connections)
        await self.routes.reconfigure(new, authenticator)

    def _authenticator(self, config: HostConfig) -> Authenticator:
        """Return the request checks of this configuration.

        Raises:
            ConfigError: A setting, a reference or a key file is invalid, or the gateway would be reachable
                from other machines without a token.
        """
        refuse_doubtful(config)
        settings = config.gateway
        check_public(settings)
        if settings.key:
            key_secrets(settings.key)
        tokens = resolved_tokens(settings)
        self._host.redact.learn(value for _, value, _ in tokens)
        made = Authenticator(
            settings,
            bind=self._bind or "0.0.0.0",
            url=self._url + settings.base_path,
            tokens=tokens,
            created=self.tokens,
            fetch=partial(_fetch, self._host),
        )
        if made.open and self._bind is not None and not is_loopback(self._bind):
            raise ConfigError(
                f"{self._bind!r} can be reached from other machines, but no token is required; create one "
                "with `mooring token create NAME`, set `gateway.tokens` or `gateway.oauth`, or listen on "
                "127.0.0.1"
            )
        if made.open and settings.forwarded is not None:
            raise ConfigError(
                "a proxy serves clients of other machines, but no token is required; create one with "
                "`mooring token create NAME`, or set `gateway.tokens` or `gateway.oauth`",
                place="gateway.forwarded",
            )
        return made


@asynccontextmanager
async def serve_http(
    host: Host,
    bind: str = "127.0.0.1",
    port: int = 0,
    *,
    default_profile: ProfileSettings | None = None,
    audit: str | None = None,
    cluster: Cluster | None = None,
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
        cluster: The other nodes, if there are any.
        sse: Whether to serve the HTTP+SSE transport of 2024-11-05 at `/sse` as well.

    Yields:
        The port and URL of the gateway.

    Raises:
        ConfigError: The address is not loopback and no token, OAuth or client certificate is configured; or
            the port, a log, a token, a certificate or a key file cannot be used; or a setting does not work
            with other nodes.
    """
    shown = f"[{bind}]" if ":" in bind else bind
    scheme = "http" if host.config.gateway.tls is None else "https"
    service = Service(
        host, bind, f"{scheme}://{shown}:{port}", default_profile=default_profile, cluster=cluster, sse=sse
    )
    try:
        web = WebServer(service.routes, host.config.gateway.max_connections)
        service.routes.connections = lambda: web.connection_limit.count
        context = await service.context()
        await service.start(audit)
        try:
            shared = cluster is not None and cluster.socket is not None
            chosen = await web.start(bind, port, shared=shared, tls=context)
            if cluster is not None and cluster.socket is not None:
                await web.start_for_peers(cluster.socket)
        except OSError as problem:
            raise ConfigError(f"Cannot listen on {bind}:{port}: {problem.strerror or problem}") from None
        service.web = web
        service.listens_at(f"{scheme}://{shown}:{chosen}")
        url = f"{service.routes.authenticator.url}/mcp"
        log.info("serving url=%s", url)
        yield Serving(gateway=service.gateway, port=chosen, url=url, service=service)
    finally:
        await service.stop()


def refuse_doubtful(config: HostConfig) -> None:
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

    refuse_doubtful(host.config)
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
        ConfigError: A reference has no value, the token is too short, or two names have the same one.
    """
    lookup = default_lookup(os.environ, source=ConfigSource(scope="explicit"))
    found: list[tuple[str, str, Sequence[str]]] = []
    for token in settings.tokens:
        value = expand(token.token, lookup)
        if len(value) < 16:
            raise ConfigError(f"the token of {token.name!r} is shorter than 16 characters")
        if same := [name for name, known, _ in found if known == value and name != token.name]:
            raise ConfigError(f"the tokens of {same[0]!r} and {token.name!r} have the same value")
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


async def reload_on_hangup(
    host: Host,
    warn: Callable[[str], None],
    note: Callable[[str], None],
    service: Service | None = None,
) -> None:
    """Reload the configuration at each SIGHUP until cancelled. `note` is called with what that did, `warn`
    for each configuration that is rejected."""
    reload = asyncio.Event()
    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    rejected = asyncio.create_task(_report_rejected(host, warn))
    try:
        while True:
            await reload.wait()
            reload.clear()
            try:
                done = await _reloaded(host, service)
            except (ConfigError, OSError) as problem:
                _reject(str(problem), warn)
            else:
                log.info("configuration reloaded: %s", done)
                note(f"Configuration reloaded: {done}.")
    finally:
        rejected.cancel()


_REPORTED = ("servers", "gateway", "warnings", "withheld")
"""Parts of the configuration that are reported in more detail, or when they are read."""


async def _reloaded(host: Host, service: Service | None) -> str:
    """Reload the configuration and say what that did."""
    if service is not None:
        service.report = []
    events, old = host.events(ConfigApplied), host.config
    try:
        await host.reload()
    finally:
        events.end()
    applied = [event async for event in events if isinstance(event, ConfigApplied)]
    parts: list[str] = []
    known = {server.name: server for server in old.servers}
    other = [one.name for one in host.config.servers if one.name in known and one != known[one.name]]
    for one in applied:
        done = (("started", one.started), ("stopped", one.stopped), ("restarted", one.restarted))
        parts += [f"{verb} {', '.join(names)}" for verb, names in done if names]
        other = [name for name in other if name not in (*one.started, *one.restarted)]
    parts += [f"changed {', '.join(other)}"] if other else []
    for one in fields(old):
        if one.name not in _REPORTED and getattr(old, one.name) != getattr(host.config, one.name):
            parts.append(f"{one.name} changed")
    parts += [] if service is None else service.report
    return "; ".join(parts) or "nothing changed"


async def _report_rejected(host: Host, warn: Callable[[str], None]) -> None:
    async for event in host.events(ConfigRejected):
        if isinstance(event, ConfigRejected):
            _reject(event.problem, warn)


def _reject(problem: str, warn: Callable[[str], None]) -> None:
    log.error("configuration rejected, the old one stays in use: %s", problem)
    warn(f"Configuration rejected, the old one stays in use: {problem}")
