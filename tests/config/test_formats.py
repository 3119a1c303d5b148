"""Other programs' spellings of a server entry."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from mooring.config.formats import server_fields
from mooring.config.load import load


def read(raw: dict[str, Any]) -> dict[str, Any]:
    entry = server_fields(raw, own=False)
    assert entry.problems == []
    return entry.fields


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"cmd": "x"}, {"command": "x"}),
        ({"command": ["x", "-y", "z"]}, {"command": "x", "args": ["-y", "z"]}),
        (
            {"command": {"path": "x", "args": ["y"], "env": {"A": "1"}}},
            {"command": "x", "args": ["y"], "env": {"A": "1"}},
        ),
        ({"environment": {"A": "1"}}, {"env": {"A": "1"}}),
        ({"envs": {"A": "1"}}, {"env": {"A": "1"}}),
        ({"working_dir": "/x"}, {"cwd": "/x"}),
        ({"httpUrl": "https://x"}, {"url": "https://x"}),
        ({"serverUrl": "https://x"}, {"url": "https://x"}),
        ({"uri": "https://x"}, {"url": "https://x"}),
        ({"http_headers": {"A": "1"}}, {"headers": {"A": "1"}}),
        ({"type": "local"}, {"transport": "stdio"}),
        ({"type": "remote"}, {"transport": "http"}),
        ({"transportType": "streamableHttp"}, {"transport": "streamable-http"}),
        ({"protocol": "STREAMABLE_HTTP"}, {"transport": "streamable-http"}),
        ({"protocol": "2025-11-25"}, {"protocol": "2025-11-25"}),
        ({"protocol": date(2025, 11, 25)}, {"protocol": "2025-11-25"}),
        ({"min_protocol": date(2026, 7, 28)}, {"min_protocol": "2026-07-28"}),
        ({"protocol": "auto"}, {"protocol": "auto"}),
        ({"protocol": "auto", "type": "sse"}, {"protocol": "auto", "transport": "sse"}),
        ({"transport": "auto"}, {"transport": "http"}),
        (
            {"transport": {"type": "http", "url": "https://x", "mode": "auto"}},
            {"transport": "http", "url": "https://x"},
        ),
        ({"transport": {"type": "http", "mode": "sse"}}, {"transport": "sse"}),
        ({"transport": {"type": "http", "mode": "streamable_http"}}, {"transport": "streamable-http"}),
        (
            {"transport": {"type": "stdio", "command": "x", "args": []}},
            {"transport": "stdio", "command": "x", "args": []},
        ),
        ({"enabled": False}, {"disabled": True}),
        ({"active": "true"}, {"disabled": False}),
        ({"includeTools": ["a"], "excludeTools": ["b"]}, {"allow": ["a"], "deny": ["b"]}),
        ({"enabled_tools": ["a"], "disabledTools": ["b"]}, {"allow": ["a"], "deny": ["b"]}),
        ({"tool_filter": ["a"]}, {"allow": ["a"]}),
        ({"tool_filters": {"allowed": ["a"], "rejected": ["b"]}}, {"allow": ["a"], "deny": ["b"]}),
        ({"tools": ["*"]}, {"allow": ["*"]}),
        ({"tools": {"x": {"approval_mode": "prompt"}}}, {}),
        ({"require_approval": {"always": ["a"]}}, {"approve": ["a"]}),
        ({"alwaysLoad": True}, {"always": ["*"]}),
        ({"oauth": {"clientId": "x"}}, {"auth": {"clientId": "x"}}),
        ({"oauth": False}, {}),
        ({"env_vars": ["A", {"name": "B", "source": "shell"}]}, {"inherit_env": ["A", "B"]}),
        ({"bearer_token_env_var": "TOKEN"}, {"headers": {"Authorization": "Bearer ${TOKEN}"}}),
        (
            {"http_headers": {"X": "1"}, "env_http_headers": {"Y": "KEY"}},
            {"headers": {"X": "1", "Y": "${KEY}"}},
        ),
        ({"connect_timeout_ms": 10000}, {"connect_timeout": 10.0}),
        ({"connectTimeoutMs": "1500"}, {"connect_timeout": 1.5}),
        ({"startup_timeout_sec": 20}, {"connect_timeout": 20}),
        ({"tool_timeout_sec": "300"}, {"call_timeout": 300}),
        ({"request_timeout_ms": 5000}, {"call_timeout": 5.0}),
        ({"timeout_seconds": 15}, {"connect_timeout": 15}),
        ({"timeout_ms": 15000}, {"call_timeout": 15.0}),
        ({"timeout": 30}, {"connect_timeout": 30}),
        ({"timeout": 600}, {"connect_timeout": 600}),
        ({"timeout": "45s"}, {"connect_timeout": 45}),
        ({"timeout": 1000}, {"call_timeout": 1.0}),
        ({"timeout": "60000"}, {"call_timeout": 60.0}),
        ({"autoApprove": ["x"], "trust": True, "cwd": None}, {}),
        ({"url": "https://x", "httpUrl": "https://x"}, {"url": "https://x"}),
    ],
)
def test_an_alias_means_the_field(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read(raw) == expected


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        (
            {"timeout": 700},
            "timeout",
            "is ambiguous: at most 600 means seconds, 1000 and more means milliseconds",
        ),
        ({"timeout": -5}, "timeout", "must not be negative"),
        ({"timeout_ms": "30s"}, "timeout_ms", "must be a number of milliseconds"),
        ({"enabled": "perhaps"}, "enabled", "must be true or false"),
        ({"command": []}, "command", "must name a program"),
        ({"type": 5}, "type", "must be text such as 'stdio'"),
        ({"url": "https://x", "httpUrl": "https://y"}, "httpUrl", "differs from 'url'; keep one"),
        (
            {"bearer_token_env_var": "hunter2-secret!"},
            "bearer_token_env_var",
            "must name an environment variable",
        ),
        ({"env_vars": "A"}, "env_vars", "must be a list of variable names, not text"),
        ({"alow": ["a"]}, "alow", "is not a known field; did you mean 'allow'?"),
    ],
)
def test_a_wrong_value_is_reported_under_the_name_the_file_uses(
    raw: dict[str, Any], field: str, words: str
) -> None:
    [problem] = server_fields(raw, own=False).problems
    assert problem.field == field
    assert words in problem.message
    assert "hunter2" not in problem.message


def test_an_unknown_field_is_ignored_in_others_files_and_refused_in_ours() -> None:
    theirs, ours = server_fields({"quarantined": 1}, own=False), server_fields({"quarantined": 1}, own=True)
    assert (theirs.problems, [note.field for note in theirs.notes]) == ([], ["quarantined"])
    assert ([problem.field for problem in ours.problems], ours.notes) == (["quarantined"], [])


def test_a_field_that_changes_what_the_server_does_is_not_ignored_in_silence() -> None:
    [note] = server_fields({"envFile": ".env"}, own=False).notes
    assert note.field == "envFile"
    assert "'env'" in note.message


def test_the_source_of_an_entry_cannot_be_set_by_a_file() -> None:
    assert read({"source": "custom", "command": "x"}) == {"command": "x"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"mcpServers": {"a": {"command": "a", "protocol": "2025-11-25"}}}'),
        ("a.yaml", "servers:\n  a:\n    command: a\n    protocol: 2025-11-25\n"),
        ("a.yaml", "servers:\n  a:\n    command: a\n    protocol: '2025-11-25'\n"),
        ("a.toml", '[servers.a]\ncommand = "a"\nprotocol = 2025-11-25\n'),
        ("a.toml", '[servers.a]\ncommand = "a"\nprotocol = "2025-11-25"\n'),
    ],
)
def test_the_protocol_of_a_server_can_be_set_in_every_kind_of_file(
    name: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    (server,) = load([file], strict=True).servers
    assert (server.protocol, server.transport) == ("2025-11-25", "stdio")
