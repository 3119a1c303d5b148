"""The benchmark runs end to end. Its figures are not checked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / script), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


def results(directory: Path, **ratios: float) -> Path:
    """A results file in which every figure that a goal could name has the value 1 and the given ratio."""
    metrics = ("p50", "cpu", "rate", "wall", "memory")
    scenarios: dict[str, Any] = {
        name.replace("_", "-"): {
            "metrics": {metric: {"scale": 0.001} for metric in metrics},
            "figures": {"mooring": {metric: {"value": 1.0, "ratio": ratio} for metric in metrics}},
        }
        for name, ratio in ratios.items()
    }
    file = directory / "results.json"
    file.write_text(json.dumps({"scenarios": scenarios}))
    return file


def test_a_run_measures_mooring_beside_the_sdk_and_writes_table_document_and_chart(tmp_path: Path) -> None:
    only = ("--only", "flood-http")
    done = run("run.py", "--quick", "--cycles", "1", *only, "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr

    doc = json.loads((tmp_path / "latest.json").read_text("utf-8"))
    assert list(doc["scenarios"]) == ["flood-http"]
    for scenario in doc["scenarios"].values():
        assert scenario["failed"] == {}
        assert list(scenario["figures"]) == ["mooring", "mcp_sdk"]
        assert all(figure["ratio"] == 1 for figure in scenario["figures"]["mcp_sdk"].values())
        assert all(figure["ratio"] > 0 for figure in scenario["figures"]["mooring"].values())
    assert doc["contestants"]["mcp_sdk"]["versions"]["mcp"]

    table = (tmp_path / "latest.md").read_text("utf-8")
    assert "## 64 in flight, HTTP" in table
    assert table.strip() == done.stdout.strip()
    assert ElementTree.parse(tmp_path / "latest.svg").getroot().tag.endswith("svg")


def test_the_gate_lets_a_run_pass_that_meets_every_goal(tmp_path: Path) -> None:
    names = (
        "echo_stdio",
        "echo_http",
        "connect_stdio",
        "connect_http",
        "catalog",
        "import_mooring",
        "help",
        "instant",
        "tools",
    )
    done = run("gate.py", "--results", str(results(tmp_path, **dict.fromkeys(names, 0.1))))
    assert (done.returncode, "MISSED" in done.stdout) == (0, False), done.stdout


@pytest.mark.parametrize("goals", ["base", "fast"])
def test_the_gate_names_the_goals_that_were_missed_or_not_measured(tmp_path: Path, goals: str) -> None:
    done = run(
        "gate.py", "--goals", goals, "--results", str(results(tmp_path, echo_stdio=2.0, connect_http=0.1))
    )
    missed = [line for line in done.stdout.splitlines() if line.startswith("MISSED")]
    assert done.returncode == 1
    assert "MISSED  echo-stdio p50 ratio: 2, should be at most 1" in missed
    assert "MISSED  echo-http p50 ratio: not measured, should be at most 1" in missed
    assert not any("connect-http" in line for line in missed)
