"""Skills: addresses, limits of the manifest, and the comparison of what was listed with what was read."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.skills import (
    MOST_BYTES,
    MOST_FILES,
    InvalidSkillError,
    changed_field,
    file_of,
    read_skill_entry,
    root_of,
)

ROOT = "skill://acme/refunds"
DIGEST = f"sha256:{'0' * 64}"


def entry(*files: tuple[str, int]) -> dict[str, Any]:
    return {
        "uri": f"{ROOT}/SKILL.md",
        "frontmatter": {"name": "refunds", "description": "How to refund"},
        "resources": [{"uri": f"{ROOT}/{path}", "digest": DIGEST, "size": size} for path, size in files],
    }


def test_the_directory_of_a_skill_needs_a_scheme() -> None:
    assert root_of("skill://acme/refunds/SKILL.md") == ROOT
    assert root_of("x:/SKILL.md") == "x:"
    assert root_of(":/refunds/SKILL.md") is None
    assert root_of("acme/refunds/SKILL.md") is None
    assert root_of("skill://acme/refunds/other.md") is None


def test_a_manifest_may_have_as_many_files_and_bytes_as_the_limits_say() -> None:
    most = [("SKILL.md", 1), *((f"{number}.md", 0) for number in range(MOST_FILES - 1))]
    assert len(read_skill_entry("s", entry(*most)).files or ()) == MOST_FILES
    with pytest.raises(InvalidSkillError, match="more than 512 files"):
        read_skill_entry("s", entry(*most, ("one-more.md", 0)))

    assert read_skill_entry("s", entry(("SKILL.md", MOST_BYTES))).files
    with pytest.raises(InvalidSkillError, match="more than 16 MiB"):
        read_skill_entry("s", entry(("SKILL.md", MOST_BYTES), ("a.md", 1)))


def test_an_empty_file_is_a_valid_file_and_a_negative_size_is_not() -> None:
    assert read_skill_entry("s", entry(("SKILL.md", 0))).files
    with pytest.raises(InvalidSkillError, match="no valid size"):
        read_skill_entry("s", entry(("SKILL.md", -1)))


@pytest.mark.parametrize("path", ["a//b.md", "./a.md", "a/..", "%2e%2e/a", "a?b", "a#b", "a\\b", ""])
def test_a_path_with_an_empty_or_relative_step_is_outside_of_the_skill(path: str) -> None:
    with pytest.raises(InvalidSkillError, match="not inside"):
        read_skill_entry("s", entry(("SKILL.md", 1), (path, 1)))


def test_an_unknown_file_is_refused_with_the_files_that_there_are() -> None:
    skill = read_skill_entry("s", entry(("SKILL.md", 1), ("b.md", 1), ("docs/a.md", 1)))
    with pytest.raises(InvalidSkillError) as raised:
        file_of(skill, "c.md")
    assert str(raised.value) == "it has no file 'c.md'; its supporting files: b.md, docs/a.md"

    with pytest.raises(InvalidSkillError, match=r"its supporting files: none$"):
        file_of(read_skill_entry("s", entry(("SKILL.md", 1))), "c.md")

    found, listed = file_of(skill, "./docs/a.md")
    assert found == f"{ROOT}/docs/a.md"
    assert listed is not None
    assert listed.size == 1


@pytest.mark.parametrize(
    ("listed", "read", "same"),
    [
        (True, "Yes", True),
        (False, "off", True),
        (True, "off", False),
        (True, "perhaps", False),
        (True, ["true"], False),
        (3, "3.0", True),
        (3, "4", False),
        (3, "three", False),
        (3, ["3"], False),
        (10**400, "3", False),
        (None, None, True),
        (None, "", False),
        ("", None, True),
        ("", "", True),
        ("", "x", False),
        ("x", None, False),
        ("x", "x", True),
        (["x"], "x", False),
        (["x", True], ["x", "on"], True),
        (["x", True], ["x", "no"], False),
        ({"k": 1}, {"k": "1"}, True),
        ({"k": 1}, "1", False),
    ],
)
def test_a_listed_value_equals_the_text_that_yaml_has_for_it(listed: Any, read: Any, same: bool) -> None:
    assert changed_field({"key": listed}, {"key": read}) == (None if same else "key")
