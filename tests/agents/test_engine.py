"""An engine: the application's own tools and those of servers, and tools that are registered deferred."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from mooring import ConnectError, Host, LocalTools, ServerConfig, UnknownTool
from mooring.agents import (
    Engine,
    McpToolProvider,
    RefreshError,
    discovered_names,
    mcp_tools_section,
    register_factories,
)
from tests.lab.stdio import lab_server, starts

pytestmark = pytest.mark.anyio

GONE = ServerConfig(name="gone", command="/no/such/program")


def remember(text: str) -> str:
    """Keep a text."""
    return f"kept {text}"


def mcp_lab_echo(text: str) -> str:
    """The application's own."""
    return f"own {text}"


async def test_tools_of_the_application_and_of_servers_are_one_list() -> None:
    engine = Engine(remember).register_tool_provider(McpToolProvider([lab_server()]))
    async with engine:
        assert list(engine.tools) == ["mcp_lab_echo", "mcp_lab_pid", "remember"]
        assert (await engine.call("remember", {"text": "a"})).text == "kept a"
        result = await engine.call("mcp_lab_echo", {"text": "b"})
        assert (result.text, result.server, result.tool) == ("b", "lab", "echo")


async def test_the_applications_own_win_a_clash_and_the_group_forgets_the_hidden_one() -> None:
    engine = Engine(mcp_lab_echo).register_tool_provider(McpToolProvider([lab_server()]))
    async with engine:
        assert (await engine.call("mcp_lab_echo", {"text": "x"})).text == "own x"
        (group,) = [group for group in engine.catalog.groups if group.id == "mcp:lab"]
        assert group.members == ("mcp_lab_pid",)


async def test_building_is_tolerant_and_an_explicit_refresh_is_strict(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(LocalTools):
        async def start(self) -> None:
            raise OSError("no such device")

    engine = Engine(remember)
    engine.register_tool_provider(Broken(name="broken"))
    engine.register_tool_provider(McpToolProvider([GONE, lab_server()]))
    with caplog.at_level(logging.ERROR):
        async with engine:
            assert "provider 'broken' did not start" in caplog.text
            assert "mcp_lab_echo" in engine.tools
            with pytest.raises(RefreshError) as failed:
                await engine.refresh()
            assert list(failed.value.failures) == ["gone"]
            assert "was not found" in str(failed.value)
            assert (await engine.call("mcp_lab_echo", {"text": "x"})).text == "x"


async def test_a_server_is_added_while_the_engine_runs_or_not_at_all() -> None:
    servers = McpToolProvider()
    async with Engine().register_tool_provider(servers) as engine:
        assert engine.tools == {}
        await servers.add_server(lab_server())
        assert "mcp_lab_echo" in engine.tools
        with pytest.raises(ConnectError):
            await servers.add_server(GONE)
        assert [status.name for status in servers.host.status()] == ["lab"]
        await servers.remove_server("lab")
        assert engine.tools == {}


async def test_groups_are_surveyed_and_expanded_the_same_way_for_all() -> None:
    memory = LocalTools(remember, name="memory", title="Memory", description="What was kept")
    async with Engine(memory).register_tool_provider(McpToolProvider([lab_server()])) as engine:
        groups = (await engine.call("tools_groups")).structured["groups"]
        assert [(group["id"], group["member_count"]) for group in groups] == [("mcp:lab", 2), ("memory", 1)]
        selected = await engine.call("tools_select", {"group": "memory"})
        assert "remember" in selected.text
        found = await engine.call("tools_search", {"query": "keep a text"})
        assert "remember" in found.text


async def test_an_unknown_tool_is_an_answer() -> None:
    async with Engine(remember) as engine:
        result = await engine.call("remembr")
        assert result.is_error
        assert "'remember'" in result.text


# --- deferred registration ----------------------------------------------------------------------


async def test_each_tool_has_a_factory_under_a_name_that_may_be_asked_for(hosting: Any) -> None:
    async with hosting(lab_server()) as host:
        registry: dict[str, Any] = {}
        assert register_factories(host, registry) == discovered_names(host)
        assert discovered_names(host) == ("mcp_lab_echo", "mcp_lab_pid")
        tool = registry["mcp_lab_echo"]()
        assert (tool.name, (await tool({"text": "x"})).text) == ("mcp_lab_echo", "x")


async def test_registering_again_adds_only_what_is_new(hosting: Any) -> None:
    async with hosting(lab_server()) as host:
        registry: dict[str, Any] = {}
        register_factories(host, registry)
        before = dict(registry)
        await host.add(lab_server("two", tools=["pid"]))
        assert register_factories(host, registry) == ("mcp_two_pid",)
        assert before.items() <= registry.items()


async def test_a_deferred_tool_has_its_description_and_schema(hosting: Any) -> None:
    async with hosting(lab_server()) as host:
        registry: dict[str, Any] = {}
        register_factories(host, registry)
        tool = registry["mcp_lab_echo"]()
        assert tool.description == host.catalog.tools["mcp_lab_echo"].description != ""
        assert tool.input_schema == host.catalog.tools["mcp_lab_echo"].input_schema


async def test_registering_again_removes_what_is_gone_and_nothing_of_others(hosting: Any) -> None:
    async with hosting(lab_server(), lab_server("two", tools=["pid"])) as host:
        registry: dict[str, Any] = {"mcp_two_gone": lambda: None}
        register_factories(host, registry)
        late = registry["mcp_two_pid"]
        await host.remove("two")
        assert register_factories(host, registry) == ()
        assert sorted(registry) == ["mcp_lab_echo", "mcp_lab_pid", "mcp_two_gone"]
        with pytest.raises(UnknownTool):
            late()


async def test_the_prompt_section_takes_what_a_host_gives(hosting: Any) -> None:
    async with hosting(lab_server()) as host:
        section = mcp_tools_section(host.catalog)
        assert section.startswith("MCP_TOOLS:\n[")
        assert '"name":"mcp_lab_echo"' in section
        assert mcp_tools_section(host.catalog.tools) == section
        assert mcp_tools_section(host.catalog.tools.values()) == section
        assert mcp_tools_section(host.tools()) == section


async def test_subagents_share_the_connections_of_their_parent(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["pid"], log=str(log))) as host:
        assert isinstance(host, Host)
        texts: set[str] = set()
        for agent in ("parent", "child", "grandchild"):
            registry: dict[str, Any] = {}
            register_factories(host, registry, host.session(agent, agent_id=agent))
            texts.add((await registry["mcp_lab_pid"]()()).text)
        assert len(texts) == 1
        assert len(starts(log)) == 1
