"""Requests to URLs from untrusted metadata: each URL and the address it resolves to are checked."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver

from mooring.core.addresses import Realm, RefusedAddressError, check_url, describe, host_realm, realm
from mooring.transport.message import decode
from mooring.transport.pool import HttpRoute, TooLargeBody, origin, proxy_refusal, reason_of, whole_body

TIMEOUT = 10.0
MAX_BODY = 256 * 1024
MAX_HOPS = 4
_NOWHERE: frozenset[Realm] = frozenset()
_NEVER: frozenset[Realm] = frozenset(("reserved",))
_NO_ENDPOINT = frozenset((401, 403, 404, 405, 410))
_REDIRECTS = (301, 302, 303, 307, 308)


class UnreachableError(Exception):
    """The other side did not respond; a retry may succeed."""


class DroppedError(UnreachableError):
    """The other side ended the connection instead of responding."""


class GuardedHttp:
    """A few requests on behalf of one server, over connections of their own.

    Only public addresses, and those in the network of the configured server, are connected to. The check is
    made on the resolved address when the socket is created, so that redirects and DNS changes between check
    and connection cannot bypass it. With a proxy, the proxy makes the connection.
    """

    def __init__(
        self, server_url: str, way: HttpRoute | None = None, *, resolver: AbstractResolver | None = None
    ) -> None:
        self.server_url = server_url
        self._way = way or HttpRoute()
        self.allowed: frozenset[Realm] = frozenset()
        self._resolver = resolver
        self._refused: str | None = None
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        self.allowed = await self._own_realm()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            await session.close()

    async def get(self, url: str, what: str) -> Any:
        """Return the JSON document at a URL; None when there is none.

        Raises:
            RefusedError: The URL is not allowed, or redirects elsewhere.
            UnreachableError: There was no response.
        """
        start = origin(url)
        for _ in range(MAX_HOPS):
            status, location, document = await self._ask("GET", url, what)
            if status not in _REDIRECTS:
                return document if status == 200 else None
            url = urljoin(url, location)
            check_url(url, f"the redirect target of {what}", self.allowed)
            if origin(url) != start:
                raise RefusedAddressError(f"{what} redirects to another host ({origin(url)[1]!r})")
        raise RefusedAddressError(f"{what} redirects in a loop")

    async def answers(self, url: str, what: str) -> bool:
        """Whether a GET without parameters finds an endpoint at an address.

        Raises:
            RefusedError, UnreachableError: as for `get`.
        """
        try:
            status, _, _ = await self._ask("GET", url, what)
        except DroppedError:
            return True  # some endpoints crash without parameters
        # Others fail with 500; the statuses above it come from proxies.
        return status <= 500 and status not in _NO_ENDPOINT

    async def post(
        self,
        url: str,
        what: str,
        *,
        form: Mapping[str, str] | None = None,
        document: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return the status and the JSON document. Redirects are not followed: the request has secrets.

        Raises:
            RefusedError, UnreachableError: as for `get`.
        """
        body = dict(form) if form is not None else json.dumps(document).encode()
        sent = dict(headers or {}) | ({} if form is not None else {"Content-Type": "application/json"})
        status, _, answer = await self._ask("POST", url, what, body, sent)
        if status in _REDIRECTS:
            raise RefusedAddressError(f"{what} redirects, which is not followed for a request with a secret")
        return status, answer

    async def _ask(
        self, method: str, url: str, what: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, Any]:
        host = check_url(url, what, self.allowed).hostname
        proxy = self._way.proxy_for(url)
        self._refused = None
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                self._session(proxied=proxy is not None).request(
                    method,
                    url,
                    data=body,
                    headers={"Accept": "application/json", **(headers or {})},
                    allow_redirects=False,
                    proxy=proxy,
                    ssl=self._way.ssl,
                ) as response,
            ):
                if proxy is not None and response.status == 407:
                    raise UnreachableError(f"{what} on {host!r} cannot be reached: {proxy_refusal(407)}")
                location = response.headers.get("Location", "")
                return response.status, location, _document(await whole_body(response, MAX_BODY))
        except (aiohttp.ClientError, OSError) as problem:  # an invalid certificate is a ValueError, too
            if self._refused is not None:
                raise RefusedAddressError(f"{what} is on {host!r}, {self._refused}: refused") from None
            if (words := reason_of(problem)) is not None:
                raise UnreachableError(f"{what} on {host!r} cannot be reached: {words}") from None
            if isinstance(problem, aiohttp.ServerDisconnectedError | aiohttp.ClientConnectionResetError):
                raise DroppedError(
                    f"{what} on {host!r} cannot be reached: the connection was closed"
                ) from None
            reason = "no response in time" if isinstance(problem, TimeoutError) else type(problem).__name__
            raise UnreachableError(f"{what} on {host!r} cannot be reached ({reason})") from None
        except (TooLargeBody, ValueError):
            raise RefusedAddressError(
                f"{what} on {host!r} sent a response that is too large or damaged"
            ) from None

    def _session(self, *, proxied: bool) -> aiohttp.ClientSession:
        if proxied not in self._sessions:
            self._sessions[proxied] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=self._resolver,
                    use_dns_cache=False,
                    force_close=True,
                    socket_factory=None if proxied else self._socket,
                ),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"Accept-Encoding": "gzip, deflate"},
                skip_auto_headers=("User-Agent",),
            )
        return self._sessions[proxied]

    def _socket(self, info: Any) -> socket.socket:
        """Return a socket for this address, after a last check before it is connected."""
        family, kind, protocol, _, address = info
        where = realm(address[0])
        if where != "public" and where not in self.allowed:
            self._refused = f"which is {describe(where)}"
            raise PermissionError(f"{describe(where)} is not connected to")
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setblocking(False)
        return made

    async def _own_realm(self) -> frozenset[Realm]:
        """The realm of the configured server, if it is not public: that of all its addresses."""
        _, host, port = origin(self.server_url)
        where = host_realm(host)
        if where is None and self._way.proxy_for(self.server_url) is None:
            try:
                resolver = self._resolver or aiohttp.DefaultResolver()
                found = await resolver.resolve(host, port, socket.AF_UNSPEC)
            except OSError:
                return _NOWHERE
            realms: set[Realm] = {realm(answer["host"]) for answer in found}
        else:
            realms = set() if where is None else {where}
        return frozenset(realms) - _NEVER if len(realms) == 1 else _NOWHERE


def _document(body: bytes) -> Any:
    try:
        return decode(body) if body.strip() else None
    except ValueError:
        return None
