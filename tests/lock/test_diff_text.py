"""The text of changes: headlines, excerpts, limits, and changes of a server without a lock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mooring.core.types import Prompt, Snapshot
from mooring.lock.diff import (
    Change,
    changes_between,
    describe,
    shown_name,
    since_last_run,
    summary,
    warnings_of,
)
from mooring.lock.schema_diff import Difference
from tests.lab.offers import FILES, snapshot, tool

NOT_PINNABLE = {"type": "object", "x": float("nan")}


def only(before: Snapshot, after: Snapshot) -> Change:
    [change] = changes_between(before, after)
    return change


def changed(*differences: Difference, **more: Any) -> Change:
    fields: dict[str, Any] = {"server": "files", "subject": "tool", "name": "read", "kind": "text", **more}
    return Change(**fields, differences=differences)


def text(
    before: str | None, after: str | None, path: str = "description", weight: Any = "text"
) -> Difference:
    return Difference(path=path, weight=weight, before=before, after=after)


# --- headlines


def test_each_kind_of_change_has_its_own_headline() -> None:
    new = only(snapshot(), snapshot(tool("a", "A")))
    assert summary(new).startswith("Tool 'a' of server 'files' is new: it was never approved. See it with")
    gone = only(snapshot(tool("a", "A")), snapshot())
    assert summary(gone).startswith("Tool 'a' of server 'files' was approved and is no longer offered.")
    renamed = only(snapshot(tool("a", "A")), snapshot(tool("b", "A")))
    assert "is new: it is the approved 'a' under another name" in summary(renamed)
    assert summary(changed(text('"a"', '"b"'))).startswith(
        "Tool 'read' of server 'files' is not what was approved: description changed (text)."
    )


def test_a_new_entry_that_cannot_be_pinned_says_so_and_shows_no_definition() -> None:
    change = only(snapshot(), snapshot(tool("a", "A", input_schema=NOT_PINNABLE)))
    assert "is new and cannot be pinned: it was never approved" in summary(change)
    assert describe(change).splitlines()[1:] == ["Accept it with `mooring approve files/a`."]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("launch", "is configured to run or reach something other than what was approved"),
        ("protocol", "speaks an older protocol than it did when it was approved"),
        ("text", "identifies itself differently since it was approved: title changed"),
    ],
)
def test_a_change_of_the_server_itself_has_a_headline(kind: Any, words: str) -> None:
    change = changed(text('"a"', '"b"', "title"), subject="server", name="files", kind=kind)
    assert summary(change).startswith(f"Server 'files' {words}. See it with `mooring check`")
    assert "accept it with `mooring approve files`" in summary(change)


def test_the_areas_of_a_change_are_named_once_each_in_plain_words() -> None:
    paths = ("input.a", "input.b", "output", "mime_type", "meta.x", "more.y", "csp", "title")
    change = changed(*(text("1", "2", path) for path in paths))
    areas = "input schema, output schema, MIME type, `_meta`, other fields, content security policy, title"
    assert f": {areas} changed" in summary(change)


# --- names


def test_a_name_may_have_80_characters_before_it_is_cut() -> None:
    assert shown_name("x" * 80) == f"'{'x' * 80}'"
    assert shown_name("x" * 81) == f"'{'x' * 79}…'"


def test_only_a_tool_whose_name_fits_on_the_line_is_approved_alone() -> None:
    assert "`mooring approve files/read`" in summary(changed(text("1", "2")))
    longest = changed(text("1", "2"), name="x" * 80)
    assert f"`mooring approve files/{'x' * 80}`" in summary(longest)
    assert "`mooring approve files`" in summary(replace(longest, name="x" * 81))
    assert "`mooring approve files`" in summary(changed(text("1", "2"), subject="prompt"))


# --- descriptions


def test_a_description_of_a_new_tool_shows_the_fields_that_it_has() -> None:
    change = only(snapshot(), snapshot(tool("a", "Reads.", input_schema={"type": "object"})))
    lines = describe(change).splitlines()
    assert lines[0] == "Tool 'a' of server 'files' is new: it was never approved."
    assert '  description: "Reads."' in lines
    assert '  input: {"type": "object"}' in lines
    assert not any(line.startswith(("  name", "  title", "  annotations")) for line in lines)


def test_a_changed_tool_is_described_by_its_differences_alone() -> None:
    before, after = snapshot(tool("a", "Old")), snapshot(tool("a", "New"))
    assert describe(only(before, after)).splitlines() == [
        "Tool 'a' of server 'files' is not what was approved: description changed (text):",
        "  description (text)",
        '    - "Old"',
        '    + "New"',
        "Accept it with `mooring approve files/a`.",
    ]


def test_a_value_that_was_or_is_missing_has_one_line() -> None:
    assert describe(changed(text(None, "1"))).splitlines()[2:-1] == ["    + 1"]
    assert describe(changed(text("1", None))).splitlines()[2:-1] == ["    - 1"]


def test_the_common_start_of_two_long_values_is_left_out() -> None:
    def excerpts(common: int) -> list[str]:
        lines = describe(changed(text("=" * common + "a", "=" * common + "b"))).splitlines()
        return [line.strip() for line in lines[2:4]]

    assert excerpts(60) == [f"- {'=' * 60}a", f"+ {'=' * 60}b"]
    assert excerpts(61) == [f"- …{'=' * 60}a", f"+ …{'=' * 60}b"]
    longer = describe(changed(text("=" * 100, "=" * 100 + "b"))).splitlines()
    assert longer[2].strip() == f"- …{'=' * 60}"
    assert longer[3].strip() == f"+ …{'=' * 60}b"


def test_a_long_value_is_cut_at_400_characters() -> None:
    lines = describe(changed(text("a" * 400, "b" * 401))).splitlines()
    assert lines[2] == f"    - {'a' * 400}"
    assert lines[3] == f"    + {'b' * 399}…"


def test_a_description_shows_20_places_and_the_number_of_the_rest() -> None:
    places = [text("1", "2", f"input.{number}") for number in range(22)]
    assert "more places" not in describe(changed(*places[:20]))
    assert "  … and 2 more places" in describe(changed(*places)).splitlines()
    assert "input.20" not in describe(changed(*places))
    assert "input.19" in describe(changed(*places))


# --- the order of words


@pytest.mark.parametrize(
    ("differences", "reordered"),
    [
        ([text('"a, b"', '"b, a"')], True),
        ([text('"a, b"', '"b, c"')], False),
        ([text('"a b"', '"a \u200bb"')], False),
        ([text('"a, b"', '"b, a!"')], False),
        ([text('"a, b"', '"b, a"'), text('"a"', '"b"')], False),
        ([text('"a, b"', '"b, a"', weight="breaking")], False),
        ([text(None, '"a"')], False),
        ([text('"a"', None)], False),
        ([], False),
    ],
)
def test_advice_about_the_order_of_words_is_given_only_if_nothing_else_differs(
    differences: list[Difference], reordered: bool
) -> None:
    change = changed(*differences)
    assert ("Only the order of the words differs." in summary(change)) == reordered
    assert ("Only the order of the words differs." in describe(change)) == reordered
    warned, noted = since_last_run([change])
    assert (noted == ("'read'",), len(warned)) == (reordered, 0 if reordered else 1)


# --- many changes


def test_there_is_one_warning_for_each_of_20_changes_and_one_for_the_rest() -> None:
    changes = [changed(text("1", "2"), name=f"t{number}") for number in range(22)]
    assert len(warnings_of(changes[:20])) == 20
    assert "more changes" not in " ".join(warnings_of(changes[:20]))
    assert "1 more changes" in warnings_of(changes[:21])[20]
    assert warnings_of(changes)[20:] == ("Server 'files': 2 more changes; see `mooring check`.",)


# --- without a lock


def test_a_definition_that_changed_since_the_last_run_is_a_warning() -> None:
    warned, noted = since_last_run([changed(text('"a"', '"b"'))])
    assert warned == (
        "Tool 'read' of server 'files' changed since the last run: description (text). "
        "There is no lock, so nothing is blocked; `mooring lock` pins what servers offer.",
    )
    assert noted == ()


def test_entries_that_come_and_go_are_notes() -> None:
    before, after = snapshot(tool("a", "A"), tool("b", "B")), snapshot(tool("c", "C"), tool("d", "A"))
    warned, noted = since_last_run(changes_between(before, after))
    assert warned == ()
    assert sorted(noted) == ["'b'", "'c'", "'d'"]


def test_an_older_protocol_is_a_warning_and_another_name_of_the_server_a_note() -> None:
    older = replace(FILES, info=replace(FILES.info, protocol="2025-11-25"))
    warned, noted = since_last_run(changes_between(FILES, older))
    assert warned == ("Server 'files' speaks an older protocol than in the last run.",)
    assert noted == ()
    titled = replace(FILES, info=replace(FILES.info, title="Vault"))
    assert since_last_run(changes_between(FILES, titled)) == ((), ("the server itself",))


def test_warnings_and_notes_about_the_last_run_are_limited() -> None:
    many = [changed(text('"a"', '"b"'), name=f"t{number}") for number in range(22)]
    warned, _ = since_last_run(many[:20])
    assert len(warned) == 20
    assert "more changes" not in " ".join(warned)
    warned, _ = since_last_run(many)
    assert len(warned) == 21
    assert warned[20].startswith("Server 'files': 2 more changes since the last run. There is no lock")
    _, noted = since_last_run([replace(change, kind="added") for change in many])
    assert len(noted) == 20


def test_a_protocol_that_the_configuration_asks_for_is_no_change() -> None:
    older = replace(FILES, info=replace(FILES.info, protocol="2025-11-25", chosen=True))
    assert changes_between(FILES, older) == ()
    unknown = replace(FILES, info=replace(FILES.info, protocol=None))
    assert changes_between(FILES, unknown) == ()
    assert changes_between(unknown, FILES) == ()


def test_a_schema_that_cannot_be_pinned_differs_from_every_other() -> None:
    before, after = snapshot(tool("a", "A", input_schema=NOT_PINNABLE)), snapshot(tool("a", "A"))
    for change in (only(before, after), only(after, before)):
        assert [(one.path, one.weight, one.before, one.after) for one in change.differences] == [
            ("definition", "breaking", None, None)
        ]


def test_what_cannot_be_pinned_is_never_a_renamed_entry() -> None:
    before = snapshot(tool("a", "A", input_schema=NOT_PINNABLE), tool("b", "B"))
    after = snapshot(tool("c", "A", input_schema=NOT_PINNABLE), tool("d", "B"))
    found = {change.name: change.kind for change in changes_between(before, after)}
    assert found == {"a": "removed", "c": "added", "d": "renamed"}


def test_of_two_equal_entries_each_is_renamed_once() -> None:
    before = snapshot(tool("a", "A"))
    after = snapshot(tool("b", "A"), tool("c", "A"))
    found = {change.name: change.kind for change in changes_between(before, after)}
    assert found == {"b": "renamed", "c": "added"}


def test_one_is_not_true_and_the_difference_is_noticed() -> None:
    def offer(value: Any) -> Snapshot:
        return snapshot(tool("a", "A", annotations={"readOnlyHint": value}))

    assert only(offer(1), offer(True)).kind == "annotations"


def test_a_change_names_twenty_places_and_counts_the_others() -> None:
    places = [text("1", "2", path=f"p{number}") for number in range(22)]
    assert "more places" not in describe(changed(*places[:20]))
    assert "… and 1 more places" in describe(changed(*places[:21]))
    assert "… and 2 more places" in describe(changed(*places))


def test_letters_of_any_script_are_shown_as_they_are() -> None:
    prompts = [
        snapshot(prompts=(Prompt(name="p", server="files", arguments=({"name": "a", "description": text},)),))
        for text in ("Grüße", "天气")
    ]
    said = describe(only(prompts[0], prompts[1]))
    assert "Grüße" in said
    assert "天气" in said
