"""Skills: addresses, limits of the manifest, and the comparison of what was listed with what was read."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.skills import (
    MOST_BYTES,
    MOST_FILES,
    InvalidSkillError,
    changed_field,
    entries_of,
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


DYNAMIC = {**entry(), "resources": "dynamic"}


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


def test_an_address_belongs_to_the_skills_whose_manifest_has_exactly_it() -> None:
    listed = read_skill_entry("s", entry(("SKILL.md", 1), ("docs/a.md", 2)))
    other = read_skill_entry("s", {**DYNAMIC, "uri": "skill://other/refunds/SKILL.md"})
    found = entries_of([listed, other], f"{ROOT}/docs/a.md")
    assert found is not None
    assert [(skill, file and file.size) for skill, file in found] == [(listed, 2)]
    assert entries_of([listed, other], "skill://acme/other/a.md") is None
    assert entries_of([listed, other], "skill://acme/refunds-2/a.md") is None
    assert entries_of([], f"{ROOT}/docs/a.md") is None


@pytest.mark.parametrize(
    "uri", [f"{ROOT}/docs/b.md", f"{ROOT}/docs%2Fa.md", f"{ROOT}//docs/a.md", f"{ROOT}/x/../docs/a.md", ROOT]
)
def test_another_spelling_or_file_in_the_directory_of_a_skill_is_refused(uri: str) -> None:
    listed = read_skill_entry("s", entry(("SKILL.md", 1), ("docs/a.md", 2)))
    with pytest.raises(InvalidSkillError, match="has no file of exactly this address"):
        entries_of([listed], uri)


def test_a_skill_without_a_manifest_has_every_plain_address_in_its_directory() -> None:
    generated = read_skill_entry("s", DYNAMIC)
    assert generated.files is None
    assert entries_of([generated], f"{ROOT}/any.md") == ((generated, None),)
    with pytest.raises(InvalidSkillError):
        entries_of([generated], f"{ROOT}/docs/../any.md")


def test_of_nested_skills_the_inner_one_decides() -> None:
    outer = read_skill_entry("s", DYNAMIC)
    uri = f"{ROOT}/inner/refunds/SKILL.md"
    inner = read_skill_entry(
        "s", {**DYNAMIC, "uri": uri, "resources": [{"uri": uri, "digest": DIGEST, "size": 1}]}
    )
    for skills in ([outer, inner], [inner, outer]):
        assert entries_of(skills, f"{ROOT}/any.md") == ((outer, None),)
        with pytest.raises(InvalidSkillError):
            entries_of(skills, f"{ROOT}/inner/refunds/any.md")


def test_an_error_names_at_most_twenty_supporting_files() -> None:
    skill = read_skill_entry("s", entry(("SKILL.md", 1), *((f"{number:02}.md", 1) for number in range(25))))
    with pytest.raises(InvalidSkillError, match=r"18\.md, 19\.md$"):
        file_of(skill, "c.md")
