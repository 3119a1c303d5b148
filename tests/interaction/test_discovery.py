"""A model with three tools finds the right one of many, and its tool list only grows at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mooring import HostConfig, Session
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

MAIL = [
    {
        "name": name,
        "description": text,
        "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}},
    }
    for name, text in [
        ("send_message", "Send an e-mail to somebody"),
        ("list_inbox", "List the newest messages in the inbox"),
        ("delete_message", "Delete one message for good"),
    ]
]
MAPS = [
    {"name": "find_route", "description": "Directions from one place to another", "inputSchema": {}},
    {"name": "geocode", "description": "Coordinates of an address", "inputSchema": {}},
]


def _config(mode: Any, **more: Any) -> HostConfig:
    mail = lab_server("mail", tools=["echo"], definitions=MAIL, settings=more)
    return HostConfig(servers=(mail, lab_server("maps", tools=[], definitions=MAPS)), discovery=mode)


def _names(session: Session) -> list[str]:
    return [tool.name for tool in session.tools()]


DISCOVERY = ["tools_groups", "tools_search", "tools_select"]


@pytest.fixture
def open_host(hosting: Any) -> Any:
    def opened(mode: Any, **more: Any) -> Any:
        from mooring import Host

        return Host(_config(mode, **more))

    return opened


async def test_a_small_catalog_is_shown_whole(open_host: Any) -> None:
    async with open_host("auto") as host:
        await host.ready(10)
        assert _names(host.session("a")) == sorted(host.catalog.tools)


async def test_a_catalog_beyond_the_budget_is_replaced_by_three_tools(open_host: Any) -> None:
    config = replace(_config("auto"), discovery_budget=50)
    from mooring import Host

    async with Host(config) as host:
        await host.ready(10)
        assert _names(host.session("a")) == DISCOVERY


async def test_from_groups_to_select_to_call(open_host: Any) -> None:
    async with open_host("always") as host:
        await host.ready(10)
        chat = host.session("chat")
        directory = (await chat.call("tools_groups")).structured["groups"]
        assert [(group["id"], group["member_count"]) for group in directory] == [
            ("mcp:mail", 4),
            ("mcp:maps", 2),
        ]
        selected = await chat.call("tools_select", {"group": "mcp:mail"})
        assert not selected.is_error
        assert _names(chat) == [*DISCOVERY, *(n for n in host.catalog.tools if n.startswith("mcp_mail"))]
        assert (await chat.call("mcp_mail_echo", {"text": "hi"})).text == "hi"


async def test_from_search_to_select_and_the_list_only_grows_at_its_end(open_host: Any) -> None:
    async with open_host("always") as host:
        await host.ready(10)
        chat = host.session("chat")
        found = (await chat.call("tools_search", {"query": "directions to a place"})).structured
        assert found["tools"][0]["name"] == "mcp_maps_find_route"
        before = chat.tools()
        await chat.call("tools_select", {"tools": ["mcp_maps_find_route"]})
        after = chat.tools()
        assert after[: len(before)] == before
        await chat.call("tools_select", {"tools": ["mcp_mail_echo", "mcp_maps_find_route"]})
        assert _names(chat) == [*DISCOVERY, "mcp_maps_find_route", "mcp_mail_echo"]
        assert _names(host.session("other")) == DISCOVERY


async def test_an_unknown_name_gets_the_nearest_and_wrong_arguments_the_valid_ones(open_host: Any) -> None:
    async with open_host("always") as host:
        await host.ready(10)
        chat = host.session("chat")
        wrong = await chat.call("tools_select", {"tools": ["mcp_maps_find_rout"]})
        assert wrong.is_error
        assert "mcp_maps_find_route" in wrong.text
        strange = await chat.call("tools_search", {"words": "x"})
        assert strange.is_error
        assert '"query"' in strange.text


async def test_tools_marked_always_are_loaded_from_the_start(open_host: Any) -> None:
    async with open_host("always", always=["ech*"]) as host:
        await host.ready(10)
        assert _names(host.session("a")) == [*DISCOVERY, "mcp_mail_echo"]


async def test_a_catalog_shown_whole_grows_at_its_end_when_a_server_adds_a_tool(hosting: Any) -> None:
    async with hosting(lab_server(tools=["grow", "zebra"])) as host:
        chat = host.session("chat")
        before = _names(chat)
        await chat.call("mcp_lab_grow", {"name": "aardvark"})
        await until(lambda: "mcp_lab_aardvark" in host.catalog.tools)
        assert _names(chat) == [*before, "mcp_lab_aardvark"]


async def test_the_search_follows_the_catalog(hosting: Any) -> None:
    async with hosting(lab_server(tools=["grow"])) as host:
        assert host.search("convert currency") == []
        await host.call("mcp_lab_grow", {"name": "convert_currency"})
        await until(lambda: "mcp_lab_convert_currency" in host.catalog.tools)
        assert host.search("convert currency")[0].name == "mcp_lab_convert_currency"


async def test_a_host_takes_the_mode_of_discovery_as_a_keyword(hosting: Any) -> None:
    from mooring import Host

    async with Host(_config("auto"), discovery="always") as host:
        await host.ready(10)
        assert host.discovery == "always"
        assert _names(host.session("a")) == DISCOVERY
        assert [tool.name for tool in host.tools()] == DISCOVERY


async def test_a_session_takes_a_mode_of_its_own(hosting: Any) -> None:
    from mooring import ConfigError, Host

    async with Host(replace(_config("auto"), discovery_budget=50)) as host:
        await host.ready(10)
        assert _names(host.session("whole", discovery="never")) == sorted(host.catalog.tools)
        assert _names(host.session("small")) == DISCOVERY
        assert _names(host.session(discovery="never")) == sorted(host.catalog.tools)
        assert host.session("whole").discovery == "never"
        with pytest.raises(ConfigError, match="discovery='never'"):
            host.session("whole", discovery="always")


def test_a_mode_that_does_not_exist_is_refused() -> None:
    from mooring import ConfigError, Host

    with pytest.raises(ConfigError, match="'auto', 'always' or 'never'"):
        Host(discovery="sometimes")  # pyright: ignore[reportArgumentType]


def test_a_host_for_threads_takes_the_mode_as_well() -> None:
    from mooring import SyncHost

    with SyncHost(_config("always"), discovery="never") as host:
        host.ready(10)
        assert "mcp_mail_echo" in [tool.name for tool in host.tools()]
        with host.session("a", discovery="always") as chat:
            assert [tool.name for tool in chat.tools()] == DISCOVERY


async def test_switching_discovery_on_is_logged_once_with_the_way_to_switch_it_off(
    hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from mooring import Host

    caplog.set_level("INFO", "mooring")
    async with Host(replace(_config("auto"), discovery_budget=50)) as host:
        await host.ready(10)
        for number in range(3):
            host.session(str(number)).tools()
    (line,) = [record for record in caplog.records if "discovery switched on" in record.getMessage()]
    assert line.levelname == "INFO"
    assert "discovery_budget=50" in line.getMessage()
    assert "tools=6 tokens=" in line.getMessage()
    assert 'Host(discovery="never")' in line.getMessage()


async def test_discovery_that_was_asked_for_is_not_logged(
    hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from mooring import Host

    caplog.set_level("INFO", "mooring")
    async with Host(_config("auto"), discovery="always") as host:
        host.tools()
    assert "switched on" not in caplog.text


async def test_a_list_for_frameworks_that_refuse_unlisted_tools_is_complete(hosting: Any) -> None:
    from mooring import Host

    async with Host(replace(_config("auto"), discovery_budget=50)) as host:
        await host.ready(10)
        chat = host.session("a")
        assert _names(chat) == DISCOVERY
        assert sorted(tool.name for tool in chat.tools(complete=True)) == sorted(host.catalog.tools)
        asked = host.session("b", discovery="always")
        assert [tool.name for tool in asked.tools(complete=True)] == [*DISCOVERY, "tools_call"]


async def test_tools_call_calls_the_tool_that_it_names(open_host: Any) -> None:
    async with open_host("always") as host:
        await host.ready(10)
        chat = host.session("a")
        assert "There is no tool" in (await chat.call("tools_call", {"name": "mcp_mail_echo"})).text
        chat.tools(complete=True)
        done = await chat.call("tools_call", {"name": "mcp_mail_echo", "arguments": {"text": "hello"}})
        assert (done.server, done.tool, done.text) == ("mail", "echo", "hello")
        for wrong in ({}, {"name": 3}, {"name": "tools_call", "arguments": {"name": "tools_call"}}, None):
            refused = await chat.call("tools_call", wrong)
            assert refused.is_error
            assert "needs the 'name' of another tool" in refused.text
        assert (await chat.call("tools_call", {"name": "mcp_mail_ecko"})).text.count("mcp_mail_echo")
