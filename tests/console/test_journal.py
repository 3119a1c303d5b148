"""The journal: a snapshot and the changes after it are the same as a later snapshot."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mooring.console.journal import Journal, apply, merged

KEYS = st.sampled_from(["a", "b", "c", "1", "2"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("drop"), KEYS, st.none()),
        st.tuples(st.just("grow"), st.none(), st.none()),
        st.tuples(st.just("update"), st.integers(0, 30), st.integers(0, 3)),
        st.tuples(st.just("all"), st.sets(KEYS), st.integers(0, 3)),
    ),
    max_size=60,
)


def change(journal: Journal, number: int, kind: str, key: Any, value: Any) -> None:
    match kind:
        case "set":
            journal.set(key, value)
        case "put":
            journal.put("free", {"id": key, "value": value})
        case "drop":
            journal.drop("free", key)
        case "grow":  # as calls do: new ids only
            journal.put("bounded", {"id": f"n{number}", "value": 0})
        case "update":
            journal.replace("bounded", {"id": f"n{key}", "value": value})
        case _:
            journal.put_all("free", [{"id": one, "value": value} for one in sorted(key)])


def copied(journal: Journal) -> Any:
    return json.loads(json.dumps(journal.snapshot()))


@given(CHANGES, st.data())
def test_a_snapshot_with_the_changes_after_it_is_the_later_snapshot(changes: Any, data: Any) -> None:
    journal = Journal("e", {"bounded": 4})
    snapshots = [copied(journal)]
    for number, one in enumerate(changes):
        change(journal, number, *one)
        snapshots.append(copied(journal))
    start = data.draw(st.integers(0, len(snapshots) - 1))
    state = snapshots[start]
    ops = journal.since(state["rev"])
    assert ops is not None
    apply(state, json.loads(json.dumps(ops)))
    state["rev"] = journal.rev
    assert {name: rows for name, rows in state["tables"].items() if rows} == {
        name: rows for name, rows in copied(journal)["tables"].items() if rows
    }
    assert (state["values"], state["rev"]) == (journal.values, journal.rev)


@given(CHANGES)
def test_each_row_and_value_is_sent_once_unless_it_was_removed_meanwhile(changes: Any) -> None:
    journal = Journal("e", {"bounded": 4})
    for number, one in enumerate(changes):
        change(journal, number, *one)
    ops = journal.since(0) or []
    seen: set[tuple[str, str, str]] = set()
    for kind, name, value in ops:
        if kind == "del":
            seen.discard(("put", name, value))
            continue
        key = (kind, name, value["id"] if kind == "put" else "")
        assert key not in seen
        seen.add(key)


def test_the_order_of_rows_is_that_of_their_first_change() -> None:
    ops = [("put", "t", {"id": key, "n": n}) for key, n in (("b", 1), ("a", 1), ("b", 2))]
    assert merged(ops) == [("put", "t", {"id": "b", "n": 2}), ("put", "t", {"id": "a", "n": 1})]


def test_changes_are_kept_in_bounded_number_and_older_readers_start_again() -> None:
    journal = Journal("e", {"rows": 10}, kept=100)
    for number in range(1_000):
        journal.put("rows", {"id": f"n{number}"})
    assert len(journal.rows("rows")) == 10
    assert journal.since(journal.rev) == []
    assert len(journal.since(journal.rev - 100) or ()) == 100
    for strange in (journal.rev - 101, 0, -1, journal.rev + 1):
        assert journal.since(strange) is None


def test_what_does_not_change_gets_no_revision() -> None:
    journal = Journal("e", {})
    for _ in range(3):
        journal.set("a", {"b": [1]})
        journal.put("t", {"id": "x", "n": 1})
        journal.drop("t", "unknown")
        journal.replace("t", {"id": "unknown"})
    assert journal.rev == 2
