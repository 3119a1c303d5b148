"""With `--json`: one document on standard output, with the promised keys, and nothing else."""

import json
from typing import Any

import pytest
from dirty_equals import IsFloat, IsInt, IsPartialDict, IsStr
from inline_snapshot import snapshot

from mooring.cli.app import help_text

CONNECTED = IsFloat(gt=1e9)


def document(done) -> Any:
    return json.loads(done.stdout)


def test_list(ran, mixed_config) -> None:
    report = document(ran("list", "--json", "--config", mixed_config))
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
        "extensions": [],
        "skills": 0,
        "error": None,
        "connected_at": CONNECTED,
        "breaker": "closed",
        "retry_in": None,
        "fresh_within": 300.0,
        "announced_within": None,
        "warnings": [],
    }
    assert report["servers"][0]["retry_in"] == IsFloat(ge=0)
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


@pytest.mark.parametrize(
    ("words", "command"),
    [(["list", "--help"], "list"), (["-h"], None), ([], None), (["help", "list"], "list")],
)
def test_help_is_a_document_with_the_command_and_the_text(ran, words: list[str], command: str | None) -> None:
    done = ran(*words, "--json")
    assert document(done) == {"command": command, "help": help_text(command)}
    assert done.returncode == 0


def test_help_on_the_call_of_a_tool_is_the_document_of_the_tool(ran, config) -> None:
    file = config({"notes": "notes"})
    done = ran("call", "mcp_notes_read_note", "--help", "--json", "--config", file)
    assert document(done) == document(ran("tool", "mcp_notes_read_note", "--json", "--config", file))


def test_tools(ran, mixed_config) -> None:
    tools = document(ran("tools", "--json", "--config", mixed_config, "--server", "clock"))
    assert tools == snapshot(
        [
            {
                "name": "mcp_clock_convert",
                "server": "clock",
                "remote_name": "convert",
                "title": None,
                "description": "Convert a time to another time zone.",
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
                "description": "The current time, and the process id of the server.",
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


def test_groups(ran, mixed_config) -> None:
    assert document(ran("groups", "--json", "--config", mixed_config)) == snapshot(
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


def test_call(ran, mixed_config) -> None:
    done = ran("call", "mcp_notes_read_note", "title=welcome", "--json", "--config", mixed_config)
    assert document(done) == {
        "server": "notes",
        "tool": "read_note",
        "is_error": False,
        "text": "A mooring holds many boats.",
        "structured": {"title": "welcome", "text": "A mooring holds many boats."},
        "content": [{"type": "text", "text": "A mooring holds many boats."}],
        "duration_ms": IsFloat(ge=0),
    }


def test_call_that_the_tool_refuses_is_a_document_and_exit_code_1(ran, mixed_config) -> None:
    done = ran("call", "mcp_notes_read_note", "title=none", "--json", "--config", mixed_config)
    assert done.returncode == 1
    assert document(done) == IsPartialDict(is_error=True, server="notes", tool="read_note")


def test_ping(ran, mixed_config) -> None:
    done = ran("ping", "--json", "--config", mixed_config)
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


# --- failures


FAILURES = {
    ("list", "--json", "--timeout", "soon"): ("UsageError", 2, "mooring --help"),
    ("--json", "toolz"): ("UsageError", 2, "mooring --help"),
    ("list", "extra", "--json"): ("UsageError", 2, "mooring list --help"),
    ("call", "--json"): ("UsageError", 2, "mooring call --help"),
    ("tools", "--json", "--style", "loud"): ("UsageError", 2, "mooring tools --help"),
    ("list", "--json", "--config"): ("UsageError", 2, "mooring --help"),
    ("list", "--json", "--config", "none.json"): ("ConfigError", 2, "mooring doctor"),
    ("call", "mcp_notes_lst", "--json"): ("UnknownTool", 2, "mooring tools"),
    ("ping", "nots", "--json"): ("UnknownServer", 2, "mooring list"),
    ("read", "memo:///x", "--json"): ("UnknownResource", 2, "mooring resources"),
    ("read", "memo:///x", "--server", "broken", "--json"): ("ConnectionLost", 1, "mooring doctor"),
    ("prompt", "notes", "x", "--json"): ("UnknownPrompt", 2, "mooring prompts --server notes"),
    ("prompt", "broken", "x", "--json"): ("ConnectError", 1, "mooring doctor"),
    ("import", "nothing", "--json"): ("ConfigError", 2, "mooring doctor"),
    ("login", "notes", "--json"): ("ConfigError", 2, "mooring doctor"),
    ("remove", "nots", "--json"): ("UnknownServer", 2, IsStr()),
    ("trust", "none.json", "--json"): ("ConfigError", 2, "mooring doctor"),
}


@pytest.mark.parametrize("words", FAILURES)
def test_an_error_is_the_one_document_and_a_paragraph_on_standard_error(ran, config, words) -> None:
    named = [] if "--config" in words else ["--config", config({"notes": "notes", "broken": "broken"})]
    done = ran(*words, *named)
    kind, code, following = FAILURES[words]
    error = document(done)["error"]
    assert (error["kind"], error["exit_code"], error["next"]) == (kind, code, following)
    assert done.returncode == code
    assert error["message"] in done.stderr
    assert "error: " in done.stderr


def test_an_error_document_names_the_nearest_names(ran, config) -> None:
    error = document(ran("ping", "nots", "--json", "--config", config({"notes": "notes"})))["error"]
    assert error["suggestions"] == ["notes"]


def test_a_command_that_is_not_confirmed_says_so_in_its_document(ran, config) -> None:
    file = config({"notes": "notes"})
    done = ran("trust", file, "--json")
    assert done.returncode == 3
    assert isinstance(document(done), dict)


def test_a_defect_is_a_document_too(monkeypatch, ran) -> None:
    def broken(*words: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("mooring.cli.app._dispatch", broken)
    assert document(ran("list", "--json"))["error"]["kind"] == "ZeroDivisionError"


def test_json_after_two_dashes_is_not_an_option(ran) -> None:
    assert ran("add", "x", "y", "--", "program", "--json").stdout == ""


def test_cost_counts_the_tools_of_two_servers_with_the_same_tool_names(ran, config) -> None:
    once = document(ran("cost", "--json", "--config", config({"notes": "notes"})))
    twice = document(ran("cost", "--json", "--config", config({"notes": "notes", "more": "notes"})))
    assert twice["styles"]["raw"] == once["styles"]["raw"]  # there one of the two is shown
    assert twice["styles"]["double"] > once["styles"]["double"] * 1.9
    assert ran("cost", "--config", config({"notes": "notes", "more": "notes"})).returncode == 0


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii"])
def test_a_document_is_json_whatever_the_encoding_of_standard_output(piped, config, encoding) -> None:
    words = ("call", "mcp_notes_write_note", "title=\xe9\u2713\U0001f6a2", "text=a")
    done = piped(*words, "--json", "--config", config({"notes": "notes"}), PYTHONIOENCODING=encoding)
    assert done.stdout.isascii()
    assert document(done)["text"] == "Saved note: \xe9\u2713\U0001f6a2"
