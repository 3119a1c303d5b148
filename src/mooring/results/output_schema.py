"""Validation of structured results against the output schemas of their tools.

Schemas are untrusted. References are not fetched, size and depth are limited, regular expressions run on a
linear-time engine, and a check that takes longer than 0.1 s is abandoned. A schema that cannot be used is
logged once and then ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Any, cast

import anyio
import anyio.to_thread

from mooring.config.logs import logger
from mooring.core.schema.patterns import linear_match
from mooring.core.schema.validate import Validator, Violation
from mooring.core.text import line
from mooring.core.types import Tool

__all__ = ["Schemas"]

log = logger("mooring.results")

SECONDS = 0.1
"""Time limit of a check in a thread."""
QUICK = 0.002
"""Time limit of a check of a small value on the event loop."""
_SMALL = 200
_MOST_VALUES = 20_000
_MOST_NODES, _DEEPEST = 5_000, 64


class _Unusable(Exception):
    """The schema cannot be used; the message is the reason."""


class _TooLong(Exception):
    """The check exceeded its time limit."""


@dataclass(slots=True)
class _Known:
    schema: Mapping[str, Any]
    check: Callable[[Any, float], str | None] | None
    """Returns the problem of a value. None if the schema cannot be used."""


class Schemas:
    """The output schemas of one host's tools."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}
        self._one: anyio.CapacityLimiter | None = None

    async def problem(self, tool: Tool, value: Any) -> str | None:
        """Return in one line why a structured result does not match its schema; None if it matches or cannot
        be checked."""
        schema, key = tool.output_schema, (tool.server, tool.remote_name)
        if schema is None:
            return None
        if value is None:
            return "the structured content required by the output schema is missing"
        known = self._known.get(key)
        if known is not None and known.schema is schema:
            if known.check is None:
                return None
            if _count(value, _SMALL) < _SMALL:
                try:
                    return known.check(value, QUICK)
                except (_TooLong, _Unusable):
                    pass
        # One at a time: many computing threads would starve the event loop.
        self._one = self._one or anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(partial(self._checked, key, schema, value), limiter=self._one)

    def _checked(self, key: tuple[str, str], schema: Mapping[str, Any], value: Any) -> str | None:
        known = self._known.get(key)
        try:
            if known is None or known.schema is not schema:
                known = self._known[key] = _Known(schema, _compiled(schema))
            if known.check is None or _count(value, _MOST_VALUES) >= _MOST_VALUES:
                return None
            return known.check(value, SECONDS)
        except (_Unusable, _TooLong) as problem:
            log.warning("output schema cannot be checked tool=%s reason=%s", line("/".join(key), 80), problem)
            self._known[key] = _Known(schema, None)
            return None


def _compiled(schema: Mapping[str, Any]) -> Callable[[Any, float], str | None]:
    if _count(schema, _MOST_NODES) >= _MOST_NODES:
        raise _Unusable(f"it has more than {_MOST_NODES:,} parts")
    if _depth(schema, _DEEPEST) > _DEEPEST:
        raise _Unusable(f"it is nested more than {_DEEPEST} deep")
    clock = local()

    def tick() -> None:
        if time.monotonic() > clock.end:
            raise _TooLong("the check takes too long")

    dialect = schema.get("$schema")
    if isinstance(dialect, str) and "draft-03" in dialect:
        raise _Unusable("its dialect is older than draft 4")
    validators = local()

    def problem(value: Any, seconds: float) -> str | None:
        clock.end = time.monotonic() + seconds
        try:
            validator: Validator | None = getattr(validators, "mine", None)
            if validator is None:  # one per thread: it has state
                validator = validators.mine = Validator(schema, matches=linear_match, tick=tick)
            first = validator.first(value)
            return None if first is None else _described(first)
        except _TooLong:
            raise
        except RecursionError:
            raise _Unusable("it refers to itself") from None
        except Exception as broken:  # an untrusted schema can be wrong in any way
            raise _Unusable(f"{type(broken).__name__}: {line(str(broken), 200)}") from None

    return problem


def _described(problem: Violation) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.path)
    return line(f"${where[:200]}: {problem.message[:400]}", 300)


def _count(value: Any, most: int) -> int:
    """Count the values up to `most`; long strings count as several."""
    left, seen = [value], 0
    while left and seen < most:
        item = left.pop()
        seen += 1
        if isinstance(item, Mapping):
            left.extend(cast("Mapping[str, Any]", item).values())
        elif isinstance(item, list):
            left.extend(cast("list[Any]", item))
        elif isinstance(item, str):
            seen += len(item) // 1_000
    return seen


def _depth(value: Any, most: int) -> int:
    level: list[Any] = [value]
    depth = 0
    while level and depth <= most:
        depth += 1
        inner: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                inner.extend(cast("Mapping[str, Any]", item).values())
            elif isinstance(item, list):
                inner.extend(cast("list[Any]", item))
        level = [item for item in inner if isinstance(item, Mapping | list)]
    return depth
