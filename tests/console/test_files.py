"""Edits of configuration files from the console: a difference first, then the same request writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.edit.lines import value_lines
from mooring.console.files import _literal
from tests.lab.stdio import COMMAND

pytestmark = pytest.mark.anyio

YAML = """\
# the servers of this project
servers:
  lab:  # for tests
    command: {command}
    args: {args}
    env:
      LAB_TOKEN: ${{LAB_TOKEN:-none}}
      API_KEY: sk-live-4f9aZq81Lm2Xw7Rt
style: mcp
"""


def written(tmp_path: Path, name: str = "mooring.yaml") -> Path:
    file = tmp_path / name
    args = json.dumps([*COMMAND[1:], json.dumps({"tools": ["echo", "pid"]})])
    if name.endswith(".json"):
        file.write_text(
            json.dumps({"mcpServers": {"lab": {"command": COMMAND[0], "args": json.loads(args)}}})
        )
    else:
        file.write_text(YAML.format(command=COMMAND[0], args=args))
    return file


def connected(state: Any) -> bool:
    return state["values"]["totals"].get("connected", 0) >= 1


async def write(page: Any, *edits: Any) -> Any:
    """Look at the difference, then write it."""
    seen = await page.do("edit", edits=list(edits))
    assert seen["written"] is False
    return await page.do("edit", edits=list(edits), write=True, revision=seen["revision"])


async def test_the_difference_is_shown_before_anything_is_written(opened: Any, tmp_path: Path) -> None:
    file = written(tmp_path)
    before = file.read_text()
    async with opened(config=file) as page:
        await page.until(connected)
        edits = [{"op": "tool-disable", "tools": [{"server": "lab", "tool": "pid"}]}]
        seen = await page.do("edit", edits=edits)
        assert file.read_text() == before
        (one,) = seen["files"]
        assert (one["file"], one["scope"], one["new"]) == (str(file), "explicit", False)
        assert "+    deny:" in one["diff"]
        assert "sk-live" not in json.dumps(seen), "secrets are masked in the difference"
        assert (await page.refused("edit", edits=edits, write=True, revision="0"))[0] == 409
        done = await page.do("edit", edits=edits, write=True, revision=seen["revision"])
        assert done["written"] is True
        assert Path(done["backups"][0]).read_text() == before
        after = file.read_text()
        assert after.startswith("# the servers of this project\n")
        assert "# for tests" in after
        await page.until(lambda _: page.row("tools", "lab/pid"))
        assert page.row("tools", "lab/pid")["hidden"]["by"] == "filter"
        await write(page, {"op": "tool-enable", "tools": [{"server": "lab", "tool": "pid"}]})
        assert "deny" not in file.read_text()
        await page.until(lambda _: page.row("tools", "mcp_lab_pid"))


async def test_a_file_that_changed_meanwhile_is_not_overwritten(opened: Any, tmp_path: Path) -> None:
    file = written(tmp_path)
    async with opened(config=file) as page:
        edits = [{"op": "server-disable", "server": "lab"}]
        seen = await page.do("edit", edits=edits)
        file.write_text(file.read_text() + "# typed in an editor\n")
        status, why = await page.refused("edit", edits=edits, write=True, revision=seen["revision"])
        assert (status, "Look at the difference again" in why) == (409, True)
        assert file.read_text().endswith("# typed in an editor\n")


@pytest.mark.parametrize("name", ["mooring.yaml", "mcp.json"])
async def test_servers_are_turned_off_and_on_in_the_file(opened: Any, tmp_path: Path, name: str) -> None:
    file = written(tmp_path, name)
    async with opened(config=file) as page:
        await page.until(connected)
        await write(page, {"op": "server-disable", "server": "lab"})
        await page.until(lambda state: state["tables"]["servers"][0]["state"] == "disabled")
        again = await page.do("edit", edits=[{"op": "server-disable", "server": "lab"}])
        assert (again["files"], again["notes"]) == ([], ["lab is already disabled."])
        await write(page, {"op": "server-enable", "server": "lab"})
        await page.until(connected)


async def test_policies_are_written_in_bulk(opened: Any, tmp_path: Path) -> None:
    file = written(tmp_path)
    both = [{"server": "lab", "tool": name} for name in ("echo", "pid")]
    async with opened(config=file) as page:
        await page.until(connected)
        await write(page, {"op": "tool-policy", "tools": both, "then": "ask"})
        await page.until(lambda state: [row["policy"] for row in state["tables"]["tools"]] == ["ask", "ask"])
        await write(page, {"op": "tool-policy", "tools": both[:1], "then": "deny"})
        await page.until(lambda _: page.row("tools", "lab/echo"))
        await write(page, {"op": "tool-policy", "tools": both, "then": "allow"})
        await page.until(
            lambda state: [row["policy"] for row in state["tables"]["tools"]] == ["allow", "allow"]
        )
        assert "policy" not in file.read_text().replace("policy: {}", "")


async def test_the_first_run_says_so_and_adds_the_demo_servers(opened: Any, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("servers: {}\n")
    async with opened(config=file) as page:
        await page.until(lambda state: state["values"]["first_run"] is True)
        done = await write(page, {"op": "demo"})
        assert [one["file"] for one in done["files"]] == [str(file)]
        await page.until(lambda state: state["values"]["totals"].get("connected") == 2)
        assert page.state["values"]["first_run"] is False
        assert [row["id"] for row in page.state["tables"]["servers"]] == ["clock", "notes"]
        again = await page.do("edit", edits=[{"op": "demo"}])
        assert (again["files"], len(again["notes"])) == ([], 2)


async def test_servers_of_another_program_are_imported_without_their_secrets(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    entry = {"command": COMMAND[0], "args": list(COMMAND[1:]), "env": {"API_KEY": "sk-live-4f9aZq81Lm2Xw7Rt"}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"lab": entry}}))
    file = tmp_path / "mooring.yaml"
    file.write_text("servers: {}\n")
    async with opened(config=file) as page:
        (cursor,) = (await page.do("programs"))["programs"]
        assert (cursor["program"], cursor["servers"][0]["name"], cursor["servers"][0]["action"]) == (
            "cursor",
            "lab",
            "add",
        )
        done = await write(page, {"op": "import", "program": "cursor", "servers": ["lab"]})
        assert "sk-live" not in json.dumps([cursor, done]) + file.read_text()
        assert any("API_KEY" in note for note in done["notes"])
        assert (await page.refused("edit", edits=[{"op": "import", "program": "nothing"}]))[0] in (404, 409)


async def test_settings_name_the_file_and_the_line_of_each_value(opened: Any, tmp_path: Path) -> None:
    file = written(tmp_path)
    async with opened(config=file) as page:
        said = await page.do("settings")
        rows = {tuple(row["path"]): row for row in said["rows"]}
        assert rows["style",]["line"] == 9
        assert rows["servers", "lab", "command"]["line"] == 4
        assert rows["servers", "lab", "env", "LAB_TOKEN"]["value"] == "${LAB_TOKEN:-none}"
        assert rows["servers", "lab", "env", "API_KEY"]["value"].endswith("***")
        given = [row for row in said["rows"] if row["line"] is not None]
        assert len(given) >= 5
        assert all(row["effective"] and row["file"] == str(file) for row in given)
        await write(page, {"op": "set", "path": ["servers", "lab", "call_timeout"], "value": 12})
        assert "call_timeout: 12" in file.read_text()
        await write(page, {"op": "unset", "path": ["servers", "lab", "call_timeout"]})
        assert "call_timeout" not in file.read_text()


async def test_settings_that_no_file_changes_are_listed_with_their_defaults(
    opened: Any, tmp_path: Path
) -> None:
    file = written(tmp_path)
    async with opened(config=file) as page:
        rows = {tuple(row["path"]): row for row in (await page.do("settings"))["rows"]}
        assert (rows["style",]["file"], rows["style",]["default"]) == (str(file), "mcp")
        nowhere = {"file": None, "line": None, "scope": None, "effective": True}
        assert rows["discovery",] == {
            "path": ["discovery"],
            "value": "auto",
            "default": "auto",
            **nowhere,
        }
        assert rows["scripts", "enabled"].items() >= nowhere.items()
        assert rows["call_timeout",].items() >= nowhere.items()
        await write(page, {"op": "set", "path": ["discovery"], "value": "never"})
        rows = {tuple(row["path"]): row for row in (await page.do("settings"))["rows"]}
        changed = rows["discovery",]
        assert (changed["value"], changed["default"], changed["file"]) == ("never", "auto", str(file))


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ({"op": "set", "path": ["style"], "value": "loud"}, "style"),
        ({"op": "set", "path": ["servers", "lab", "call_timeout"], "value": "soon"}, "call_timeout"),
        ({"op": "set", "path": ["servers", "lab", "comand"], "value": "x"}, "comand"),
        ({"op": "set", "path": ["policy"], "value": {"rules": 7}}, "policy"),
        ({"op": "set", "path": ["gateway"], "value": {"tokens": 7}}, "gateway"),
        ({"op": "unset", "path": ["servers", "lab", "command"]}, "lab"),
    ],
)
async def test_a_setting_that_is_not_valid_is_refused_before_and_instead_of_writing(
    opened: Any, tmp_path: Path, edit: Any, named: str
) -> None:
    file = written(tmp_path)
    before = file.read_text()
    async with opened(config=file) as page:
        for more in ({}, {"write": True}):
            status, why = await page.refused("edit", edits=[edit], **more)
            assert status == 400
            assert named in str(why)
        assert file.read_text() == before


@pytest.mark.parametrize(
    "edit",
    [
        {},
        {"op": "nothing"},
        {"op": "server-enable"},
        {"op": "set", "path": [], "value": 1},
        {"op": "set", "path": [["a"]], "value": 1},
        {"op": "set", "path": ["a"]},
        {"op": "set", "path": ["a"], "value": 1, "file": "/etc/passwd"},
        {"op": "trust", "file": "/etc/passwd"},
        {"op": "tool-policy", "tools": [], "then": "maybe"},
        {"op": "tool-disable", "tools": "echo"},
        {"op": "tool-disable", "tools": [7]},
        {"op": "server-add", "name": "lab", "entry": {"command": "x"}},
        {"op": "server-add", "name": "new", "entry": {"comand": "x"}},
        {"op": "server-remove", "server": "unknown"},
    ],
)
async def test_edits_that_make_no_sense_change_nothing(opened: Any, tmp_path: Path, edit: Any) -> None:
    file = written(tmp_path)
    before = file.read_text()
    async with opened(config=file) as page:
        status, why = await page.refused("edit", edits=[edit], write=True)
        assert status in (400, 404, 409)
        assert why
        assert file.read_text() == before


async def test_a_server_is_added_and_removed(opened: Any, tmp_path: Path) -> None:
    file = written(tmp_path)
    async with opened(config=file) as page:
        entry = {"command": COMMAND[0], "args": list(COMMAND[1:])}
        await write(page, {"op": "server-add", "name": "second", "entry": entry})
        await page.until(lambda state: state["values"]["totals"].get("connected") == 2)
        await write(page, {"op": "server-remove", "server": "second"})
        await page.until(lambda state: [row["id"] for row in state["tables"]["servers"]] == ["lab"])


async def test_a_project_file_is_approved_in_the_page(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    file = written(project)
    monkeypatch.chdir(project)
    import aiohttp

    from mooring import Host
    from mooring.console.app import serve_console
    from mooring.console.inbox import Inbox
    from mooring.console.wire import Wire
    from tests.console.conftest import Page

    async with (
        Host.from_config() as host,
        serve_console(host, Inbox(), Wire()) as (console, address),
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
    ):
        page = Page(console, address, http, host)
        await page.log_in()
        row = await page.until(lambda state: state["tables"]["servers"][0])
        assert (row["state"], row["held"], row["next"]) == ("disabled", True, "mooring trust")
        assert (await page.post("reconnect", {"server": "lab"}))[0] == 409
        await write(page, {"op": "server-disable", "server": "lab"})
        await write(page, {"op": "server-enable", "server": "lab"})
        assert host.held, "an edit of the page does not approve what was not approved before"
        seen = await page.do("edit", edits=[{"op": "trust", "file": str(file)}])
        assert COMMAND[0] in seen["files"][0]["diff"]
        assert "sk-live" not in json.dumps(seen)
        await write(page, {"op": "trust", "file": str(file)})
        await page.until(connected)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_the_glob_of_a_tool_matches_no_other(tool: str, other: str) -> None:
    from fnmatch import fnmatchcase

    assert fnmatchcase(tool, _literal(tool))
    assert fnmatchcase(other, _literal(tool)) is (tool == other)


TOML = """\
style = "mcp" # how

[servers.lab]
command = "x"
"quoted key" = 1
env = { A = "1" }

[policy]
deny = [
  "a",
]
ask = ["b"]
"""


def test_lines_of_toml_and_json() -> None:
    lines = value_lines(TOML, Path("mooring.toml"))
    assert (lines["style",], lines["servers", "lab"], lines["servers", "lab", "quoted key"]) == (1, 3, 5)
    assert (lines["servers", "lab", "env"], lines["policy", "deny"], lines["policy", "ask"]) == (6, 9, 12)
    text = '{\n "servers": {"lab":\n  {"command": "x"}}, // end\n "style":\n"mcp"}'
    lines = value_lines(text, Path("a.json"))
    assert (lines["servers",], lines["servers", "lab", "command"], lines["style",]) == (2, 3, 4)
