"""`mooring doctor`: every kind of problem, with real servers, gets a cause and the next command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dirty_equals import IsPartialDict, IsStr
from inline_snapshot import snapshot


def document(done) -> list[dict[str, Any]]:
    return json.loads(done.stdout)


def about(findings: list[dict[str, Any]], server: str) -> list[dict[str, Any]]:
    return [finding for finding in findings if finding["server"] == server]


def test_when_all_is_well_there_is_no_error(ran, config) -> None:
    file = config({"clock": "clock", "spare": {"bundled": "notes", "disabled": True}})
    done = ran("doctor", "--json", "--config", file)
    findings = document(done)
    assert done.returncode == 0
    assert {tuple(finding) for finding in findings} == {("level", "server", "finding", "next", "code")}
    infos = [finding["finding"] for finding in findings if finding["level"] == "info"]
    assert infos[0].startswith("python 3.")
    assert {"mooring", "mcp"} <= {text.split()[0] for text in infos}
    assert f"configuration {file} (explicit)" in infos
    assert about(findings, "clock") == [
        IsPartialDict(level="info", finding="connected: stdio, protocol 2026-07-28, 2 tools")
    ]
    assert about(findings, "spare") == [IsPartialDict(level="info", finding="disabled")]


def test_each_trouble_has_a_cause_and_a_next_step(ran, config) -> None:
    old = "raise ModuleNotFoundError(\"No module named 'mcp.server.fastmcp'\")"
    troubled = {
        "absent": {"command": "no-such-program"},
        "broken": "broken",
        "silent": {"bundled": "silent", "connect_timeout": "0.5s"},
        "secret": {"command": "true", "env": {"KEY": "${MOORING_TEST_KEY}"}},
        "old": {"command": sys.executable, "args": ["-S", "-c", old]},
        "closed": {"url": "http://127.0.0.1:1/mcp"},
    }
    done = ran("doctor", "--json", "--config", config(troubled))
    assert done.returncode == 1
    findings = document(done)
    causes = {f["server"]: f["finding"].split(":")[0] for f in findings if f["level"] == "error"}
    assert causes == {
        "absent": "command-not-found",
        "broken": "crash",
        "silent": "no-answer",
        "secret": "missing-variable",
        "old": "sdk-mismatch",
        "closed": "refused",
    }
    assert "cannot read /etc/broken.conf" in about(findings, "broken")[0]["finding"]
    assert about(findings, "secret")[0]["next"] == "export MOORING_TEST_KEY=…"
    assert "'mcp<2'" in about(findings, "old")[0]["next"]
    assert all(finding["next"] for finding in findings if finding["level"] == "error")


def test_doctor_on_a_terminal(terminal, config) -> None:
    shown = terminal("doctor", "--config", config({"clock": "clock", "broken": "broken"}))
    assert shown.code == 1
    assert shown.text[shown.text.index("✗") :] == snapshot("""\
✗ broken: the server exited with code 1 [crash]
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
    → See everything that it prints: `mooring list --verbose`.
✓ clock: connected: stdio, protocol 2026-07-28, 2 tools
! 2 servers: 1 ok, 1 failed
""")


def test_the_last_line_counts_the_servers(ran, config) -> None:
    good = config({"clock": "clock", "notes": "notes", "spare": {"bundled": "notes", "disabled": True}})
    assert ran("doctor", "--config", good).stdout.endswith("✓ 3 servers: 2 ok, 1 disabled\n")
    bad = config({"clock": "clock", "broken": "broken", "absent": {"command": "no-such-program"}})
    assert ran("doctor", "--config", bad).stdout.endswith("! 3 servers: 1 ok, 2 failed\n")
    assert document(ran("doctor", "--json", "--config", bad))[-1] == {
        "level": "warning",
        "server": None,
        "finding": "3 servers: 1 ok, 2 failed",
        "next": None,
        "code": None,
    }


def test_the_first_error_of_a_long_output_is_shown_and_understood(ran, config) -> None:
    script = (
        "import sys\n"
        "for n in range(30): print('npm warn deprecated', n, file=sys.stderr)\n"
        "print('Error: WEATHER_API_KEY is required', file=sys.stderr)\n"
        "for n in range(60): print('    at node:internal', n, file=sys.stderr)\n"
        "sys.exit(1)"
    )
    file = config({"weather": {"command": sys.executable, "args": ["-S", "-c", script]}})
    [found] = about(document(ran("doctor", "--json", "--config", file)), "weather")
    assert "its first errors on stderr:\nError: WEATHER_API_KEY is required\n" in found["finding"]
    assert found["finding"].startswith("missing-variable: ")
    assert found["finding"].endswith("    at node:internal 59")
    assert len(found["finding"].splitlines()) < 30
    assert '"env": {"WEATHER_API_KEY": "${WEATHER_API_KEY}"}' in found["next"]


def test_errors_of_the_start_are_not_shown_when_a_server_fails_later(ran, config) -> None:
    from tests.lab.stdio import COMMAND

    script = json.dumps({"tools": ["crash"]})
    noisy = "import sys, subprocess\nprint('error: cosmetic', file=sys.stderr)\n" + (
        "[print('log', n, file=sys.stderr) for n in range(40)]\n"
        "sys.stderr.flush()\nsys.exit(subprocess.call(sys.argv[1:]))"
    )
    args = ["-S", "-c", noisy, *COMMAND, script]
    done = ran(
        "call", "mcp_lab_crash", "--config", config({"lab": {"command": sys.executable, "args": args}})
    )
    assert done.returncode == 1
    assert "cosmetic" not in done.stderr


def test_progress_is_shown_while_the_servers_are_looked_at(terminal, config) -> None:
    shown = terminal("doctor", "--timeout", "1", "--config", config({"silent": "silent"}))
    assert "starting" in shown.raw.split("\x1b[?25l")[1]
    assert "starting" not in shown.text.replace("still starting", "")


def test_doctor_in_a_pipe(ran, config) -> None:
    done = ran("doctor", "--config", config({"clock": "clock", "bad": {"command": 7}}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "! bad: " in done.stdout
    assert "    → Correct it in " in done.stdout


def test_a_package_without_a_version_is_warned_of(ran, config, tmp_path: Path) -> None:
    runner = tmp_path / "npx"
    runner.write_text("#!/bin/sh\nexit 1\n")
    runner.chmod(0o755)
    file = config({"pkg": {"command": str(runner), "args": ["-y", "@scope/thing"]}})
    warning = about(document(ran("doctor", "--json", "--config", file)), "pkg")[1]
    assert warning["level"] == "warning"
    assert "@scope/thing" in warning["finding"]
    assert "@scope/thing@1.2.3" in warning["next"]


def test_a_client_secret_without_an_issuer_is_warned_of(ran, config) -> None:
    client = {"client_id": "robot", "client_secret": "${ROBOT:-hidden-value}"}
    auth = {
        "open": client,
        "bound": {**client, "issuer": "https://login.example"},
        "public": {"client_id": "robot"},
    }
    done = ran(
        "doctor",
        "--json",
        "--config",
        config({name: {"url": "http://127.0.0.1:1/mcp", "auth": one} for name, one in auth.items()}),
    )
    assert [found["server"] for found in document(done) if found["code"] == "issuer"] == ["open"]
    assert "hidden-value" not in done.stdout + done.stderr


def test_the_lock_is_looked_at_too(ran, config, lab, tmp_path: Path) -> None:
    file = config({"lab": lab.entry})
    ran("lock", "--config", file)
    lab.offers(read="Read it otherwise.", send="Send a letter.")
    findings = document(ran("doctor", "--json", "--config", file))
    assert about(findings, "lab")[1] == IsPartialDict(
        level="warning", finding="1 change since the lock was written", next="mooring check"
    )
    (tmp_path / "mooring.lock").write_text("{")
    done = ran("doctor", "--json", "--config", file)
    assert done.returncode == 1
    assert IsPartialDict(
        level="error",
        finding=IsStr(regex="the lock cannot be used, and hides the tools that it covers: .*"),
        next=IsStr(),
    ) in document(done)


def test_a_configuration_that_cannot_be_read_is_a_finding(ran, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    done = ran("doctor", "--json", "--config", "bad.json")
    assert done.returncode == 1
    assert "bad.json" in document(done)[-1]["finding"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_children_that_an_earlier_run_left_behind_are_listed_and_not_ended(ran, config) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    mine = os.environ | {"MOORING_CHILD": f"{os.getpid()}-1-abcd"}
    theirs = os.environ | {"MOORING_CHILD": f"{gone.pid}-1-abcd"}
    with (
        subprocess.Popen(["sleep", "60", "0"], env=theirs) as stray,
        subprocess.Popen(["sleep", "60"], env=mine) as child,
    ):
        done = ran("doctor", "--json", "--config", config({}))
        alive = stray.poll() is None
        stray.kill()
        child.kill()
    assert alive
    left = {finding["next"]: finding["finding"] for finding in document(done)}
    expected = f"process {stray.pid} of an earlier run is still running: sleep 60"
    assert left[f"kill {stray.pid}"] == expected, "and not its further arguments, which may be secrets"
    assert f"kill {child.pid}" not in left


def test_doctor_names_literal_secrets_without_showing_them(ran, config) -> None:
    entry = {"bundled": "notes", "env": {"API_KEY": "sk-live-1234567890abcdef", "OTHER_KEY": "${HOME}"}}
    done = ran("--config", config({"notes": entry}), "doctor", "--json")
    found = [one for one in json.loads(done.stdout) if one["code"] == "secret"]
    assert [(one["server"], "API_KEY" in one["finding"]) for one in found] == [("notes", True)]
    assert "sk-live" not in done.stdout + done.stderr
    assert done.returncode == 0
