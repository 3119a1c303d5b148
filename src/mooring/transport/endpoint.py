"""One HTTP address of a server: requests with its headers, bounded bodies and event streams."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

import aiohttp

from mooring.auth.metadata import read_challenge
from mooring.core.redact import Redactor
from mooring.errors import Outcome
from mooring.transport import base
from mooring.transport.limits import LINE, Slice
from mooring.transport.message import CONNECTION_CLOSED, INTERNAL_ERROR, Kind, WireError, decode
from mooring.transport.pool import (
    HttpPool,
    HttpRoute,
    TooLargeBody,
    body_chunks,
    origin,
    proxy_refusal,
    reason_of,
    system_reason,
    whole_body,
)

if TYPE_CHECKING:
    import aiohttp

    from mooring.auth.credentials import Credentials


MAX_DIGITS = 9
"""Largest `retry` that is used, in milliseconds."""
MANY_LINES, PIECE = 256, 4096
"""Bytes per piece of a chunk with many lines."""


_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Bytes that an id cannot have, because it is sent back in the header `Last-Event-ID`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SseEvent:
    data: bytes
    event: str = "message"
    id: str | None = None
    retry: float | None = None
    """Seconds to wait before the next connection, if the server sent them."""


class TooLarge(Exception):
    """An event is larger than allowed."""


def pieces(chunk: bytes) -> Iterator[bytes]:
    """Return the chunk in parts that take little time each, for any length of lines."""
    if len(chunk) <= PIECE or chunk.count(b"\n") + chunk.count(b"\r") <= MANY_LINES:
        yield chunk
        return
    for start in range(0, len(chunk), PIECE):
        yield chunk[start : start + PIECE]


class SseParser:
    """Parses received bytes and yields complete events.

    Every byte counts toward `max_event` until an empty line ends the event.
    """

    def __init__(self, max_event: int, *, unsolicited: bool = False) -> None:
        self.lines = 0
        """Number of lines without data (comments, empty ones, other fields); of all if `unsolicited`."""
        self.overhead = 0
        """Bytes in them."""
        self._max = max_event
        self._unsolicited = unsolicited
        self._held = bytearray()
        """The beginning of a line. A list of tiny chunks would take many times their size."""
        self._after_cr = False
        self._reset()

    def _reset(self) -> None:
        self._data: bytes | bytearray | None = None
        self._event = "message"
        self._id: str | None = None
        self._retry: float | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Raises `TooLarge` when an event grows beyond the cap."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            if self._held:
                self._held += line
                line = bytes(self._held)
                self._held.clear()
            start = end + 1
            if line:
                self._take(line)
            else:
                self.lines += 1
                self.overhead += 1
                if (event := self._finish()) is not None:
                    yield event
        rest = chunk[start:]
        if rest:
            self._held += rest
            if len(self._held) + self._size > self._max:
                raise TooLarge

    def _take(self, line: bytes) -> None:
        self._size += len(line) + 1
        if self._size > self._max:
            raise TooLarge
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self.lines += self._unsolicited
            if self._data is None:
                self._data = value
            else:
                if isinstance(self._data, bytes):
                    self._data = bytearray(self._data)  # one buffer, however many lines follow
                self._data += b"\n"
                self._data += value
            return
        self.lines += 1
        self.overhead += len(line)
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and not _UNSENDABLE.search(value):
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= MAX_DIGITS:
            self._retry = int(value) / 1000

    def _finish(self) -> SseEvent | None:
        event = None
        if self._data is not None or self._id is not None or self._retry is not None:
            event = SseEvent(data=bytes(self._data or b""), event=self._event, id=self._id, retry=self._retry)
        self._reset()
        return event


READ = 64 * 1024
SHOWN = 200


async def refusal(response: aiohttp.ClientResponse, *, session: bool, redact: Redactor) -> WireError:
    """Return the error for a status of 300 or more; `session`: the request named one."""
    status = response.status
    text = redact(await _text(response))  # before it is cut: a partial secret would not be found
    error = _rpc_error(text)
    message = _words(status, text)
    kind: Kind = "status"
    outcome: Outcome = "unknown" if status in (502, 504) else "failed"
    if status == 401:
        kind, outcome = "auth", "not sent"
        message = "it requires a login (HTTP 401)"
    elif status == 403 and (asked := read_challenge(challenge_in(response))) is not None:
        if asked.wants_more:
            kind, outcome = "auth", "not sent"
            message = (
                f"it requires more rights: {' '.join(asked.scopes) or 'it does not say which'} (HTTP 403)"
            )
    elif status == 421:  # it is not for this server: a new connection may lead to the right one
        kind, outcome = "refused", "not sent"
        message = _plain_error(text) or message
    elif session and (status == 404 or (status == 400 and "session" in text.lower())):
        kind, outcome = "session", "not sent"
        message = f"the session has expired (HTTP {status})"
    elif error is not None:
        kind = "answer"
        message = error[1]
    return WireError(
        message,
        kind=kind,
        outcome=outcome,
        code=error[0] if error else INTERNAL_ERROR,
        data=error[2] if error else None,
        status=status,
        retry_after=_seconds(response.headers.get("Retry-After")),
        challenge=challenge_in(response),
    )


def challenge_in(response: aiohttp.ClientResponse) -> str | None:
    """Return the `WWW-Authenticate` challenge; several headers are joined."""
    return ", ".join(response.headers.getall("WWW-Authenticate", [])) or None


async def content_fault(response: aiohttp.ClientResponse, kind: str) -> WireError:
    """Return the error for a response with the wrong content type."""
    if response.status == 202:
        problem = "it accepted the request but sent no response (HTTP 202)"
    else:
        text = await _text(response)
        page = "; that looks like a web page, perhaps a login" if "<html" in text.lower() else ""
        problem = f"the response is of type {kind or 'unknown'!r}, not JSON{page}"
    return WireError(problem, kind="invalid", outcome="unknown", status=response.status)


async def _text(response: aiohttp.ClientResponse) -> str:
    try:
        return (await whole_body(response, READ)).decode("utf-8", "replace")
    except (TooLargeBody, ValueError):
        return ""


def _words(status: int, text: str) -> str:
    shown = " ".join(text.split())[:SHOWN]
    plain = f": {shown}" if shown and "<" not in shown[:1] else ""
    return f"HTTP {status}{plain}"


def _plain_error(text: str) -> str | None:
    """Return the text of `{"error": "…"}`, which gateways of this project answer with."""
    try:
        message = decode(text.encode())
    except ValueError:
        return None
    error = cast("dict[str, Any]", message).get("error") if isinstance(message, dict) else None
    return error if isinstance(error, str) else None


def _rpc_error(text: str) -> tuple[int, str, Any] | None:
    try:
        message = decode(text.encode())
    except ValueError:
        return None
    error = cast("dict[str, Any]", message).get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict):
        return None
    fields = cast("dict[str, Any]", error)
    code, words = fields.get("code"), fields.get("message")
    if not isinstance(code, int) or not isinstance(words, str):
        return None
    return code, words, fields.get("data")


def _seconds(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header: a number, or a date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        then = parsedate_to_datetime(value)
        return max((then - datetime.now(then.tzinfo)).total_seconds(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return None


MAX_HOPS = 5
_SHOW = "; if it wants to see a client certificate, name yours in `tls.cert` and `tls.key`"


class HttpEndpoint:
    """A URL of a server. Redirects are followed only within the origin, so credentials stay there."""

    def __init__(
        self,
        server: str,
        url: str,
        *,
        headers: Mapping[str, str],
        pool: HttpPool,
        max_message: int,
        redact: Redactor,
        access: Credentials | None = None,
        way: HttpRoute | None = None,
        sign: Callable[[str], Mapping[str, str]] | None = None,
    ) -> None:
        self.url = url
        self._sign = sign
        self._server = server
        self._headers = dict(headers)
        self._redact = redact
        self._access = access
        self._pool = pool
        self._way = way or HttpRoute()
        self._proxy = self._way.proxy_for(url)
        self.max_message = max_message
        self._answered = False

    def at(self, location: str) -> HttpEndpoint:
        """Return another URL of the same server.

        Raises:
            WireError: It has another origin, or is not a URL.
        """
        return HttpEndpoint(
            self._server,
            self._within(self.url, location, None),
            headers=self._headers,
            pool=self._pool,
            max_message=self.max_message,
            redact=self._redact,
            access=self._access,
            way=self._way,
            sign=self._sign,
        )

    def _within(self, base: str, location: str, status: int | None) -> str:
        try:
            url = urljoin(base, location)
            there = origin(url)
        except ValueError:
            raise WireError(
                f"it points to {self._redact(location)[:SHOWN]!r}, which is not a URL",
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
        """Send a request and return the response with its headers. After a 401 with another token available,
        the request is sent once more: a 401 means that nothing was done.

        Raises:
            WireError: The server cannot be reached, or the connection was lost.
        """
        async with await self._answer(method, body, headers) as response:
            try:
                yield response
            except (aiohttp.ClientError, ConnectionError) as problem:
                raise _broken(problem) from None

    def unbroken(self, since: float) -> bool:
        """Whether a connection to the server has been open since this time and still takes requests."""
        return self._pool.unbroken(self.url, since)

    def standing(self, response: aiohttp.ClientResponse, *, proves: bool) -> None:
        """Record that a response is a stream without an end. See `HttpPool.standing`."""
        self._pool.standing(response, proves=proves)

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
            self._redact.learn_tokens(self._access.secrets())
        if self._sign is not None:
            sent |= self._sign(method)
        url = self.url
        for _ in range(MAX_HOPS):
            response = await self._send(method, url, body, sent)
            if response.status >= 300 and base.taps:
                status = f"{method}: HTTP {response.status} {response.reason or ''}".rstrip()
                base.passing(self._server, "fault", status)
            if response.status not in (307, 308):
                return response
            response.release()
            url = self._within(url, response.headers.get("Location", ""), response.status)
        raise WireError("it redirects in a loop", kind="status", outcome="not sent", status=308)

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
            raise _unreachable(reason_of(problem) or reason) from None
        except aiohttp.ClientHttpProxyError as problem:
            raise _unreachable(proxy_refusal(problem.status)) from None
        except (aiohttp.ClientError, ConnectionError) as problem:
            # TLS 1.3 reports a missing client certificate after the handshake, by closing the connection.
            unknown = url.startswith("https:") and not (self._answered or self._way.identified)
            raise _broken(problem, _SHOW if unknown else "") from None
        self._answered = True
        if response.status == 407 and self._proxy is not None:
            response.close()
            raise _unreachable(proxy_refusal(407))
        return response

    async def refused(self, response: aiohttp.ClientResponse, *, session: bool) -> WireError:
        """Return the error for a status, without secrets that the server may have echoed."""
        return await refusal(response, session=session, redact=self._redact)

    async def whole(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the body.

        Raises:
            WireError: It is too large, or cannot be decompressed.
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
        unsolicited: bool = False,
    ) -> AsyncIterator[SseEvent]:
        """Yield the events of a stream as they arrive. Lines between events, and chunks that end no line,
        count toward the server's limit of unsolicited messages. The event loop serves other tasks after each
        time slice. `unsolicited`: the stream is not the response to a request.

        Raises:
            WireError: an event is too large, the stream cannot be decompressed, or the server floods.
        """
        parser, turn = SseParser(self.max_message, unsolicited=unsolicited), Slice()
        try:
            async for chunk in body_chunks(response):
                turn.begin()
                unfinished = True
                for piece in pieces(chunk):
                    for event in parser.feed(piece):
                        unfinished = False
                        yield event
                        if turn.over():
                            await asyncio.sleep(0)
                            turn.begin()
                    if parser.lines:
                        unfinished = False
                        charge(parser.overhead, parser.lines * LINE)
                        parser.lines = parser.overhead = 0
                    if turn.over():
                        await asyncio.sleep(0)
                        turn.begin()
                if unfinished:  # A server may send each byte as a chunk of its own.
                    charge(0, LINE)
        except TooLarge:
            raise self._too_large() from None
        except ValueError as problem:
            raise WireError(str(problem), kind="invalid", outcome="unknown") from None

    def _too_large(self) -> WireError:
        return WireError(
            f"the response has more than {self.max_message} bytes; "
            f"raise `max_message` of server {self._server!r} if it is meant to be that large",
            kind="too-large",
            outcome="unknown",
        )


def message_in(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in an event, if there is one."""
    try:
        message = decode(data) if data else None
    except ValueError:
        return None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else None


def _unreachable(reason: str) -> WireError:
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
