"""A document with a revision: values and tables, and the changes since an earlier revision. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

__all__ = ["Journal", "Op", "apply"]

Op = tuple[Any, ...]
"""`("set", name, value)`, `("put", table, row)` or `("del", table, id)`."""
Row = Mapping[str, Any]

KEPT_OPS = 8_192
"""Changes that are kept for readers. One that is further behind starts again from a snapshot."""


class Journal:
    """Values, and tables of rows with an `id`; every change gets a revision.

    Rows and values are not changed after they were given to the journal: a change is a new row.

    Args:
        epoch: Tells this journal from others, such as that of an earlier process.
        limits: Most rows of a table. The first row goes when another one is added.
        kept: Changes that are kept for `since`.
    """

    def __init__(self, epoch: str, limits: Mapping[str, int], *, kept: int = KEPT_OPS) -> None:
        self.epoch, self.limits = epoch, dict(limits)
        self.rev = 0
        self.values: dict[str, Any] = {}
        self.tables: dict[str, dict[str, Row]] = {}
        self._ops: deque[Op] = deque(maxlen=kept)

    def set(self, name: str, value: Any) -> None:
        """Replace a value."""
        if name not in self.values or self.values[name] != value:
            self.values[name] = value
            self._changed(("set", name, value))

    def put(self, table: str, row: Row) -> None:
        """Replace the row with this id, or append a new one."""
        rows = self.tables.setdefault(table, {})
        if rows.get(row["id"]) != row:
            _put(rows, row, self.limits.get(table))
            self._changed(("put", table, row))

    def replace(self, table: str, row: Row) -> None:
        """Replace the row with this id, unless it is gone."""
        if row["id"] in self.tables.get(table, {}):
            self.put(table, row)

    def drop(self, table: str, key: str) -> None:
        """Remove a row."""
        if self.tables.setdefault(table, {}).pop(key, None) is not None:
            self._changed(("del", table, key))

    def put_all(self, table: str, rows: Iterable[Row]) -> None:
        """Make a table hold exactly these rows. The order of rows that stay does not change."""
        given = {row["id"]: row for row in rows}
        for key in [key for key in self.tables.setdefault(table, {}) if key not in given]:
            self.drop(table, key)
        for row in given.values():
            self.put(table, row)

    def row(self, table: str, key: str) -> Row | None:
        """Return one row; None if there is none."""
        return self.tables.get(table, {}).get(key)

    def rows(self, table: str) -> Sequence[Row]:
        """Return the rows of a table, in order."""
        return list(self.tables.get(table, {}).values())

    def snapshot(self) -> dict[str, Any]:
        """Return the whole document. It shares rows and values with the journal."""
        return {
            "epoch": self.epoch,
            "rev": self.rev,
            "values": dict(self.values),
            "tables": {name: list(rows.values()) for name, rows in self.tables.items()},
            "limits": self.limits,
        }

    def since(self, rev: int) -> list[Op] | None:
        """Return the changes after a revision, each row and value once; None if they are not kept any more,
        or if the revision is not one of this journal."""
        count = self.rev - rev
        if count < 0 or count > len(self._ops) or rev < 0:
            return None
        if not count:
            return []
        start = len(self._ops) - count
        return merged(op for number, op in enumerate(self._ops) if number >= start)

    def _changed(self, op: Op) -> None:
        self.rev += 1
        self._ops.append(op)


def merged(ops: Iterable[Op]) -> list[Op]:
    """Return ops with the same effect, with one op for a row or value that changes several times.

    The last form of a row is put where its first one was, so that the order of new rows stays.
    """
    found: list[Op] = []
    places: dict[tuple[str, str, str], int] = {}
    for op in ops:
        kind, name = op[0], op[1]
        if kind == "del":
            places.pop(("put", name, op[2]), None)
            found.append(op)
            continue
        key = (kind, name, op[2]["id"] if kind == "put" else "")
        place = places.setdefault(key, len(found))
        if place == len(found):
            found.append(op)
        else:
            found[place] = op
    return found


def apply(state: dict[str, Any], ops: Iterable[Sequence[Any]]) -> None:
    """Apply ops to a snapshot: the rule that every reader of the stream follows."""
    tables = cast("dict[str, list[dict[str, Any]]]", state["tables"])
    for kind, name, given in ops:
        if kind == "set":
            state["values"][name] = given
            continue
        rows = {row["id"]: row for row in tables.setdefault(name, [])}
        if kind == "put":
            _put(rows, given, state["limits"].get(name))
        else:
            rows.pop(given, None)
        tables[name] = list(rows.values())


def _put(rows: dict[str, Any], row: Row, limit: int | None) -> None:
    rows[row["id"]] = row
    while limit is not None and len(rows) > limit:
        del rows[next(iter(rows))]
