"""Which files mooring writes: its own, and with `MOORING_HOME` nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mooring import Host
from mooring.cli import main
from mooring.config import load
from mooring.config.trust import approved
from mooring.errors import ConfigError
from tests.lab.stdio import COMMAND, lab_server

ENTRY = {"command": COMMAND[0], "args": list(COMMAND[1:])}
TEAM = json.dumps({"mcpServers": {"team": {**ENTRY, "env": {"TEAM": "1"}}}})


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a team's file for other programs, and a subdirectory in which the user works."""
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "work").mkdir()
    (root / ".mcp.json").write_text(TEAM)
    cursor = tmp_path / "home" / ".cursor" / "mcp.json"
    cursor.parent.mkdir(parents=True)
    cursor.write_text(json.dumps({"mcpServers": {"lab": ENTRY}}))
    monkeypatch.chdir(root / "work")
    return root


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_import_writes_the_users_own_file_and_not_the_teams(repository: Path, tmp_path: Path) -> None:
    assert main(["import", "cursor", "--yes"]) == 0
    assert (repository / ".mcp.json").read_text() == TEAM
    assert files(repository) == {".mcp.json"}
    assert (tmp_path / "home" / "mooring" / "config.yaml").exists()
    assert {server.name: server.scope for server in load().servers} == {"lab": "user", "team": "project"}


def test_import_into_the_project_makes_a_file_of_mooring_and_trusts_what_was_confirmed(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "cursor", "--yes", "--scope", "project"]) == 0
    assert (repository / ".mcp.json").read_text() == TEAM
    assert files(repository) == {".mcp.json", "work/mooring.yaml"}
    assert "in this project instead of" in capsys.readouterr().err
    assert list(approved(str(repository / "work" / "mooring.yaml"))) == ["lab"]
    assert main(["list", "--json"]) == 0
    assert [(one["name"], one["state"]) for one in json.loads(capsys.readouterr().out)["servers"]] == [
        ("lab", "connected")
    ]


def test_entries_of_the_team_that_were_imported_cause_no_warning_until_they_change(repository: Path) -> None:
    own = {"mcpServers": {"team": {**ENTRY}}}
    (repository / ".mcp.json").write_text(json.dumps(own))
    assert main(["import", "claude-code", "--yes"]) == 0
    assert [(server.name, server.scope) for server in load().servers] == [("team", "user")]
    assert load().warnings == ()
    (repository / ".mcp.json").write_text(TEAM)  # another environment
    [warning] = load().warnings
    assert "does not replace your own server" in warning.message
    assert load().servers[0].env == {}


def test_import_approves_nothing_that_was_in_the_file_before(repository: Path) -> None:
    (repository / "mooring.yaml").write_text("style: raw\nservers:\n  other: {command: other}\n")
    assert main(["import", "cursor", "--yes"]) == 0
    assert list(approved(str(repository / "mooring.yaml"))) == ["lab"]
    assert load().style == "mcp"
    assert (repository / ".mcp.json").read_text() == TEAM


def test_with_mooring_home_nothing_is_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    home, own = tmp_path / "home", tmp_path / "own"
    monkeypatch.setenv("MOORING_HOME", str(own))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    (home / ".config" / "mooring").mkdir(parents=True)
    (home / ".config" / "mooring" / "config.yaml").write_text(
        "servers:\n  old: {command: old, disabled: true}\n"
    )
    before, project = files(home), files(repository)
    entry = [COMMAND[0], *COMMAND[1:]]
    assert main(["add", "one", "--scope", "user", "--", *entry]) == 0
    assert main(["disable", "one"]) == 0
    assert main(["enable", "one"]) == 0
    assert main(["import", "cursor", "--yes", "--rename"]) == 0
    assert main(["trust", "--yes"]) == 0
    assert main(["list"]) == 0
    assert main(["call", "mcp_one_echo", "text=x"]) == 0
    assert (files(home), files(repository)) == (before, project)
    assert {path.partition("/")[0] for path in files(own)} >= {"config.yaml", "trust", "backups", "cache"}
    assert {"old", "one", "team"} <= {server.name for server in load().servers}


@pytest.mark.anyio
async def test_with_mooring_home_large_results_and_the_lock_of_the_user_are_kept_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_HOME", "~/own")
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    async with Host([lab_server(tools=["big"])]) as host:
        await host.ready(20)
        result = await host.call("mcp_lab_big", {"size": 500_000}, budget=1000)
        assert not result.is_error
    outside = {path for path in files(home) if not path.startswith("own/")}
    assert outside == set()
    assert files(home)
    assert not (tmp_path / "~").exists()


def test_a_broken_file_in_mooring_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("servers: [")
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load()
