"""What the page on adapters shows is true."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

from mooring import demo

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text()


def public(adapter: Path) -> list[str]:
    """The names that an adapter offers, without importing its framework."""
    for node in ast.parse(adapter.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{adapter} has no __all__")


ADAPTERS = {path.stem: public(path) for path in (ROOT / "src/mooring/adapters").glob("[a-z]*.py")}


def test_the_example_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    command, *args = demo.command("notes")
    servers = {"mcpServers": {"notes": {"command": command, "args": args}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers))
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in re.findall(r"# prints: (.*)", source) if line not in done.stdout] == []


def test_the_page_names_only_verbs_that_exist_and_every_verb() -> None:
    shown = {(name, verb) for name, verb in re.findall(r"\b(\w+)\.(\w+)\(", PAGE) if name in ADAPTERS}
    shown.discard(("llm", "get_model"))  # of the framework itself
    there = {(name, verb) for name, verbs in ADAPTERS.items() for verb in verbs}
    assert shown - there == set()
    assert {verb for _, verb in shown} == {verb for _, verb in there}


def test_every_adapter_offers_the_verb_of_all() -> None:
    assert [name for name, verbs in ADAPTERS.items() if "tools" not in verbs] == []
