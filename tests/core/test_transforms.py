"""Transforms: what a client may send after one is always valid for the server's own schema."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mooring import ServerConfig, Tool
from mooring.config.shaping import Transform
from mooring.core.transforms import CallContext, ToolShape, TransformError, described, shape_tools
from tests.lab.schemas import EXAMPLES, schemas_with_values

ANA = CallContext(session="s-1", principal="ana", headers={"x-team": "blue"})
ISSUES = {
    "type": "object",
    "properties": {
        "repo": {"type": "string", "pattern": "^[a-z]+$"},
        "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": "integer", "minimum": 1},
    },
    "required": ["repo"],
    "additionalProperties": False,
}


def tool(schema: dict[str, Any] | None = None, name: str = "list_issues", **more: Any) -> Tool:
    return Tool(name=name, server="hub", remote_name=name, input_schema=schema or ISSUES, **more)


def transforms(**by_tool: Any) -> dict[str, Transform]:
    return dict(ServerConfig(name="hub", command="x", transforms=by_tool).transforms)


def shaped(schema: dict[str, Any] | None = None, **transform: Any) -> tuple[Tool, ToolShape]:
    found = shape_tools([tool(schema)], transforms(list_issues=transform))
    assert found.warnings == ()
    [one] = found.tools
    assert one.shape is not None
    return one, one.shape


def test_a_tool_gets_another_name_description_title_and_annotations_and_keeps_its_own_for_the_server() -> (
    None
):
    one, shape = shaped(
        name="tickets", title="Tickets", description="Ours.", annotations={"readOnlyHint": True}
    )
    assert (one.name, one.own_name, one.remote_name) == ("tickets", "tickets", "list_issues")
    assert (one.title, one.description, one.annotations) == ("Tickets", "Ours.", {"readOnlyHint": True})
    assert shape.definition == tool()
    assert shape.sent({"repo": "a"}, ANA) == {"repo": "a"}


def test_a_fixed_argument_is_sent_always_and_shown_never() -> None:
    one, shape = shaped(arguments={"repo": {"value": "mooring"}})
    assert "repo" not in one.input_schema["properties"]
    assert "required" not in one.input_schema
    assert shape.sent({"limit": 3}, ANA) == {"limit": 3, "repo": "mooring"}
    assert shape.sent({"repo": "mooring"}, ANA) == {"repo": "mooring"}
    with pytest.raises(TransformError, match="'repo' is fixed by the configuration"):
        shape.sent({"repo": "other"}, ANA)


def test_a_default_is_sent_when_the_client_leaves_the_argument_out() -> None:
    one, shape = shaped(arguments={"repo": {"default": "mooring"}})
    assert one.input_schema["properties"]["repo"]["default"] == "mooring"
    assert "required" not in one.input_schema
    assert shape.sent({}, ANA) == {"repo": "mooring"}
    assert shape.sent({"repo": "other"}, ANA) == {"repo": "other"}


def test_a_hidden_argument_is_neither_shown_nor_accepted() -> None:
    one, shape = shaped(arguments={"limit": {"hide": True}})
    assert "limit" not in one.input_schema["properties"]
    with pytest.raises(TransformError, match="'limit' is not available"):
        shape.sent({"repo": "a", "limit": 2}, ANA)
    hidden, sends = shaped(arguments={"limit": {"hide": True, "default": 5}})
    assert "limit" not in hidden.input_schema["properties"]
    assert sends.sent({"repo": "a"}, ANA) == {"repo": "a", "limit": 5}


def test_a_narrowed_enum_is_shown_and_enforced() -> None:
    one, shape = shaped(arguments={"state": {"enum": ["open", "all", "no such state"]}})
    assert one.input_schema["properties"]["state"] == {
        "type": "string",
        "default": "open",
        "enum": ["open", "all"],
    }
    assert shape.sent({"repo": "a", "state": "all"}, ANA) == {"repo": "a", "state": "all"}
    with pytest.raises(TransformError, match=r"'state' must be one of: 'open', 'all'"):
        shape.sent({"repo": "a", "state": "closed"}, ANA)


def test_an_enum_of_a_list_narrows_its_items() -> None:
    one, shape = shaped(arguments={"labels": {"enum": ["bug"]}})
    assert one.input_schema["properties"]["labels"] == {"type": "array", "items": {"enum": ["bug"]}}
    assert shape.sent({"repo": "a", "labels": ["bug"]}, ANA)["labels"] == ["bug"]
    for wrong in (["bug", "x"], "bug", [True]):
        with pytest.raises(TransformError):
            shape.sent({"repo": "a", "labels": wrong}, ANA)


def test_true_is_not_one_of_1() -> None:
    _, shape = shaped(arguments={"limit": {"enum": [1]}})
    with pytest.raises(TransformError):
        shape.sent({"repo": "a", "limit": True}, ANA)


@pytest.mark.parametrize(
    ("text", "sent"),
    [("${principal}", "ana"), ("t-${header:X-Team}-$${x}", "t-blue-${x}"), ("${session}", "s-1")],
)
def test_a_value_comes_from_the_caller(text: str, sent: str) -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
    _, shape = shaped(schema, arguments={"who": {"value": text}})
    assert shape.sent({}, ANA) == {"who": sent}


@pytest.mark.parametrize("text", ["${principal}", "${header:X-Team}"])
def test_a_caller_without_the_value_is_refused(text: str) -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string"}}}
    for kind in ("value", "default"):
        _, shape = shaped(schema, arguments={"who": {kind: text}})
        with pytest.raises(TransformError, match="of the caller, which has none"):
            shape.sent({}, CallContext(session="s"))


def test_a_callers_value_that_breaks_the_schema_is_not_sent_and_not_repeated() -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string", "maxLength": 2}}}
    _, shape = shaped(schema, arguments={"who": {"value": "${principal}"}})
    with pytest.raises(TransformError, match="who does not fit the schema") as caught:
        shape.sent({}, ANA)
    assert "ana" not in str(caught.value)


def test_one_tool_is_split_into_presets_that_inherit_its_description_and_arguments() -> None:
    found = shape_tools(
        [tool()],
        transforms(
            list_issues={
                "hide": True,
                "description": "Issues of mooring.",
                "arguments": {"repo": {"value": "mooring"}},
                "presets": {
                    "open_issues": {"arguments": {"state": {"value": "open"}}},
                    "closed_issues": {
                        "description": "Old ones.",
                        "arguments": {"state": {"value": "closed"}},
                    },
                },
            }
        ),
    )
    assert [one.name for one in found.tools] == ["open_issues", "closed_issues"]
    assert [one.description for one in found.tools] == ["Issues of mooring.", "Old ones."]
    assert dict(found.hidden) == {"list_issues": "`hide` in its transform"}
    sent = [one.shape.sent({}, ANA) for one in found.tools if one.shape]
    assert sent == [{"repo": "mooring", "state": "open"}, {"repo": "mooring", "state": "closed"}]
    assert {one.remote_name for one in found.tools} == {"list_issues"}


def test_a_default_that_contradicts_other_arguments_is_not_sent() -> None:
    joint = {**ISSUES, "dependentRequired": {"labels": ["limit"]}}
    [one] = shape_tools(
        [tool(joint)], transforms(list_issues={"arguments": {"labels": {"default": ["x"]}}})
    ).tools
    assert one.shape is not None
    with pytest.raises(TransformError):
        one.shape.sent({"repo": "a"}, ANA)
    assert one.shape.sent({"repo": "a", "limit": 1}, ANA) == {"repo": "a", "limit": 1, "labels": ["x"]}


def test_a_profile_transforms_what_the_server_transform_shows() -> None:
    one, _ = shaped(name="tickets", arguments={"repo": {"value": "mooring"}})
    found = shape_tools(
        [one], transforms(tickets={"name": "mine", "arguments": {"state": {"value": "open"}}})
    )
    [twice] = found.tools
    assert twice.shape is not None
    assert twice.shape.sent({"limit": 1}, ANA) == {"limit": 1, "state": "open", "repo": "mooring"}
    assert twice.shape.definition == tool()
    assert described(twice)[0] == "shown as 'mine'"


def test_a_name_that_does_not_exist_is_a_warning_with_the_likely_one() -> None:
    found = shape_tools([tool()], transforms(list_isues={"hide": True}))
    assert [one.name for one in found.tools] == ["list_issues"]
    [warning] = found.warnings
    assert warning.startswith("Server 'hub', transform of tool 'list_isues': the server has no such tool;")
    assert warning.endswith("did you mean 'list_issues'?")
    found = shape_tools([tool()], transforms(list_issues={"arguments": {"stat": {"default": "open"}}}))
    assert [one.name for one in found.tools] == ["list_issues"]
    assert "it has no argument 'stat'; did you mean 'state'?" in found.warnings[0]


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ({"rep": {"value": "x"}}, "did you mean 'repo'?"),
        ({"rep": {"hide": True}}, "did you mean 'repo'?"),
        ({"rep": {"enum": ["x"]}}, "did you mean 'repo'?"),
        ({"repo": {"value": "A1"}}, "does not allow the value of 'repo'"),
        ({"repo": {"hide": True}}, "required and hidden"),
        ({"state": {"enum": ["x"]}}, "none of the values of 'enum'"),
        ({"state": {"enum": ["open"], "default": "closed"}}, "not in its 'enum'"),
    ],
)
def test_a_restriction_that_does_not_fit_leaves_the_tool_out_and_never_open(
    argument: Any, problem: str
) -> None:
    found = shape_tools([tool()], transforms(list_issues={"arguments": argument}))
    assert found.tools == ()
    assert problem in found.warnings[0]
    assert "the tool is left out" in found.warnings[0]


def test_a_transform_does_not_take_the_name_of_another_tool() -> None:
    both = [tool(), tool(name="search")]
    found = shape_tools(both, transforms(list_issues={"name": "search"}))
    assert [one.remote_name for one in found.tools] == ["search"]
    assert "is taken by another tool" in found.warnings[0]


def test_rules_about_several_arguments_are_checked_before_sending() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "dependentRequired": {"a": ["b"]},
    }
    _, shape = shaped(schema, arguments={"a": {"value": "x"}})
    assert shape.sent({"b": "y"}, ANA) == {"b": "y", "a": "x"}
    with pytest.raises(TransformError, match="does not fit the schema of the server"):
        shape.sent({}, ANA)


def test_a_schema_that_refers_to_itself_keeps_its_meaning() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name"],
    }
    one, shape = shaped(schema, arguments={"name": {"value": "root"}})
    nested = {"parts": [{"name": "leaf"}]}
    assert Draft202012Validator(one.input_schema).is_valid(nested)
    assert not Draft202012Validator(one.input_schema).is_valid({"parts": [{}]})
    assert Draft202012Validator(schema).is_valid(shape.sent(nested, ANA))


# --- any schema


def _transformed(draw: Any, schema: dict[str, Any], values: list[dict[str, Any]]) -> dict[str, Any]:
    """A transform of a schema, drawn from values that it allows and from others."""
    rules: dict[str, Any] = {}
    for name in list(schema.get("properties") or {})[:6]:
        known = [value[name] for value in values if name in value] + ["x", 1, None]
        one = draw(st.sampled_from(known))
        rule = draw(
            st.sampled_from(
                [None, None, {"value": one}, {"default": one}, {"hide": True}, {"enum": known[:2]}]
            )
        )
        if rule is not None:
            rules[name] = rule
    return {"arguments": rules}


def _check(schema: dict[str, Any], transform: dict[str, Any], candidates: list[dict[str, Any]]) -> int:
    """Compare what the shown schema allows with the original; return how many candidates were sent."""
    found = shape_tools([tool(schema)], transforms(list_issues=transform))
    sent = 0
    for one in found.tools:
        if one.shape is None:
            continue
        shown, original = Draft202012Validator(dict(one.input_schema)), Draft202012Validator(schema)
        for candidate in candidates:
            rest = {
                name: value
                for name, value in candidate.items()
                if name in one.input_schema.get("properties", {}) or name not in one.shape.arguments
            }
            for asked in ({}, candidate, rest):
                if not shown.is_valid(asked):
                    continue
                try:
                    result = one.shape.sent(asked, ANA)
                except TransformError:
                    continue
                assert original.is_valid(result), (schema, transform, asked, result)
                sent += 1
    return sent


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_what_a_client_may_send_after_any_transform_is_valid_for_any_schema(data: st.DataObject) -> None:
    schema, values = data.draw(schemas_with_values())
    _check(schema, _transformed(data.draw, schema, values), values)


REAL = os.environ.get("MOORING_REAL_SCHEMAS")


@pytest.mark.skipif(
    REAL is None, reason="needs MOORING_REAL_SCHEMAS, a JSON file of servers with their tools"
)
@pytest.mark.timeout(1200)
def test_what_a_client_may_send_after_a_transform_is_valid_for_real_schemas() -> None:
    from random import Random

    assert REAL is not None
    random, checked, shaped_tools = Random(7), 0, 0
    schemas = list(_schemas_in(json.loads(Path(REAL).read_text())))
    for schema in schemas:
        values = [_example(schema, schema, random, full) for full in (True, False) for _ in range(3)]
        values = [value for value in values if isinstance(value, dict)]
        for _ in range(12):
            rules: dict[str, Any] = {}
            for name in schema.get("properties") or {}:
                known = [value[name] for value in values if name in value] or ["x"]
                one = random.choice([*known, "x", 1])
                rule = random.choice(
                    [None, {"value": one}, {"default": one}, {"hide": True}, {"enum": known[:2]}, None]
                )
                if rule is not None:
                    rules[name] = rule
            sent = _check(schema, {"arguments": rules}, values)
            checked, shaped_tools = checked + sent, shaped_tools + (sent > 0)
    print(f"{len(schemas)} schemas, {shaped_tools} transforms, {checked} calls")
    assert len(schemas) > 500
    assert checked > len(schemas)


def _schemas_in(part: Any) -> Any:
    """Return every input schema in a document of any shape."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in ("inputSchema", "input_schema") and isinstance(value, dict):
                yield value
            else:
                yield from _schemas_in(value)
    elif isinstance(part, list):
        for item in part:
            yield from _schemas_in(item)


def _example(schema: Any, root: Any, random: Any, full: bool, depth: int = 6) -> Any:
    """A value for a schema, as good as it can be guessed; the validator decides whether it fits."""
    if not isinstance(schema, dict) or depth == 0:
        return "x"
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target.get(step, {}) if isinstance(target, dict) else {}
        return _example(target, root, random, full, depth - 1)
    if schema.get("enum"):
        return random.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return _example(random.choice(schema[word]), root, random, full, depth - 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object":
            wanted = schema.get("required", [])
            members = schema.get("properties") or {}
            return {
                name: _example(inner, root, random, full, depth - 1)
                for name, inner in members.items()
                if full or name in wanted or random.random() < 0.3
            }
        case "array":
            return [_example(schema.get("items", {}), root, random, full, depth - 1)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return random.random() < 0.5
        case "null":
            return None
        case _:
            return schema.get("default") or "x" * max(schema.get("minLength", 1), 1)


def test_a_person_sees_what_a_transform_changes() -> None:
    one, _ = shaped(name="tickets", title="T", description="D", annotations={"readOnlyHint": True})
    assert described(one)[:4] == [
        "shown as 'tickets'", "title: T", "description: D", "annotation readOnlyHint: True",
    ]  # fmt: skip
    assert described(tool()) == []


def test_a_member_that_allows_anything_or_nothing_keeps_its_meaning_with_a_description() -> None:
    schema = {"type": "object", "properties": {"any": True, "never": False}}
    one, _ = shaped(schema, arguments={"any": {"description": "A."}, "never": {"description": "N."}})
    assert one.input_schema["properties"] == {
        "any": {"description": "A."},
        "never": {"not": {}, "description": "N."},
    }


@pytest.mark.parametrize(
    ("placeholder", "source"),
    [("${header:X-Team}", "header 'X-Team'"), ("${principal}", "principal"), ("${session}", "session")],
)
def test_a_placeholder_without_a_value_is_an_error_with_its_source(placeholder: str, source: str) -> None:
    _, shape = shaped(arguments={"repo": {"value": placeholder}})
    with pytest.raises(TransformError, match=f"argument 'repo' comes from the {source} of the caller"):
        shape.sent({}, CallContext(session="", principal=None, headers={}))


def test_a_problem_that_prevents_a_transform_is_reported_before_others() -> None:
    arguments = {"unknown": {"description": "x"}, "state": {"enum": ["none"]}}
    found = shape_tools([tool()], transforms(list_issues={"arguments": arguments}))
    assert found.tools == ()
    [warning] = found.warnings
    assert "allows none of the values of 'enum' of 'state'" in warning


@pytest.mark.parametrize("names", ["a", ""])
def test_a_transform_of_an_unknown_tool_is_a_mistake_once_there_are_tools(names: str) -> None:
    tools = [Tool(name=name, server="s", remote_name=name) for name in names]
    assert bool(shape_tools(tools, {"other": Transform(name="new")}).warnings) == bool(names)
