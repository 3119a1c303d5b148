"""Sealed texts are readable and makeable only with a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.gateway.seal import Seal, derived

OLD, NEW = derived(b"old", "ids"), derived(b"new", "ids")


@given(st.binary(max_size=300))
def test_a_sealed_text_opens_and_hides_its_content(data: bytes) -> None:
    text = Seal([OLD]).close(data, "id")
    assert Seal([OLD]).open(text, "id") == data
    assert text != Seal([OLD]).close(data, "id")
    assert Seal([OLD]).open(text, "state") is None
    assert Seal([NEW]).open(text, "id") is None


@given(st.integers(0, 400), st.sampled_from("Ab0-_"))
def test_a_changed_text_does_not_open(place: int, letter: str) -> None:
    text = Seal([OLD]).close(b"x" * 40, "id")
    place %= len(text) - 1  # the last letter has bits without meaning
    changed = text[:place] + letter + text[place + 1 :]
    assert changed == text or Seal([OLD]).open(changed, "id") is None


@given(st.one_of(st.none(), st.integers(), st.text(), st.text("Ab_-=")))
def test_nothing_else_opens(given: object) -> None:
    assert Seal([OLD]).open(given, "id") is None


def test_the_first_key_seals_and_all_open() -> None:
    old, both, new = Seal([OLD]), Seal([NEW, OLD]), Seal([NEW])
    assert both.open(old.close(b"x", "id"), "id") == b"x"
    assert new.open(both.close(b"x", "id"), "id") == b"x"
    assert old.open(both.close(b"x", "id"), "id") is None


def test_keys_are_not_shown() -> None:
    assert OLD.hex()[:8] not in repr(Seal([OLD]))
    assert derived(b"old", "ids") != derived(b"old", "hops")
