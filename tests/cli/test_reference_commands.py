"""`tool`, `call TOOL --help`, one-off servers, `init`, `help`, `version`, `schema`, `explain` and `logs`."""

import json
import re
import stat
import sys
from pathlib import Path
from typing import get_args

import pytest

from mooring import demo
from mooring.cli import doctor
from mooring.cli.app import COMMANDS, help_text
from mooring.cli.explain import explanations
from mooring.servers.diagnosis import Cause

NOTES = demo.command("notes")


def test_tool_shows_signature_origin_pin_and_cost(ran, config) -> None:
    file = config({"notes": "notes"})
    shown = json.loads(ran("--config", file, "tool", "mcp_notes_write_note", "--json").stdout)
    assert shown["signature"] == "mcp_notes_write_note(title: str, text: str) -> str"
    assert (shown["server"], shown["remote_name"], shown["pinned"]) == ("notes", "write_note", False)
    assert shown["tokens"] > 20
    assert set(shown) >= {"name", "description", "input_schema", "output_schema"}


def test_tool_says_whether_the_lock_pins_it(ran, config) -> None:
    file = config({"notes": "notes"})
    ran("--config", file, "lock")
    assert json.loads(ran("--config", file, "tool", "mcp_notes_read_note", "--json").stdout)["pinned"] is True


def test_a_misspelled_tool_is_answered_with_the_nearest_one(ran, config) -> None:
    done = ran("--config", config({"notes": "notes"}), "tool", "mcp_notes_read_nte")
    assert done.returncode == 2
    assert "mcp_notes_read_note" in done.stderr


@pytest.mark.parametrize("place", ["before", "after"])
def test_help_on_a_call_with_a_tool_shows_the_arguments_of_the_tool(ran, config, place) -> None:
    words = ["call", "mcp_notes_read_note"]
    words = [*words, "--help"] if place == "after" else [words[0], words[1], "-h"]
    shown = ran("--config", config({"notes": "notes"}), *words).stdout
    assert "usage: mooring call mcp_notes_read_note title=STR" in shown
    assert "title" in shown.partition("arguments")[2]
    assert ran("call", "--help").stdout == help_text("call")


def test_the_usage_of_a_tool_fits_a_narrow_terminal(terminal, config) -> None:
    file = config({"notes": "notes"})
    shown = terminal("--config", file, "call", "mcp_notes_write_note", "--help", columns=40).text
    assert shown.startswith("usage: mooring call mcp_notes_write_note\n  title=STR text=STR\n")


def test_the_listed_values_of_an_argument_are_shown_as_they_are_typed(ran, config, lab, terminal) -> None:
    lab.offers(paint="Paint.")
    properties = {
        "colour": {"enum": ["red", "green"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "depth": {"type": ["integer", "null"], "default": 2},
        "shade": {"enum": ["a long name of a shade", "another long name of a shade"]},
    }
    lab.takes("paint", {"type": "object", "properties": properties, "required": ["colour"]})
    file = config({"lab": lab.entry})
    shown = ran("--config", file, "call", "mcp_lab_paint", "--help").stdout
    usage = "usage: mooring call mcp_lab_paint colour=red|green [tags=LIST] [depth=INT] [shade=VALUE]\n"
    assert shown.startswith(usage)
    assert "  colour  one of red, green, required\n" in shown
    assert "  tags  list[str], optional\n" in shown
    narrow = terminal("--config", file, "tool", "mcp_lab_paint", columns=40, NO_COLOR="1").raw
    assert max(map(len, narrow.splitlines())) <= 40


def test_the_example_of_a_tool_names_its_one_off_server(ran) -> None:
    program = [sys.executable, "-m", "mooring.demo", "notes"]
    shown = ran("tool", "read_note", "--", *program).stdout
    assert f"mooring call read_note title=text -- {' '.join(program)}\n" in shown
    assert "mooring.lock" not in shown, "no lock covers it"


def test_the_lines_of_an_item_of_an_explanation_are_indented(terminal) -> None:
    lines = terminal("explain", "crash", columns=40).text.splitlines()
    items = lines[next(number for number, line in enumerate(lines) if line.startswith("- ")) :]
    assert len(items) > 2
    assert all(line.startswith(("- ", "  ")) for line in items)


def test_version_fits_a_narrow_terminal(terminal) -> None:
    shown = terminal("version", columns=40).raw.splitlines()
    assert len(shown) > 2
    assert max(map(len, shown)) <= 40


def test_trust_says_when_no_file_is_approved(ran, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "home"))
    done = ran("trust", "--list")
    assert (done.stdout, done.stderr) == ("", "note: No project file is approved on this machine.\n")


def test_one_off_program_is_listed_and_called_without_any_file(ran) -> None:
    names = {tool["name"] for tool in json.loads(ran("tools", "--json", "--", *NOTES).stdout)}
    assert names == {"list_notes", "read_note", "write_note"}
    done = ran("call", "read_note", "title=welcome", "--", *NOTES)
    assert (done.returncode, done.stdout) == (0, "A mooring holds many boats.\n")
    styled = ran("tools", "--style", "double", "--json", "--", *NOTES).stdout
    assert all(tool["name"].startswith("mcp__") for tool in json.loads(styled))


def test_one_off_url_is_used_instead_of_the_configured_servers(ran, config) -> None:
    with demo.weather() as url:
        listed = json.loads(
            ran("--config", config({"notes": "notes"}), "tools", "--url", url, "--json").stdout
        )
    assert {tool["server"] for tool in listed} == {"127.0.0.1"}
    assert all(tool["name"] == tool["remote_name"] for tool in listed)


def test_one_off_server_leaves_no_lock_cache_or_entry_behind(ran, config, tmp_path: Path) -> None:
    file = Path(config({}))
    before = file.read_text()
    ran("--config", str(file), "tools", "--", *NOTES)
    assert file.read_text() == before
    assert not list(tmp_path.rglob("mooring.lock"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["tools", "--url", "http://127.0.0.1:1/mcp", "--", "x"], "either --url or a program"),
        (["tools", "--header", "A: b"], "--header needs --url"),
        (["tools", "--env", "A=b"], "--env needs a program"),
        (["tools", "--url", "not-a-url"], "must start with http"),
    ],
)
def test_a_wrong_one_off_server_is_a_usage_error(ran, words, why) -> None:
    done = ran(*words)
    assert done.returncode == 2
    assert why in done.stderr


def test_a_secret_in_a_bad_header_is_not_repeated(ran) -> None:
    done = ran("tools", "--url", "http://127.0.0.1:1/mcp", "--header", "hunter2")
    assert done.returncode == 2
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("name", ["mooring.yaml", "mooring.toml", "mooring.json"])
@pytest.mark.parametrize("with_demo", [True, False])
def test_init_writes_a_file_that_loads_and_runs(ran, tmp_path: Path, name: str, with_demo: bool) -> None:
    done = ran("init", name, *(["--demo"] if with_demo else []), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["file"] == name
    listed = ran("list", "--json")
    assert listed.returncode == 0, listed.stderr
    states = {server["name"]: server["state"] for server in json.loads(listed.stdout)["servers"]}
    assert states == ({"notes": "connected", "clock": "connected"} if with_demo else {})


def test_init_never_changes_a_file_that_exists(ran, tmp_path: Path) -> None:
    (tmp_path / "mooring.yaml").write_text("servers: {}\n")
    done = ran("init")
    assert done.returncode == 2
    assert "mooring add" in done.stderr
    assert (tmp_path / "mooring.yaml").read_text() == "servers: {}\n"


def test_help_is_the_same_as_the_option(ran) -> None:
    assert ran("help").stdout == help_text()
    for command in COMMANDS:
        assert ran("help", command).stdout == help_text(command)
    assert "Did you mean 'call'?" in ran("help", "cal").stderr


def test_version_names_python_and_the_protocols(ran) -> None:
    shown = json.loads(ran("version", "--json").stdout)
    assert shown["protocols"][-1] == "2026-07-28"
    assert shown["version"] in ran("--version").stdout


def test_schema_is_written_to_a_file_for_editors(ran, tmp_path: Path) -> None:
    assert ran("schema", "--output", "s.json").returncode == 0
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(ran("schema").stdout)
    done = ran("schema", "--output", "missing/s.json")
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True)


def test_every_cause_that_doctor_reports_is_explained() -> None:
    written = set(re.findall(r'code="([a-z-]+)"', Path(doctor.__file__).read_text()))
    assert len(written) >= 10
    assert set(get_args(Cause)) | written == explanations().keys()


def test_every_page_that_the_program_names_exists_and_troubleshooting_has_every_code() -> None:
    root = Path(__file__).parents[2]
    sources = [*(root / "src/mooring").rglob("*.py"), *(root / "src/mooring").rglob("*.md")]
    named = {page for file in sources for page in re.findall(r"docs/[\w/-]+\.md", file.read_text("utf-8"))}
    assert "docs/troubleshooting.md" in named
    assert [page for page in sorted(named) if not (root / page).is_file()] == []
    page = (root / "docs/troubleshooting.md").read_text("utf-8")
    assert set(re.findall(r"(?m)^## ([a-z-]+)$", page)) == explanations().keys()


def test_each_problem_that_doctor_finds_has_a_code_to_explain(ran, config) -> None:
    file = config({"broken": "broken", "npx": {"command": "npx-that-is-missing", "args": []}})
    found = json.loads(ran("--config", file, "doctor", "--json").stdout)
    codes = {one["code"] for one in found if one["level"] != "info" and one["server"]}
    assert codes == {"crash", "command-not-found"}
    assert codes <= explanations().keys()
    assert all(one["code"] is None for one in found if one["level"] == "info")


def test_explain_prints_one_text_or_all_and_suggests_the_nearest_code(ran) -> None:
    assert "connect_timeout" in ran("explain", "no-answer").stdout
    assert {one["code"] for one in json.loads(ran("explain", "--json").stdout)} == explanations().keys()
    assert "Did you mean 'no-answer'?" in ran("explain", "no-anser").stderr


def test_logs_shows_what_a_server_wrote_in_an_earlier_run(piped, config, tmp_path: Path) -> None:
    file = config({"broken": "broken", "notes": "notes"})
    piped("--config", file, "list")
    shown = piped("logs")
    assert "broken" in shown.stdout
    assert "cannot read /etc/broken.conf" in shown.stdout
    assert piped("logs", "-n", "0").stdout == ""
    assert piped("logs", "-n", "-1").returncode == 2
    silent = piped("--config", file, "logs", "notes")
    assert (silent.returncode, silent.stderr) == (0, "note: notes has written nothing to stderr yet.\n")
    unknown = piped("--config", file, "logs", "note")
    assert (unknown.returncode, "Did you mean 'notes'?" in unknown.stderr) == (2, True)
    [log] = (tmp_path / "home").glob("logs/*.log")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_logs_hold_no_secret_and_no_terminal_escape(piped, tmp_path: Path) -> None:
    program = "import os, sys; print('key', os.environ['KEY'], '\\x1b[2J', file=sys.stderr); sys.exit(1)"
    entry = {"command": "python3", "args": ["-c", program], "env": {"KEY": "${SECRET_KEY}"}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"leaky": entry}}))
    piped("--config", str(file), "list", SECRET_KEY="s3cr3t-v4lue-of-a-key")
    shown = piped("logs", "leaky").stdout
    assert "key ***" in shown
    assert "s3cr3t" not in "".join(path.read_text() for path in (tmp_path / "home").rglob("*.log"))
    assert "\x1b" not in shown


def test_a_log_stops_growing_at_its_limit(piped, config, tmp_path: Path) -> None:
    logs = tmp_path / "home" / "logs"
    logs.mkdir(parents=True)
    (logs / "broken.log").write_text("x" * 2**20)
    (logs / "broken.old").write_text("older")
    file = config({"broken": "broken"})
    piped("--config", file, "list")
    assert (logs / "broken.old").read_text().startswith("x" * 2**20)
    piped("--config", file, "list")
    assert "cannot read" in (logs / "broken.log").read_text()[:500]
    assert len(list(logs.iterdir())) == 2
