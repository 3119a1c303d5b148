"""Forward a request of a client to another node over HTTP, and the response of that node to the client."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any

import aiohttp
from yarl import URL

from mooring.cluster.peer_http import NotConnected, PeerConnections, PeerResponse, request_head
from mooring.gateway.nodes import HOP, NodeId, OwnerGone
from mooring.gateway.web import Denied, Response, WebRequest

__all__ = ["PeerNode", "PeerRefused", "address", "relay"]

CONNECT_TIMEOUT = 3.0
SILENT_AFTER = 10.0
"""Seconds without any answer after which requests that wait for a node fail."""
GONE_AFTER = 30.0
"""Seconds without any answer after which what a node keeps counts as lost."""
NODE, REFUSED = "Mooring-Node", "Mooring-Refused"
"""Headers of the response to a forwarded request: the incarnation of the node, and why it refused the hop."""
MOVED = "moved"
"""Why a node refuses a request for a session that it does not own any more."""
_NODE, _REFUSED = NODE.lower(), REFUSED.lower()
_OF_CONNECTION = frozenset(
    (
        *("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization"),
        *("proxy-authenticate", "proxy-connection", "content-length", "expect", "date", "server"),
        *(HOP.lower(), NODE.lower(), REFUSED.lower()),
    )
)
_NOT_SENT = frozenset(name.encode() for name in (*_OF_CONNECTION, "content-encoding"))
"""Also the encoding: the body was decoded."""


@lru_cache(maxsize=256)
def address(text: str) -> URL:
    """Return a URL; most requests have the same few."""
    return URL(text, encoded=True)


class PeerRefused(Exception):
    """The node did not accept the hop: another key, another incarnation, or a header that was used before."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PeerNode:
    """Another node: its address, its connections, and when it answered last."""

    def __init__(self, name: str, url: str, *, socket: str | None = None, ssl: Any = True) -> None:
        self.name, self.url = name, url
        self._socket, self._ssl = socket, ssl
        self._connections = PeerConnections(url, socket, ssl)
        self._prefix = address(url).raw_path.rstrip("/")
        self._http: aiohttp.ClientSession | None = None
        self.incarnation: str | None = None
        """The last one known; None before the node answered, and after it ended."""
        self.answered = time.monotonic()
        """When it answered last, on the monotonic clock."""
        self.problem: str | None = None
        """Why it cannot be used."""
        self.refuses = False
        """Whether it refused the last check: another node is at its address, or its key differs."""
        self._waiting: set[asyncio.Timeout] = set()

    @property
    def up(self) -> bool:
        return self.problem is None and self.incarnation is not None

    @property
    def silence(self) -> float:
        """Seconds since it answered."""
        return time.monotonic() - self.answered

    @property
    def awaited(self) -> bool:
        """Whether a request waits for its response."""
        return bool(self._waiting)

    def heard(self, incarnation: str) -> None:
        """Note an answer of this start of the node."""
        self.answered, self.incarnation, self.problem = time.monotonic(), incarnation, None

    def give_up(self) -> None:
        """End everything that waits for this node."""
        now = asyncio.get_running_loop().time()
        for waiting in self._waiting:
            with suppress(RuntimeError):  # it ended in this moment
                waiting.reschedule(now)

    def session(self) -> aiohttp.ClientSession:
        """Return the connections to this node for requests of this node itself.

        Raises:
            ClientConnectionError: The node has left.
        """
        if self._http is not None and self._http.closed:
            raise aiohttp.ClientConnectionError(f"node {self.name!r} has left")
        if self._http is None:
            connector: Any = (
                aiohttp.TCPConnector(limit=0, ssl=self._ssl)
                if self._socket is None
                else aiohttp.UnixConnector(self._socket, limit=0)
            )
            self._http = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._http

    async def forward(
        self, request: WebRequest, owner: NodeId, target: str, hop: str, body: bytes | None
    ) -> Response | None:
        """Have the node answer a request.

        Raises:
            OwnerGone: It has ended, or is another incarnation; it did not get the request.
            PeerRefused: It did not accept the hop.
            Denied: It does not answer; it may have got the request.
        """
        if self.silence > SILENT_AFTER:
            raise OwnerGone(owner) if self.silence > GONE_AFTER else self._silent(sent=False)
        head = _head(request, self._prefix + target, hop, body)
        patience, sent = asyncio.timeout(None), False
        try:
            async with patience:
                self._waiting.add(patience)
                connection = await self._connections.take(CONNECT_TIMEOUT)
                sent = True
                try:
                    response = await connection.ask(head, body)
                    self._check(response, owner)
                    request.forwarded = True
                    return await relay(request, response)
                finally:
                    self._connections.give_back(connection)
        except NotConnected as problem:
            raise self._unreachable(owner, problem) from None
        except TimeoutError:
            if request.status:  # a stream that was started
                request.abort()
                return None
            raise self._silent(sent=sent) from None
        except OSError:
            if request.status:
                request.abort()
                return None
            raise self._lost() from None
        finally:
            self._waiting.discard(patience)

    def _check(self, response: PeerResponse, owner: NodeId) -> None:
        self.answered = time.monotonic()
        incarnation = response.headers.get(_NODE)
        reason = response.headers.get(_REFUSED)
        if incarnation is not None:
            self.heard(incarnation)
        if reason == "incarnation":
            raise OwnerGone(owner)
        if reason is not None:
            raise PeerRefused(reason)

    def _unreachable(self, owner: NodeId, problem: NotConnected) -> Denied:
        """Return the error for a connection that was not made: nothing was sent."""
        if problem.ended:
            self.incarnation = None
            return OwnerGone(owner)  # nothing listens there: the process has ended
        return self._silent(sent=False)

    def _silent(self, *, sent: bool) -> Denied:
        if sent:
            return Denied(
                504,
                f"node {self.name!r} has not answered for {SILENT_AFTER:g} s. The request may have had "
                "effects; check before you send it again",
            )
        return Denied(503, f"node {self.name!r} does not answer; try again later", {"Retry-After": "2"})

    def _lost(self) -> Denied:
        return Denied(
            502,
            f"the connection to node {self.name!r} ended during the request. The request may have had "
            "effects; check before you send it again",
        )

    async def close(self) -> None:
        self._connections.close()
        if self._http is not None:
            await self._http.close()


def _head(request: WebRequest, target: str, hop: str, body: bytes | None) -> bytes:
    """Return the begin of the request to the node, with the headers of the client, also repeated ones, but
    those of its connection."""
    headers = [header for header in request.raw_headers if header[0].lower() not in _NOT_SENT]
    more = [(HOP, hop)]
    if body is not None:
        more.append(("Content-Length", str(len(body))))
    try:
        return request_head(request.method, target, headers, more)
    except ValueError as problem:
        raise Denied(400, str(problem)) from None


async def relay(request: WebRequest, response: PeerResponse) -> Response | None:
    """Return a response to the client; streams and large ones are written in parts, as the client reads."""
    headers = {name: value for name, value in response.headers.items() if name not in _OF_CONNECTION}
    if response.body is not None:
        return Response(response.body, response.status, headers)
    if response.status != 200:
        return Response(b"".join([part async for part in response.parts()]), response.status, headers)
    await request.start_stream(headers)
    async for part in response.parts():
        await request.write(part)
    await request.end_stream()
    return None
