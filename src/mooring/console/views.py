"""Pages of tools (MCP Apps) in the console: each in a sandboxed frame, on an origin that has nothing else."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from mooring.config.logs import logger
from mooring.console.access import Visitor
from mooring.console.trying import SESSION, Tries
from mooring.console.verbs import Body
from mooring.console.web import Verb, VerbRefused
from mooring.gateway.auth import check_host
from mooring.gateway.web import Denied, Response, WebRequest
from mooring.host import Host

if TYPE_CHECKING:
    from mooring.extensions.bridge import ViewBridge
    from mooring.extensions.views import View

__all__ = ["ConsoleViews", "SandboxRoutes"]

log = logger("mooring.console")

MOST_VIEWS = 16
MOST_QUEUED = 256
"""Messages that wait for a page; it is closed when there are more."""
HEARTBEAT = 15.0
CONNECT_TIMEOUT = 60.0
"""Seconds within which a page of the console must read the messages of a view."""
_END = ("", None)


class OpenView:
    """One page that is shown."""

    def __init__(self, key: str, view: View, origin: str) -> None:
        self.key, self.view, self.origin = key, view, origin
        self.secret = secrets.token_urlsafe(24)
        """Part of its address."""
        self.served = False
        self.read = False
        self.opened = time.monotonic()
        self.queue: asyncio.Queue[tuple[str, Any]] = asyncio.Queue(MOST_QUEUED)
        self.bridge: ViewBridge = view.bridge(
            self._send,
            on_open_link=self._link,
            on_size=self._size,
            on_close=lambda: self.put("close", {}),
            context={"theme": "light", "locale": "en", "platform": "web"},
        )

    def put(self, kind: str, value: Any) -> None:
        """Queue an event for the page of the console."""
        try:
            self.queue.put_nowait((kind, value))
        except asyncio.QueueFull:
            log.warning("messages of a page dropped, the browser does not read them: page=%s", self.view.uri)

    def _send(self, message: dict[str, Any]) -> None:
        self.put("message", message)

    def _size(self, width: float | None, height: float | None) -> None:
        self.put("size", {"width": width, "height": height})

    def _link(self, url: str) -> None:
        """The person decides in the page of the console whether to follow the link."""
        self.put("link", {"url": url})


class ConsoleViews:
    """Opens pages of tools and passes their messages."""

    def __init__(self, host: Host, tries: Tries) -> None:
        self._host, self._tries = host, tries
        self._views: dict[str, OpenView] = {}
        self.sandbox: str | None = None
        """Origin on which the pages are served; None if there is none."""
        self.origins: tuple[str, ...] = ()
        """Origins of the console around which those pages can be shown."""

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs by name."""
        return {"view-open": self.open, "view-message": self.message, "view-close": self.close}

    def find(self, secret: str) -> OpenView | None:
        """Return the page with this address, once."""
        for one in self._views.values():
            if not one.served and secrets.compare_digest(one.secret.encode(), secret.encode()):
                one.served = True
                return one
        return None

    async def open(self, given: Mapping[str, Any], _: Visitor) -> Any:
        body = Body(given)
        origin = body.text("origin", next(iter(self.origins), ""))
        if self.sandbox is None or origin not in self.origins:
            where = f"opened at {self.origins[0]}/" if self.origins else "on 127.0.0.1"
            raise VerbRefused(
                409,
                f"Pages of tools are shown only in a console that is {where}: they need an origin of their "
                "own, which other addresses, proxies and tunnels do not have. Run `mooring console` on your "
                "machine.",
                command="mooring console",
            )
        now = time.monotonic()
        for one in list(self._views.values()):
            if not one.read and now - one.opened > CONNECT_TIMEOUT:
                del self._views[one.key]
        if len(self._views) >= MOST_VIEWS:
            raise VerbRefused(429, f"{MOST_VIEWS} pages of tools are open. Close one first.")
        session = self._host.session(SESSION, agent_id=SESSION)
        view = await self._host.view(body.text("tool"), session=session, timeout=60.0)
        made = None if given.get("id") is None else self._tries.made(body.text("id"))
        opened = OpenView(f"v{secrets.token_hex(8)}", view, origin)
        self._views[opened.key] = opened
        if made is not None:
            await opened.bridge.tool_input(made.arguments)
            if made.result is not None:
                await opened.bridge.tool_result(made.result)
        return {
            "view": opened.key,
            "url": f"{self.sandbox}/view/{opened.secret}",
            "allow": "",
            "csp": view.csp,
            "permissions": list(view.permissions),
        }

    async def message(self, given: Mapping[str, Any], _: Visitor) -> Any:
        await self._found(Body(given).text("view")).bridge.receive(given.get("message"))
        return {}

    async def close(self, given: Mapping[str, Any], _: Visitor) -> Any:
        opened = self._views.pop(Body(given).text("view"), None)
        if opened is not None:
            await opened.bridge.teardown("closed")
            opened.put(*_END)
        return {}

    def _found(self, key: str) -> OpenView:
        found = self._views.get(key)
        if found is None:
            raise VerbRefused(404, "This page is closed. Open it again.", kind="Gone")
        return found

    def stream(self, key: str) -> AsyncGenerator[tuple[str, Any]] | None:
        """Return the messages for the page; None if it is closed, or is read already."""
        opened = self._views.get(key)
        if opened is None or opened.read:
            return None
        opened.read = True
        return self._stream(opened)

    async def _stream(self, opened: OpenView) -> AsyncGenerator[tuple[str, Any]]:
        try:
            yield "", None
            while opened.key in self._views:
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        event = await opened.queue.get()
                except TimeoutError:
                    event = _END  # a comment
                yield event
        finally:  # the page of the console is gone, and with it the frame
            self._views.pop(opened.key, None)


class SandboxRoutes:
    """Serves the pages of tools on the second port, and nothing else. Has no cookie and no state."""

    def __init__(self, views: ConsoleViews) -> None:
        self._views = views

    async def handle(self, request: WebRequest) -> Response | None:
        """Return one page, at its address of one use."""
        try:
            check_host(request.host, local=True, allowed=())
            secret = request.path.removeprefix("/view/")
            found = self._views.find(secret) if request.path.startswith("/view/") else None
            if request.method != "GET" or found is None:
                raise Denied(404, "not found")
        except Denied as denied:
            headers = {"Content-Security-Policy": "default-src 'none'; sandbox", **_HEADERS}
            return Response(str(denied).encode(), denied.status, headers, "text/plain; charset=utf-8")
        policy = f"{found.view.csp.rstrip('; ')}; sandbox allow-scripts; frame-ancestors {found.origin}"
        headers = {"Content-Security-Policy": policy, **_HEADERS}
        return Response(found.view.html.encode("utf-8", "replace"), 200, headers, "text/html; charset=utf-8")


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
