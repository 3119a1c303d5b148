"""Every schema compiles to one that the provider accepts, and arguments are converted back for the server."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from jsonschema import Draft202012Validator

from mooring.core.schema.compile import SetAside, compile_schema
from tests.lab.dialects import DIALECTS, as_json_schema, problems
from tests.lab.schemas import EXAMPLES, Model, as_meant, json_values, schemas_with_values, wild_schemas

many = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def without_nulls(value: Any) -> Any:
    """The value without members that are null: in a strict schema they may stand for nothing."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def ambiguous(compiled: dict[str, Any]) -> bool:
    """Whether a value may come back as another allowed one: branches that say things differently overlap."""
    words = repr(compiled)
    return "anyOf" in words and ("JSON text" in words or "the server calls it" in words)


@many
@given(case=schemas_with_values())
def test_arguments_that_a_model_can_say_come_back_as_the_server_wants_them(case) -> None:
    original, values = case
    wanted = Draft202012Validator(as_meant(original))
    for dialect in DIALECTS:
        note(dialect)
        compiled = compile_schema(original, dialect)
        assert problems(compiled.schema, dialect) == []
        takes = Draft202012Validator(as_json_schema(compiled.schema))
        for value in values:
            model = Model(dialect)
            sent = model.say(compiled.schema, {"arguments": value} if compiled.wrapped else value)
            takes.validate(sent)
            received = compiled.back(sent)
            wanted.validate(received)
            if not model.left_out and not ambiguous(compiled.schema):
                assert without_nulls(received) == without_nulls(value)


@many
@given(original=wild_schemas, arguments=json_values)
def test_whatever_a_server_sends_as_a_schema_compiles_or_is_set_aside(original, arguments) -> None:
    arguments = arguments if isinstance(arguments, dict) else {"a": arguments, "arguments": arguments}
    before = repr(original)
    for dialect in DIALECTS:
        note(dialect)
        try:
            compiled = compile_schema(original, dialect)
        except SetAside as aside:
            assert aside.reason
        else:
            assert problems(compiled.schema, dialect) == []
            json.dumps(compiled.back(arguments))
    assert repr(original) == before
