"""One HTTP address of a server: opened with its headers and nobody else's, read within a cap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

import aiohttp

from mooring.core.redact import Redactor
from mooring.net import trace
from mooring.net.flood import LINE, Slice
from mooring.net.message import CONNECTION_CLOSED, WireError, decode
from mooring.net.pool import HttpPool, TooLargeBody, body_chunks, origin, whole_body
from mooring.net.refusal import SHOWN, challenge_in, refusal
from mooring.net.sse import SseEvent, SseParser, TooLarge, pieces
from mooring.net.way import Way, proxy_refusal, reason_of, system_reason

if TYPE_CHECKING:
    from mooring.net.access import Access

MAX_HOPS = 5
_SHOW = "; if it wants to see a client certificate, name yours in `tls.cert` and `tls.key`"


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
        way: Way | None = None,
    ) -> None:
        self.url = url
        self._server = server
        self._headers = dict(headers)
        self._redact = redact
        self._access = access
        self._pool = pool
        self._way = way or Way()
        self._proxy = self._way.proxy_for(url)
        self.max_message = max_message
        self._answered = False

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
            max_message=self.max_message,
            redact=self._redact,
            access=self._access,
            way=self._way,
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
        async with await self._answer(method, body, headers) as response:
            try:
                yield response
            except (aiohttp.ClientError, ConnectionError) as problem:
                raise _broken(problem) from None

    async def _answer(
        self, method: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        if self._access is None:
            return await self._followed(method, body, headers, None)
        token = await self._access.bearer()
        response = await self._followed(method, body, headers, token)
        try:
            if not await self._access.another(response.status, challenge_in(response), token):
                return response
        except BaseException:
            response.close()
            raise
        response.release()
        return await self._followed(method, body, headers, await self._access.bearer())

    async def _followed(
        self, method: str, body: bytes | None, headers: Mapping[str, str], token: str | None
    ) -> aiohttp.ClientResponse:
        sent = {"Accept-Encoding": "gzip, deflate", **self._headers, **headers}
        if token is not None and self._access is not None:
            sent["Authorization"] = f"Bearer {token}"
            self._redact.learn(self._access.secrets())
        url = self.url
        for _ in range(MAX_HOPS):
            response = await self._send(method, url, body, sent)
            if response.status >= 300 and trace.taps:
                status = f"{method}: HTTP {response.status} {response.reason or ''}".rstrip()
                trace.passing(self._server, "fault", status)
            if response.status not in (307, 308):
                return response
            response.release()
            url = self._within(url, response.headers.get("Location", ""), response.status)
        raise WireError("it redirects in circles", kind="status", outcome="not sent", status=308)

    async def _send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        try:
            response = await self._pool.session().request(
                method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
                ssl=self._way.ssl,
            )
        except aiohttp.ClientConnectorError as problem:
            reason = f"{problem.host}:{problem.port} cannot be reached: {system_reason(problem.os_error)}"
            raise _unreached(reason_of(problem) or reason) from None
        except aiohttp.ClientHttpProxyError as problem:
            raise _unreached(proxy_refusal(problem.status)) from None
        except (aiohttp.ClientError, ConnectionError) as problem:
            # TLS 1.3 tells of a certificate that is missing only after the handshake, by hanging up.
            unknown = url.startswith("https:") and not (self._answered or self._way.identified)
            raise _broken(problem, _SHOW if unknown else "") from None
        self._answered = True
        if response.status == 407 and self._proxy is not None:
            response.close()
            raise _unreached(proxy_refusal(407))
        return response

    async def refused(self, response: aiohttp.ClientResponse, *, session: bool) -> WireError:
        """The fault that the status means, without the secrets that the server may have said back."""
        return await refusal(response, session=session, redact=self._redact)

    async def whole(self, response: aiohttp.ClientResponse) -> bytes:
        """The body.

        Raises:
            WireError: it is too large, or cannot be unpacked.
        """
        try:
            return await whole_body(response, self.max_message)
        except TooLargeBody:
            raise self._too_large() from None
        except ValueError as problem:
            raise WireError(str(problem), kind="invalid", outcome="unknown") from None

    async def events(
        self,
        response: aiohttp.ClientResponse,
        charge: Callable[[int, float], None],
        *,
        unasked: bool = False,
    ) -> AsyncIterator[SseEvent]:
        """The events of a stream as they come. What stands between them is charged to the server; others run
        after every slice of work, however much of it is waiting. `unasked`: no answer is waited for on it.

        Raises:
            WireError: one is too large, the stream cannot be unpacked, or `charge` says that it floods.
        """
        parser, turn = SseParser(self.max_message, unasked=unasked), Slice()
        try:
            async for chunk in body_chunks(response):
                turn.begin()
                for piece in pieces(chunk):
                    for event in parser.feed(piece):
                        yield event
                        if turn.over():
                            await asyncio.sleep(0)
                            turn.begin()
                    if parser.lines:
                        charge(parser.chatter, parser.lines * LINE)
                        parser.lines = parser.chatter = 0
                    if turn.over():
                        await asyncio.sleep(0)
                        turn.begin()
        except TooLarge:
            raise self._too_large() from None
        except ValueError as problem:
            raise WireError(str(problem), kind="invalid", outcome="unknown") from None

    def _too_large(self) -> WireError:
        return WireError(
            f"the answer holds more than {self.max_message} bytes; "
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


def _unreached(reason: str) -> WireError:
    return WireError(reason, kind="refused", outcome="not sent", code=CONNECTION_CLOSED)


def _broken(problem: Exception, hint: str = "") -> WireError:
    return WireError(
        f"the connection broke off ({problem or type(problem).__name__}){hint}",
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
