"""Typed Python stubs for tools, made from their schemas. Pure: every part of a schema is untrusted."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from mooring.core.builtin_tools import is_login
from mooring.core.text import estimate, line
from mooring.core.types import Tool
from mooring.core.value import Value

__all__ = ["HEADER", "Stub", "function_names", "identifiers", "model_visible", "stub_of", "within_budget"]

HEADER = "from typing import Any, Literal, NotRequired, TypedDict\n"
_DEEPEST, _MOST_CLASSES, _MOST_MEMBERS, _MOST_CHOICES = 6, 24, 60, 20
_LONGEST_CHOICE, _DESCRIPTION = 60, 140
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_RESERVED = frozenset((*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "asyncio", "json", "re", "math"))
_WORD = re.compile(r"[^\W\d]\w*")


class Stub(Value):
    """The declaration of one tool as a Python function."""

    function: str
    """Name of the function in scripts."""
    types: tuple[str, ...]
    """Declarations of the classes that the signature uses."""
    signature: str
    """`async def name(*, a: int) -> str: ...` in one line."""
    about: str
    """What the tool does, in one line."""
    optional: frozenset[str] = frozenset()
    """Arguments that are left out when the script gives None."""

    @property
    def text(self) -> str:
        """The declaration for the type checker."""
        return "\n".join((*self.types, self.signature))

    @property
    def shown(self) -> str:
        """The declaration for a model: with the description."""
        return "\n".join((*self.types, f"{self.signature}  # {self.about}" if self.about else self.signature))


def model_visible(tool: Tool) -> bool:
    """Return whether scripts may call a tool: no logins, and no tools for user interfaces only."""
    ui = tool.meta.get("ui")
    visible: object = cast("Mapping[str, Any]", ui).get("visibility") if isinstance(ui, Mapping) else None
    hidden = isinstance(visible, list) and "model" not in visible
    return not hidden and not is_login(tool)


def function_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by the name of their function. Tools whose names would be equal are left out."""
    found: dict[str, list[Tool]] = {}
    for tool in tools:
        if model_visible(tool):
            found.setdefault(_identifier(tool.name), []).append(tool)
    return {name: same[0] for name, same in found.items() if len(same) == 1}


def identifiers(code: str) -> frozenset[str]:
    """Return every word of a program that could be a name, without parsing it."""
    return frozenset(_WORD.findall(code))


def _identifier(name: str) -> str:
    text = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter == "_") else "_" for letter in name
    )
    if not text or text[0].isdigit():
        text = f"_{text}"
    return f"{text}_" if text in _RESERVED else text


def stub_of(function: str, tool: Tool) -> Stub:
    """Return the stub of a tool under the name `function`."""
    writer = _Writer(function)
    parameters, optional = writer.parameters(tool.input_schema)
    returned = (
        "Any"
        if tool.output_schema is None
        else writer.type(tool.output_schema, "Result", 0, tool.output_schema)
    )
    return Stub(
        function=function,
        types=tuple(writer.classes),
        signature=f"async def {function}({parameters}) -> {returned}: ...",
        about=line(tool.description or tool.title or "", _DESCRIPTION).replace("#", ""),
        optional=optional,
    )


def within_budget(stubs: Sequence[Stub], budget: int) -> tuple[list[Stub], list[Stub]]:
    """Return the first stubs that fit into `budget` tokens (at least one), and the others."""
    spent = estimate(HEADER)
    for number, stub in enumerate(stubs):
        spent += estimate(stub.shown) + 1
        if spent > budget and number:
            return list(stubs[:number]), list(stubs[number:])
    return list(stubs), []


class _Writer:
    """Writes the types of one tool."""

    def __init__(self, function: str) -> None:
        self.classes: list[str] = []
        self._prefix = function
        self._names: set[str] = set()
        self._open: list[str] = []
        """References that are being resolved."""

    def parameters(self, schema: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
        members, required = _members(schema)
        parts: list[str] = []
        optional: set[str] = set()
        loose = False
        for name, one in members[:_MOST_MEMBERS]:
            if not _usable(name):
                loose = True
                continue
            text = self.type(one, name, 0, schema)
            if name in required:
                parts.append(f"{name}: {text}")
                continue
            if "None" not in text.split(" | ") and text != "Any":
                optional.add(name)
                text = f"{text} | None"
            parts.append(f"{name}: {text} = {_default(one)}")
        parts.sort(key=lambda part: "=" in part)
        loose = loose or len(members) > _MOST_MEMBERS or (not members and _takes_anything(schema))
        if loose:
            parts.append("**more: Any")
        plain = [part for part in parts if not part.startswith("**")]
        return ("*, " if plain else "") + ", ".join(parts), frozenset(optional)

    def type(self, schema: Any, place: str, depth: int, root: Mapping[str, Any]) -> str:
        """Return the Python type of a schema; `Any` if the schema is too general or too complex."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return "Any"
        given = cast("Mapping[str, Any]", schema)
        reference = given.get("$ref")
        if isinstance(reference, str):
            return self._referenced(reference, place, depth, root)
        if "const" in given:
            return _literal([given["const"]])
        choices = given.get("enum")
        if isinstance(choices, list) and choices:
            return _literal(cast("list[Any]", choices))
        for key in ("anyOf", "oneOf"):
            options = given.get(key)
            if isinstance(options, list) and options:
                return self._union(cast("list[Any]", options), place, depth, root)
        kinds = given.get("type")
        if isinstance(kinds, list):
            single = [{**given, "type": kind} for kind in cast("list[Any]", kinds)]
            return self._union(single, place, depth, root)
        if kinds == "array":
            return f"list[{self.type(given.get('items'), place + 'Item', depth + 1, root)}]"
        if kinds == "object" or (kinds is None and "properties" in given):
            return self._object(given, place, depth, root)
        return _SIMPLE.get(kinds, "Any") if isinstance(kinds, str) else "Any"

    def _union(self, options: list[Any], place: str, depth: int, root: Mapping[str, Any]) -> str:
        texts = dict.fromkeys(self.type(one, place, depth + 1, root) for one in options[:_MOST_CHOICES])
        if "Any" in texts or len(options) > _MOST_CHOICES:
            return "Any"
        return " | ".join(texts)

    def _referenced(self, reference: str, place: str, depth: int, root: Mapping[str, Any]) -> str:
        if reference in self._open or not reference.startswith("#/"):
            return "Any"
        target: Any = root
        for step in reference[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            target = cast("Mapping[str, Any]", target).get(key) if isinstance(target, Mapping) else None
        self._open.append(reference)
        try:
            return self.type(target, place, depth + 1, root)
        finally:
            self._open.pop()

    def _object(self, schema: Mapping[str, Any], place: str, depth: int, root: Mapping[str, Any]) -> str:
        members, required = _members(schema)
        if not members:
            values = schema.get("additionalProperties")
            inner = (
                self.type(values, place + "Value", depth + 1, root) if isinstance(values, Mapping) else "Any"
            )
            return f"dict[str, {inner}]"
        fits = len(members) <= _MOST_MEMBERS and len(self._names) < _MOST_CLASSES
        if not fits or not all(_usable(name) and not name.startswith("__") for name, _ in members):
            return "dict[str, Any]"
        base = name = (
            f"{self._prefix}_{''.join(part.capitalize() for part in re.split(r'[^A-Za-z0-9]+', place))}"
        )
        while name in self._names:
            name = f"{base}_{len(self._names)}"
        self._names.add(name)
        fields: list[str] = []
        for key, one in members:
            text = self.type(one, f"{place}_{key}", depth + 1, root)
            fields.append(f"    {key}: {text}" if key in required else f"    {key}: NotRequired[{text}]")
        self.classes.append(f"class {name}(TypedDict):\n" + "\n".join(fields))
        return name


def _members(schema: Mapping[str, Any]) -> tuple[list[tuple[str, Any]], frozenset[str]]:
    properties, required = schema.get("properties"), schema.get("required")
    members = list(cast("Mapping[str, Any]", properties).items()) if isinstance(properties, Mapping) else []
    names = cast("list[Any]", required) if isinstance(required, list) else []
    return members, frozenset(name for name in names if isinstance(name, str))


def _takes_anything(schema: Mapping[str, Any]) -> bool:
    more = schema.get("additionalProperties")
    return more is not False and ("properties" not in schema or bool(more))


def _usable(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


def _default(schema: Any) -> str:
    value = cast("Mapping[str, Any]", schema).get("default") if isinstance(schema, Mapping) else None
    if (
        value is None
        or isinstance(value, bool | int)
        or (isinstance(value, str) and len(value) <= _LONGEST_CHOICE)
    ):
        return repr(value)
    return "..."


def _literal(choices: list[Any]) -> str:
    simple = all(
        choice is None
        or isinstance(choice, bool | int)
        or (isinstance(choice, str) and len(choice) <= _LONGEST_CHOICE)
        for choice in choices
    )
    if not simple or len(choices) > _MOST_CHOICES:
        kinds = {type(choice).__name__ for choice in choices}
        return kinds.pop() if len(kinds) == 1 and kinds <= {"str", "int", "bool"} else "Any"
    return f"Literal[{', '.join(dict.fromkeys(map(repr, choices)))}]"
