"""The examples run unchanged."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mooring
from tests.adapters.contract import installed

EXAMPLES = Path(__file__).parents[2] / "examples"
AGENTS = sorted(path for path in EXAMPLES.glob("*.py") if not path.name.startswith(("harbour", "gateway_")))
OURS = {"mooring", "harbour", "scripted"}


def imported(path: Path) -> set[str]:
    """Modules that an example imports, itself or through its scripted model."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    models = [name.partition(".")[2] for name in names if name.startswith("scripted.")]
    return names.union(*(imported(EXAMPLES / "scripted" / f"{model}.py") for model in models))


def missing(path: Path) -> list[str]:
    """Packages that an example needs and that are not installed."""
    return sorted(n for n in imported(path) if n.partition(".")[0] not in OURS and not installed(n))


@pytest.mark.parametrize("path", [path for path in AGENTS if not missing(path)], ids=lambda path: path.stem)
def test_an_example_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    """Those whose framework is installed: `make test-adapters` runs all."""
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
    shown = {
        name
        for path in AGENTS
        for name in adapters
        if f"mooring.adapters import {name}\n" in path.read_text()
    }
    assert shown == adapters
