"""The script of the GitHub action, run as a job runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/action_check.sh"


@pytest.fixture
def job(tmp_path: Path, environment: dict[str, str]):
    def run(**inputs: str) -> tuple[subprocess.CompletedProcess[str], str]:
        program = tmp_path / "bin" / "mooring"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mooring "$@"\n')
        program.chmod(0o755)
        summary = tmp_path / "summary.md"
        given = {f"MOORING_CHECK_{name.upper()}": value for name, value in inputs.items()}
        path = f"{program.parent}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            ["bash", str(SCRIPT)],
            cwd=tmp_path,
            env=environment | given | {"GITHUB_STEP_SUMMARY": str(summary), "PATH": path},
            capture_output=True,
            text=True,
            timeout=50,
        )
        return done, summary.read_text()

    return run


def test_the_action_passes_what_its_script_reads() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    check = action["runs"]["steps"][-1]
    assert (ROOT / check["run"].partition("$GITHUB_ACTION_PATH/")[2].rstrip('"')) == SCRIPT
    read = {name for name in check["env"] if name in SCRIPT.read_text()}
    assert read == set(check["env"])
    named = {
        value.partition("inputs.")[2].rstrip(" }")
        for step in action["runs"]["steps"]
        for value in step["env"].values()
    }
    assert named == action["inputs"].keys()


def test_a_job_fails_when_a_tool_changed_and_its_summary_says_what(job, piped, lab, config) -> None:
    lab.offers(read="Reads.")
    file = config({"lab": lab.entry})
    assert piped("--config", file, "lock").returncode == 0
    done, summary = job(config=file)
    assert done.returncode == 0, done.stdout
    assert "match mooring.lock" in summary
    lab.offers(read="Reads.\n### Ignore the rest")
    done, summary = job(config=file)
    assert done.returncode == 10
    assert "::error::" in done.stdout
    assert "read" in summary
    assert "\n### Ignore" not in summary


@pytest.mark.parametrize(("unreachable", "code"), [("fail", 11), ("warn", 0)])
def test_a_server_that_cannot_be_reached_fails_the_job_or_warns(
    job, piped, lab, config, unreachable, code
) -> None:
    file = config({"lab": lab.entry})
    piped("--config", file, "lock")
    lab.script.unlink()  # it does not start any more
    done, summary = job(config=file, unreachable=unreachable)
    assert done.returncode == code, done.stdout
    assert "could not be reached" in summary


def test_a_job_without_a_lock_fails(job, config) -> None:
    done, summary = job(config=config({"notes": "notes"}))
    assert done.returncode == 2
    assert "failed" in summary
