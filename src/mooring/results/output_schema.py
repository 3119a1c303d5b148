"""Structured results held against the schemas that servers declare for them.

The schema is as untrusted as the result. No reference is fetched, its size and depth are
bounded, its regular expressions run on an engine that takes linear time, and whatever is not done
within a tenth of a second is given up. A schema that cannot be used is named once and then ignored.
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
"""For one check, in a thread of its own."""
QUICK = 0.002
"""For one check on the event loop, of a value that looks small."""
_SMALL = 200
_MOST_VALUES = 20_000
_MOST_NODES, _DEEPEST = 5_000, 64
_LONGEST_PATTERN, _LONGEST_MATCHED = 200, 1_000


class _Unusable(Exception):
    """The schema cannot be used; the text says why."""


class _TooLong(Exception):
    """The time is up."""


@dataclass(slots=True)
class _Known:
    schema: Mapping[str, Any]
    check: Callable[[Any, float], str | None] | None
    """What is wrong with a value; None when the schema cannot be used."""


class Schemas:
    """The output schemas of one host's tools."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}
        self._one: anyio.CapacityLimiter | None = None

    async def problem(self, tool: Tool, value: Any) -> str | None:
        """What is wrong with a structured result, in one line; None when nothing is, or nobody can tell."""
        schema, key = tool.output_schema, (tool.server, tool.remote_name)
        if schema is None:
            return None
        if value is None:
            return "the structured content that its output schema describes is missing"
        known = self._known.get(key)
        if known is not None and known.schema is schema:
            if known.check is None:
                return None
            if _count(value, _SMALL) < _SMALL:
                try:
                    return known.check(value, QUICK)
                except (_TooLong, _Unusable):
                    pass
        # One at a time: threads that compute take turns with the event loop, and many would starve it.
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
            log.warning("the output schema of %s is not checked: %s", line("/".join(key), 80), problem)
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
            raise _TooLong("it takes too long")

    dialect = schema.get("$schema")
    if isinstance(dialect, str) and "draft-03" in dialect:
        raise _Unusable("its dialect is older than draft 4")
    validators = local()

    def problem(value: Any, seconds: float) -> str | None:
        clock.end = time.monotonic() + seconds
        try:
            validator: Validator | None = getattr(validators, "mine", None)
            if validator is None:  # one for each thread: it has a state while it works
                validator = validators.mine = Validator(schema, matches=_matches, tick=tick)
            first = validator.first(value)
            return None if first is None else _told(first)
        except _TooLong:
            raise
        except RecursionError:
            raise _Unusable("it goes round in circles") from None
        except Exception as broken:  # a schema of a stranger can be wrong in any way
            raise _Unusable(f"{type(broken).__name__}: {line(str(broken), 200)}") from None

    return problem


def _told(problem: Violation) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.path)
    return line(f"${where[:200]}: {problem.message[:400]}", 300)


def _count(value: Any, most: int) -> int:
    """How many values there are, of which no more than `most` are counted; long texts count as many."""
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
    """Whether the pattern is found in the text; None when that is not looked into."""
    found = _expression(pattern) if len(text) <= _LONGEST_MATCHED else None
    return None if found is None else found.isinstance_python(text)


_CLASS = re.compile(r"\\[wWdDsSbBpP]|\[\^|\.")
_TIMES = re.compile(r"\{(\d+)(?:,(\d*))?\}")


@lru_cache(maxsize=512)
def _expression(pattern: str) -> Any:
    """The pattern for the engine of pydantic_core, which takes linear time; None when it is too
    costly to build, or has what that engine does not know."""
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
