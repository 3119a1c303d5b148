"""The gateway as an ASGI application: the same behaviour under other servers, and mounted in other apps."""

from __future__ import annotations

import asyncio
import importlib
import json
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.listening import free_port
from mooring import Host, HostConfig
from mooring.config.sections import GatewaySettings
from mooring.errors import ConfigError
from mooring.gateway import ClientBridge, asgi_app
from mooring.gateway.asgi import request_place
from tests.lab.caller import Caller, soon
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio
EXAMPLES = Path(__file__).parents[2] / "examples"
TOKEN = "a-token-of-twenty-letters"


@asynccontextmanager
async def uvicorn(app: Any, port: int) -> AsyncIterator[None]:
    module: Any = importlib.import_module("uvicorn")
    config = module.Config(app, port=port, log_level="error", lifespan="on", timeout_graceful_shutdown=5)
    server = module.Server(config)
    server.install_signal_handlers = lambda: None
    running = asyncio.create_task(server._serve())
    try:
        yield
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def hypercorn(app: Any, port: int) -> AsyncIterator[None]:
    pytest.importorskip("hypercorn", reason="hypercorn is not installed")
    serve: Any = importlib.import_module("hypercorn.asyncio").serve
    config: Any = importlib.import_module("hypercorn.config").Config()
    config.bind, config.loglevel, config.graceful_timeout = [f"127.0.0.1:{port}"], "CRITICAL", 5
    ending = asyncio.Event()
    running = asyncio.create_task(serve(app, config, shutdown_trigger=ending.wait))
    try:
        yield
    finally:
        ending.set()
        await running


@asynccontextmanager
async def granian(app: Any, port: int) -> AsyncIterator[None]:
    embed: Any = pytest.importorskip("granian.server.embed", reason="granian is not installed")
    asgi = importlib.import_module("granian.constants").Interfaces.ASGI
    server = embed.Server(app, address="127.0.0.1", port=port, interface=asgi, log_enabled=False)
    running = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.stop()
        await running


def alone(host: Host, gateway: Any) -> tuple[Any, str]:
    """The gateway as the application itself; it enters the host."""
    return gateway, ""


def entered(host: Host, gateway: Any) -> Any:
    """A lifespan for an application in which the gateway is mounted."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with host, gateway:
            yield

    return lifespan


def starlette(host: Host, gateway: Any) -> tuple[Any, str]:
    applications: Any = pytest.importorskip("starlette.applications")
    routing: Any = importlib.import_module("starlette.routing")
    responses: Any = importlib.import_module("starlette.responses")

    async def home(_: Any) -> Any:
        return responses.PlainTextResponse("my own page")

    routes = [routing.Route("/", home), routing.Mount("/tools", gateway)]
    return applications.Starlette(routes=routes, lifespan=entered(host, gateway)), "/tools"


def fastapi(host: Host, gateway: Any) -> tuple[Any, str]:
    module: Any = pytest.importorskip("fastapi", reason="fastapi is not installed")
    responses: Any = importlib.import_module("fastapi.responses")
    app = module.FastAPI(lifespan=entered(host, gateway))
    app.get("/", response_class=responses.PlainTextResponse)(lambda: "my own page")
    app.mount("/tools", gateway)
    return app, "/tools"


def litestar(host: Host, gateway: Any) -> tuple[Any, str]:
    module: Any = pytest.importorskip("litestar", reason="litestar is not installed")

    async def home() -> str:
        return "my own page"

    mounted = module.asgi("/tools", is_mount=True, copy_scope=True)(gateway)
    handlers = [module.get("/", media_type="text/plain")(home), mounted]
    return module.Litestar(handlers, lifespan=[entered(host, gateway)]), "/tools"


SERVERS = pytest.mark.parametrize("server", [uvicorn, hypercorn, granian])
PLACES = pytest.mark.parametrize("place", [alone, starlette, fastapi, litestar])


def host_with(*servers: Any, **gateway: Any) -> Host:
    config = HostConfig(servers=servers, style="raw", gateway=GatewaySettings(**gateway))
    return Host(config, lock=False, relay=ClientBridge())


@asynccontextmanager
async def served(app: Any, server: Any) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    async with asyncio.timeout(60), server(app, port), aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(base + "/anything"):
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
        yield base, http


@SERVERS
@PLACES
async def test_both_eras_streams_cancellation_and_limits_are_as_with_our_own_server(
    server: Any, place: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("ANA", TOKEN)
    log = tmp_path / "access.log"
    host = host_with(
        lab_server(tools=["echo", "sleep"]),
        tokens=[{"name": "ana", "token": "${ANA}"}],
        max_body=20_000,
        body_timeout=1.0,
        concurrency=2,
        access_log=str(log),
    )
    app = asgi_app(host)
    whole, path = place(host, app)
    async with served(whole, server) as (base, http):
        base += path
        assert await host.ready(20)
        assert app._service is not None
        gateway = app._service.gateway
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for modern in (True, False):
            caller = Caller(http, base + "/mcp", modern=modern, headers=headers)
            await caller.begin()
            assert (await caller.call("echo", {"text": "hi"})).text == "hi"
        modern = Caller(http, base + "/mcp", modern=True, headers=headers)
        async with modern.listening(toolsListChanged=True) as messages:
            await host.remove("lab")
            assert (await soon(messages))["method"] == "notifications/tools/list_changed"
        await host.add(lab_server(tools=["echo", "sleep"]))
        async with caller.standing() as stream:
            assert (await caller.call("echo", {"text": "beside a stream"})).text == "beside a stream"
            del stream
        async with aiohttp.ClientSession() as other:
            gone = Caller(other, base + "/mcp", modern=True, headers=headers)
            calls = [asyncio.create_task(gone.call("sleep", {"seconds": 30})) for _ in range(2)]
            while gateway.under_way < 2:
                await asyncio.sleep(0.01)
            assert (await caller.call("echo", {"text": "x"})).status == 429, "concurrency"
            for call in calls:
                call.cancel()
        while gateway.under_way:
            await asyncio.sleep(0.01)
        assert (await Caller(http, base + "/mcp", modern=True).call("echo")).status == 401
        assert (await caller.call("echo", {"text": "x" * 30_000})).status == 413
        usual = {**caller.message("tools/list", {}, 1)[1], "Host": "evil.example"}
        async with http.post(base + "/mcp", data="{}", headers=usual) as answer:
            assert answer.status == 403
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(base.removesuffix(path).rpartition(":")[2])
        )
        writer.write(
            b"POST %s/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: 50\r\n\r\n{" % (path.encode(), TOKEN.encode())
        )
        assert b"408" in await reader.readline(), "a body that never comes"
        writer.close()
        async with http.get(base + "/metrics", headers=headers) as answer:
            assert (
                'mooring_tool_calls_total{server="lab",tool="sleep",outcome="cancelled"} 2'
                in await answer.text()
            )
    outcomes = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["outcome"] for line in outcomes if line.get("tool") == "sleep"] == ["cancelled"] * 2


@SERVERS
@pytest.mark.parametrize("place", [starlette, fastapi, litestar])
async def test_mounted_in_another_application_it_keeps_its_base_path_and_the_rest_is_untouched(
    server: Any, place: Any
) -> None:
    host = host_with(lab_server())
    app, _ = place(host, asgi_app(host, sse=True))
    async with served(app, server) as (base, http):
        assert await host.ready(20)
        async with http.get(base + "/") as answer:
            assert await answer.text() == "my own page"
        caller = Caller(http, base + "/tools/mcp", modern=False)
        await caller.begin()
        assert (await caller.call("echo", {"text": "mounted"})).text == "mounted"
        async with http.get(base + "/tools/health") as answer:
            assert await answer.json() == {"status": "ok"}
        async with http.get(base + "/tools/sse") as stream:
            await stream.content.readline()
            assert (await stream.content.readline()).startswith(b"data: /tools/messages?session_id=")


@pytest.mark.parametrize(
    ("path", "raw", "root", "found"),
    [
        ("/mcp", "/mcp", "", ("", "/mcp", "/mcp")),
        ("/tools/mcp", "/tools/mcp", "/tools", ("/tools", "/mcp", "/mcp")),  # ASGI 3
        ("/health", "/health", "/tools", ("/tools", "/health", "/health")),  # as it was before
        ("/health/", "/tools/health", "", ("/tools", "/health", "/health")),  # Litestar, so are the next
        ("/mcp/a b/", "/tools/mcp/a%20b", "", ("/tools", "/mcp/a b", "/mcp/a%20b")),
        ("/mcp/", "/pre/tools/mcp", "/pre", ("/pre/tools", "/mcp", "/mcp")),
        ("/tools/mcp/", "/tools/tools/mcp", "", ("/tools", "/tools/mcp", "/tools/mcp")),
        ("/", "/tools", "", ("/tools", "/", "/")),
        ("/mcp", "//mcp", "", ("", "/mcp", "//mcp")),  # `//` would be another host in a link
        ("/mcp", "//evil.example/mcp", "", ("", "/mcp", "//evil.example/mcp")),
        ("/mcp", "/%2Fevil.example/mcp", "", ("", "/mcp", "/%2Fevil.example/mcp")),
        ("/mcp", "/a%2Fb/mcp", "", ("", "/mcp", "/a%2Fb/mcp")),
        ("/mcp", "/other", "", ("", "/mcp", "/other")),
    ],
)
def test_the_base_path_is_that_of_the_mount(path: str, raw: str, root: str, found: Any) -> None:
    assert request_place({"path": path, "raw_path": raw.encode(), "root_path": root}) == found


async def send(app: Any, scope: dict[str, Any]) -> tuple[int, Any]:
    """Status and JSON of one request to an application, without a server."""
    sent: list[Any] = []
    waiting = asyncio.Event()

    async def receive() -> Any:
        await waiting.wait()

    async def collect(message: Any) -> None:
        sent.append(message)

    usual = {"type": "http", "method": "GET", "headers": [(b"host", b"127.0.0.1")], "path": "/health"}
    await app({**usual, **scope}, receive, collect)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_without_tokens_only_clients_of_this_machine_are_served() -> None:
    async with host_with(lab_server()) as host, asgi_app(host) as app:
        local = {"path": "/metrics", "server": ("192.0.2.1", 80), "client": ("127.0.0.1", 1)}
        status, said = await send(app, local)
        assert (status, "only clients of this machine" in said["error"]) == (403, True)
        for server in (None, ("/run/socket", None)):
            assert (await send(app, {"path": "/metrics", "server": server}))[0] == 403


async def test_a_gateway_that_was_not_started_says_so_and_tls_belongs_to_the_server() -> None:
    async with host_with(lab_server()) as host:
        status, said = await send(asgi_app(host), {})
        assert (status, "lifespan" in said["error"]) == (503, True)
    async with host_with(lab_server(), tls={"cert": "x", "key": "y"}) as host:
        with pytest.raises(ConfigError, match=r"gateway\.tls"):
            async with asgi_app(host):
                pass


@SERVERS
@pytest.mark.parametrize("framework", ["fastapi", "litestar"])
async def test_the_examples_serve_their_page_and_the_tools(
    server: Any, framework: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    monkeypatch.chdir(tmp_path)
    app = runpy.run_path(str(EXAMPLES / f"gateway_{framework}.py"))["app"]
    async with served(app, server) as (base, http):
        caller = Caller(http, base + "/tools/mcp", modern=True)
        tools = await caller.tools()
        async with http.get(base + "/") as answer:
            assert await answer.json() == {"tools": len(tools)}
        assert any("now" in name for name in tools)
