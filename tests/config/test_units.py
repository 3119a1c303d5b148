"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.validate import seconds, size


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (30, 30),
        (0.5, 0.5),
        ("30", 30),
        ("1.5", 1.5),
        ("30s", 30),
        ("500ms", 0.5),
        ("30m", 1800),
        ("1h", 3600),
        ("1h 30m", 5400),
        ("1h30m15s", 5415),
        ("2 days", 172800),
        (" 5 Min ", 300),
        (0, 0),
    ],
)
def test_a_duration_is_seconds(value: object, expected: float) -> None:
    assert seconds(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "30x",
        "s",
        "1h-5m",
        "5s?",
        -1,
        "-1",
        "-5s",
        True,
        None,
        [],
        {},
        float("nan"),
        float("inf"),
        10**400,
        "1e9",
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="'30s'"):
        seconds(value)


@given(
    st.integers(0, 10**6), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400)])
)
def test_every_whole_number_with_a_unit_is_that_many_units(count: int, unit: tuple[str, float]) -> None:
    assert seconds(f"{count}{unit[0]}") == pytest.approx(count * unit[1])


@given(st.lists(st.sampled_from(["5ms", "3s", "2m", "1h"]), min_size=1, max_size=5))
def test_steps_add_up(steps: list[str]) -> None:
    assert seconds(" ".join(steps)) == pytest.approx(sum(seconds(step) for step in steps))


@given(st.text())
def test_what_is_refused_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        seconds(f"<{text}>")
    assert "<" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1024, 1024),
        ("2048", 2048),
        ("16MiB", 16 * 2**20),
        ("1.5 KiB", 1536),
        ("16mb", 16_000_000),
        ("1GiB", 2**30),
    ],
)
def test_a_size_is_bytes(value: object, expected: int) -> None:
    assert size(value) == expected


@pytest.mark.parametrize("value", ["", "big", "16X", -5, 1.5, "1.5", True, None, []])
def test_what_is_no_size_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="'16MiB'"):
        size(value)
