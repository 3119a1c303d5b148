"""Output schemas: violations are reported, and hostile schemas do no harm."""

from __future__ import annotations

import logging
import time
from typing import Any

import anyio
import pytest

from mooring.core.types import Tool
from mooring.results.output_schema import SECONDS, Schemas

pytestmark = pytest.mark.anyio


def tool(schema: dict[str, Any], name: str = "t") -> Tool:
    return Tool(name=name, server="s", remote_name=name, output_schema=schema)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["a", "b"]}},
}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"name": "Ana", "age": 3, "tags": ["a", "b"]}, None),
        ({"name": "Ana", "age": -1}, "$.age: -1 is less than the minimum of 0"),
        ({"name": "ana"}, "$.name: 'ana' does not match '^[A-Z]'"),
        ({"age": 1}, "$: 'name' is a required property"),
        ({"name": "Ana", "other": 1}, "$: 'other' is not among its properties"),
        ({"name": "Ana", "tags": ["a", "a"]}, "$.tags: has items that are the same"),
        ({"name": "Ana", "tags": ["c"]}, "$.tags[0]: 'c' is not one of ['a', 'b']"),
        (None, "the structured content required by the output schema is missing"),
        ([1], "$: [1] is not of type 'object'"),
    ],
)
async def test_a_schema_violation_is_described_in_one_line(value: Any, problem: str | None) -> None:
    schemas, checked = Schemas(), tool(PERSON)
    assert await schemas.problem(checked, value) == problem
    assert await schemas.problem(checked, value) == problem  # now on the event loop


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (
            {"patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False},
            {"x_a": 1},
            None,
        ),
        (
            {"patternProperties": {"^x_": {"type": "integer"}}},
            {"x_a": "1"},
            "$.x_a: '1' is not of type 'integer'",
        ),
        (
            {"patternProperties": {"^x_": True}, "additionalProperties": {"type": "integer"}},
            {"y": "1"},
            "$.y: '1' is not of type 'integer'",
        ),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}, 1, "$: 1 is not of type"),
        ({"$schema": "urn:unheard-of", "type": "string"}, "x", None),
        ({"pattern": "^(?=look)ahead"}, "nothing of the kind", None),
    ],
)
async def test_names_by_pattern_and_other_dialects_are_understood(
    schema: dict[str, Any], value: Any, problem: str | None
) -> None:
    answer = await Schemas().problem(tool(schema), value)
    assert answer is None if problem is None else answer is not None and answer.startswith(problem)


def chain(length: int) -> dict[str, Any]:
    """Each definition asks for the next one twice."""
    names = [f"d{number}" for number in range(length)]
    steps = {
        name: {"allOf": [{"$ref": f"#/$defs/{after}"}] * 2}
        for name, after in zip(names, [*names[1:], "end"], strict=True)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**steps, "end": {}}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


EVIL, LONG = "^(a+)+$", "a" * 40 + "!"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
BOMBS: dict[str, tuple[dict[str, Any], Any]] = {
    "itself": ({"$ref": "#"}, {}),
    "two in a circle": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        1,
    ),
    "itself, deeper": ({"properties": {"a": {"$ref": "#"}}, "anyOf": [{"$ref": "#"}]}, {"a": {}}),
    "dynamic": ({"$dynamicAnchor": "a", "allOf": [{"$dynamicRef": "#a"}]}, 1),
    "two to the fortieth": (chain(40), 1),
    "two to the fortieth, unevaluated": ({"unevaluatedProperties": False, **chain(40)}, {"a": 1}),
    "catastrophic pattern": ({"pattern": EVIL}, LONG),
    "catastrophic name": ({"patternProperties": {EVIL: {}}, "additionalProperties": False}, {LONG: 1}),
    "catastrophic unevaluated name": (
        {"patternProperties": {EVIL: {}}, "unevaluatedProperties": False},
        {LONG: 1},
    ),
    "catastrophic pattern in a dialect of its own": ({"allOf": [{"$schema": DRAFT, "pattern": EVIL}]}, LONG),
    "pattern that is too large to build": ({"pattern": r"(\w{1000}){1000}"}, LONG),
    "many patterns": ({"anyOf": [{"pattern": rf"\w{{60}}{n}"} for n in range(1000)]}, "a" * 900),
    "deep": (nested(5000), 1),
    "wide": ({"anyOf": [{"type": "string"}] * 20_000}, 1),
    "no schema at all": ({"type": 7, "properties": [], "items": "x"}, {"a": 1}),
    "wrong patterns": ({"patternProperties": ["(", 3], "pattern": {}}, {"a": "b"}),
    "divided by zero": ({"multipleOf": 0}, 3),
    "unheard-of reference": ({"$ref": "#/nowhere"}, 1),
    "dialect that is a list": ({"$schema": ["x"], "allOf": [{"$schema": {}}]}, 1),
    "many different objects": ({"uniqueItems": True}, [{"a": number} for number in range(9_000)]),
    "huge value": ({"items": {"items": {"type": "string"}}}, [["x"] * 200] * 1000),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_TH25_a_schema_bomb_never_breaks_a_call(name: str, caplog: pytest.LogCaptureFixture) -> None:
    schema, value = BOMBS[name]
    schemas, checked = Schemas(), tool(schema)
    with anyio.fail_after(5), caplog.at_level(logging.WARNING):
        answer = await schemas.problem(checked, value)
        assert await schemas.problem(checked, value) == answer
    assert answer is None or "catastrophic" in name
    assert len(caplog.messages) <= 1, "it is named once and then ignored"


async def test_TH25_twenty_bombs_leave_the_event_loop_alone() -> None:
    schemas = Schemas()
    await schemas.problem(tool({"type": "object"}, "warm"), {})  # the library is imported once
    lags: list[float] = []

    async def pulse() -> None:
        while True:
            before = time.monotonic()
            await anyio.sleep(0.005)
            lags.append(time.monotonic() - before - 0.005)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pulse)
            async with anyio.create_task_group() as bombs:
                for name, (schema, value) in BOMBS.items():
                    bombs.start_soon(schemas.problem, tool(schema, name), value)
            tasks.cancel_scope.cancel()
    assert len(lags) > 10
    assert sorted(lags)[len(lags) // 2] < SECONDS / 2


async def test_TH09_no_reference_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket
    import urllib.request

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(urllib.request, "urlopen", forbidden)
    monkeypatch.setattr(socket, "create_connection", forbidden)
    for ref in ("http://127.0.0.1:9/schema.json", "file:///etc/passwd", "https://example.org/x#/a"):
        schema = {"$id": "http://127.0.0.1:9/", "properties": {"a": {"$ref": ref}}}
        assert await Schemas().problem(tool(schema), {"a": 1}) is None
