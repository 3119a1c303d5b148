"""The gateway as an ASGI application, for Starlette, FastAPI, Litestar and any ASGI server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote

from multidict import CIMultiDict, CIMultiDictProxy

from mooring.config.logs import logger
from mooring.errors import ConfigError
from mooring.gateway.auth import is_loopback
from mooring.gateway.web import Denied, Response, WebRequest, document, too_large, too_slow
from mooring.host import Host, runtime_of

if TYPE_CHECKING:
    from mooring.config.sections import ProfileSettings
    from mooring.gateway.serve import Service

__all__ = ["GatewayApp", "asgi_app"]

log = logger("mooring.gateway")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def asgi_app(
    host: Host,
    *,
    default_profile: ProfileSettings | None = None,
    audit: str | None = None,
    sse: bool = False,
) -> GatewayApp:
    """Return the gateway of a host as an ASGI application.

    The application of the server runs its `lifespan`, which also enters the host if it was not entered. A
    mounted application gets no lifespan events: enter it yourself.

        gateway = asgi_app(host)

        @asynccontextmanager
        async def lifespan(app):
            async with host, gateway:
                yield

        app = FastAPI(lifespan=lifespan)
        app.mount("/tools", gateway)  # serves /tools/mcp

    Args:
        host: The host. Give it `relay=ClientBridge()` to forward requests of servers to clients.
        default_profile: The tools, resources and prompts that `/mcp` serves. Default: all of them.
        audit: Path of the audit log. Default: `gateway.audit` of the configuration, then `audit`.
        sse: Whether to serve the HTTP+SSE transport of 2024-11-05 at `/sse` as well.
    """
    return GatewayApp(host, default_profile=default_profile, audit=audit, sse=sse)


class GatewayApp:
    """An ASGI application. Entering it starts the gateway; leaving it waits for running requests."""

    def __init__(
        self, host: Host, *, default_profile: ProfileSettings | None, audit: str | None, sse: bool
    ) -> None:
        self._host, self._audit = host, audit
        self._options: dict[str, Any] = {"default_profile": default_profile, "sse": sse}
        self._service: Service | None = None

    async def __aenter__(self) -> Self:
        from mooring.gateway.serve import Service

        if self._service is not None:
            raise RuntimeError("the gateway is running already")
        if self._host.config.gateway.tls is not None:
            raise ConfigError(
                "the ASGI server has the certificate, not the gateway: remove it", place="gateway.tls"
            )
        service = Service(self._host, None, "http://localhost", **self._options)
        await service.start(self._audit)
        self._service = service
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        service, self._service = self._service, None
        if service is not None:
            await service.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:  # a WebSocket
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            try:
                await receive()
                if not runtime_of(self._host).servers.started:
                    await stack.enter_async_context(self._host)
                await stack.enter_async_context(self)
            except Exception as problem:
                await send({"type": "lifespan.startup.failed", "message": str(problem)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive, send)
        service = self._service
        if service is None:
            problem = {"error": "the gateway is not running; enter it in the lifespan of the application"}
            await request.finish(document(problem, 503))
            return
        handling = asyncio.ensure_future(service.routes.handle(request))
        request.handling = handling
        try:
            response = await handling
        except asyncio.CancelledError:
            if not request.gone:
                handling.cancel()
                raise
            return  # the client is gone
        finally:
            request.stop_listening()
        if response is not None:
            await request.finish(response)


def request_place(scope: Scope) -> tuple[str, str, str]:
    """Return the base path of a request, and its path below that, decoded and as it was sent."""
    path: str = scope["path"]
    base: str = scope.get("root_path", "").rstrip("/")
    raw = (scope.get("raw_path") or quote(path).encode()).decode("latin-1").partition("?")[0]
    path, raw = _below(path, base), _below(raw, base)
    if not raw.endswith("/"):
        path = path.rstrip("/") or "/"  # Litestar adds a slash
    # Litestar removes the path of a mount without adding it to `root_path`.
    whole, own = unquote(raw).rstrip("/"), path.rstrip("/")
    mount = whole[: len(whole) - len(own)] if whole.endswith(own) else ""
    if mount.startswith("/") and not mount.startswith("//") and not mount.endswith("/"):
        parts = raw.split("/", mount.count("/") + 1)
        below = "".join(parts[mount.count("/") + 1 :])
        if unquote(raw.removesuffix(below)).rstrip("/") == mount:  # no encoded slash in it
            return base + mount, path, f"/{below}"
    return base, path, raw


def _below(path: str, root: str) -> str:
    """Return a path without the root path, which it has since ASGI 3; some servers still leave it out."""
    return path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path


class AsgiRequest(WebRequest):
    """A request that an ASGI server received."""

    __slots__ = ("_complete", "_listening", "_receive", "_send", "gone", "handling")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)
        base, path, raw_path = request_place(scope)
        client, server = scope.get("client"), scope.get("server")
        super().__init__(
            method=scope["method"],
            path=path,
            raw_path=raw_path,
            query_string=scope.get("query_string", b"").decode("latin-1"),
            headers=CIMultiDictProxy(headers),
            raw_headers=raw,
            peer=client[0] if client else None,
            base=base,
        )
        self.local = bool(server) and is_loopback(str(server[0]))
        self._receive, self._send = receive, send
        self._complete = False
        self._listening: asyncio.Task[None] | None = None
        self.handling: asyncio.Future[Response | None] | None = None
        self.gone = False
        """Whether the client disconnected."""
        if self.method not in ("POST", "PUT"):
            self._complete = True
            self._listen()

    async def read(self, limit: int, timeout: float) -> bytes:
        if int(self.headers.get("Content-Length", "0") or 0) > limit:
            raise too_large(limit)
        if self.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Denied(415, "compressed bodies are not supported here")
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(timeout):
                while not self._complete:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        self._lost()
                        raise asyncio.CancelledError
                    parts.append(message.get("body", b""))
                    self.received += len(parts[-1])
                    if self.received > limit:
                        raise too_large(limit)
                    self._complete = not message.get("more_body", False)
        except TimeoutError:
            raise too_slow(timeout) from None
        self._listen()
        return b"".join(parts)

    def _listen(self) -> None:
        """Wait for the disconnect of the client; then the handler is cancelled."""
        self._listening = asyncio.ensure_future(self._disconnected())

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._lost()

    def _lost(self) -> None:
        self.gone = True
        if self.handling is not None:
            self.handling.cancel()

    def stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    async def start_stream(self, headers: Mapping[str, str]) -> None:
        self.status = 200
        await self._start(200, headers)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        # These are of one connection, which is the business of the server.
        kept = ((name.lower(), value) for name, value in headers.items() if name.lower() != "connection")
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, data: bytes) -> None:
        if self.gone:
            raise ConnectionResetError
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.sent += len(data)

    async def end_stream(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def abort(self) -> None:
        # The server closes the connection of a response that does not end.
        self._lost()

    async def finish(self, response: Response) -> None:
        """Send a complete response."""
        headers = {**response.headers, "Content-Length": str(len(response.body))}
        if response.content_type is not None:
            headers["Content-Type"] = response.content_type
        if response.status in (202, 204) and not response.body:
            del headers["Content-Length"]
        await self._start(response.status, headers)
        await self._send({"type": "http.response.body", "body": response.body, "more_body": False})
