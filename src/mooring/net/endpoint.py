"""One HTTP address of a server: opened with its headers and nobody else's, read within a cap."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

import aiohttp

from mooring.core.redact import Redactor
from mooring.net import trace
from mooring.net.message import CONNECTION_CLOSED, WireError, decode
from mooring.net.pool import HttpPool, TooLargeBody, body_chunks, origin, proxy_for, whole_body
from mooring.net.refusal import SHOWN, challenge_in, refusal
from mooring.net.sse import SseEvent, SseParser, TooLarge

if TYPE_CHECKING:
    from mooring.net.access import Access

MAX_HOPS = 5


class Endpoint:
    """Where requests go. Redirects are followed only within the origin: credentials never leave it."""

    def __init__(
        self,
        server: str,
        url: str,
        *,
        headers: Mapping[str, str],
        pool: HttpPool,
        max_message: int,
        redact: Redactor,
        access: Access | None = None,
    ) -> None:
        self.url = url
        self._server = server
        self._headers = dict(headers)
        self._redact = redact
        self._access = access
        self._pool = pool
        self._proxy = proxy_for(url)
        self._max = max_message

    def at(self, location: str) -> Endpoint:
        """Another address of the same server.

        Raises:
            WireError: it belongs to another origin, or is no address.
        """
        return Endpoint(
            self._server,
            self._within(self.url, location, None),
            headers=self._headers,
            pool=self._pool,
            max_message=self._max,
            redact=self._redact,
            access=self._access,
        )

    def _within(self, base: str, location: str, status: int | None) -> str:
        try:
            url = urljoin(base, location)
            there = origin(url)
        except ValueError:
            raise WireError(
                f"it points to {self._redact(location)[:SHOWN]!r}, which is no address",
                kind="status",
                outcome="not sent",
                status=status,
            ) from None
        if there != origin(self.url):
            raise _elsewhere(there, status)
        return url

    @asynccontextmanager
    async def open(
        self, method: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """The response, its headers read. A 401 is no response where there is another token to be had: it
        says that nothing was done, so that the request is sent once more.

        Raises:
            WireError: the server cannot be reached, or the connection broke.
        """
        if self._access is None:
            async with self._open(method, body, headers) as response:
                yield response
            return
        token = await self._access.bearer()
        async with self._open(method, body, headers, token) as response:
            if not await self._access.another(response.status, challenge_in(response), token):
                yield response
                return
        token = await self._access.bearer()
        async with self._open(method, body, headers, token) as response:
            yield response

    @asynccontextmanager
    async def _open(
        self, method: str, body: bytes | None, headers: Mapping[str, str], token: str | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        sent = {"Accept-Encoding": "gzip, deflate", **self._headers, **headers}
        if token is not None and self._access is not None:
            sent["Authorization"] = f"Bearer {token}"
            self._redact.learn(self._access.secrets())
        url = self.url
        for _ in range(MAX_HOPS):
            async with await self._send(method, url, body, sent) as response:
                if response.status >= 300 and trace.taps:
                    status = f"{method}: HTTP {response.status} {response.reason or ''}".rstrip()
                    trace.passing(self._server, "fault", status)
                if response.status not in (307, 308):
                    try:
                        yield response
                    except (aiohttp.ClientError, ConnectionError) as problem:
                        raise _broken(problem) from None
                    return
                url = self._within(url, response.headers.get("Location", ""), response.status)
        raise WireError("it redirects in circles", kind="status", outcome="not sent", status=308)

    async def _send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        try:
            return await self._pool.session().request(
                method, url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
            )
        except aiohttp.ClientConnectorError as problem:
            raise WireError(
                f"{problem.host}:{problem.port} cannot be reached: {_reason(problem.os_error)}",
                kind="refused",
                outcome="not sent",
                code=CONNECTION_CLOSED,
            ) from None
        except (aiohttp.ClientError, ConnectionError) as problem:
            raise _broken(problem) from None

    async def refused(self, response: aiohttp.ClientResponse, *, session: bool) -> WireError:
        """The fault that the status means, without the secrets that the server may have said back."""
        return await refusal(response, session=session, redact=self._redact)

    async def whole(self, response: aiohttp.ClientResponse) -> bytes:
        """The body.

        Raises:
            WireError: it is too large, or cannot be unpacked.
        """
        try:
            return await whole_body(response, self._max)
        except TooLargeBody:
            raise self._too_large() from None
        except ValueError as problem:
            raise WireError(str(problem), kind="invalid", outcome="unknown") from None

    async def events(self, response: aiohttp.ClientResponse) -> AsyncIterator[SseEvent]:
        """The events of a stream as they come.

        Raises:
            WireError: one is too large, or the stream cannot be unpacked.
        """
        parser = SseParser(self._max)
        try:
            async for chunk in body_chunks(response):
                for event in parser.feed(chunk):
                    yield event
        except TooLarge:
            raise self._too_large() from None
        except ValueError as problem:
            raise WireError(str(problem), kind="invalid", outcome="unknown") from None

    def _too_large(self) -> WireError:
        return WireError(
            f"the answer holds more than {self._max} bytes; "
            f"raise `max_message` of server {self._server!r} if it is meant to be that large",
            kind="too-large",
            outcome="unknown",
        )


def message_in(data: bytes) -> dict[str, Any] | None:
    """The JSON object in an event, if there is one."""
    try:
        message = decode(data) if data else None
    except ValueError:
        return None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else None


def _reason(problem: OSError) -> str:
    """What the system says. asyncio puts words of its own in the place of "Connection refused"."""
    if problem.errno is not None and 0 < problem.errno < 200 and not isinstance(problem, ssl.SSLError):
        return os.strerror(problem.errno)
    return problem.strerror or str(problem)


def _broken(problem: Exception) -> WireError:
    return WireError(
        f"the connection broke off ({problem or type(problem).__name__})",
        kind="closed",
        outcome="unknown",
        code=CONNECTION_CLOSED,
    )


def _elsewhere(where: tuple[str, str, int], status: int | None) -> WireError:
    scheme, host, port = where
    return WireError(
        f"it points to another origin ({scheme}://{host}:{port}), which is not followed; "
        "use that address in the configuration if it is the right one",
        kind="status",
        outcome="not sent",
        status=status,
    )
