"""The examples run as they stand."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import mooring

EXAMPLES = Path(__file__).parents[2] / "examples"
AGENTS = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "harbour.py")
OURS = {"mooring", "harbour", "scripted"}


def missing(path: Path) -> list[str]:
    """Packages that an example imports and that are not installed."""
    tree = ast.parse(path.read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    tops = {name.partition(".")[0] for name in names} - OURS
    return sorted(name for name in tops if find_spec(name) is None)


@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.stem)
def test_an_example_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    if lacking := missing(path):
        pytest.skip(f"{', '.join(lacking)} not installed; see make test-adapters")
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(mooring.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    assert "The boat lies at pier 7." in done.stdout


def test_every_adapter_has_an_example() -> None:
    adapters = {path.stem for path in (Path(mooring.__file__).parent / "adapters").glob("[a-z]*.py")}
    shown = {name for path in AGENTS for name in adapters if f"mooring.adapters import {name}\n" in path.read_text()}
    assert shown == adapters
