"""One HTTP request and its response, as the gateway sees them: the same for our own server and for ASGI."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from mooring.core.types import EMPTY

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from mooring.config.operation import ForwardedSettings
    from mooring.gateway.access import RequestRecord
    from mooring.gateway.nodes import Hop

__all__ = ["Denied", "Forwarding", "Response", "WebRequest", "document", "json_response"]


class Denied(Exception):
    """A request that is rejected with an HTTP status instead of a JSON-RPC response."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


class Response:
    """A response that is complete. Streams are written with the methods of the request instead."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        headers: Mapping[str, str] = EMPTY,
        content_type: str | None = None,
    ) -> None:
        self.body, self.status, self.headers, self.content_type = body, status, headers, content_type


def json_response(body: bytes, status: int, more: Mapping[str, str]) -> Response:
    return Response(body, status, more, "application/json")


def document(value: object, status: int = 200, more: Mapping[str, str] = EMPTY) -> Response:
    """Return a value as a JSON response."""
    return json_response(json.dumps(value).encode(), status, more)


class WebRequest(ABC):
    """One request. A front creates it. The handler returns a `Response`; or it writes a stream and returns
    None. The task of the handler is cancelled if the client disconnects."""

    __slots__ = (
        "base", "certificate", "forwarded", "headers", "hop", "host", "local", "method", "path", "peer",
        "principal", "profile", "query_string", "raw_headers", "raw_path", "received", "records", "remote",
        "route", "sent", "status",
    )  # fmt: skip

    def __init__(
        self,
        *,
        method: str,
        path: str,
        raw_path: str,
        query_string: str,
        headers: Mapping[str, str],
        raw_headers: Sequence[tuple[bytes, bytes]],
        peer: str | None,
        base: str = "",
        certificate: str | None = None,
    ) -> None:
        self.method = method
        self.path = path
        """Without the base path."""
        self.raw_path = raw_path
        """The same as it was sent, not decoded."""
        self.query_string = query_string
        """As it was sent, not decoded."""
        self.headers = headers
        """Names are not case-sensitive."""
        self.raw_headers = raw_headers
        self.peer = peer
        """Address of the other end of the connection."""
        self.remote = peer
        """Address of the client: the peer, or what a named proxy forwards."""
        self.host = headers.get("Host")
        """The `Host` header of the client: as received, or what a named proxy forwards."""
        self.base = base
        """Prefix of the path that clients use and handlers do not see."""
        self.certificate = certificate
        """Principal of the verified client certificate; None without one."""
        self.local: bool | None = None
        """Whether the server listens on loopback; None: as the authenticator was started."""
        self.hop: Hop | None = None
        """What the node says that forwards the request; None if it comes from a client."""
        self.forwarded = False
        """Whether another node answers the request, which also logs it."""
        self.route = ""
        """Which route answers, for the access log; empty if none does."""
        self.principal: str | None = None
        self.profile: str | None = None
        self.records: list[RequestRecord] = []
        """The JSON-RPC requests in it."""
        self.received = self.sent = 0
        """Bytes of the bodies."""
        self.status = 0
        """Status of a stream that was started; 0 before."""

    @property
    def query(self) -> Mapping[str, str]:
        """The first value of each query parameter."""
        return {name: values[0] for name, values in parse_qs(self.query_string, max_num_fields=64).items()}

    @abstractmethod
    async def read(self, limit: int, timeout: float) -> bytes:
        """Return the whole body.

        Raises:
            Denied: It is larger than `limit` bytes, took longer than `timeout` seconds, or is not encoded as
                its headers say.
        """

    @abstractmethod
    async def start_stream(self, headers: Mapping[str, str]) -> None:
        """Send the status 200 and these headers; then `write` and `end_stream`."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send a part of a stream; waits while the client is slow.

        Raises:
            OSError: The client is gone.
        """

    @abstractmethod
    async def end_stream(self) -> None: ...

    @abstractmethod
    def abort(self) -> None:
        """Close the connection without an orderly end of the response."""


def too_large(limit: int) -> Denied:
    return Denied(413, f"the body is larger than {limit} bytes", {"Connection": "close"})


def too_slow(timeout: float) -> Denied:
    return Denied(408, f"the body did not arrive within {timeout:g} s", {"Connection": "close"})


class Forwarding:
    """What proxies forward about their clients. Headers of peers that are not named are ignored."""

    def __init__(self, settings: ForwardedSettings | None) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._standard = settings is not None and settings.header == "forwarded"
        if settings is not None:
            self._networks = [ip_network(text, strict=False) for text in settings.proxies]
        self._known: dict[str | None, bool] = {}

    def apply(self, request: WebRequest) -> None:
        """Set address, host and base path of the client if the peer is a named proxy."""
        if not self._networks or not self._named(request.peer):
            return
        headers = request.headers
        if self._standard:
            hops = [_pairs(hop) for hop in _values(request, b"forwarded")]
            found, position = self._client([hop.get("for", "") for hop in hops], request.peer)
            host = hops[position].get("host") if hops else None
        else:
            found, _ = self._client(_values(request, b"x-forwarded-for"), request.peer)
            host = (_values(request, b"x-forwarded-host") or [None])[-1]
            prefix = headers.get("X-Forwarded-Prefix", "").rstrip("/")
            if (
                prefix.startswith("/")
                and not prefix.startswith("//")
                and prefix.isascii()
                and prefix.isprintable()
            ):
                request.base = prefix + request.base
        request.remote = found
        request.host = host or request.host

    def _named(self, address: str | None) -> bool:
        known = self._known.get(address)
        if known is None:
            if len(self._known) > 10_000:
                self._known.clear()
            known = self._known[address] = _within(address, self._networks)
        return known

    def _client(self, chain: list[str], peer: str | None) -> tuple[str | None, int]:
        """Return the last address that is not of a named proxy, and its position. What stands before it was
        written by the client."""
        for position in range(len(chain) - 1, -1, -1):
            address = _address(chain[position])
            if address is None:
                return peer, position  # obfuscated or malformed: the proxy itself is all that is known
            if not self._named(address) or not position:
                return address, position
        return peer, -1


def _values(request: WebRequest, name: bytes) -> list[str]:
    """Return the elements of a list header that may be repeated."""
    lines = [value.decode("latin-1") for key, value in request.raw_headers if key.lower() == name]
    return [part.strip() for line in lines for part in line.split(",") if part.strip()]


def _pairs(hop: str) -> dict[str, str]:
    """Return the parameters of one element of a `Forwarded` header (RFC 7239)."""
    pairs = (pair.partition("=") for pair in hop.split(";"))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}


def _address(text: str) -> str | None:
    """Return the address of a node, without its port; None if it is none."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _within(address: str | None, networks: Sequence[Any]) -> bool:
    if address is None:
        return False
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None) or found
    return any(mapped in network for network in networks if network.version == mapped.version)
