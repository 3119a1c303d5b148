"""HTTP connections: TLS context and proxy of each server, and one shared pool."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import urllib.request
import zlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from mooring.concurrency import monotonic
from mooring.config.models import ServerConfig, Target
from mooring.config.network import DIRECT, check_proxy
from mooring.config.validate import shown
from mooring.core.value import Value
from mooring.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp

    from mooring.auth.cipher import LoginCipher
    from mooring.auth.token_store import MemoryStore


MOST_FILES = 1_000
_PEM = (".pem", ".crt", ".cer")
_Stamp = tuple[tuple[str, int, int], ...]


class HttpRoute(Value):
    """TLS context and proxy for one server and its authorization server."""

    ssl: ssl.SSLContext | bool = True
    """True: the certificates of the system, without a client certificate."""
    proxy: str | None = None
    """None: the proxy of the environment."""
    identified: bool = False
    """Whether a client certificate is set."""

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for this URL, if any: the configured one, or that of the environment."""
        if self.proxy is not None:
            return None if self.proxy == DIRECT else self.proxy
        parts = urlsplit(url)
        if urllib.request.proxy_bypass(parts.hostname or ""):
            return None
        return urllib.request.getproxies().get(parts.scheme)

    def secrets(self, url: str) -> Iterator[str]:
        """Return the secrets in the URL of the proxy."""
        parts = urlsplit(self.proxy_for(url) or "")
        if known := parts.password or parts.username:
            yield from {known, unquote(known)}


class HttpRoutes:
    """HTTP routes of one host. Creating a TLS context takes 20 ms: routes with the same files share one
    until a file changes."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[tuple[str, str], ...], tuple[_Stamp, ssl.SSLContext]] = {}

    async def to(self, server: ServerConfig, target: Target) -> HttpRoute:
        """Return the route to a server.

        Raises:
            ConfigError: A file cannot be used, or the proxy is not supported.
        """
        context: ssl.SSLContext | bool = True
        try:
            if target.tls:
                from anyio import to_thread

                context = await to_thread.run_sync(self._context, target.tls)
            way = HttpRoute(ssl=context, proxy=target.proxy, identified="cert" in target.tls)
            _check_proxy(way, target.url or "")
        except ValueError as problem:
            raise ConfigError(str(problem), file=server.file, place=f"server {shown(server.name)}") from None
        return way

    def _context(self, tls: Mapping[str, str]) -> ssl.SSLContext:
        key = tuple(sorted(tls.items()))
        stamp = _stamp(tls)
        known = self._contexts.get(key)
        if known is None or known[0] != stamp:
            known = self._contexts[key] = (stamp, _made(tls))
        return known[1]


def _check_proxy(way: HttpRoute, url: str) -> None:
    proxy = way.proxy_for(url)
    try:
        if proxy is not None:
            check_proxy(proxy)
    except ValueError as problem:
        source = "'proxy'" if way.proxy is not None else "the proxy that the environment names for it"
        raise ValueError(f"{source} {problem}") from None


def _made(tls: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context that verifies certificates.

    Raises:
        ValueError: a file cannot be used; the text names the field and the next step.
    """
    context = ssl.create_default_context()
    if "ca" in tls:
        for path in _authorities(tls["ca"]):
            try:
                context.load_verify_locations(path)
            except ssl.SSLError:
                raise ValueError(f"'tls.ca': {str(path)!r} holds no certificate in PEM form") from None
    if "cert" in tls:
        _identify(context, tls)
    return context


def _identify(context: ssl.SSLContext, tls: Mapping[str, str]) -> None:
    """Add the client certificate to the context."""
    cert = _file("cert", tls["cert"])
    key = _file("key", tls["key"]) if "key" in tls else cert
    text = key.read_bytes()
    if b"PRIVATE KEY-----" not in text:
        where = "name the file of the key in 'tls.key'" if "key" not in tls else "is it the right file?"
        raise ValueError(
            f"'tls.{'key' if 'key' in tls else 'cert'}': {str(key)!r} holds no private key; {where}"
        )
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key, password=tls.get("key_password", ""))
    except ssl.SSLError as problem:
        if problem.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(
                f"'tls.key': the key in {str(key)!r} does not belong to the certificate in {str(cert)!r}"
            ) from None
        if b"ENCRYPTED" in text:
            wrong = "does not open it" if "key_password" in tls else "is missing"
            raise ValueError(
                f"'tls.key': {str(key)!r} is encrypted, and 'tls.key_password' {wrong}"
            ) from None
        raise ValueError(f"'tls.cert': {str(cert)!r} holds no certificate in PEM form") from None


def _authorities(place: str) -> list[Path]:
    if not os.path.isdir(place):
        return [_file("ca", place)]
    found = sorted(path for path in Path(place).iterdir() if path.suffix in _PEM)[:MOST_FILES]
    if not found:
        raise ValueError(f"'tls.ca': there is no file {' or '.join(_PEM)} in {place!r}")
    return [_file("ca", str(path)) for path in found]


def _file(field: str, place: str) -> Path:
    """Return a file that exists and can be read."""
    path = Path(place)
    try:
        if not path.is_file():
            raise ValueError(f"'tls.{field}': there is no file {place!r}")
        with path.open("rb"):
            return path
    except OSError as problem:
        raise ValueError(f"'tls.{field}': {place!r} cannot be read: {problem.strerror}") from None


def _stamp(tls: Mapping[str, str]) -> _Stamp:
    """Return a stamp of a file: certificates are renewed while hosts run."""
    places = [tls[name] for name in ("ca", "cert", "key") if name in tls]
    files = [Path(place) for place in places]
    files += [path for folder in files if folder.is_dir() for path in sorted(folder.iterdir())[:MOST_FILES]]
    found: list[tuple[str, int, int]] = []
    for path in files:
        try:
            about = path.stat()
        except OSError:
            continue
        found.append((str(path), about.st_mtime_ns, about.st_size))
    return tuple(found)


def reason_of(problem: Exception) -> str | None:
    """Explain an error of TLS or of a proxy, with the next step; None for other errors."""
    import aiohttp

    if isinstance(problem, aiohttp.ClientProxyConnectionError):
        return f"the proxy {problem.host}:{problem.port} cannot be reached: {system_reason(problem.os_error)}"
    if isinstance(problem, aiohttp.ClientHttpProxyError):
        return proxy_refusal(problem.status)
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        fault = problem.certificate_error
        why = getattr(fault, "verify_message", "") or str(fault)
        return f"the certificate of {problem.host}:{problem.port} is not trusted: {why}; {_advice(why)}"
    return None


def proxy_refusal(status: int) -> str:
    """Explain a response of the proxy instead of the server."""
    if status == 407:
        return "the proxy requires a login (HTTP 407): write `proxy` as http://user:password@host:port"
    return f"the proxy did not connect to it (HTTP {status})"


def system_reason(problem: OSError) -> str:
    """Return the message of the system. asyncio replaces "Connection refused" by its own text."""
    if problem.errno is not None and 0 < problem.errno < 200 and not isinstance(problem, ssl.SSLError):
        return os.strerror(problem.errno)
    return problem.strerror or str(problem)


def _advice(why: str) -> str:
    if "mismatch" in why.lower():
        return "reach it by a name that its certificate is for"
    if "expired" in why.lower():
        return "its operator has to renew it"
    return "if it is signed by an authority of your own, name that in `tls.ca`"


CHUNK = 64 * 1024
BUFFER = 256 * 1024
"""Bytes of a body that are read ahead. aiohttp's default, a quarter of it, interrupts large responses."""
CHUNKS_PER_TURN = 16
"""Chunks of a body that are read before the event loop serves other tasks."""
KEEP_ALIVE = 4.0
"""Seconds for which idle connections are kept: less than the 5 s after which common servers close them,
because it is unknown whether a server read a request that was sent during the close."""


class TooLargeBody(Exception):
    """The decompressed body is larger than allowed."""


RECENT = 1.0
"""Seconds after a request on a connection in which it shows that its process accepts requests."""


class _Opened:
    """An open connection."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.began = self.used = monotonic()
        """When it was opened, and when a request was last sent on it."""

    @property
    def is_open(self) -> bool:
        transport = self.protocol.transport
        return transport is not None and not transport.is_closing()


class _Connections:
    """The open connections, by host and port."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str | None, int | None], dict[Any, _Opened]] = {}

    def opened(self, host: str | None, port: int | None, protocol: Any) -> None:
        """Record a new connection."""
        known = self._opened.get((host, port), {})
        others = {other: one for other, one in known.items() if one.is_open}
        self._opened[host, port] = {**others, protocol: _Opened(protocol)}

    def used(self, host: str | None, port: int | None, protocol: Any, when: float) -> None:
        """Record when a request was sent on a connection."""
        if (one := self._opened.get((host, port), {}).get(protocol)) is not None:
            one.used = when

    def unbroken(self, host: str | None, port: int | None, since: float, busy: Collection[Any]) -> bool:
        """Whether one of them has been open since this time and still takes requests.

        A process that is being replaced finishes the requests under way (`busy`), and takes no others.
        """
        recent = monotonic() - RECENT
        return any(
            one.began <= since and one.is_open and (one.used > recent or protocol not in busy)
            for protocol, one in self._opened.get((host, port), {}).items()
        )


def _connector(connections: _Connections) -> aiohttp.TCPConnector:
    """Return a connector that records its connections."""
    import aiohttp

    class Recording(aiohttp.TCPConnector):
        async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
            connection = await super().connect(req, traces, timeout)
            connections.used(req.url.host, req.url.port, connection.protocol, monotonic())
            return connection

        async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:
            protocol = await super()._create_connection(req, traces, timeout)
            connections.opened(req.url.host, req.url.port, protocol)
            return protocol

    return Recording(limit=0, keepalive_timeout=KEEP_ALIVE)


class HttpPool:
    """Opened on first use; closed with the host."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._connections = _Connections()
        self.ways = HttpRoutes()
        self.grants: dict[str, MemoryStore] = {}
        """Tokens that are kept in memory only, by identity."""
        self.cipher: LoginCipher | None = None
        """Encrypts stored logins of gateway clients; None if they are not stored."""

    def session(self) -> aiohttp.ClientSession:
        """The shared session. Timeouts of aiohttp are off: each request has its own deadline."""
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                # aiohttp keeps one TLS context for the whole process: all servers share it, except
                # those with their own settings. A connection is reused only for the same settings.
                connector=_connector(self._connections),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent",),
                read_bufsize=BUFFER,
            )
        return self._session

    def unbroken(self, url: str, since: float) -> bool:
        """Whether a connection to the host of `url` is open since this time and still takes requests."""
        if self._session is None:
            return False
        from yarl import URL

        there = URL(url)  # aiohttp writes the host in its own way
        # aiohttp does not say which connections are in use.
        busy: Any = getattr(self._session.connector, "_acquired", ())
        return self._connections.unbroken(there.host, there.port, since, busy)

    def standing(self, response: aiohttp.ClientResponse, *, proves: bool) -> None:
        """Record that a response is a stream without an end.

        Args:
            response: The response.
            proves: Whether requests go to the process that sends the stream as long as it is open.
        """
        if response.connection is not None:
            url, used = response.url, math.inf if proves else -math.inf
            self._connections.used(url.host, url.port, response.connection.protocol, used)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._connections = _Connections()


def origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def body_chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Return the decompressed body in bounded pieces, so that a decompression bomb stays small.

    Raises:
        ValueError: The encoding was not requested, or the data is damaged.
    """
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding in ("identity", ""):
        return _RawChunks(response)
    if encoding not in ("gzip", "deflate"):
        raise ValueError(f"the body is encoded as {encoding!r}, which was not requested")
    return _unpacked(response)


class _RawChunks:
    """Chunks of a body, joined once on use. A generator would add a tenth to aiohttp's time for each
    response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._next = response.content.readchunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk, more = await self._next()
        if chunk or more:
            return chunk
        raise StopAsyncIteration


async def _unpacked(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    async for chunk in _RawChunks(response):
        data = chunk
        while data:
            try:
                piece = unpack.decompress(data, CHUNK)
            except zlib.error as damage:
                raise ValueError(f"the compressed body is damaged ({damage})") from None
            yield piece  # may be empty
            data = unpack.unconsumed_tail


async def whole_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the whole body.

    Raises:
        TooLargeBody: It has more than `limit` bytes.
        ValueError: see `body_chunks`.
    """
    body, count = bytearray(), 0
    async for chunk in body_chunks(response):
        body += chunk  # a list of tiny chunks would take many times their size
        count += 1
        if len(body) > limit:
            raise TooLargeBody
        if count % CHUNKS_PER_TURN == 0:
            await asyncio.sleep(0)
    return bytes(body)
