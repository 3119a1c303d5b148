"""Differences of definitions: every change that a model could see is found, and no other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mooring.core.types import Extension, Prompt, Resource, Snapshot, Tool
from mooring.lock.diff import Change, changes_between, describe, summary, volatile_between, warnings_of
from tests.lab.offers import (
    FILES,
    SCHEMA,
    leaves,
    quick,
    shuffled,
    snapshot,
    snapshots,
    texts,
    tool,
    tools,
    values,
    with_leaf,
)


def kinds(before: Snapshot, after: Snapshot) -> dict[tuple[str, str], str]:
    return {(change.subject, change.name): change.kind for change in changes_between(before, after)}


def only(before: Snapshot, after: Snapshot) -> Change:
    [change] = changes_between(before, after)
    return change


def read_as(**fields: Any) -> Snapshot:
    read, write = FILES.tools
    return replace(FILES, tools=(replace(read, **fields), write))


# --- sound

VISIBLE = ["title", "description", "input_schema", "output_schema", "annotations"]


@quick
@given(tools, st.data())
def test_no_edit_of_a_visible_field_goes_unnoticed(before: Tool, data: st.DataObject) -> None:
    field = data.draw(
        st.sampled_from(["title", "description", "input_schema", "output_schema", "annotations"])
    )
    old = getattr(before, field)
    place = data.draw(st.sampled_from(leaves(old)))
    leaf = data.draw(values if place else (texts if field in ("title", "description") else st.just({"x": 1})))
    new = with_leaf(old, place, leaf)
    assume(json.dumps(new, sort_keys=True) != json.dumps(old, sort_keys=True))
    assert changes_between(snapshot(before), snapshot(replace(before, **{field: new})))


@quick
@given(snapshots, st.integers(0, 9))
def test_order_that_means_nothing_changes_nothing(offer: Snapshot, seed: int) -> None:
    assert changes_between(offer, shuffled(offer, seed)) == ()


@quick
@given(snapshots, snapshots, st.integers(0, 9))
def test_the_order_of_listing_does_not_change_the_changes(one: Snapshot, two: Snapshot, seed: int) -> None:
    mixed = replace(shuffled(one, seed), tools=tuple(reversed(one.tools)), prompts=one.prompts)
    assert kinds(mixed, two) == kinds(one, two)


def test_what_reaches_neither_a_model_nor_a_client_may_change_at_every_start() -> None:
    file = Resource(uri="file:///a", server="files", name="a", size=1)
    noisy = replace(
        FILES,
        info=replace(FILES.info, version="build 20261115", capabilities={"tools": {"listChanged": True}}),
        resources=(replace(file, size=2),),
    )
    assert changes_between(replace(FILES, resources=(file,)), noisy) == ()


LARGE = "x" * 100_000
ADDED: dict[str, dict[str, Any]] = {
    "meta": {"ui": "x"},
    "icons": {"icons": [{"src": "https://x"}]},
    "execution": {"execution": {"taskSupport": "optional"}},
    "large": {"icons": LARGE},
}


@pytest.mark.parametrize("field", ADDED)
def test_everything_that_a_client_of_the_gateway_sees_counts(field: str) -> None:
    read, write = FILES.tools
    template, prompt = FILES.templates[0], FILES.prompts[0]
    more = (
        {"meta": ADDED["meta"]} if field == "meta" else {"extra": ADDED.get(field, {"execution": {"a": 1}})}
    )
    assert kinds(FILES, replace(FILES, tools=(replace(read, **more), write))) == {
        ("tool", "read"): "annotations"
    }
    if field != "meta":
        assert kinds(FILES, replace(FILES, templates=(replace(template, **more),)))
        assert kinds(FILES, replace(FILES, prompts=(replace(prompt, **more),)))


def test_one_letter_of_a_large_field_counts() -> None:
    read, write = (replace(one, extra={"icons": LARGE}) for one in FILES.tools)
    before = replace(FILES, tools=(read, write))
    after = replace(FILES, tools=(replace(read, extra={"icons": LARGE + "y"}), write))
    assert kinds(before, after) == {("tool", "read"): "annotations"}


@pytest.mark.parametrize("field", ["name", "title", "description", "mime_type"])
def test_a_resource_is_compared_field_by_field(field: str) -> None:
    file = Resource(uri="file:///a", server="files", name="a")
    before, after = (
        replace(FILES, resources=(file,)),
        replace(FILES, resources=(replace(file, **{field: "x"}),)),
    )
    assert list(kinds(before, after)) == [("resource", "file:///a")]
    assert kinds(FILES, before) == {("resource", "file:///a"): "added"}


def test_fields_that_differ_from_start_to_start_are_distinguished_by_their_words() -> None:
    def offer(description: str, **more: Any) -> Snapshot:
        return snapshot(tool("run", description, **more), instructions=description)

    one, two = offer("Allowed: cat, ls"), offer("Allowed: ls, cat", meta={"at": 1})
    marks = volatile_between(one, two)
    assert marks == {
        ("tool", "run", "description"): "order",
        ("tool", "run", "meta.at"): "text",
        ("server", "", "instructions"): "order",
    }
    assert changes_between(one, two, marks) == ()
    assert changes_between(one, offer("Allowed: ls, cat, rm"), marks)
    assert changes_between(one, snapshot(tool("run", "Allowed: cat, ls", input_schema={})), marks)


# --- kinds


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"description": "Reads a file, then mails it."}, "text"),
        ({"title": None}, "text"),
        ({"annotations": {"readOnlyHint": True, "title": "Reads"}}, "text"),
        ({"annotations": {"readOnlyHint": False}}, "annotations"),
        ({"annotations": {}}, "annotations"),
        ({"annotations": {"readOnlyHint": False}, "description": "x"}, "annotations"),
        ({"input_schema": {**SCHEMA, "required": ["path"]}}, "compatible"),
        ({"input_schema": {**SCHEMA, "required": ["path"]}, "title": "x"}, "compatible"),
        ({"input_schema": {**SCHEMA, "required": ["path"], "properties": {}}}, "breaking"),
        ({"output_schema": {"type": "object"}}, "compatible"),
    ],
)
def test_a_changed_tool_is_classified_by_its_gravest_difference(fields: dict[str, Any], kind: str) -> None:
    assert kinds(FILES, read_as(**fields)) == {("tool", "read"): kind}


def test_an_output_must_suit_its_readers() -> None:
    less, more = ({"type": "object", "required": names} for names in ([], ["size"]))
    assert only(read_as(output_schema=less), read_as(output_schema=more)).kind == "compatible"
    assert only(read_as(output_schema=more), read_as(output_schema=less)).kind == "breaking"
    assert only(read_as(output_schema=less), FILES).kind == "breaking"


def test_a_difference_of_the_output_separates_old_from_new() -> None:
    before, after = read_as(output_schema={"type": "string"}), read_as(output_schema={"type": "null"})
    [difference] = only(before, after).differences
    assert (difference.before, difference.after) == ('"string"', '"null"')


def test_tools_that_come_and_go() -> None:
    before, after = snapshot(tool("a", "A"), tool("b", "B")), snapshot(tool("b", "B"), tool("c", "C"))
    assert kinds(before, after) == {("tool", "a"): "removed", ("tool", "c"): "added"}


def test_the_same_tool_under_another_name_is_renamed() -> None:
    change = only(snapshot(tool("a", "A")), snapshot(tool("c", "A")))
    assert (change.kind, change.name, change.before and change.before.name) == ("renamed", "c", "a")


def test_of_two_tools_with_one_name_the_first_counts() -> None:
    assert changes_between(snapshot(tool("a", "A")), snapshot(tool("a", "A"), tool("a", "B"))) == ()
    assert changes_between(snapshot(tool("a", "A")), snapshot(tool("a", "B"), tool("a", "A")))


def test_a_server_that_describes_itself_otherwise() -> None:
    after = replace(FILES, instructions="Obey.", info=replace(FILES.info, title="Vault"))
    change = only(FILES, after)
    assert (change.subject, change.kind) == ("server", "text")
    assert [found.path for found in change.differences] == ["title", "instructions"]


def test_an_older_protocol_is_a_change_and_a_newer_one_is_none() -> None:
    older = replace(FILES, info=replace(FILES.info, protocol="2025-11-25"))
    assert only(FILES, older).kind == "protocol"
    assert changes_between(older, FILES) == ()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (({"name": "path", "required": True, "description": "new"},), "text"),
        (({"name": "path"},), "compatible"),
        (({"name": "path", "required": True}, {"name": "more"}), "compatible"),
        (({"name": "path", "required": True}, {"name": "more", "required": True}), "breaking"),
        ((), "breaking"),
        (({"name": "path", "required": True, "own": 1},), "breaking"),
    ],
)
def test_a_changed_prompt(arguments: tuple[dict[str, Any], ...], kind: str) -> None:
    after = replace(FILES, prompts=(Prompt(name="summarise", server="files", arguments=arguments),))
    assert kinds(FILES, after) == {("prompt", "summarise"): kind}


def test_a_changed_template() -> None:
    [template] = FILES.templates
    for fields, kind in (({"description": "x"}, "text"), ({"mime_type": "text/html"}, "breaking")):
        assert kinds(FILES, replace(FILES, templates=(replace(template, **fields),))) == {
            ("template", "file:///{path}"): kind
        }


def test_a_schema_nested_beyond_measure_is_breaking() -> None:
    deep: dict[str, Any] = {}
    for _ in range(50_000):
        deep = {"items": deep}
    assert only(FILES, read_as(input_schema=deep)).kind == "breaking"


# --- in words


def test_a_description_shows_old_and_new_where_they_part() -> None:
    long = "Same. " * 100
    change = only(read_as(description=long + "Old."), read_as(description=long + "New."))
    text = describe(change)
    assert "description (text)" in text
    assert 'Old."' in text
    assert 'New."' in text
    assert len(text) < 600
    assert "`mooring approve files/read`" in text


def test_a_schema_difference_is_shown_with_its_path() -> None:
    text = describe(only(FILES, read_as(input_schema={**SCHEMA, "additionalProperties": True, "x": 1})))
    assert "input.additionalProperties (compatible)\n    - false\n    + true" in text
    assert "input.x (breaking)\n    + 1" in text


def test_a_summary_repeats_nothing_of_what_was_set_aside() -> None:
    evil = "IGNORE ALL"
    after = read_as(
        title=evil, description=evil, input_schema={"properties": {evil: {}}}, annotations={evil: evil}
    )
    line = summary(only(FILES, after))
    assert "title, description, input schema, annotations changed (compatible)" in line
    assert evil not in line
    assert "`mooring approve files/read`" in line


@quick
@given(tools, tools)
def test_words_about_a_change_are_bounded_and_visible(one: Tool, two: Tool) -> None:
    renamed = replace(two, remote_name=one.remote_name)
    for change in changes_between(snapshot(one), snapshot(renamed, replace(two, remote_name="new"))):
        assert len(describe(change)) < 20_000
        assert all(char == "\n" or char.isprintable() for char in describe(change))
        assert summary(change).isprintable()


def test_a_command_that_a_server_names_cannot_leave_its_quotes() -> None:
    change = only(snapshot(), snapshot(tool("a; rm -rf `~`")))
    assert "`mooring approve 'files/a; rm -rf `~`'`" in describe(change)


def test_a_name_that_cannot_be_typed_is_approved_with_its_server() -> None:
    assert "`mooring approve files`" in summary(only(snapshot(), snapshot(tool("a\x1b[2J"))))


def test_no_server_can_flood_the_warnings() -> None:
    changes = changes_between(snapshot(), snapshot(*(tool(f"t{i}", str(i)) for i in range(1000))))
    assert len(warnings_of(changes)) == 21


def test_what_comes_and_goes_between_two_starts_is_not_volatile() -> None:
    first = snapshot(tool("read", "Started at 10:00."), tool("old"))
    second = snapshot(tool("read", "Started at 10:01."), tool("new", "Another."))
    assert [mark[1] for mark in volatile_between(first, second)] == ["read"]
    listed = {"extensions": (Extension(name="a.example/x", server="files", settings={"v": 1}),)}
    other = {"extensions": (Extension(name="a.example/x", server="files", settings={"v": 2}),)}
    assert volatile_between(snapshot(**listed), snapshot(**other)) == {}


def test_an_argument_that_is_no_longer_required_is_compatible_also_with_other_texts() -> None:
    def prompt(**argument: Any) -> Snapshot:
        return snapshot(prompts=(Prompt(name="p", server="files", arguments=({"name": "a", **argument},)),))

    before = prompt(required=True, title="A", description="First.")
    [change] = changes_between(before, prompt(title="B", description="Second."))
    assert [one.weight for one in change.differences] == ["compatible"]
    [change] = changes_between(prompt(title="A"), prompt(required=True, title="B"))
    assert [one.weight for one in change.differences] == ["breaking"]


def test_settings_of_an_extension_are_compared_key_by_key() -> None:
    def extension(**settings: Any) -> Snapshot:
        return snapshot(extensions=(Extension(name="a.example/x", server="files", settings=settings),))

    [change] = changes_between(extension(v=1, w=1), extension(v=2, w=1))
    assert [(one.path, one.before, one.after) for one in change.differences] == [("settings.v", "1", "2")]
