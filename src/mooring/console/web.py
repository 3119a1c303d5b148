"""The HTTP side of the console: its page and files, the snapshot, the stream of changes, and the verbs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from html import escape
from importlib.resources import files
from typing import Any, cast
from urllib.parse import parse_qs

from pydantic_core import PydanticSerializationError, to_json

from mooring import __version__
from mooring.config.logs import logger
from mooring.console.access import Access, Visitor
from mooring.console.journal import Journal
from mooring.core.types import EMPTY
from mooring.errors import MooringError
from mooring.gateway.web import Denied, Response, WebRequest
from mooring.transport.message import decode

__all__ = ["ConsoleRoutes", "VerbRefused", "encoded"]

log = logger("mooring.console")

PREFIX = "/console"
MAX_BODY = 2**20
MAX_FORM = 16_384
BODY_TIMEOUT = 10.0
INTERVAL = 0.1
"""Seconds between two events of a stream."""
HEARTBEAT = 15.0
WRITE_TIMEOUT = 30.0
"""Seconds after which a reader that takes nothing is disconnected."""
RECHECK = 1.0
"""Seconds after which the login of a reader is checked again, before the next event."""
MOST_STREAMS = 64
MOST_OPS = 2_000
"""Changes in one event; a reader that is further behind gets a snapshot."""
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "json": "application/json",
}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STRICT = "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

Verb = Callable[[Mapping[str, Any], Visitor], Awaitable[Any]]


class VerbRefused(Exception):
    """A verb cannot be done: an HTTP status, a kind, a sentence, and maybe the next command to try."""

    def __init__(
        self, status: int, message: str, *, kind: str = "Refused", command: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.command = status, kind, command


class ConsoleRoutes:
    """Answers every request below `/console`.

    Args:
        access: Lets users in.
        journal: The state.
        verbs: Functions by name. They get the body and the user, and return a JSON object.
        before_state: Brings the journal up to date.
        explain: Turns an error into `{kind, message, next}` with secrets replaced.
        views: Returns the stream of messages for the page of an MCP App.
    """

    def __init__(
        self,
        access: Access,
        journal: Journal,
        verbs: Mapping[str, Verb],
        *,
        before_state: Callable[[], None],
        explain: Callable[[MooringError], tuple[int, dict[str, Any]]],
        views: Callable[[str], AsyncGenerator[tuple[str, Any]] | None],
    ) -> None:
        self._access, self._journal, self._verbs = access, journal, verbs
        self._before_state, self._explain, self._views = before_state, explain, views
        self.sandbox: str | None = None
        """Origin of pages of MCP Apps."""
        self.streams = 0
        self.secure = False
        """Whether browsers reach the console over TLS."""

    async def handle(self, request: WebRequest) -> Response | None:
        """Return the response; None if it was written as a stream."""
        try:
            return await self._handle(request)
        except Denied as denied:
            request.status = 0
            body = {"error": {"kind": "Denied", "message": str(denied), "next": None}}
            return _json(body, denied.status, denied.headers)

    async def _handle(self, request: WebRequest) -> Response | None:
        request.route = PREFIX
        path = request.path
        self._access.check(request)
        if path in ("/", PREFIX):
            return _redirect(f"{request.base}{PREFIX}/" + (f"?{q}" if (q := request.query_string) else ""))
        if not path.startswith(PREFIX + "/"):
            raise Denied(404, f"not found; the console is at {request.base}{PREFIX}/")
        name = path.removeprefix(PREFIX + "/")
        if name.startswith("api/"):
            return await self._api(request, name.removeprefix("api/"))
        if name == "login":
            return await self._login(request)
        if request.method not in ("GET", "HEAD"):
            raise Denied(405, "this path accepts GET", {"Allow": "GET"})
        return await self._file(request, name)

    # --- page and files -------------------------------------------------------------------------

    async def _file(self, request: WebRequest, name: str) -> Response:
        ticket = request.query.get("token")
        if not name and ticket is not None:
            cookie = self._access.redeem(ticket)
            return self._refused_page(request) if cookie is None else self._admitted(request, cookie)
        known = name or "index.html"
        if not name and await self._access.visitor(request) is None:
            return self._refused_page(request) if not self._access.needs_token else self._form(request)
        data, kind = self._read(known), _TYPES.get(known.rpartition(".")[2])
        if data is None or kind is None:
            raise Denied(404, f"there is no file {known[:80]!r}")
        return Response(data, 200, {**_HEADERS, "Content-Security-Policy": self.policy}, kind)

    @property
    def policy(self) -> str:
        """The content security policy of the page."""
        frames = self.sandbox or "'none'"
        return (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src blob:; "
            f"font-src 'self'; connect-src 'self'; frame-src {frames}; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'"
        )

    @staticmethod
    def _read(name: str) -> bytes | None:
        parts = name.split("/")
        if len(parts) > 4 or any(not part or part.startswith(".") or "\\" in part for part in parts):
            return None
        place = files("mooring.console") / "static"
        for part in parts:
            place = place / part
        return place.read_bytes() if place.is_file() else None

    def _admitted(self, request: WebRequest, cookie: str) -> Response:
        stored = self._access.set_cookie(cookie, base=request.base, secure=self.secure)
        return _redirect(f"{request.base}{PREFIX}/", {"Set-Cookie": stored})

    def _refused_page(self, request: WebRequest) -> Response:
        why = (
            ""
            if "token" not in request.query
            else "This address was used before, or is older than 10 minutes. "
        )
        text = (
            f"{why}Press Enter in the terminal where the console runs, or start it again, and open the new "
            "address. It works once."
        )
        if self._access.needs_token:
            text = "This console needs a token of the gateway with the scope admin."
        return _page(403, "Not logged in", f"<p>{escape(text)}</p>", request.base)

    def _form(self, request: WebRequest, problem: str = "") -> Response:
        alert = f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else ""
        body = (
            f'{alert}<form class="stack" method="post" action="{escape(request.base)}{PREFIX}/login">'
            '<div class="field"><label for="token">Token of the gateway with the scope <code>admin</code>'
            "</label>"
            '<input id="token" type="password" name="token" autocomplete="off" required autofocus></div>'
            '<div><button class="button primary" type="submit">Log in</button></div></form>'
            '<p class="muted">Create one with <code>mooring token create NAME --scope admin</code>.</p>'
        )
        return _page(403 if problem else 200, "Log in to the console", body, request.base)

    async def _login(self, request: WebRequest) -> Response:
        if request.method != "POST":
            return _redirect(f"{request.base}{PREFIX}/")
        if request.headers.get("Origin") is None:
            raise Denied(403, "the form must be sent by the page of the console")
        data = await request.read(MAX_FORM, BODY_TIMEOUT)
        try:
            token = parse_qs(data.decode(), max_num_fields=8).get("token", [""])[0]
        except ValueError:
            token = ""
        cookie = await self._access.log_in(token.strip())
        if cookie is None:
            return self._form(request, "This token is not valid, or lacks the scope admin.")
        return self._admitted(request, cookie)

    # --- API ------------------------------------------------------------------------------------

    async def _api(self, request: WebRequest, name: str) -> Response | None:
        visitor = await self._access.visitor(request)
        if visitor is None:
            how = (
                "a token with the scope admin"
                if self._access.needs_token
                else "the address that mooring prints"
            )
            raise Denied(401, f"not logged in; use {how}")
        request.principal = visitor.principal
        request.route = f"{PREFIX}/api/{name}" if name in self._verbs else f"{PREFIX}/api"
        if request.method == "GET":
            return await self._get(request, name, visitor)
        if request.method != "POST":
            raise Denied(405, "this path accepts GET or POST", {"Allow": "GET, POST"})
        self._access.check_post(request, visitor)
        verb = self._verbs.get(name)
        if verb is None:
            raise Denied(404, f"there is no verb {name[:80]!r}; see docs/console-api.md")
        return await self._do(verb, name, await self._body(request), visitor)

    async def _get(self, request: WebRequest, name: str, visitor: Visitor) -> Response | None:
        match name:
            case "session":
                who = {"csrf": visitor.csrf, "principal": visitor.principal}
                return _json({**who, "sandbox": self.sandbox, "version": __version__})
            case "state":
                self._before_state()
                return Response(self._snapshot(), 200, _HEADERS, "application/json")
            case "events":
                given = request.headers.get("Last-Event-ID") or request.query.get("since", "")
                return await self._stream(request, self._frames(given))
            case "view":
                frames = self._views(request.query.get("view", ""))
                if frames is None:
                    raise Denied(404, "there is no such view; open it again")
                return await self._stream(request, _messages(frames))
            case _:
                raise Denied(404, "not found; see docs/console-api.md")

    async def _do(self, verb: Verb, name: str, body: Mapping[str, Any], visitor: Visitor) -> Response:
        try:
            answer = await verb(body, visitor)
        except VerbRefused as refused:
            said = {"kind": refused.kind, "message": str(refused), "next": refused.command}
            return _json({"error": said}, refused.status)
        except MooringError as problem:
            status, said = self._explain(problem)
            return _json({"error": said}, status)
        except Exception:
            log.exception("console verb failed: verb=%s", name)
            said = {"kind": "Internal", "message": f"{name!r} failed; the log has details", "next": None}
            return _json({"error": said}, 500)
        return _json(answer)

    async def _body(self, request: WebRequest) -> Mapping[str, Any]:
        data = await request.read(MAX_BODY, BODY_TIMEOUT)
        try:
            body: object = decode(data) if data else {}
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise Denied(400, "the body must be a JSON object")
        return cast("dict[str, Any]", body)

    # --- streams --------------------------------------------------------------------------------

    def _snapshot(self) -> bytes:
        return encoded({**self._journal.snapshot(), "time": round(time.time(), 3)})

    async def _frames(self, given: str) -> AsyncGenerator[bytes]:
        """Yield one event for all changes within `INTERVAL` seconds, and a comment now and then."""
        journal = self._journal
        epoch, _, number = given.strip().rpartition("-")
        rev = int(number) if epoch == journal.epoch and number.isascii() and number.isdigit() else -1
        quiet = time.monotonic()
        while True:
            if journal.rev != rev:
                ops = journal.since(rev)
                if ops is None or len(ops) > MOST_OPS:
                    self._before_state()
                    kind, data = b"reset", self._snapshot()
                else:
                    kind, data = b"patch", encoded({"rev": journal.rev, "ops": ops})
                rev, quiet = journal.rev, time.monotonic()
                name = f"{journal.epoch}-{rev}".encode()
                yield b"id: " + name + b"\nevent: " + kind + b"\ndata: " + data + b"\n\n"
            elif time.monotonic() - quiet > HEARTBEAT:
                quiet = time.monotonic()
                yield b":\n\n"
            await asyncio.sleep(INTERVAL)

    async def _stream(self, request: WebRequest, frames: AsyncGenerator[bytes]) -> None:
        """Send frames until the client goes, its login ends, or there are no more."""
        if self.streams >= MOST_STREAMS:
            raise Denied(429, f"{MOST_STREAMS} streams are open; close a page of the console")
        self.streams += 1
        checked = time.monotonic()
        try:
            more = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
            await request.start_stream({**_HEADERS, **more})
            async with aclosing(frames):
                async for frame in frames:
                    if time.monotonic() - checked > RECHECK:
                        checked = time.monotonic()
                        if await self._access.visitor(request) is None:
                            break
                    async with asyncio.timeout(WRITE_TIMEOUT):
                        await request.write(frame)
            await request.end_stream()
        except (OSError, TimeoutError):
            request.abort()
        finally:
            self.streams -= 1


async def _messages(frames: AsyncGenerator[tuple[str, Any]]) -> AsyncGenerator[bytes]:
    """Yield the messages for a page of an MCP App as events."""
    async with aclosing(frames):
        async for kind, value in frames:
            yield b":\n\n" if not kind else f"event: {kind}\ndata: ".encode() + encoded(value) + b"\n\n"


def encoded(value: Any) -> bytes:
    """Return a value as JSON that every browser reads: without NaN, in one line."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, ValueError):
        # Half of a surrogate pair, which a server may send as an escape.
        return json.dumps(_finite(value), default=_plain).encode()


def _plain(value: Any) -> Any:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else str(value)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if value == value and abs(value) != float("inf") else None
        case Mapping():
            return {str(key): _finite(item) for key, item in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple():
            return [_finite(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _json(value: Any, status: int = 200, more: Mapping[str, str] = EMPTY) -> Response:
    headers = {**_HEADERS, "Content-Security-Policy": _STRICT, **more}
    return Response(encoded(value), status, headers, "application/json")


def _redirect(address: str, more: Mapping[str, str] = EMPTY) -> Response:
    return Response(b"", 303, {**_HEADERS, "Location": address, **more})


def _page(status: int, title: str, body: str, base: str) -> Response:
    """Return a page without scripts."""
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f'<link rel="stylesheet" href="{escape(base)}{PREFIX}/style.css">'
        f"<title>{escape(title)} - mooring console</title></head><body>"
        f'<main class="login-page card stack"><h1>{escape(title)}</h1>{body}</main></body></html>'
    )
    headers = {**_HEADERS, "Content-Security-Policy": f"{_STRICT}; style-src 'self'"}
    # With `no-referrer`, browsers send `Origin: null` with the form.
    headers["Referrer-Policy"] = "same-origin"
    return Response(html.encode(), status, headers, "text/html; charset=utf-8")
