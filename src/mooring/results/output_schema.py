"""Validation of structured results against the output schemas of their tools.

Schemas are untrusted. References are not fetched, size and depth are limited, regular expressions run on a
linear-time engine, and a check that takes longer than 0.1 s is abandoned. A schema that cannot be used is
logged once and then ignored.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import local
from typing import Any, cast

import anyio
import anyio.to_thread

from mooring.config.logs import logger
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
_LONGEST_PATTERN, _LONGEST_MATCHED = 200, 1_000


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
                validator = validators.mine = Validator(schema, matches=_matches, tick=tick)
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


def _matches(pattern: str, text: str) -> bool | None:
    """Whether the pattern matches the text; None if that is not checked."""
    found = _expression(pattern) if len(text) <= _LONGEST_MATCHED else None
    return None if found is None else found.isinstance_python(text)


_CLASS = re.compile(r"\\[wWdDsSbBpP]|\[\^|\.")
_TIMES = re.compile(r"\{(\d+)(?:,(\d*))?\}")


@lru_cache(maxsize=512)
def _expression(pattern: str) -> Any:
    """Compile a pattern with the linear-time engine of pydantic_core; None if it is too costly or not
    supported."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    times = 1
    for low, high in _TIMES.findall(pattern):
        times *= max(int(low[:9]), int((high or "0")[:9]), 1)
    if len(pattern) > _LONGEST_PATTERN or "(?i" in pattern:
        return None
    if len(_CLASS.findall(pattern)) * times > 64 or len(pattern) * times > 10_000:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None
