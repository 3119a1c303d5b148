"""The pages of remote logins: the link that a client's user opens, and the page that the login returns to.

A login belongs to one principal and one browser. The user proves to be the principal with the gateway token
of the client; a cookie marks the browser, and the login ends only in the browser in which it began.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, unquote, urlsplit

from mooring.config.logs import logger
from mooring.errors import AuthNeeded, MooringError
from mooring.gateway.logins import CALLBACK, PATH, RemoteLogins, Ticket
from mooring.gateway.web import Denied, Response, WebRequest

log = logger("mooring.gateway")

MAX_PROOFS = 5
"""Wrong tokens after which a link is not valid any more."""
MAX_BROWSERS = 10_000
BROWSER_LIFE = 12 * 3600.0
"""Seconds for which a browser need not prove its principal again."""
BODY_TIMEOUT = 10.0
MAX_FORM = 65_536
"""Bytes of a form."""
_STYLE = (
    "body{font:1.1em/1.5 system-ui,sans-serif;margin:3em auto;max-width:34em;padding:0 1em}"
    "input,button{font:inherit;padding:.4em .6em;margin-top:.5em}input{width:100%;box-sizing:border-box}"
)
_HEADERS = {
    # `form-action` is enforced for redirects as well, so that the page leads on by a refresh.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    # With `no-referrer`, browsers send `Origin: null` with the form.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_GONE = "This link is not valid: it was used, or has expired. Return to your application and try again."
_OTHER = "This page does not belong to a login in this browser. Return to your application and try again."
_DONE = "Login complete. You can close this window and return to your application."
_FAILED = "Login failed. Return to your application and try again."


class LoginPages:
    """Serves `/login/…`."""

    def __init__(self, logins: RemoteLogins) -> None:
        self._logins = logins
        self._key = os.urandom(32)
        self._browsers: dict[bytes, tuple[str, float]] = {}
        """Digest of a browser's cookie -> the principal that its user has proved to be, and until when."""

    def owns(self, path: str) -> bool:
        """Whether a path belongs to these pages."""
        return self._logins.url is not None and path.startswith(PATH)

    def is_elsewhere(self, request: WebRequest) -> bool:
        """Whether the authorization server sends a browser back whose login this process does not know."""
        states = parse_qs(request.query_string, max_num_fields=32).get("state", [])
        back = request.raw_path.startswith(CALLBACK) and request.method == "GET" and len(states) == 1
        return back and self._logins.waiting(states[0]) is None

    async def serve(self, request: WebRequest) -> Response:
        path = request.raw_path
        if not self._at_home(request):
            return _page(400, _OTHER)
        if path.startswith(CALLBACK):
            if request.method != "GET":
                return _page(405, _OTHER)
            return await self._returned(request, unquote(path.removeprefix(CALLBACK)))
        ticket = self._logins.find(path.removeprefix(PATH))
        if ticket is None or ticket.browser is not None:
            return _page(404, _GONE)
        if request.method == "GET":
            return self._form(request, ticket)
        if request.method == "POST":
            return await self._begun(request, ticket)
        return _page(405, _OTHER)

    # --- the link -------------------------------------------------------------------------------

    def _form(self, request: WebRequest, ticket: Ticket, problem: str = "") -> Response:
        """The page of a link. Opening it has no effect but a cookie: programs that preview links do so."""
        browser = self._browser(request) or secrets.token_urlsafe(32)
        known = self._proved(browser, ticket)
        proof = (
            ""
            if known
            else "<p><label>Your token for the gateway<br>"
            '<input type="password" name="token" autocomplete="off" required></label></p>'
        )
        body = (
            f"<h1>Log in to {escape(ticket.server)}</h1>"
            f"<p>A client of this gateway, <b>{escape(ticket.principal)}</b>, wants to use "
            f"<b>{escape(ticket.server)}</b> in your name. Go on only if that is your client, and you have "
            "just used it.</p>"
            + (f'<p role="alert"><b>{escape(problem)}</b></p>' if problem else "")
            + f'<form method="post"><input type="hidden" name="check" value="{self._check(browser, ticket)}">'
            + f'{proof}<button type="submit">Continue</button></form>'
        )
        secure = "; Secure" if self._https else ""
        life = f"Max-Age={int(BROWSER_LIFE)}"
        cookie = f"{self._cookie_name}={browser}; {life}; Path=/; HttpOnly; SameSite=Lax{secure}"
        return _page(403 if problem else 200, "", body, headers={"Set-Cookie": cookie})

    async def _begun(self, request: WebRequest, ticket: Ticket) -> Response:
        """Begin the login in this browser, if its user is the principal of the link."""
        browser = self._browser(request)
        form = await self._posted(request)
        if form is None:
            return _page(400, _OTHER)
        check, token = form.get("check"), form.get("token", "")
        same_origin = request.headers.get("Origin") == _origin(self._logins.url or "")
        if browser is None or not same_origin or check is None:
            return _page(403, _OTHER)
        if not hmac.compare_digest(check.encode(), self._check(browser, ticket).encode()):
            return _page(403, _OTHER)
        if not self._proved(browser, ticket):
            ticket.proofs += 1
            if not await self._proves(token.strip(), ticket):
                if ticket.proofs >= MAX_PROOFS:
                    self._logins.drop(ticket)
                    return _page(404, _GONE)
                return self._form(request, ticket, "That is not the token of this client.")
            ticket.proofs = 0
            self._remember(browser, ticket.principal)
        if ticket.browser is not None or not ticket.valid:  # another window was quicker
            return _page(404, _GONE)
        ticket.browser = _digest(browser)
        try:
            login = await self._logins.begin(ticket)
        except MooringError as problem:
            self._logins.drop(ticket)
            return _page(502, f"The login cannot be started: {problem}")
        log.info("login started server=%s principal=%s", ticket.server, ticket.principal)
        where = escape(login.url)
        body = (
            f"<p>You are sent to <b>{escape(login.host)}</b> to log in to {escape(ticket.server)}.</p>"
            f'<p><a href="{where}" rel="noreferrer">Continue</a></p>'
        )
        return _page(200, "", body, head=f'<meta http-equiv="refresh" content="0;url={where}">')

    async def _posted(self, request: WebRequest) -> dict[str, str] | None:
        """Return the fields of a form; None if the body is none."""
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return None
        try:
            body = (await request.read(MAX_FORM, BODY_TIMEOUT)).decode("ascii")
            return {name: values[0] for name, values in parse_qs(body, max_num_fields=8).items()}
        except (Denied, ValueError):
            return None

    async def _proves(self, token: str, ticket: Ticket) -> bool:
        identify = self._logins.identify
        found = await identify(token) if identify is not None and token else None
        good = found is not None and found.name == ticket.principal
        if not good:
            who = "none" if found is None else found.name
            about = (ticket.server, ticket.principal, who)
            log.warning("login refused: wrong user server=%s principal=%s user=%s", *about)
        return good

    # --- the way back ---------------------------------------------------------------------------

    async def _returned(self, request: WebRequest, server: str) -> Response:
        """The page to which the authorization server sends the browser."""
        states = parse_qs(request.query_string, max_num_fields=32).get("state", [])
        ticket = self._logins.waiting(states[0]) if len(states) == 1 else None
        browser = self._browser(request)
        if ticket is None or ticket.login is None or browser is None or ticket.server != server:
            return _page(400, _OTHER)
        if ticket.browser is None or not hmac.compare_digest(ticket.browser, _digest(browser)):
            log.warning("login refused: another browser server=%s principal=%s", server, ticket.principal)
            return _page(400, _OTHER)
        query = request.query_string
        login, done = ticket.login, False
        try:
            await login.complete(f"{self._logins.redirect_uri(server)}?{query}")
            done = True
        except AuthNeeded as problem:
            log.warning("login failed server=%s principal=%s reason=%s", server, ticket.principal, problem)
        ticket.end(done=done)
        if done:
            log.info("login complete server=%s principal=%s", server, ticket.principal)
        return _page(200, _DONE) if done else _page(400, _FAILED)

    # --- browsers -------------------------------------------------------------------------------

    @property
    def _https(self) -> bool:
        return (self._logins.url or "").startswith("https:")

    @property
    def _cookie_name(self) -> str:
        return "__Host-mooring-login" if self._https else "mooring-login"

    def _at_home(self, request: WebRequest) -> bool:
        """Whether the browser asked for the public address: the browser sends the cookie only there."""
        return (request.host or "").lower() == urlsplit(self._logins.url or "").netloc.lower()

    def _browser(self, request: WebRequest) -> str | None:
        try:
            found = SimpleCookie(request.headers.get("Cookie", "")).get(self._cookie_name)
        except CookieError:
            return None
        value = None if found is None else found.value
        return value if value and len(value) == 43 and value.isascii() else None

    def _check(self, browser: str, ticket: Ticket) -> str:
        """The value that the form of this browser and ticket must hold: no other site knows it."""
        return hmac.new(self._key, f"{browser} {ticket.key}".encode(), sha256).hexdigest()

    def _proved(self, browser: str, ticket: Ticket) -> bool:
        principal, until = self._browsers.get(_digest(browser), ("", 0.0))
        return principal == ticket.principal and time.monotonic() < until

    def _remember(self, browser: str, principal: str) -> None:
        self._browsers.pop(_digest(browser), None)
        self._browsers[_digest(browser)] = (principal, time.monotonic() + BROWSER_LIFE)
        if len(self._browsers) > MAX_BROWSERS:
            del self._browsers[next(iter(self._browsers))]

    def forget_browsers(self) -> None:
        """Have all users prove their principal again: their tokens may not be valid any more."""
        self._browsers.clear()


def _digest(browser: str) -> bytes:
    return sha256(browser.encode()).digest()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _page(
    status: int, text: str, body: str = "", *, head: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    document = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>mooring</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style>{head}</head><body>{body or f'<p>{escape(text)}</p>'}</body></html>"
    )
    sent = {**_HEADERS, **(headers or {})}
    return Response(document.encode(), status, sent, "text/html; charset=utf-8")
