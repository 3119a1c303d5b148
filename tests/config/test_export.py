"""Export of servers to other programs, and import back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mooring.config.edit.text import Put, edited
from mooring.config.models import ServerConfig
from mooring.config.programs.convert import candidates, identity, written
from mooring.config.programs.model import Machine, UnfitError, Vault
from mooring.config.programs.table import WRITABLE, program

RUN = ServerConfig(name="run", command="npx", args=("-y", "srv"), env={"LEVEL": "info", "TOKEN": "${TOKEN}"})
PLAIN = ServerConfig(name="plain", command="srv", args=("--port", "1"), env={"LEVEL": "info"})
WEB = ServerConfig(
    name="web",
    url="https://x.example.com/mcp",
    headers={"Authorization": "Bearer ${TOKEN}", "X-Team": "blue"},
)
OLD = ServerConfig(name="old", transport="sse", url="https://x.example.com/sse")


def back(folder: Path, name: str, servers: list[ServerConfig]) -> dict[str, ServerConfig]:
    """What the import makes of the export."""
    one = program(name)
    assert one.out is not None
    site = next(iter(one.out.site.values()))
    file = folder / Path(site.template).name
    changes = [Put(path=(*one.out.root, s.name), value=written(s, one)[0]) for s in servers]
    file.write_text(edited("", changes, file=file))
    machine = Machine(home=folder, cwd=folder, env={}, platform="linux")
    return {
        found.name: ServerConfig(name=found.name, **(found.entry or {}))
        for found in candidates(one, file, machine, Vault())
    }


@pytest.mark.parametrize("name", [one.name for one in WRITABLE])
def test_a_plain_program_comes_back_as_it_went(tmp_path: Path, name: str) -> None:
    assert identity(back(tmp_path, name, [PLAIN])["plain"]) == identity(PLAIN)


@pytest.mark.parametrize(
    "name",
    ["claude-code", "vscode", "copilot", "cursor", "windsurf", "gemini", "opencode", "librechat", "roo"],
)
def test_references_come_back_as_they_went(tmp_path: Path, name: str) -> None:
    found = back(tmp_path, name, [RUN, WEB])
    assert {key: identity(server) for key, server in found.items()} == {
        "run": identity(RUN),
        "web": identity(WEB),
    }


@pytest.mark.parametrize("name", ["claude-code", "vscode", "copilot", "gemini", "librechat", "cline", "roo"])
def test_the_old_transport_comes_back(tmp_path: Path, name: str) -> None:
    assert back(tmp_path, name, [OLD])["old"].transport == "sse"


def entry(name: str, server: ServerConfig) -> dict[str, Any]:
    return written(server, program(name))[0]


def test_each_program_gets_its_own_words() -> None:
    assert entry("codex", WEB) == {
        "url": "https://x.example.com/mcp",
        "bearer_token_env_var": "TOKEN",
        "http_headers": {"X-Team": "blue"},
    }
    assert entry("codex", RUN)["env_vars"] == ["TOKEN"]
    assert entry("opencode", RUN) == {
        "type": "local",
        "command": ["npx", "-y", "srv"],
        "environment": {"LEVEL": "info", "TOKEN": "{env:TOKEN}"},
    }
    assert entry("goose", RUN) == {
        "enabled": True,
        "type": "stdio",
        "name": "run",
        "cmd": "npx",
        "args": ["-y", "srv"],
        "envs": {"LEVEL": "info"},
        "env_keys": ["TOKEN"],
    }
    assert entry("vscode", WEB)["headers"]["Authorization"] == "Bearer ${env:TOKEN}"
    assert entry("windsurf", WEB)["serverUrl"] == "https://x.example.com/mcp"
    assert entry("gemini", WEB)["httpUrl"] == entry("claude-code", WEB)["url"]
    assert entry("copilot", PLAIN)["tools"] == ["*"]
    assert entry("zed", PLAIN)["source"] == "custom"


def test_limits_are_written_in_the_units_of_the_program() -> None:
    server = ServerConfig(
        name="a", command="a", call_timeout=90, connect_timeout=7.5, allow=("x",), deny=("y",)
    )
    assert entry("codex", server) == {
        "command": "a",
        "args": [],
        "tool_timeout_sec": 90,
        "startup_timeout_sec": 7.5,
        "enabled_tools": ["x"],
        "disabled_tools": ["y"],
    }
    assert entry("gemini", server)["timeout"] == 90_000
    assert entry("goose", server)["timeout"] == 90
    assert entry("opencode", server)["timeout"] == 7500
    _, notes = written(server, program("cursor"))
    assert "not carried over: call_timeout" in notes
    assert "not carried over: allow, so more tools are seen there" in notes


def test_what_a_program_cannot_refer_to_is_left_out_and_said() -> None:
    made, notes = written(RUN, program("claude-desktop"))
    assert made == {"command": "npx", "args": ["-y", "srv"], "env": {"LEVEL": "info"}}
    assert notes == ["env.TOKEN is ${TOKEN}, which Claude Desktop cannot look up: set it there yourself"]
    keyring = ServerConfig(name="k", command="k", env={"A": "${keyring:a}", "B": "${B:-x}"})
    made, notes = written(keyring, program("cursor"))
    assert made["env"] == {"B": "${env:B}"}
    assert notes == [
        "env.A is ${keyring:a}, which Cursor cannot look up: set it there yourself",
        "env.B has lost its default",
    ]


@pytest.mark.parametrize(
    ("name", "server", "reason"),
    [
        ("claude-desktop", WEB, "does not support URLs"),
        ("zed", OLD, "does not support SSE"),
        ("zed", ServerConfig(name="a", command="a", args=("${A}",)), "has ${A} in 'args'"),
        ("cursor", ServerConfig(name="a", command="a", disabled=True), "is disabled"),
        ("cursor", ServerConfig(name="a", command="a", args=("--token", "hunter2x")), "secret among its arg"),
        (
            "cursor",
            ServerConfig(name="a", url="https://x.example.com/?api_key=hunter2x"),
            "secret in its addr",
        ),
    ],
)
def test_what_a_program_cannot_have_is_refused_with_the_reason(
    name: str, server: ServerConfig, reason: str
) -> None:
    with pytest.raises(UnfitError) as caught:
        written(server, program(name))
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_literal_secret_is_not_copied() -> None:
    server = ServerConfig(name="a", url="https://x.example.com", headers={"Authorization": "Bearer hunter2x"})
    made, notes = written(server, program("claude-code"))
    assert "hunter2" not in json.dumps([made, notes])
    assert notes == ["headers.Authorization holds a secret, which is not copied: set it in Claude Code"]


def test_a_disabled_server_is_written_where_there_is_a_word_for_it() -> None:
    off = ServerConfig(name="a", command="a", disabled=True)
    assert entry("windsurf", off)["disabled"] is True
    assert entry("codex", off)["enabled"] is False
    assert entry("goose", off)["enabled"] is False
