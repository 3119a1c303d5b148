"""The synchronous manager, and agent runs that use it: one test for each documented behaviour."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring import CallTimeout, ConnectError, ConnectionLost, ServerConfig
from mooring.agents import EventBus, McpCallResult, McpManager, McpRun, McpToolInfo, mcp_tools_section
from mooring.testing import FakeServer
from tests.lab.stdio import COMMAND, lab_server

MISSING = ServerConfig(name="gone", command="/no/such/program")


def entry(**script: Any) -> dict[str, Any]:
    """A server as a file has it."""
    return {"command": COMMAND[0], "args": [*COMMAND[1:], json.dumps(script)], "timeout_seconds": 15}


# --- McpManager ---------------------------------------------------------------------------------


def test_the_documented_configuration_connects_and_lists() -> None:
    document = yaml.safe_load(
        yaml.safe_dump(
            {
                "mcp": {
                    "enabled": True,
                    "tool_call_timeout_seconds": 60,
                    "servers": {"filesystem": entry(tools=["echo"]), "github": entry(tools=["fail"])},
                }
            }
        )
    )
    with McpManager() as manager:
        found = manager.connect_all(document)
        assert [(tool.server_name, tool.name) for tool in found] == [
            ("filesystem", "echo"),
            ("github", "fail"),
        ]
        assert manager.tools == found
        assert manager.servers == ["filesystem", "github"]
    assert manager.tools == []


@pytest.mark.parametrize(
    "shape",
    [
        lambda servers: servers,
        lambda servers: {"servers": servers},
        lambda servers: {"mcp": {"servers": servers}},
        lambda servers: {"mcpServers": servers},
    ],
    ids=["servers alone", "the section", "the document", "mcpServers"],
)
def test_any_part_of_the_document_will_do(shape: Any) -> None:
    with McpManager() as manager:
        assert [tool.name for tool in manager.connect_all(shape({"a": entry(tools=["echo"])}))] == ["echo"]


def test_a_call_is_routed_by_the_plain_name_and_says_who_answered() -> None:
    with McpManager() as manager:
        manager.connect_all([lab_server("one", tools=["echo"]), lab_server("two", tools=["fail"])])
        content = [{"type": "text", "text": "hi"}]
        assert manager.call_tool("echo", {"text": "hi"}) == McpCallResult(
            server_name="one", tool_name="echo", content=content, is_error=False, raw_text="hi"
        )
        failed = manager.call_tool("fail")
        assert (failed.is_error, failed.raw_text, failed.server_name) == (True, "it did not work", "two")


def test_of_two_servers_with_the_same_tool_the_one_that_connected_last_wins() -> None:
    slow = lab_server("one", tools=["pid"], start_delay=0.5)
    with McpManager() as manager:
        (tool,) = manager.connect_all([slow, lab_server("two", tools=["pid"])])
        assert tool.server_name == "one"
        assert manager.call_tool("pid").server_name == "one"


def test_a_clash_of_names_is_a_warning_of_the_manager(caplog: pytest.LogCaptureFixture) -> None:
    with McpManager() as manager:
        assert manager.warnings == []
        manager.connect_all({"one": entry(), "two": entry()})
        (warning,) = manager.warnings
        assert "echo" in warning
        assert warning in caplog.text


def test_an_unknown_tool_is_an_error_result() -> None:
    with McpManager() as manager:
        manager.connect_all([lab_server()])
        result = manager.call_tool("echoo")
        assert result.is_error
        assert result.raw_text.startswith("Unknown MCP tool")
        assert "'echo'" in result.raw_text
    assert manager.call_tool("echo").is_error


def test_a_server_that_crashes_amid_a_call_raises_and_is_there_again() -> None:
    with McpManager() as manager:
        manager.connect_all([lab_server(tools=["crash", "echo"])])
        with pytest.raises(ConnectionLost):
            manager.call_tool("crash")
        assert manager.call_tool("echo", {"text": "again"}).raw_text == "again"


def test_a_call_ends_when_its_time_is_up() -> None:
    with McpManager() as manager:
        manager.connect_all([lab_server(tools=["sleep"])])
        with pytest.raises(CallTimeout):
            manager.call_tool("sleep", {"seconds": 30}, timeout=0.2)


def test_one_server_that_is_not_there_is_left_out() -> None:
    with McpManager() as manager:
        assert [tool.name for tool in manager.connect_all([MISSING, lab_server(tools=["echo"])])] == ["echo"]
        assert list(manager.failures) == ["gone"]
        assert "was not found" in manager.failures["gone"]


def test_a_server_that_cannot_be_connected_is_one_warning_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with McpManager() as manager:
        manager.connect_all([lab_server("alive"), MISSING])
    (warning,) = [one.getMessage() for one in caplog.records if "'gone'" in one.getMessage()]
    assert "What to do: " in warning


def test_when_no_server_is_there_connecting_fails_and_names_them() -> None:
    manager = McpManager()
    with pytest.raises(ConnectError, match=r"no server could be connected: gone: .*was not found"):
        manager.connect_all([MISSING])
    assert manager.tools == []
    manager.close_all()


def test_lazy_servers_are_listed_too() -> None:
    with McpManager() as manager:
        assert manager.connect_all([lab_server(tools=["echo"], settings={"start": "lazy"})])


def test_secrets_come_from_the_application() -> None:
    server = lab_server(tools=["env"], settings={"env": {"TOKEN": "${GITHUB_TOKEN}"}})
    with McpManager(get_secret={"GITHUB_TOKEN": "t-1"}.get) as manager:
        manager.connect_all([server])
        assert '"TOKEN": "t-1"' in manager.call_tool("env").raw_text


@pytest.mark.usefixtures("leaves_nothing")
def test_closing_ends_everything_and_may_be_repeated() -> None:
    manager = McpManager()
    manager.connect_all([lab_server()])
    manager.close_all()
    manager.close_all()
    manager.connect_all([lab_server(tools=["pid"])])
    assert [tool.name for tool in manager.tools] == ["pid"]
    manager.close_all()


def test_threads_share_one_manager() -> None:
    with McpManager() as manager, ThreadPoolExecutor(8) as threads:
        manager.connect_all([lab_server()])
        texts = [f"{number}" for number in range(200)]
        assert [
            one.raw_text for one in threads.map(lambda t: manager.call_tool("echo", {"text": t}), texts)
        ] == texts


# --- the prompt ---------------------------------------------------------------------------------


def test_the_prompt_section_is_an_array_of_name_description_server_and_schema() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = McpToolInfo(
        server_name="filesystem",
        name="read_file",
        description="Read a file from the filesystem",
        input_schema=schema,
    )
    head, _, body = mcp_tools_section([tool]).partition("\n")
    assert head == "MCP_TOOLS:"
    assert json.loads(body) == [
        {
            "name": "read_file",
            "description": "Read a file from the filesystem",
            "server": "filesystem",
            "input_schema": schema,
        }
    ]


# --- actions in a run ---------------------------------------------------------------------------


def heard(bus: EventBus) -> list[tuple[str, Mapping[str, Any]]]:
    events: list[tuple[str, Mapping[str, Any]]] = []
    bus.subscribe("*", lambda name, payload: events.append((name, payload)))
    return events


def action(tool: str, **arguments: Any) -> dict[str, Any]:
    return json.loads(json.dumps({"type": "mcp_call", "params": {"tool_name": tool, "arguments": arguments}}))


def test_a_run_connects_calls_keeps_the_result_and_disconnects(tmp_path: Path) -> None:
    bus = EventBus()
    events = heard(bus)
    with McpRun([lab_server(tools=["echo"])], bus=bus, artifacts=tmp_path / "run") as run:
        assert run.prompt.startswith("MCP_TOOLS:\n")
        step = run.execute(action("echo", text="hi"))
        assert (step.status, step.output) == ("completed", "hi")
        assert step.artifact is not None
        assert json.loads(step.artifact.read_text()) == {
            "server_name": "lab",
            "tool_name": "echo",
            "content": [{"type": "text", "text": "hi"}],
            "is_error": False,
            "raw_text": "hi",
        }
    assert events == [
        ("mcp_servers_connected", {"servers": ["lab"], "tools": ["echo"]}),
        ("mcp_tool_call_started", {"tool": "echo"}),
        ("mcp_tool_call_completed", {"tool": "echo", "server": "lab", "status": "completed"}),
        ("mcp_servers_disconnected", {}),
    ]


@pytest.mark.parametrize(
    "servers", [{"enabled": False, "servers": {"a": {"command": "x"}}}, {"servers": {}}, []]
)
def test_without_servers_a_run_has_no_mcp_and_no_events(servers: Any) -> None:
    bus = EventBus()
    events = heard(bus)
    with McpRun(servers, bus=bus) as run:
        assert (run.manager, run.tools, run.prompt) == (None, [], "")
    assert events == []


def test_a_connection_failure_lets_the_run_go_on_without_mcp() -> None:
    bus = EventBus()
    events = heard(bus)
    with McpRun([MISSING], bus=bus) as run:
        assert (run.manager, run.prompt) == (None, "")
        step = run.execute(action("echo"))
        assert (step.status, step.output) == ("failed", "no MCP server is connected")
    assert [name for name, _ in events] == ["mcp_connection_failed", "mcp_tool_call_failed"]


def test_a_missing_sdk_lets_the_run_go_on_without_mcp() -> None:
    def missing() -> McpManager:
        raise ImportError("no module named 'mcp'")

    bus = EventBus()
    events = heard(bus)
    with McpRun([lab_server()], bus=bus, make_manager=missing) as run:
        assert run.manager is None
    assert events == [("mcp_connection_failed", {"error": "no module named 'mcp'"})]


FAILURES: list[tuple[str, dict[str, Any], str, list[str]]] = [
    (
        "no tool name",
        {"type": "mcp_call", "params": {}},
        "is not an `mcp_call` with `params.tool_name`",
        ["failed"],
    ),
    ("no params", {"type": "mcp_call"}, "is not an `mcp_call` with `params.tool_name`", ["failed"]),
    (
        "another action",
        {"type": "shell", "params": {"tool_name": "echo"}},
        "is not an `mcp_call` with `params.tool_name`",
        ["failed"],
    ),
    ("the tool says so", action("fail"), "it did not work", ["started", "completed"]),
    ("an unknown tool", action("nothing"), "Unknown MCP tool", ["started", "completed"]),
    ("a crash", action("crash"), "ended by signal 9", ["started", "failed"]),
    (
        "a bad argument",
        {"type": "mcp_call", "params": {"tool_name": "echo", "arguments": [1]}},
        "must be an object",
        ["started", "failed"],
    ),
]


@pytest.mark.parametrize(
    ("request_", "says", "ends"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES]
)
def test_what_goes_wrong_is_a_failed_step(request_: dict[str, Any], says: str, ends: list[str]) -> None:
    bus = EventBus()
    with McpRun([lab_server(tools=["echo", "fail", "crash"])], bus=bus) as run:
        events = heard(bus)
        step = run.execute(request_)
        assert step.status == "failed"
        assert says in step.output
        assert [name for name, _ in events] == [f"mcp_tool_call_{end}" for end in ends]


def test_a_failing_end_is_suppressed() -> None:
    class Stubborn(McpManager):
        def close_all(self) -> None:
            super().close_all()
            if run.manager is None and entered:
                raise OSError("it would not end")

    bus = EventBus()
    events = heard(bus)
    entered: list[bool] = []
    run = McpRun([lab_server()], bus=bus, make_manager=Stubborn)
    with run:
        entered.append(True)
    assert events[-1] == ("mcp_servers_disconnected", {})


def test_a_run_is_disconnected_when_the_agent_fails() -> None:
    bus = EventBus()
    events = heard(bus)
    with pytest.raises(ZeroDivisionError), McpRun([lab_server()], bus=bus):
        raise ZeroDivisionError
    assert events[-1][0] == "mcp_servers_disconnected"


def test_an_exception_in_a_subscriber_is_logged_and_others_are_called() -> None:
    bus = EventBus()

    def broken(name: str, payload: Mapping[str, Any]) -> None:
        raise ValueError(name)

    end = bus.subscribe("mcp_servers_connected", broken)
    events = heard(bus)
    bus.emit("mcp_servers_connected", servers=[])
    end()
    bus.emit("mcp_servers_connected", servers=[])
    assert len(events) == 2


def test_a_tools_name_never_becomes_a_path(tmp_path: Path) -> None:
    server = FakeServer("web")
    server.define({"name": "../../x", "inputSchema": {"type": "object"}}, "out")
    with server, McpRun([server.http()], artifacts=tmp_path / "run") as run:
        (tool,) = run.tools
        step = run.execute(action(tool.name))
        assert step.artifact == tmp_path / "run" / "mcp_call_0001.json"
