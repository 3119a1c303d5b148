"""Wrong use of a host raises an error that names the right use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mooring import (
    ConfigError,
    Host,
    HostConfig,
    ServerConfig,
    SyncHost,
    build_tool_name,
    tool_name_prefix,
)
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio

VERBS: dict[str, Callable[[Host], Awaitable[Any]]] = {
    "call": lambda host: host.call("mcp_lab_echo", {"text": "x"}),
    "call of a local tool": lambda host: host.call("greet", {}),
    "call of a discovery tool": lambda host: host.call("tools_search", {"query": "x"}),
    "session call": lambda host: host.session("s").call("mcp_lab_echo", {"text": "x"}),
    "ready": lambda host: host.ready(1),
    "ping": lambda host: host.ping("lab"),
    "health_check": lambda host: host.health_check(),
    "refresh": lambda host: host.refresh(),
    "refresh of one": lambda host: host.refresh("local"),
    "add": lambda host: host.add(lab_server("other")),
    "remove": lambda host: host.remove("lab"),
    "apply": lambda host: host.apply(HostConfig()),
    "reload": lambda host: host.reload(),
    "login": lambda host: host.login("lab"),
    "logout": lambda host: host.logout("lab"),
    "resources": lambda host: host.resources(),
    "read": lambda host: host.read("memo:///x"),
    "read of one": lambda host: host.read("memo:///x", "lab"),
    "subscribe": lambda host: host.subscribe("memo:///x", "lab"),
    "unsubscribe": lambda host: host.unsubscribe("memo:///x", "lab"),
    "prompts": lambda host: host.prompts(),
    "prompt": lambda host: host.prompt("lab", "x"),
}


def greet() -> str:
    return "hello"


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_a_host_that_was_not_entered_refuses_to_work(verb: Any) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await verb(Host([lab_server()], local=[greet]))


@pytest.mark.parametrize("verb", ["ready", "refresh", "refresh of one", "add", "remove", "apply", "reload"])
async def test_a_host_that_was_closed_refuses_to_work(verb: str) -> None:
    async with Host([lab_server()], local=[greet]) as host:
        await host.ready(20)
    with pytest.raises(RuntimeError, match="closed"):
        await VERBS[verb](host)


async def test_what_needs_no_server_works_before_the_host_is_entered() -> None:
    host = Host([lab_server()])
    assert host.config.servers[0].name == "lab"
    host.events()


@pytest.mark.parametrize(
    "view",
    [
        lambda host: host.status(),
        lambda host: host.tools(),
        lambda host: host.catalog,
        lambda host: host.search("echo"),
        lambda host: host.session("s").tools(),
        lambda host: host.session("s").catalog,
    ],
    ids=["status", "tools", "catalog", "search", "tools of a session", "catalog of a session"],
)
async def test_a_host_that_was_not_entered_does_not_pretend_that_it_has_nothing(
    view: Callable[[Host], Any],
) -> None:
    host = Host([lab_server()])
    with pytest.raises(RuntimeError, match="async with"):
        view(host)
    async with host:
        await host.ready(20)
    view(host)  # what was there stays to be seen


@pytest.mark.parametrize("face", [Host, SyncHost])
@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("mcp.json", r"Host\.from_config\('mcp\.json'\)"),
        (Path("mcp.json"), r"Host\.from_config"),
        ({"mcpServers": {}}, r"Host\.from_config"),
        (ServerConfig(name="x", command="x"), r"Host\(\[server\]\)"),
        (None, r"Host\(\[ServerConfig"),
        (["mcp.json"], r"Host\.from_config"),
        ([{"name": "x", "command": "x"}], r"ServerConfig\(name"),
    ],
    ids=["text", "path", "mapping", "server", "nothing", "texts", "mappings"],
)
def test_what_is_no_list_of_servers_is_a_type_error_that_says_what_to_use(
    given: Any, advice: str, face: Any
) -> None:
    with pytest.raises(TypeError, match=advice):
        face(given)


BAD = ServerConfig(name="bad", command="no-such-program-here")


@pytest.mark.parametrize(
    ("servers", "usable"),
    [
        ([], True),
        ([lab_server()], True),
        ([lab_server(), BAD], True),
        ([BAD], False),
        ([BAD, lab_server("later", settings={"start": "lazy"})], False),
        ([lab_server("later", settings={"start": "lazy"})], True),
        ([lab_server("off", settings={"disabled": True})], True),
    ],
    ids=["none", "one", "one of two", "bad", "bad and lazy", "lazy", "disabled"],
)
async def test_ready_says_whether_anything_is_usable(servers: list[ServerConfig], usable: bool) -> None:
    async with Host(servers) as host:
        assert await host.ready(20) is usable


async def test_ready_is_false_when_the_time_is_over_or_a_login_is_missing() -> None:
    async with Host([lab_server(hang=True, settings={"shutdown_grace": 0})]) as host:
        assert await host.ready(0.1) is False
    async with HttpLab() as lab:

        async def locked(request: Any, message: Any) -> Any:
            from aiohttp import web

            return web.Response(status=401)

        lab.faults["server/discover"] = lab.faults["initialize"] = locked
        async with Host([lab.config()]) as host:
            assert await host.ready(20) is False


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            {"style": "doubl"},
            "style must be 'mcp', 'double', 'server' or 'raw', not 'doubl'; did you mean 'double'?",
        ),
        ({"discovery": "allways"}, "not 'allways'; did you mean 'always'?"),
        ({"style": 7}, "style must be 'mcp', 'double', 'server' or 'raw', not 7$"),
    ],
)
def test_a_misspelt_option_of_a_host_is_refused_with_the_nearest_value(
    option: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        Host([], **option)


def test_a_misspelt_style_of_a_name_is_refused() -> None:
    for function in (partial(build_tool_name, "a", "b"), partial(tool_name_prefix, "a")):
        with pytest.raises(ConfigError, match="did you mean 'double'"):
            function(style="doubl")  # pyright: ignore[reportArgumentType]


async def test_a_model_that_misspells_a_tool_of_its_session_gets_the_nearest_name() -> None:
    async with Host(local=[greet]) as host:
        chat = host.session("chat", discovery="always")
        assert "Did you mean 'tools_search'?" in (await chat.call("tools_serch", {"query": "x"})).text
        wrong = await chat.call("tools_search", {"qury": "x"})
        assert wrong.structured["error"] == "tools_search takes no argument 'qury'. Did you mean 'query'?"
