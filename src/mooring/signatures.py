"""Functions as tools: a JSON Schema from a signature, and calls with checked arguments.

Parameters of JSON's own types need `pydantic_core` alone, which checks them. All others need `pydantic`,
which is installed where its types are used. Both give the same schemas.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["adapted"]

Call = Callable[[Any], Any]
"""Takes `pydantic_core.ArgsKwargs`; raises its `ValidationError` for arguments that do not fit."""
Schema = dict[str, Any]

_SCALARS: Mapping[Any, tuple[str, str]] = {
    bool: ("bool", "boolean"),
    float: ("float", "number"),
    int: ("int", "integer"),
    str: ("str", "string"),
    NoneType: ("none", "null"),
}
_NAMES: Mapping[type, str] = {bool: "boolean", int: "integer", str: "string"}


def adapted(function: Callable[..., Any]) -> tuple[Call, Schema]:
    """Return what calls a function with checked arguments, and the JSON Schema of its arguments.

    Raises:
        ValueError, TypeError, NameError: It has none, or only `pydantic` can tell.
    """
    plain = _plain(function)
    if plain is not None:
        from pydantic_core import SchemaValidator

        checks, schema = plain
        return SchemaValidator(cast("Any", checks)).validate_python, schema
    try:
        from pydantic import PydanticUserError, TypeAdapter
    except ImportError:
        raise ValueError("its parameters need the package pydantic: pip install pydantic") from None
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", function))
        return adapter.validate_python, adapter.json_schema()
    except PydanticUserError as problem:
        raise ValueError(str(problem)) from None


def _plain(function: Callable[..., Any]) -> tuple[Schema, Schema] | None:
    """The checks and the schema of a function that takes nothing but values of JSON; None for others."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError):
        return None
    checks: list[Schema] = []
    properties: dict[str, Schema] = {}
    for parameter in parameters:
        found = _of(hints.get(parameter.name, Any))
        if found is None or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            return None
        check, shape = found
        title = {"title": parameter.name.title().replace("_", " ").strip()}
        if parameter.default is parameter.empty:
            properties[parameter.name] = {**title, **shape}
        elif not isinstance(parameter.default, str | int | float | NoneType):
            return None
        else:
            check = {"type": "default", "schema": check, "default": parameter.default}
            properties[parameter.name] = {**title, **shape, "default": parameter.default}
        mode = "keyword_only" if parameter.kind is parameter.KEYWORD_ONLY else "positional_or_keyword"
        checks.append({"name": parameter.name, "schema": check, "mode": mode})
    arguments = {"type": "arguments", "arguments_schema": checks}
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [one["name"] for one in checks if one["schema"]["type"] != "default"]:
        schema["required"] = required
    return {"type": "call", "arguments_schema": arguments, "function": function}, schema


def _of(hint: Any) -> tuple[Schema, Schema] | None:
    """The check and the schema of one type; None if it is none of JSON's."""
    if hint is Any:
        return {"type": "any"}, {}
    if hint is None:
        hint = NoneType
    if hint in _SCALARS:
        check, name = _SCALARS[hint]
        return {"type": check}, {"type": name}
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated and all(isinstance(note, str) for note in parts[1:]):
        return _of(parts[0])
    if origin is Literal:
        return _literal(list(parts))
    if hint is list or origin is list:
        inner = _of(parts[0] if parts else Any)
        return inner and ({"type": "list", "items_schema": inner[0]}, {"type": "array", "items": inner[1]})
    if hint is dict or (origin is dict and parts[0] is str):
        inner = _of(parts[1] if parts else Any)
        return inner and (
            {"type": "dict", "keys_schema": {"type": "str" if parts else "any"}, "values_schema": inner[0]},
            {"type": "object", "additionalProperties": inner[1] or True},
        )
    return _union(parts) if origin in (Union, UnionType) else None


def _literal(values: list[Any]) -> tuple[Schema, Schema] | None:
    kinds: set[type] = {type(value) for value in values}
    if len(kinds) != 1 or (kind := kinds.pop()) not in _NAMES:
        return None
    shape = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {"type": "literal", "expected": values}, {**shape, "type": _NAMES[kind]}


def _union(parts: tuple[Any, ...]) -> tuple[Schema, Schema] | None:
    found = [_of(part) for part in parts if part is not NoneType]
    known = [one for one in found if one is not None]
    if len(known) != len(found):
        return None
    checks, shapes = [one[0] for one in known], [one[1] for one in known]
    check: Schema = checks[0] if len(checks) == 1 else {"type": "union", "choices": checks}
    if NoneType in parts:
        check, shapes = {"type": "nullable", "schema": check}, [*shapes, {"type": "null"}]
    return check, {"anyOf": shapes}
