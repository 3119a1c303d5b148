"""Signatures of plain functions: the same schemas and the same errors as pydantic gives."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from pydantic import TypeAdapter
from pydantic_core import ArgsKwargs, ValidationError

from mooring.local import _plain, adapted


def scalars(a: int, b: float, c: str, d: bool, e: None, f: Any, g, *, h_i: int = 3, j: str = "x") -> object:  # type: ignore[no-untyped-def]
    return (a, b, c, d, e, f, g, h_i, j)


def containers(a: list[int], b: dict[str, list[str]], c: list, d: dict, e: list[Any] | None = None) -> object:  # type: ignore[type-arg]
    return (a, b, c, d, e)


def choices(
    a: Literal["x", "y"],
    b: Literal[1],
    c: int | str,
    d: Optional[int] = None,  # noqa: UP045
    e: Union[int, None, list[str]] = 3,  # noqa: UP007, RUF036
    f: Annotated[str, "a name"] = "",
) -> object:
    return (a, b, c, d, e, f)


def nothing() -> None: ...


async def waits(seconds: float = 1) -> None: ...


PLAIN = [scalars, containers, choices, nothing, waits]
GIVEN: list[dict[str, Any]] = [
    {},
    {"a": 1, "b": 2, "c": "x", "d": True, "e": None, "f": [1], "g": {}},
    {"a": "1", "b": "2.5", "c": 3, "d": "yes", "e": 0, "f": 1, "g": 1, "h_i": 1.5, "k": 1},
    {"a": [1, "2"], "b": {"x": ["y"]}, "c": [None], "d": {"z": 1}},
    {"a": [None], "b": {"x": [1]}, "c": {}, "d": [], "e": "no"},
    {"a": "x", "b": 1, "c": "1", "d": None, "e": ["a"]},
    {"a": "z", "b": 2, "c": [], "d": "x", "e": {}, "f": 1},
    {"seconds": "soon"},
]


@pytest.mark.parametrize("function", PLAIN, ids=lambda function: function.__name__)
def test_plain_functions_have_the_schema_that_pydantic_gives_them(function: Any) -> None:
    assert _plain(function) is not None
    assert adapted(function)[1] == TypeAdapter(function).json_schema()


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("function", [scalars, containers, choices], ids=lambda function: function.__name__)
def test_plain_functions_take_and_refuse_what_pydantic_takes_and_refuses(
    function: Any, given: dict[str, Any]
) -> None:
    def outcome(call: Any) -> Any:
        try:
            return call(ArgsKwargs((), given))
        except ValidationError as problem:
            return [(error["loc"], error["msg"]) for error in problem.errors(include_url=False)]

    assert outcome(adapted(function)[0]) == outcome(TypeAdapter(function).validate_python)


def dated(day: datetime.date, *rest: int) -> object:
    return day


def test_other_types_are_left_to_pydantic() -> None:
    assert _plain(dated) is None
    assert adapted(dated)[1] == TypeAdapter(dated).json_schema()


def test_without_pydantic_plain_functions_work_and_others_name_what_is_missing() -> None:
    code = """
import sys
sys.modules["pydantic"] = None
import datetime
from mooring import ConfigError, LocalTools

def add(a: int, b: int = 2) -> int: return a + b
def dated(day: datetime.date) -> None: ...

LocalTools(add)
try:
    LocalTools(dated)
except ConfigError as problem:
    print(problem)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert "the signature of 'dated' has no JSON Schema" in done.stdout
    assert "pip install pydantic" in done.stdout
