"""Who may use the console: one-time tokens, cookies, gateway tokens, and the checks of every request."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from mooring.gateway.auth import Authenticator, check_host, check_single
from mooring.gateway.web import Denied, WebRequest

__all__ = ["Access", "Visitor"]

TICKET_LIFE = 600.0
"""Seconds for which the one-time token of a URL is valid."""
COOKIE_LIFE = 12 * 3600.0
MOST_TICKETS, MOST_COOKIES = 16, 1_000
MOST_GUESSES, GUESS_WINDOW = 10, 60.0
"""Wrong tokens within so many seconds, after which further ones are refused without being looked at."""
CSRF = "X-Mooring-CSRF"
SCOPE = "admin"
LOCAL = "local"
"""Name of the user of a console that needs no gateway token."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated user of the console."""

    principal: str
    csrf: str | None
    """What a `POST` of this browser must carry; None for a program with a bearer token."""
    cookie: bytes | None = None
    """Digest of the cookie."""


@dataclass(slots=True)
class _Cookie:
    visitor: Visitor
    until: float
    token: str | None
    """The gateway token, which must still be valid at each request; None for a one-time token."""


class Access:
    """Lets users in and checks their requests.

    Args:
        name: Name of the cookie. Browsers send a cookie to every port of a host, so it holds the port.
        authenticator: Returns the checks of the gateway; None without a gateway.
        clock: Seconds.
    """

    def __init__(
        self,
        name: str,
        authenticator: Callable[[], Authenticator] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self._authenticator, self._clock = name, authenticator, clock
        self._tickets: dict[bytes, float] = {}
        self._cookies: dict[bytes, _Cookie] = {}
        self._guesses: list[float] = []

    @property
    def needs_token(self) -> bool:
        """Whether users need a token of the gateway."""
        return self._authenticator is not None and not self._authenticator().open

    # --- letting in -----------------------------------------------------------------------------

    def ticket(self) -> str:
        """Return a new one-time token."""
        ticket = secrets.token_urlsafe(32)
        self._tickets[_digest(ticket)] = self._clock() + TICKET_LIFE
        while len(self._tickets) > MOST_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        return ticket

    def redeem(self, ticket: str) -> str | None:
        """Return the value of a new cookie for a one-time token; None if it is not valid, or was used."""
        until = self._tickets.pop(_digest(ticket), None)
        if until is None or self._clock() > until or self.needs_token:
            return None
        return self._new_cookie(LOCAL, None)

    async def log_in(self, token: str) -> str | None:
        """Return the value of a new cookie for a gateway token with the scope `admin`; None if it is none.

        Raises:
            Denied: There were too many wrong ones.
        """
        now = self._clock()
        self._guesses = [one for one in self._guesses if now - one < GUESS_WINDOW]
        if len(self._guesses) >= MOST_GUESSES:
            raise Denied(429, "too many wrong tokens; wait a minute", {"Retry-After": "60"})
        principal = await self._principal(token)
        if principal is None:
            self._guesses.append(now)
            return None
        return self._new_cookie(principal, token)

    def log_out(self, visitor: Visitor) -> None:
        """End the cookie of a browser."""
        if visitor.cookie is not None:
            self._cookies.pop(visitor.cookie, None)

    def _new_cookie(self, principal: str, token: str | None) -> str:
        value, now = secrets.token_urlsafe(32), self._clock()
        self._cookies = {key: one for key, one in self._cookies.items() if one.until > now}
        while len(self._cookies) >= MOST_COOKIES:
            del self._cookies[next(iter(self._cookies))]
        digest = _digest(value)
        visitor = Visitor(principal, secrets.token_urlsafe(24), digest)
        self._cookies[digest] = _Cookie(visitor, now + COOKIE_LIFE, token)
        return value

    def set_cookie(self, value: str, *, base: str, secure: bool) -> str:
        """Return the header that stores a cookie."""
        more = "; Secure" if secure else ""
        life = f"Max-Age={int(COOKIE_LIFE)}"
        return f"{self.name}={value}; {life}; Path={base}/console; HttpOnly; SameSite=Strict{more}"

    async def _principal(self, token: str) -> str | None:
        if self._authenticator is None:
            return None
        found = await self._authenticator().identify(token)
        return found.name if found is not None and SCOPE in found.scopes else None

    # --- checking -------------------------------------------------------------------------------

    def check(self, request: WebRequest) -> None:
        """Refuse requests that a page of another origin, or a rebound name, could have caused.

        Raises:
            Denied: Says which header is wrong.
        """
        check_single(request.raw_headers)
        if self._authenticator is None:
            try:
                check_host(request.host, local=True, allowed=())
            except Denied as denied:  # its advice is for a gateway
                raise Denied(denied.status, "this Host is not allowed; use 127.0.0.1 or localhost") from None
        origin = request.headers.get("Origin")
        if origin is not None and not _same(origin, request.host):
            raise Denied(403, "this Origin is not the origin of the console")
        site = request.headers.get("Sec-Fetch-Site")
        # A link in another page may lead to the console, as long as it changes nothing and is no frame.
        navigates = (
            request.method == "GET"
            and request.headers.get("Sec-Fetch-Mode") == "navigate"
            and request.headers.get("Sec-Fetch-Dest") == "document"
        )
        if site not in (None, "same-origin", "none") and not navigates:
            raise Denied(403, "requests of other sites are not allowed")

    async def visitor(self, request: WebRequest) -> Visitor | None:
        """Return the user of a request; None if there is none."""
        if "Authorization" in request.headers and self.needs_token:
            kind, _, token = request.headers["Authorization"].partition(" ")
            principal = await self._principal(token.strip()) if kind.lower() == "bearer" else None
            return None if principal is None else Visitor(principal, None)
        return await self.still_valid(_cookie(request, self.name))

    async def still_valid(self, digest: bytes | None) -> Visitor | None:
        """Return the user of a cookie; None if it has ended, or its token is not valid any more."""
        found = None if digest is None else self._cookies.get(digest)
        if digest is None or found is None:
            return None
        gone = self._clock() > found.until or (found.token is None and self.needs_token)
        if gone or (found.token is not None and await self._principal(found.token) is None):
            self._cookies.pop(digest, None)
            return None
        return found.visitor

    def check_post(self, request: WebRequest, visitor: Visitor) -> None:
        """Refuse a `POST` that a form or a script of another page could have sent.

        Raises:
            Denied: The content type or the CSRF header is wrong.
        """
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Denied(415, "the Content-Type must be application/json")
        if visitor.csrf is None:
            return
        if not hmac.compare_digest(request.headers.get(CSRF, "").encode(), visitor.csrf.encode()):
            raise Denied(403, f"the header {CSRF} is missing or wrong; load the page again")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _cookie(request: WebRequest, name: str) -> bytes | None:
    # By hand: one malformed cookie of another program on this host must not hide ours.
    for part in request.headers.get("Cookie", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return _digest(value)
    return None


def _same(origin: str, host: str | None) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and host is not None and parts.netloc.lower() == host.lower()
