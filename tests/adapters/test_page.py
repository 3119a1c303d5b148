"""The documentation of the adapters is correct."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text()


def public(adapter: Path) -> list[str]:
    """The names that an adapter offers, without importing its framework."""
    for node in ast.parse(adapter.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{adapter} has no __all__")


ADAPTERS = {path.stem: public(path) for path in (ROOT / "src/mooring/adapters").glob("[a-z]*.py")}


def test_the_page_names_only_verbs_that_exist_and_every_verb() -> None:
    shown = {(name, verb) for name, verb in re.findall(r"\b(\w+)\.(\w+)\(", PAGE) if name in ADAPTERS}
    shown.discard(("llm", "get_model"))  # of the framework itself
    there = {(name, verb) for name, verbs in ADAPTERS.items() for verb in verbs}
    assert shown - there == set()
    assert {verb for _, verb in shown} == {verb for _, verb in there}


def test_every_adapter_offers_the_verb_of_all() -> None:
    assert [name for name, verbs in ADAPTERS.items() if "tools" not in verbs] == []
