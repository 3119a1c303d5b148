"""`mooring run`, the doctor's findings, and scripts against a recording."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import Host, demo
from mooring.testing import Recorder, replay_script
from tests.scripts.shop import made, shop

pytestmark = pytest.mark.anyio

COUNT = 'titles = (await mcp_notes_list_notes())["titles"]\nprint("counted")\nlen(titles)'
WRITE = 'await mcp_notes_write_note(title="a", text="b")\n"written"'


@pytest.fixture
def config(tmp_path: Path) -> str:
    command, *args = demo.command("notes")
    entry = {"command": command, "args": args, "trust_hints": True}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"scripts": {"enabled": True}, "mcpServers": {"notes": entry}}))
    return str(file)


def mooring(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mooring", *words],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=60,
        check=False,
    )


def test_run_prints_what_the_script_prints_and_returns(config: str, tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    done = mooring("run", str(tmp_path / "count.py"), "--config", config)
    assert (done.returncode, done.stdout) == (0, "counted\n1\n"), done.stderr
    piped = mooring("run", "-", "--json", "--config", config, stdin=COUNT)
    assert json.loads(piped.stdout) == {
        "is_error": False,
        "value": 1,
        "text": "counted\n1",
        "calls": [
            {
                "tool": "mcp_notes_list_notes",
                "server": "notes",
                "ok": True,
                "ms": pytest.approx(0, abs=60_000),
            }
        ],
    }


def test_a_write_without_a_terminal_is_not_made_and_yes_approves_it(config: str) -> None:
    refused = mooring("run", "-", "--config", config, stdin=WRITE)
    assert refused.returncode == 3
    assert "A script wants to make 1 call that may change something" in refused.stderr
    assert "1 x mcp_notes_" in refused.stderr
    assert "use --yes" in refused.stderr
    assert refused.stderr.count("not approved") == 1
    assert "tell the user" not in refused.stderr
    assert refused.stdout == ""
    approved = mooring("run", "-", "--yes", "--config", config, stdin=WRITE)
    assert (approved.returncode, approved.stdout) == (0, "written\n"), approved.stderr


def test_a_script_that_stops_after_a_write_failed_and_was_not_just_refused(config: str) -> None:
    """The text of the first write is not what the plan took it for."""
    code = (
        'r = await mcp_notes_write_note(title="a", text="b")\n'
        'planned = "result of" in str(r) or "other" in str(r)\n'
        'await mcp_notes_write_note(title="x" if planned else "y", text="b")'
    )
    done = mooring("run", "-", "--yes", "--config", config, stdin=code)
    assert "is not in the plan that was approved" in done.stderr
    assert done.returncode == 1


def test_mistakes_and_missing_files_are_explained(config: str) -> None:
    wrong = mooring("run", "-", "--config", config, stdin="await mcp_notes_lst()")
    assert wrong.returncode == 1
    assert "line 1: `mcp_notes_lst` is not defined" in wrong.stderr
    missing = mooring("run", "nowhere.py", "--config", config)
    assert missing.returncode == 2
    assert "'nowhere.py' cannot be read" in missing.stderr


def test_the_doctor_says_how_scripts_are_confined(config: str) -> None:
    findings = json.loads(mooring("doctor", "--json", "--config", config).stdout)
    assert [one for one in findings if one["finding"].startswith("scripts")], findings


async def test_a_script_is_replayed_against_a_recording(tmp_path: Path) -> None:
    tape, code = tmp_path / "tape.jsonl", "row = await mcp_shop_get(id=2)\nawait mcp_shop_note(id=row['id'])"
    async with shop() as server:
        with Recorder(tape):
            async with Host(
                [server.http(trust_hints=True)], lock=False, home=None, on_approval=lambda request: True
            ) as host:
                await host.ready(20)
                await host.session().run_script(code)
    played = await replay_script(tape, code)
    other = await replay_script(tape, "await mcp_shop_get(id=3)")
    denied = await replay_script(tape, code, approve=False)
    assert played.structured == "noted", played.text
    assert "was not recorded" in other.text
    assert made(denied) == []


@pytest.mark.parametrize("value", ["yes please", 7])
def test_a_wrong_setting_is_reported(tmp_path: Path, value: Any) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"scripts": {"enabled": value}, "mcpServers": {}}))
    assert "must be true, false or 'only'" in mooring("list", "--json", "--config", str(file)).stdout


def test_a_project_file_cannot_turn_denied_writes_on(tmp_path: Path) -> None:
    from mooring.config.models import HostConfig
    from mooring.config.sections import ScriptSettings
    from mooring.config.trust import combined

    mine = HostConfig(scripts=ScriptSettings(writes="deny"))
    theirs = HostConfig(scripts=ScriptSettings(enabled=True))
    config, refused = combined(mine, theirs, {"scripts": {"enabled": True}}, {})
    assert (config.scripts.enabled, config.scripts.writes, refused) == (True, "deny", ())
    config, refused = combined(mine, theirs, {"scripts": {"enabled": True, "writes": "ask"}}, {})
    assert (config.scripts.writes, refused) == ("deny", ("scripts.writes",))


@pytest.mark.parametrize(
    ("mine", "theirs", "result"),
    [
        ("{enabled: false}", "{enabled: true, time: 600}", {"enabled": False, "time": 600}),
        ("{enabled: false}", "{enabled: only}", {"enabled": False}),
        ("{enabled: true}", "{enabled: only}", {"enabled": True}),
        ("{enabled: only}", "{enabled: false}", {"enabled": False}),
        ("{time: 60, calls: 200}", "{enabled: true, time: 600, calls: 9}", {"time": 60, "calls": 9}),
        ("{enabled: true}", "{time: 30}", {"enabled": True, "time": 30}),
        ("{}", "{enabled: true}", {"enabled": True}),
        ("null", "{enabled: true}", {"enabled": True}),
    ],
)
def test_an_approved_project_file_stays_within_the_script_settings_that_the_user_has_written(
    mine: str, theirs: str, result: dict[str, Any], tmp_path: Path
) -> None:
    from mooring.config.load import load
    from mooring.config.trust import Approval

    (tmp_path / "user").mkdir()
    (tmp_path / "user/config.yaml").write_text(f"scripts: {mine}\n")
    (tmp_path / "mooring.yaml").write_text(f"scripts: {theirs}\n")
    config = load(
        cwd=tmp_path, user_dir=tmp_path / "user", env={}, approval=lambda file: Approval(everything=True)
    )
    assert {name: getattr(config.scripts, name) for name in result} == result
