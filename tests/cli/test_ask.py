"""Calls and project files that need approval, with and without a terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import entry


@pytest.fixture
def guarded(config) -> str:
    return config({"notes": {"bundled": "notes", "approve": ["list_*"], "policy": {"deny": ["read_*"]}}})


def test_a_call_that_needs_a_yes_is_asked_for_on_a_terminal(terminal, guarded) -> None:
    shown = terminal("call", "mcp_notes_list_notes", "--config", guarded, typed="y\n")
    assert (
        "Call 'list_notes' of server 'notes' with {}? Approval is required: `approve` of 'notes'."
        in " ".join(shown.text.split())
    )
    assert shown.code == 0
    assert "welcome" in shown.text
    shown = terminal("call", "mcp_notes_list_notes", "--config", guarded, typed="\n")
    assert shown.code == 3
    assert shown.text.endswith("[y/N] The tool was not called.\n")


def test_without_a_terminal_such_a_call_needs_the_option(ran, guarded) -> None:
    done = ran("call", "mcp_notes_list_notes", "--config", guarded)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: 'mcp_notes_list_notes' was not called: approval is required (`approve` of 'notes'). "
        "There is no terminal to ask on: review the arguments, then use --yes.\n"
    )
    assert ran("call", "mcp_notes_list_notes", "--yes", "--config", guarded).stdout == "welcome\n"


def test_a_denied_tool_is_not_there(ran, guarded) -> None:
    assert "read_note" not in ran("tools", "--config", guarded).stdout
    done = ran("call", "mcp_notes_read_note", "title=welcome", "--yes", "--config", guarded)
    assert done.returncode == 3
    assert "`deny: read_*` in the policy of 'notes'" in done.stderr


def test_a_call_that_a_rule_denies_has_no_advice_to_a_model(ran, config, tmp_path: Path) -> None:
    file = Path(config({"notes": "notes"}))
    rule = {"when": "arguments.title == 'secret'", "then": "deny"}
    file.write_text(json.dumps({**json.loads(file.read_text()), "policy": {"rules": [rule]}}))
    done = ran("call", "mcp_notes_read_note", "title=secret", "--config", str(file))
    assert done.returncode == 3
    assert "'mcp_notes_read_note' was not called: the configuration denies it" in done.stderr
    assert "tell the user" not in done.stderr


def test_a_project_file_is_approved_on_a_terminal(terminal, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry("notes")}}))
    assert terminal("call", "mcp_notes_list_notes").code == 3
    refused = terminal("trust", typed="n\n", columns=200)
    assert refused.code == 3
    assert "server 'notes' (new)" in refused.text
    assert "Nothing was approved." in refused.text
    assert terminal("trust", typed="y\n").code == 0
    assert terminal("call", "mcp_notes_list_notes").code == 0


def test_what_the_user_adds_himself_is_approved_and_nothing_else_of_the_file(ran, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"clock": entry("clock")}}))
    added = entry("notes")
    assert ran("add", "notes", "--", added["command"], *added["args"]).returncode == 0
    assert ran("call", "mcp_notes_list_notes").returncode == 0
    assert ran("call", "mcp_clock_now").returncode == 3


def test_TH03_a_name_that_looks_like_another_is_added_with_a_warning(ran, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"clock": entry("clock")}}))
    done = ran("add", "c1ock", "--no-probe", "--", "x")
    assert done.returncode == 0
    assert "looks like" in done.stderr
    assert "'clock'" in done.stderr


def test_ctrl_c_at_a_question_ends_the_program_without_enter(config, environment, tmp_path) -> None:
    file = config({"notes": {"bundled": "notes", "approve": ["*"]}})
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "mooring", "--config", file, "call", "mcp_notes_list_notes"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 4096)
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130
    os.close(ours)
