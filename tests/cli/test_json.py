"""With `--json`: one document on standard output, with the promised keys, and nothing else."""

import json
from typing import Any

import pytest
from dirty_equals import IsFloat, IsInt, IsPartialDict, IsStr
from inline_snapshot import snapshot

CONNECTED = IsFloat(gt=1e9)


def document(done) -> Any:
    return json.loads(done.stdout)


def test_list(ran, fleet) -> None:
    report = document(ran("list", "--json", "--config", fleet))
    assert [(server["name"], server["state"]) for server in report["servers"]] == [
        ("broken", "failed"),
        ("clock", "connected"),
        ("notes", "connected"),
        ("spare", "disabled"),
    ]
    assert report["servers"][1] == {
        "name": "clock",
        "state": "connected",
        "transport": "stdio",
        "protocol": "2026-07-28",
        "tools": 2,
        "resources": 0,
        "prompts": 0,
        "error": None,
        "connected_at": CONNECTED,
        "breaker": "closed",
    }
    assert "cannot read /etc/broken.conf" in report["servers"][0]["error"]
    assert report["warnings"] == []


def test_list_with_a_bad_entry_loads_the_rest_and_says_where_it_stands(ran, config) -> None:
    file = config({"notes": "notes", "bad": {"command": 7}})
    report = document(ran("list", "--json", "--config", file))
    assert [server["name"] for server in report["servers"]] == ["notes"]
    assert report["warnings"] == [{"file": file, "server": "bad", "field": "command", "message": IsStr()}]


def test_list_with_no_servers_is_an_empty_document_and_a_hint(ran, config) -> None:
    done = ran("list", "--json", "--config", config({}))
    assert document(done) == {"servers": [], "warnings": []}
    assert "mooring demo" in done.stderr


def test_tools(ran, fleet) -> None:
    tools = document(ran("tools", "--json", "--config", fleet, "--server", "clock"))
    assert tools == snapshot(
        [
            {
                "name": "mcp_clock_convert",
                "server": "clock",
                "remote_name": "convert",
                "title": None,
                "description": "The same moment in another zone.",
                "input_schema": {
                    "type": "object",
                    "properties": {
                        "time": {"type": "string", "format": "date-time"},
                        "offset_hours": {
                            "type": "integer",
                            "minimum": -12,
                            "maximum": 14,
                            "description": "Hours east of UTC",
                        },
                    },
                    "required": ["time", "offset_hours"],
                },
            },
            {
                "name": "mcp_clock_now",
                "server": "clock",
                "remote_name": "now",
                "title": None,
                "description": "The current time, and which process tells it.",
                "input_schema": {
                    "type": "object",
                    "properties": {
                        "offset_hours": {
                            "type": "integer",
                            "minimum": -12,
                            "maximum": 14,
                            "description": "Hours east of UTC",
                        }
                    },
                    "required": [],
                },
            },
        ]
    )


def test_groups(ran, fleet) -> None:
    assert document(ran("groups", "--json", "--config", fleet)) == snapshot(
        [
            {
                "id": "mcp:clock",
                "title": "MCP server `clock`",
                "description": "The tools of MCP server `clock`.",
                "member_count": 2,
            },
            {
                "id": "mcp:notes",
                "title": "MCP server `notes`",
                "description": "The tools of MCP server `notes`.",
                "member_count": 3,
            },
        ]
    )


def test_call(ran, fleet) -> None:
    done = ran("call", "mcp_notes_read_note", "title=welcome", "--json", "--config", fleet)
    assert document(done) == {
        "server": "notes",
        "tool": "read_note",
        "is_error": False,
        "text": "A mooring holds many boats.",
        "structured": {"title": "welcome", "text": "A mooring holds many boats."},
        "content": [{"type": "text", "text": "A mooring holds many boats."}],
        "duration_ms": IsFloat(ge=0),
    }


def test_call_that_the_tool_refuses_is_a_document_and_exit_code_1(ran, fleet) -> None:
    done = ran("call", "mcp_notes_read_note", "title=none", "--json", "--config", fleet)
    assert done.returncode == 1
    assert document(done) == IsPartialDict(is_error=True, server="notes", tool="read_note")


def test_ping(ran, fleet) -> None:
    done = ran("ping", "--json", "--config", fleet)
    assert done.returncode == 1
    assert document(done) == [
        {"name": "broken", "ok": False, "ms": None, "error": IsStr()},
        {"name": "clock", "ok": True, "ms": IsFloat(ge=0), "error": None},
        {"name": "notes", "ok": True, "ms": IsFloat(ge=0), "error": None},
    ]


def test_demo(ran) -> None:
    done = ran("demo", "--json")
    assert done.returncode == 0
    report = document(done)
    assert report["healed"] is True
    assert {server["name"]: server["state"] for server in report["servers"]} == {
        "broken": "failed",
        "clock": "connected",
        "notes": "connected",
        "silent": "pending",
        "weather": "connected",
    }
    assert not any(call["is_error"] for call in report["calls"])


@pytest.mark.parametrize("command", ["list", "tools"])
def test_the_document_stands_alone_even_with_warnings_and_a_log(piped, config, command: str) -> None:
    done = piped(
        command, "--json", "--verbose", "--config", config({"clock": "clock", "bad": {"command": 7}})
    )
    json.loads(done.stdout)
    assert "bad" in done.stderr


def test_quiet_leaves_only_the_document(ran, config) -> None:
    done = ran("list", "--json", "-q", "--config", config({"clock": "clock", "bad": {"command": 7}}))
    assert document(done)["servers"][0]["tools"] == IsInt(ge=1)
    assert done.stderr == ""
