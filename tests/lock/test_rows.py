"""Pins as rows: equal pins have equal bytes, and the bytes restore the pin."""

from __future__ import annotations

import pytest
from hypothesis import given

from mooring.core.types import Prompt, Resource, Snapshot
from mooring.lock.cache import read_rows, write_rows
from mooring.lock.compare import compare, pin_of
from tests.lab.offers import FILES, PRINT, quick, snapshot, snapshots, tool


@quick
@given(snapshots)
def test_what_is_written_is_read_again(offer: Snapshot) -> None:
    pin = pin_of(offer, PRINT)
    assert read_rows(write_rows(pin)) == pin


@quick
@given(snapshots, snapshots)
def test_pins_with_the_same_bytes_do_not_differ(one: Snapshot, other: Snapshot) -> None:
    first, second = pin_of(one, PRINT), pin_of(other, PRINT)
    assert write_rows(first) != write_rows(second) or not compare(first, other)


def test_unknown_fields_of_every_entry_are_kept() -> None:
    prompt = Prompt(name="p", server="files", extra={"icon": "a"})
    resource = Resource(uri="a://x", server="files", name="x", extra={"icon": "b"})
    offer = snapshot(tool("read", extra={"icon": "c"}), prompts=(prompt,), resources=(resource,))
    read = read_rows(write_rows(pin_of(offer, PRINT))).snapshot
    assert [entry.extra for entry in (*read.tools, *read.resources, *read.prompts)] == [
        {"icon": "c"}, {"icon": "b"}, {"icon": "a"},
    ]  # fmt: skip


def test_halves_of_characters_are_distinguished() -> None:
    one, other = (
        pin_of(snapshot(tool("read", input_schema={"enum": [half]})), PRINT) for half in ("\ud800", "\udfff")
    )
    assert write_rows(one) != write_rows(other)
    assert read_rows(write_rows(one)) == one


@pytest.mark.parametrize(
    "rows",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[1, 2, 3, 4, 5]",
        b"[" * 5_000,
        write_rows(pin_of(FILES, PRINT))[:-9],
        b"\xff",
    ],
)
def test_what_was_not_written_so_is_refused(rows: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - every reason will do
        read_rows(rows)
