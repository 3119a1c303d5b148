"""Every requirement names tests that exist."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

CHECK = runpy.run_path(str(Path(__file__).parents[2] / "scripts/requirements.py"))
MANIFEST = CHECK["manifest"]()


def test_the_manifest_has_every_id_and_no_other() -> None:
    assert sorted(MANIFEST) == sorted(CHECK["ids"]())


@pytest.mark.parametrize("requirement", CHECK["ids"]())
def test_a_requirement_has_a_sentence_and_a_test(requirement: str) -> None:
    entry = MANIFEST[requirement]
    assert entry["says"].endswith(".")
    assert entry["tests"]


def test_every_test_that_the_manifest_names_exists() -> None:
    assert CHECK["missing"]() == {}, "run `python scripts/requirements.py --fix`"


def test_every_id_in_the_name_of_a_test_is_in_the_manifest() -> None:
    import re

    named = {found for test in CHECK["tests"]() for found in re.findall(r"(?:FA|TH)\d\d", test)}
    assert named <= set(CHECK["ids"]())
