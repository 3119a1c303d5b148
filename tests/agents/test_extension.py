"""The extension with a manifest: one test for each documented step and error."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from mooring import ConfigError
from mooring.agents import EventBus, FunctionTool, McpBridgeExtension
from mooring.testing import FakeServer
from tests.lab.project import Project, tool
from tests.lab.stdio import COMMAND, methods
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


class Context:
    """What a runtime gives an extension."""

    def __init__(self, **secrets: str) -> None:
        self._secrets = secrets

    def get_secret(self, name: str) -> str | None:
        return self._secrets.get(name)


@pytest.fixture
def search() -> Iterator[FakeServer]:
    server = FakeServer("web_search")

    @server.tool
    def search(query: str) -> str:
        """Search the web."""
        return f"nothing about {query}"

    with server:
        yield server


def manifest(*servers: Mapping[str, Any], **config: Any) -> dict[str, Any]:
    """As it stands in an extension's folder."""
    text = yaml.safe_dump(
        {
            "id": "mcp",
            "name": "MCP Bridge",
            "version": "1.0.0",
            "description": "Connects to MCP servers and exposes their tools to the agent.",
            "entrypoint": "main:McpBridgeExtension",
            "depends_on": [],
            "config": {"servers": [dict(server) for server in servers], **config},
            "setup_instructions": "Add MCP servers to config.servers.",
            "enabled": True,
        }
    )
    return yaml.safe_load(text)


def web(server: FakeServer, **settings: Any) -> dict[str, Any]:
    return {"alias": "web_search", "transport": "streamable-http", "url": server.url, **settings}


def files(**script: Any) -> dict[str, Any]:
    script.setdefault("tools", ["echo", "fail", "crash", "env"])
    args = [*COMMAND[1:], json.dumps(script)]
    return {"alias": "filesystem", "transport": "stdio", "command": COMMAND[0], "args": args}


GONE = {"alias": "github", "transport": "sse", "url": "http://127.0.0.1:9/mcp"}


@asynccontextmanager
async def started(document: Any, context: Context | None = None, **options: Any) -> Any:
    extension = McpBridgeExtension(document, **options)
    await extension.initialize(context or Context())
    await extension.start()
    try:
        yield extension
    finally:
        await extension.stop()


def named(extension: McpBridgeExtension, name: str) -> Any:
    return next(tool for tool in extension.get_tools() if tool.name == name)


# --- life ---------------------------------------------------------------------------------------


async def test_initialize_connects_nothing_and_there_are_no_tools_before_start(search: FakeServer) -> None:
    extension = McpBridgeExtension(manifest(web(search)))
    await extension.initialize(Context())
    assert extension.get_tools() == []
    assert search.requests == []
    assert not await extension.health_check()


async def test_start_connects_and_names_the_tools_by_alias(search: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(yaml.safe_dump(manifest(web(search), files(tools=["echo"]))))
    async with started(path) as extension:
        assert [tool.name for tool in extension.get_tools()] == [
            "mcp_filesystem_echo",
            "mcp_web_search_search",
        ]
        tool = named(extension, "mcp_web_search_search")
        assert tool.description == "Search the web."
        assert tool.params_json_schema["required"] == ["query"]
        assert await extension.health_check()


@pytest.mark.parametrize("of", ["file", "document"])
async def test_a_manifest_is_compared_with_the_lock_beside_its_file(of: str, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.file = tmp_path / "manifest.yaml"
    document = manifest(files(tools=["echo"], definitions=[tool("pay", "Pay a bill")]))
    (entry,) = document["config"]["servers"]
    entry["args"][-1] = f"@{project.script}"
    project.file.write_text(yaml.safe_dump(document))
    for text in ("Pay a bill", "Pay any bill"):
        project.script.write_text(
            json.dumps({"tools": ["echo"], "definitions": [tool("pay", text)], "log": str(project.log)})
        )
        if not project.lock.exists():
            await project.write_lock()
    async with started(project.file if of == "file" else document) as extension:
        names = [one.name for one in extension.get_tools()]
        pay = "mcp_filesystem_pay"
        assert names == ["mcp_filesystem_echo", *([] if of == "file" else [pay])]
        assert (await extension._host.call(pay)).is_error == (of == "file")
        assert project.calls == (0 if of == "file" else 1)


async def test_start_before_initialize_is_refused() -> None:
    with pytest.raises(RuntimeError, match="initialize"):
        await McpBridgeExtension(manifest()).start()


async def test_a_call_goes_to_its_server_and_comes_back_as_text(search: FakeServer) -> None:
    async with started(manifest(web(search))) as extension:
        invoke = named(extension, "mcp_web_search_search").on_invoke_tool
        assert await invoke(None, '{"query": "ropes"}') == "nothing about ropes"
        assert search.calls("search") == [{"query": "ropes"}]


async def test_stop_ends_everything_and_what_is_under_way(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with started(manifest(files(tools=["sleep", "pid"], log=str(log)))) as extension:
        pid = int(await named(extension, "mcp_filesystem_pid").on_invoke_tool(None, ""))
        sleep = named(extension, "mcp_filesystem_sleep")
        said: list[str] = []

        async def call() -> None:
            said.append(await sleep.on_invoke_tool(None, '{"seconds": 60}'))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await until(lambda: methods(log).count("tools/call") == 2)
                await extension.stop()
        assert said[0].startswith("Error: ")
        assert extension.get_tools() == []
        assert not Path(f"/proc/{pid}").exists()
        assert "stopped" in await sleep.on_invoke_tool(None, "{}")
        await extension.stop()


async def test_health_check_is_false_when_a_server_that_was_there_is_down(search: FakeServer) -> None:
    async with started(manifest(web(search), files())) as extension:
        assert await extension.health_check()
        search.__exit__(None, None, None)
        try:
            assert not await extension.health_check()
        finally:
            search.__enter__()


async def test_health_check_waits_only_for_its_timeout_and_logs_a_silent_server_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with started(manifest(files(tools=["pid"]))) as extension:
        pid = int(await named(extension, "mcp_filesystem_pid").on_invoke_tool(None, "{}"))
        for number in (1, 2):  # a server that answered in between is logged again
            os.kill(pid, signal.SIGSTOP)
            try:
                async with asyncio.timeout(4):  # the default is 5 s
                    assert not await extension.health_check(timeout=0.2)
                    assert not await extension.health_check(timeout=0.2)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert caplog.text.count("'filesystem' is down") == number
            assert await extension.health_check()


async def test_a_lost_server_is_connected_again_for_the_next_call() -> None:
    async with started(manifest(files())) as extension:
        crashed = await named(extension, "mcp_filesystem_crash").on_invoke_tool(None, "{}")
        assert crashed.startswith("Error: ")
        assert await named(extension, "mcp_filesystem_echo").on_invoke_tool(None, '{"text": "x"}') == "x"


# --- errors -------------------------------------------------------------------------------------


async def test_a_server_that_cannot_be_reached_costs_its_own_tools_only(search: FakeServer) -> None:
    async with started(manifest(GONE, web(search))) as extension:
        assert [tool.name for tool in extension.get_tools()] == ["mcp_web_search_search"]
        assert not await extension.health_check()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('{"seconds": 60}', "did not work"),
        ("{", "not JSON"),
        ("[1]", "must be an object"),
        ("", "did not work"),
    ],
)
async def test_a_call_that_fails_is_a_result_that_the_agent_reads(arguments: str, says: str) -> None:
    async with started(manifest(files(tools=["fail"]))) as extension:
        said = await named(extension, "mcp_filesystem_fail").on_invoke_tool(None, arguments)
        assert said.startswith("Error: ")
        assert says in said


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ({"transport": "stdio", "command": "x"}, "has no alias; add 'alias:"),
        ({"alias": "", "transport": "stdio", "command": "x"}, "has no alias; add 'alias:"),
        ({"alias": 7, "transport": "stdio", "command": "x"}, "its alias must be text"),
        ({"alias": "a/b", "transport": "stdio", "command": "x"}, "field 'alias': must be a name"),
        ({"alias": "a ", "transport": "stdio", "command": "x"}, "field 'alias': must not be empty"),
        ({"alias": "a", "transport": "carrier-pigeon", "command": "x"}, "carrier-pigeon|must be one of"),
        ({"alias": "a", "transport": "stdio"}, "neither 'command'"),
        ({"alias": "a", "transport": "sse"}, "neither 'command'|needs 'url'"),
    ],
)
async def test_an_invalid_manifest_fails_initialize_and_names_the_entry(
    server: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        await McpBridgeExtension(manifest(server)).initialize(Context())


async def test_the_same_alias_twice_fails_initialize() -> None:
    with pytest.raises(ConfigError, match="twice"):
        await McpBridgeExtension(manifest(files(), files())).initialize(Context())


async def test_a_missing_secret_skips_that_server_and_names_it(
    search: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    locked = web(search, headers={"Authorization": "Bearer ${GITHUB_TOKEN}"})
    async with started(manifest(locked, files(tools=["echo"]))) as extension:
        assert [tool.name for tool in extension.get_tools()] == ["mcp_filesystem_echo"]
        assert "GITHUB_TOKEN" in caplog.text


async def test_secrets_of_the_context_are_filled_in(search: FakeServer) -> None:
    locked = web(search, headers={"Authorization": "Bearer ${GITHUB_TOKEN}"})
    async with started(manifest(locked), Context(GITHUB_TOKEN="t-42")) as extension:
        await named(extension, "mcp_web_search_search").on_invoke_tool(None, '{"query": "x"}')
        assert search.requests[-1].headers["authorization"] == "Bearer t-42"


async def test_only_the_enabled_servers_are_started(search: FakeServer) -> None:
    document = manifest(web(search), files(tools=["echo"]), enabled_servers=["filesystem"])
    async with started(document) as extension:
        assert [tool.name for tool in extension.get_tools()] == ["mcp_filesystem_echo"]
        assert search.requests == []


async def test_descriptions_can_say_whose_they_are(search: FakeServer) -> None:
    async with started(manifest(web(search), description_prefix=True)) as extension:
        (tool,) = extension.get_tools()
        assert tool.description == "[MCP: web_search] Search the web."


# --- events, context, the SDK -------------------------------------------------------------------


async def test_calls_are_emitted_on_the_bus() -> None:
    bus = EventBus()
    events: list[tuple[str, Mapping[str, Any]]] = []
    bus.subscribe("*", lambda name, payload: events.append((name, payload)))
    async with started(manifest(files()), bus=bus) as extension:
        await named(extension, "mcp_filesystem_echo").on_invoke_tool(None, '{"text": "x"}')
        await named(extension, "mcp_filesystem_fail").on_invoke_tool(None, "{}")
    assert [(name, payload["server"], payload["tool"]) for name, payload in events] == [
        ("mcp.tool_called", "filesystem", "echo"),
        ("mcp.tool_failed", "filesystem", "fail"),
    ]
    assert events[1][1]["error"] == "it did not work"


async def test_chosen_resources_are_context_marked_as_data(search: FakeServer) -> None:
    search.resource("docs://style", "Write plainly.", name="style")
    async with started(manifest(web(search)), resources=["docs://style", "docs://none"]) as extension:
        text = await extension.get_context()
        assert text.endswith('<untrusted from="web_search" uri="docs://style">\nWrite plainly.\n</untrusted>')
    assert await extension.get_context() == ""


async def test_what_may_not_be_read_is_no_context(
    search: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    search.resource("file:///etc/secret", "Do not read.", name="secret")
    async with started(manifest(web(search)), resources=["file:///etc/secret"]) as extension:
        assert await extension.get_context() == ""
    assert "cannot read resource 'file:///etc/secret'" in caplog.text


async def test_without_the_agents_sdk_tools_have_its_shape(search: FakeServer) -> None:
    async with started(manifest(web(search))) as extension:
        (tool,) = extension.get_tools()
        if importlib.util.find_spec("agents") is None:
            assert isinstance(tool, FunctionTool)
        assert (tool.strict_json_schema, tool.params_json_schema["type"]) == (False, "object")


async def test_with_the_agents_sdk_tools_are_its_own(search: FakeServer) -> None:
    sdk = pytest.importorskip("agents")
    async with started(manifest(web(search))) as extension:
        (tool,) = extension.get_tools()
        assert isinstance(tool, sdk.FunctionTool)
        assert sdk.Agent(name="a", tools=extension.get_tools()).tools == [tool]


async def test_the_tools_follow_what_servers_add_and_remove(search: FakeServer) -> None:
    async with started(manifest(web(search))) as extension:
        (first,) = extension.get_tools()
        search.define({"name": "more", "inputSchema": {"type": "object"}}, "more")
        search.announce()
        await until(lambda: len(extension.get_tools()) == 2)
        more = named(extension, "mcp_web_search_more")
        assert await more.on_invoke_tool(None, "{}") == "more"
        assert named(extension, first.name) is first
        await extension._host.remove("web_search")
        assert extension.get_tools() == []
        assert "There is no tool" in await more.on_invoke_tool(None, "{}")
        await extension.stop()
        assert extension.get_tools() == []


async def test_health_check_counts_neither_disabled_nor_sleeping_servers(search: FakeServer) -> None:
    sleeping = {"alias": "later", "transport": "stdio", "command": "x", "start": "lazy"}
    off = {"alias": "off", "transport": "stdio", "command": "x", "disabled": True}
    async with started(manifest(web(search), sleeping, off)) as extension:
        assert await extension.health_check()
