"""MCP Apps: tools that no model sees, the page of a tool, and the bridge to a page."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring import CallError, Host, ServerError, SyncHost, UnknownTool
from mooring.adapters import anthropic, openai
from mooring.agents.engine import discovered_names, register_factories
from mooring.config.plan import fingerprint
from mooring.core.apps import for_model, for_pages, page_address, page_rules
from mooring.core.catalog import merge
from mooring.core.discovery import answer, deferrable, namespaces, plan_exposure, prompt_section
from mooring.core.search import Index
from mooring.core.types import Snapshot, Tool
from mooring.core.value import replace
from mooring.lock import Lock
from mooring.lock.compare import before_start, pin_of
from mooring.lock.definitions import HASH
from mooring.lock.text import render
from mooring.testing import FakeServer, hang
from tests.lab.wait import until

PAGE = "text/html;profile=mcp-app"
UI = {"io.modelcontextprotocol/ui": {"mimeTypes": [PAGE]}}
HIDDEN: list[Any] = [["app"], [], "app", 7, {"model": True}, ["Model"], ["app", "user"]]
SHOWN: list[Any] = [None, ["model"], ["model", "app"], ["app", "model"]]


def tool(name: str, server: str, visibility: Any, address: str | None = None) -> Tool:
    ui = {"visibility": visibility} if visibility is not None else {}
    meta = {"ui": {**ui, **({"resourceUri": address} if address else {})}}
    return Tool(name=name, server=server, remote_name=name, description=f"{name} secretword", meta=meta)


tools = st.tuples(st.sampled_from(["a", "b", "get", "get_a"]), st.sampled_from(HIDDEN + SHOWN))
catalogs = st.dictionaries(st.sampled_from(["one", "two", "one_get"]), st.lists(tools, max_size=6))


@given(
    catalogs,
    st.sampled_from(["mcp", "double", "server", "raw"]),
    st.sampled_from(["auto", "always", "never"]),
)
@settings(max_examples=200)
def test_no_model_facing_path_yields_an_app_only_tool(
    servers: dict[str, list[tuple[str, Any]]], style: Any, mode: Any
) -> None:
    snapshots = [
        Snapshot(server=server, tools=tuple(tool(name, server, seen) for name, seen in offered))
        for server, offered in servers.items()
    ]
    catalog = merge(snapshots, style=style, configured=frozenset(servers))
    secret = {
        (one.server, one.remote_name)
        for snapshot in snapshots
        for one in {t.remote_name: t for t in reversed(snapshot.tools)}.values()
        if not for_model(one)
    }
    index = Index.build(catalog.tools, catalog.groups)
    exposed = plan_exposure(catalog, mode, 10)
    every = [tool.name for tool in (*catalog.tools.values(), *catalog.app_tools.values())]
    paths: dict[str, list[Tool]] = {
        "catalog": list(catalog.tools.values()),
        "search": [hit.tool for hit in index.search("get a b secretword", 50)],
        "exposure": [catalog.tools[name] for name in exposed.names],
        "deferred": [one.tool for one in deferrable(catalog, ())],
        "namespaces": [one.tool for space in namespaces(catalog, ()) for one in space.tools],
        "groups": [catalog.tools[name] for group in catalog.groups for name in group.members],
    }
    for path, found in paths.items():
        assert not secret & {(one.server, one.remote_name) for one in found}, path
    replies = [
        answer("tools_search", {"query": "secretword get a b", "limit": 20}, catalog, index).text,
        answer("tools_groups", {}, catalog, index).text,
        answer("tools_select", {"tools": every or ["x"]}, catalog, index).text,
        *(answer("tools_select", {"group": group.id}, catalog, index).text for group in catalog.groups),
        prompt_section(catalog.tools.values()),
    ]
    reserved = set(catalog.app_tools) - set(catalog.tools)
    for reply in replies:
        listed = json.loads(reply.removeprefix("MCP_TOOLS:\n"))
        if isinstance(listed, dict):
            listed = [*listed.get("selected", []), *listed.get("tools", [])]
        named = {entry["name"] for entry in listed}
        assert not named & reserved


@pytest.mark.parametrize("given", HIDDEN)
def test_a_tool_whose_visibility_lacks_the_model_is_hidden(given: Any) -> None:
    assert not for_model(tool("x", "s", given))


@pytest.mark.parametrize("given", SHOWN)
def test_other_tools_are_for_the_model(given: Any) -> None:
    assert for_model(tool("x", "s", given))


def test_a_tool_for_the_model_alone_is_not_for_pages() -> None:
    assert not for_pages(tool("x", "s", ["model"]))


def test_the_address_of_a_page_is_read_in_both_places_and_must_be_a_ui_address() -> None:
    flat = Tool(name="x", server="s", remote_name="x", meta={"ui/resourceUri": "ui://a/b"})
    assert page_address(flat) == "ui://a/b"
    assert page_address(tool("x", "s", None, "ui://a/c")) == "ui://a/c"
    assert page_address(tool("x", "s", None, "https://evil.example")) is None


# --- content security policy


def test_without_metadata_a_page_reaches_nothing() -> None:
    assert "connect-src 'none'" in page_rules({}).csp
    assert "default-src 'none'" in page_rules({}).csp


def test_metadata_of_the_content_wins_over_that_of_the_list() -> None:
    listed = {"ui": {"csp": {"connectDomains": ["https://listed.example"]}, "prefersBorder": True}}
    read = {"ui": {"csp": {"connectDomains": ["https://read.example"]}, "permissions": {"camera": {}}}}
    rules = page_rules(read, listed)
    assert "connect-src 'self' https://read.example;" in rules.csp
    assert (rules.prefers_border, rules.allow) == (True, "camera")


@given(st.lists(st.text(max_size=40) | st.sampled_from(["https://ok.example", "wss://*.ok.example:8443/"])))
def test_no_domain_adds_a_directive_or_a_keyword(domains: list[str]) -> None:
    kinds = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
    plain = page_rules({"ui": {"csp": {}}}).csp.split("; ")
    directives = page_rules({"ui": {"csp": dict.fromkeys(kinds, domains)}}).csp.split("; ")
    assert [one.split(" ")[0] for one in directives] == [one.split(" ")[0] for one in plain]
    sources = {source for one in directives for source in one.split(" ")[1:]}
    known = {"'none'", "'self'", "'unsafe-inline'", "data:"}
    assert all(source in known or "://" in source for source in sources)


@pytest.mark.parametrize(
    "domain",
    ["*", "https:", "'unsafe-eval'", "https://a.example; script-src *", "https://a.example 'unsafe-eval'",
     "data:", "javascript://x", "https://", "https://a.example\n", "https://a..example", 7, None],
)  # fmt: skip
def test_a_domain_that_is_no_origin_is_ignored_with_a_warning(domain: Any) -> None:
    rules = page_rules({"ui": {"csp": {"connectDomains": [domain]}}})
    assert rules.domains == {}
    assert len(rules.warnings) == 1


# --- with real servers


def app() -> FakeServer:
    server = FakeServer("app")
    meta = {"ui": {"resourceUri": "ui://app/view"}}
    server.define({"name": "show", "inputSchema": {"type": "object"}, "_meta": meta}, "shown")
    for name, seen, text in (("tick", "app", "ticked"), ("think", "model", "hm")):
        own = {"ui": {"visibility": [seen]}}
        server.define({"name": name, "inputSchema": {"type": "object"}, "_meta": own}, text)
    server.resource("ui://app/view", "<p>page</p>", mime_type=PAGE, listed=False)
    server.resource("app://data", "data")
    return server


@pytest.mark.anyio
@pytest.mark.parametrize("discovery", ["never", "always"])
async def test_no_interface_for_models_lists_or_calls_an_app_only_tool(hosting: Any, discovery: Any) -> None:
    server = app()
    async with server, hosting(server.http(), extensions=UI, discovery=discovery, lock=False) as host:
        session = host.session("chat")
        registry: dict[str, Any] = {}
        register_factories(host, registry)
        shown = [
            [one.name for one in (*host.tools(), *session.tools(), *session.tools(complete=True))],
            discovered_names(host),
            list(registry),
            [hit.name for hit in host.search("tick", 50)],
            openai.tools(session),
            anthropic.tools(session),
            prompt_section(session.tools()),
        ]
        assert "mcp_app_tick" not in repr(shown)
        session.tools(complete=True)
        for source in (host, session):
            result = await source.call("mcp_app_tick", timeout=5)
            assert result.is_error
            assert "for its own pages" in result.text
        assert (await session.call("tools_call", {"name": "mcp_app_tick"}, timeout=5)).is_error
        assert server.calls("tick") == []
        assert [(one.name, one.by) for one in host.hidden()] == [("tick", "visibility")]


@pytest.mark.anyio
@pytest.mark.parametrize("old", ["lock", "cache"])
async def test_a_tool_that_an_older_listing_shows_to_models_is_not_called_once_its_server_reserves_it(
    hosting: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, old: str
) -> None:
    """A lock of format 1 does not say who may call a tool, so models see none of its tools before the server
    runs. A cached listing may be from before."""
    server, tick = FakeServer("app"), {"name": "tick", "inputSchema": {"type": "object"}}
    server.define(tick, "ticked")
    lock = tmp_path / "mooring.lock"
    async with server:
        config = replace(server.http(), start="lazy")
        async with hosting(server.http(), lock=lock) as host:
            listed = host.catalog.tools["mcp_app_tick"]
        if old == "lock":
            pin = pin_of(Snapshot(server="app", tools=(listed,)), fingerprint(config))
            written = json.loads(render(Lock(servers={"app": pin})))
            lock.write_text(json.dumps({**written, "version": 1}))
        server.define({**tick, "_meta": {"ui": {"visibility": ["app"]}}}, "ticked")
        async with Host([config], lock=lock) as host:
            session = host.session("chat")
            assert ("mcp_app_tick" in host.catalog.tools) == (old == "cache")
            assert ("run `mooring lock`" in caplog.text.lower()) == (old == "lock")
            result = await session.call("mcp_app_tick", timeout=20)
            assert result.is_error
            assert "for its own pages" in result.text
            assert server.calls("tick") == []
            assert "mcp_app_tick" not in host.catalog.tools


def test_a_pin_that_holds_only_a_hash_of_who_may_use_a_tool_does_not_show_it_before_the_server_runs() -> None:
    def tool(name: str, meta: dict[str, Any]) -> Tool:
        return Tool(name=name, server="app", remote_name=name, input_schema={}, meta=meta)

    hashed = {HASH: "0" * 64}
    known = (
        tool("hashed", {"ui": hashed}),
        tool("readable", {"ui": {**hashed, "visibility": ["model"]}}),
        tool("other", {"com.example/x": hashed}),
    )
    shown = before_start(Snapshot(server="app", tools=known)).tools
    assert [one.name for one in shown] == ["readable", "other"]


def request(method: str, key: Any = 1, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "method": method, "params": params}


def notice(method: str, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


@pytest.mark.anyio
async def test_a_page_is_initialized_and_gets_input_and_result_in_order(hosting: Any) -> None:
    server = app()
    async with server, hosting(server.child(), extensions=UI, lock=False) as host:
        sent: list[dict[str, Any]] = []
        bridge = (await host.view("mcp_app_show")).bridge(sent.append, context={"theme": "dark"})
        with pytest.raises(RuntimeError, match="before the result"):
            await bridge.tool_result(await host.call("mcp_app_show"))
        await bridge.tool_input({"a": 1}, partial=True)
        await bridge.tool_input({"a": 1, "b": 2})
        await bridge.tool_result(await host.call("mcp_app_show"))
        with pytest.raises(RuntimeError, match="sent before"):
            await bridge.tool_input({})
        assert sent == []
        await bridge.receive(request("ui/initialize", 1, protocolVersion="2026-01-26"))
        hello = sent.pop()["result"]
        assert hello["protocolVersion"] == "2026-01-26"
        assert hello["hostContext"]["theme"] == "dark"
        assert hello["hostContext"]["toolInfo"]["tool"]["name"] == "show"
        assert sent == []
        await bridge.receive(notice("ui/notifications/initialized"))
        kinds = [message["method"].rpartition("/")[2] for message in sent]
        assert kinds == ["tool-input-partial", "tool-input", "tool-result"]
        assert sent[2]["params"]["content"][0]["text"] == "shown"


@pytest.mark.anyio
async def test_a_page_calls_and_reads_only_what_its_server_keeps_for_pages(hosting: Any) -> None:
    server, other = app(), FakeServer("other")
    other.define({"name": "secret", "inputSchema": {"type": "object"}}, "secret")
    other.resource("other://data", "secret")
    async with server, other, hosting(server.http(), other.http(), extensions=UI, lock=False) as host:
        sent: list[dict[str, Any]] = []
        bridge = (await host.view("mcp_app_show")).bridge(sent.append)
        allowed = {"tick": "ticked", "show": "shown"}
        names = (*allowed, "think", "secret", "mcp_other_secret", "mcp_app_tick", "read_mcp_resource")
        await bridge.receive(request("ui/initialize", 0))
        sent.clear()
        for name in names:
            await bridge.receive(request("tools/call", name, name=name))
        await until(lambda: len(sent) == len(names))
        answers = {message["id"]: message for message in sent}
        for name, text in allowed.items():
            assert answers[name]["result"]["content"][0]["text"] == text
        assert all("error" in message for name, message in answers.items() if name not in allowed)
        assert server.calls("think") == other.calls("secret") == []
        sent.clear()
        await bridge.receive(request("resources/read", 1, uri="app://data"))
        await bridge.receive(request("resources/read", 2, uri="other://data"))
        assert sent[0]["result"]["contents"][0]["text"] == "data"
        assert "error" in sent[1]
        await bridge.receive(request("tools/list", 3))
        assert sorted(one["name"] for one in sent[2]["result"]["tools"]) == ["show", "tick"]


@pytest.mark.anyio
async def test_what_the_application_does_not_handle_is_denied(hosting: Any) -> None:
    server = app()
    async with server, hosting(server.http(), lock=False) as host:
        view = await host.view("mcp_app_show")
        sent: list[dict[str, Any]] = []
        bridge = view.bridge(sent.append)
        block = {"type": "text", "text": "hi"}
        asked = [
            request("ui/open-link", 1, url="https://example.com"),
            request("ui/message", 2, role="user", content=block),
            request("ui/update-model-context", 3, content=[block]),
            request("sampling/createMessage", 4),
            request("ui/download-file", 5),
        ]
        for message in asked:
            await bridge.receive(message)
        assert [message["error"]["code"] for message in sent] == [-32000, -32000, -32000, -32601, -32601]
        heard: list[Any] = []
        sent.clear()

        async def deny(url: str) -> bool:
            heard.append(url)
            return url != "https://evil.example"

        bridge = view.bridge(
            sent.append,
            on_open_link=deny,
            on_message=heard.append,
            on_model_context=heard.append,
            on_size=lambda width, height: heard.append((width, height)),
            on_close=lambda: heard.append("close"),
        )
        for message in (
            *asked[:3],
            request("ui/open-link", 6, url="https://evil.example"),
            request("ui/open-link", 7, url="javascript:alert(1)"),
            request("ui/message", 8, role="assistant", content=block),
            request("ui/message", 9, role="user", content="text"),
        ):
            await bridge.receive(message)
        await bridge.receive(notice("ui/notifications/size-changed", width=10, height="x"))
        await bridge.receive(notice("ui/notifications/request-teardown"))
        answers = {message["id"]: "error" in message for message in sent}
        assert answers == {1: False, 2: False, 3: False, 6: True, 7: True, 8: True, 9: True}
        links = ["https://example.com", "https://evil.example"]
        assert heard == [links[0], [block], {"content": [block]}, links[1], (10, None), "close"]
        assert bridge.model_context == {"content": [block]}


@pytest.mark.anyio
async def test_a_page_that_does_not_answer_does_not_delay_its_removal(hosting: Any) -> None:
    server = app()
    async with server, hosting(server.http(), lock=False) as host:
        sent: list[dict[str, Any]] = []
        bridge = (await host.view("mcp_app_show")).bridge(sent.append)
        assert await bridge.teardown() is False
        await bridge.receive(notice("ui/notifications/initialized"))
        assert await bridge.teardown("bye", timeout=0.01) is False
        ending = asyncio.ensure_future(bridge.teardown("bye", timeout=10))
        while len(sent) < 2:
            await asyncio.sleep(0)
        await bridge.receive({"jsonrpc": "2.0", "id": sent[-1]["id"], "result": {}})
        assert await ending is True


@pytest.mark.anyio
@pytest.mark.parametrize(
    "message",
    [None, 7, "x", [], {}, {"jsonrpc": "1.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 1},
     {"jsonrpc": "2.0", "id": [1], "method": "ping"}, {"jsonrpc": "2.0", "id": 1, "method": 7},
     {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "params": {}},
     {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": ["y"] * 50_000}}],
)  # fmt: skip
async def test_a_malformed_message_of_a_page_is_logged_and_ignored(
    hosting: Any, message: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = app()
    async with server, hosting(server.http(), lock=False) as host:
        sent: list[dict[str, Any]] = []
        await (await host.view("mcp_app_show")).bridge(sent.append).receive(message)
        assert sent == []
        assert "message of a page ignored" in caplog.text


@pytest.mark.anyio
async def test_a_tool_that_does_not_end_delays_no_other_message_and_ends_with_the_page(hosting: Any) -> None:
    server = app()
    server.fail("tick", hang, times=None)
    async with server, hosting(server.http(), lock=False) as host:
        sent: list[dict[str, Any]] = []
        bridge = (await host.view("mcp_app_show")).bridge(sent.append)
        async with asyncio.timeout(30):
            await bridge.receive(request("tools/call", 1, name="show"))
            await until(lambda: len(sent) == 1)
            assert "ui/initialize" in sent.pop()["error"]["message"]
            assert server.calls("show") == []
            await bridge.receive(request("ui/initialize", 2))
            sent.clear()
            for key in range(100, 180):
                await bridge.receive(request("tools/call", key, name="tick"))
            assert [one["id"] for one in sent] == list(range(164, 180))
            assert all("too many requests" in one["error"]["message"] for one in sent)
            await bridge.receive(request("tools/call", 100, name="show"))
            await bridge.receive(notice("ui/notifications/initialized"))
            assert len(sent) == 16
            await bridge.teardown("closed", timeout=0.01)
            await until(lambda: not bridge._under_way)
            sent.clear()
            await bridge.receive(request("tools/call", 100, name="show"))
            await until(lambda: len(sent) == 1)
            assert sent[0]["result"]["content"][0]["text"] == "shown"
            assert len(server.calls("show")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    "url",
    ["http:", "https://", "https:///path", "https:evil.example", "https://a b.example",
     "https://a.example/x y",
     "https://a.example/\n", "\thttps://a.example", "https://a.example\x00", "https://[",
     "https://a.example:x",
     "https://a.example\\@b.example", "https://a.example/\u202e", "ftp://a.example",
     "//a.example", "file:///x"],
)  # fmt: skip
async def test_only_valid_web_addresses_reach_the_application(hosting: Any, url: str) -> None:
    server = app()
    async with server, hosting(server.http(), lock=False) as host:
        sent: list[dict[str, Any]] = []
        opened: list[str] = []
        bridge = (await host.view("mcp_app_show")).bridge(sent.append, on_open_link=opened.append)
        await bridge.receive(request("ui/open-link", 1, url=url))
        assert sent[0]["error"]["code"] == -32000
        await bridge.receive(request("ui/open-link", 2, url="https://a.example:8443/x?y=%20#z"))
        assert opened == ["https://a.example:8443/x?y=%20#z"]


@pytest.mark.anyio
async def test_what_is_no_page_is_refused(hosting: Any) -> None:
    server = app()
    server.resource("ui://app/view", "<p>page</p>", mime_type="text/html")
    async with server, hosting(server.http(), lock=False) as host:
        with pytest.raises(ServerError, match="MIME type"):
            await host.view("mcp_app_show")
        with pytest.raises(CallError, match="has no page"):
            await host.view("mcp_app_think")
        with pytest.raises(UnknownTool):
            await host.view("mcp_app_nothing", timeout=1)


def test_a_sync_host_shows_pages_and_reads_skills() -> None:
    server = app()
    server.skill("refunds", "Do it.")
    with server, SyncHost([server.http()], extensions=UI, lock=False) as host:
        assert host.ready(20)
        sent: Queue[dict[str, Any]] = Queue()
        view = host.view("mcp_app_show")
        bridge = view.bridge(sent.put)
        bridge.receive(request("ui/initialize", 0))
        assert sent.get(timeout=20)["id"] == 0
        bridge.receive(request("tools/call", 1, name="tick"))
        answer = sent.get(timeout=20)["result"]["content"][0]["text"]
        assert (view.html, answer) == ("<p>page</p>", "ticked")
        assert [skill.name for skill in host.skills()] == ["app/refunds"]
        assert "Do it." in host.session("x").read_skill("refunds").text


@pytest.mark.anyio
async def test_the_extensions_of_the_application_are_declared_in_both_eras() -> None:
    for era in ("handshake", "modern"):
        server = FakeServer("s", era=era)
        async with server, Host([server.http()], extensions={**UI, "com.example/maps": {"a": 1}}) as host:
            await host.ready(10)
            greeting = next(one for one in server.requests if one.method in ("initialize", "server/discover"))
            meta = greeting.params.get("_meta", {})
            sent = greeting.params.get("capabilities") or meta["io.modelcontextprotocol/clientCapabilities"]
            assert {**UI, "com.example/maps": {"a": 1}}.items() <= sent["extensions"].items()


def test_an_invalid_extension_is_named() -> None:
    from mooring import ConfigError, HostConfig

    with pytest.raises(ConfigError, match="'maps' is not an extension"):
        Host(extensions={"maps": {}})
    with pytest.raises(ConfigError, match="must be a mapping"):
        Host(extensions={"com.example/maps": 1})  # pyright: ignore[reportArgumentType]
    assert HostConfig(extensions={"com.example/maps": {"a": 1}}).extensions == {"com.example/maps": {"a": 1}}
