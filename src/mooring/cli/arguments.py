"""Read the arguments of a call from `key=value` words, files and standard input, typed by the schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import UsageError, suggestion
from mooring.cli.output import Output
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Tool


_MOST_CHOICES = 20
_DEPTH = 8
"""Depth to which unions are followed. Each reference is followed once, which bounds the work."""
# A bool is an int in Python, so it comes first.
_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    type(None): "null",
}


def parse_arguments(
    words: Sequence[str],
    document: str | None,
    schema: Mapping[str, Any],
    *,
    read: Callable[[str], str] | None = None,
    complete: bool = True,
) -> dict[str, Any]:
    """Merge the JSON document with the `key=value` and `key:=json` words, which take precedence.

    Args:
        words: Words of the command line. A value `@name` is replaced by `read(name)`; `@@` is a literal `@`.
        document: A JSON object.
        schema: The tool's input schema.
        read: Returns the text of a file; None: `@` has no special meaning.
        complete: Whether all required arguments must be present.

    Raises:
        UsageError: a word or value does not fit the schema, or a name is unknown or missing.
    """
    arguments = _base(document)
    properties = _mapping(schema.get("properties"))
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key:
            other = "use --args for a JSON object" if word.startswith("{") else "key:=json for a JSON value"
            raise UsageError(f"{word!r} is not an argument: write key=value, or {other}.")
        if read is not None and text.startswith("@"):
            text = text[1:] if text.startswith("@@") else read(text[1:])
        if key.endswith(":"):
            arguments[key[:-1]] = _json(text, key[:-1])
        else:
            arguments[key] = typed_value(text, key, schema)
    _check_names(arguments, properties, schema, complete=complete)
    return arguments


def missing(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Names of required arguments that are missing."""
    return [name for name in _required(schema) if name not in arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a tool, for people."""

    name: str
    kind: str
    """Its type in Python."""
    choices: tuple[str, ...]
    """The values that the schema lists, as they are written in `key=value`."""
    required: bool
    default: str
    """Its default as a Python expression; `None` if the schema has none."""
    description: str
    example: str
    """A value for the command line."""


_PYTHON = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
_SAMPLES = {"str": "text", "int": "1", "float": "1.5", "bool": "true", "list": "[]", "dict": "{}"}


def parameters(schema: Mapping[str, Any]) -> list[Parameter]:
    """The arguments of a tool, the required ones first."""
    properties, required = _mapping(schema.get("properties")), _required(schema)
    found: list[Parameter] = []
    for name, about in sorted(properties.items(), key=lambda item: item[0] not in required):
        keywords = _mapping(about)
        choices = [one for one in _list(keywords.get("enum")) if isinstance(one, str | int | float)]
        kinds = [_PYTHON.get(kind, kind) for kind in sorted(_types(about, schema))]
        plain = " | ".join(_with_items(kind, keywords) for kind in kinds) or "Any"
        kind = f"Literal[{', '.join(map(repr, choices))}]" if choices else plain
        sample = next((_SAMPLES[one] for one in kinds if one in _SAMPLES), "text")
        given = next(iter([*_list(keywords.get("examples")), *choices]), None)
        description = keywords.get("description")
        found.append(
            Parameter(
                name=name,
                kind=kind,
                choices=tuple(one if isinstance(one, str) else json.dumps(one) for one in choices),
                required=name in required,
                default=repr(keywords.get("default")),
                description=description if isinstance(description, str) else "",
                example=sample if given is None or isinstance(given, dict | list) else str(given),
            )
        )
    return found


def _with_items(kind: str, keywords: Mapping[str, Any]) -> str:
    """The type in Python, with that of the items of a list."""
    of = _mapping(keywords.get("items")).get("type") if kind == "list" else None
    return f"list[{_PYTHON[of]}]" if isinstance(of, str) and of in _PYTHON else kind


def names_of(schema: Mapping[str, Any]) -> list[str]:
    """The names of a tool's arguments, in its own order."""
    return list(_mapping(schema.get("properties")))


def typed_value(text: str, name: str, schema: Mapping[str, Any]) -> Any:
    """Convert the typed text of an argument to the type in the schema.

    Raises:
        UsageError: it does not fit the schema.
    """
    about = _mapping(schema.get("properties")).get(name)
    value = _typed(text, name, _types(about, schema))
    listed = _list(_mapping(about).get("enum"))
    if listed and value not in listed:
        choices = [one if isinstance(one, str) else json.dumps(one) for one in listed]
        known = f"{', '.join(choices[:_MOST_CHOICES])}{', …' if len(choices) > _MOST_CHOICES else ''}"
        near = suggestion(text, choices)
        raise UsageError(f"{name}: {text[:80]!r} is not one of {known}.{near} Write {name}:=JSON to send it.")
    return value


def _base(document: str | None) -> dict[str, Any]:
    if document is None:
        return {}
    if not document.strip():
        raise UsageError("--args: the JSON object is empty.")
    if document.startswith("@"):
        raise UsageError(f"--args takes a JSON object, not a file; write `--args - < {document[1:]}`.")
    value = _json(document, "--args")
    if not isinstance(value, dict):
        raise UsageError('--args must be a JSON object, such as --args \'{"path": "README.md"}\'.')
    return {str(key): item for key, item in _mapping(value).items()}


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{place}: {text[:80]!r} is not JSON ({problem}).") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _typed(text: str, key: str, types: set[str]) -> Any:
    """Convert the text to one of these JSON types. If a string is allowed, the text stays as it is."""
    if not types or "string" in types:
        return text
    value: object = text
    with suppress(ValueError, RecursionError):
        value = json.loads(text, parse_constant=_no_constant)
    kind = _kind(value)
    if kind in types or (kind == "integer" and "number" in types):
        return value
    expected = " or ".join(sorted(types))
    raise UsageError(f"{key}: expected {expected}, not {text[:80]!r}.")


def _kind(value: object) -> str:
    """The JSON name of a value's type."""
    for kind, name in _KINDS.items():
        if isinstance(value, kind):
            return name
    return "object"


def _types(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema allows; empty if it sets none."""
    found: set[str] = set()
    followed: set[str] = set()
    branches = [(schema, 0)]
    while branches:
        branch, depth = branches.pop()
        keywords = _mapping(branch)
        found.update(kind for kind in _list(keywords.get("type")) if isinstance(kind, str))
        found.update(map(_kind, _list(keywords.get("enum"))))
        if "const" in keywords:
            found.add(_kind(keywords["const"]))
        if depth < _DEPTH:
            unions = [*_list(keywords.get("anyOf")), *_list(keywords.get("oneOf"))]
            branches.extend((union, depth + 1) for union in unions)
        name = str(keywords.get("$ref", "")).removeprefix("#/$defs/")
        if name not in followed:
            followed.add(name)
            branches.append((_mapping(root.get("$defs")).get(name), depth))
    return found


def _required(schema: Mapping[str, Any]) -> list[str]:
    return [name for name in _list(schema.get("required")) if isinstance(name, str)]


def _check_names(
    arguments: Mapping[str, Any], properties: Mapping[str, Any], schema: Mapping[str, Any], *, complete: bool
) -> None:
    required = _required(schema)
    open_ended = schema.get("additionalProperties") or schema.get("patternProperties")
    unknown = [name for name in arguments if name not in properties] if properties and not open_ended else []
    if unknown:
        near = suggestion(unknown[0], list(properties))
        raise UsageError(
            f"The tool has no argument {unknown[0]!r}.{near} {_signature(properties, required, schema)}"
        )
    if complete and (absent := missing(arguments, schema)):
        names = ", ".join(absent)
        raise UsageError(f"Missing: {names}. {_signature(properties, required, schema)}")


def _signature(properties: Mapping[str, Any], required: Sequence[str], schema: Mapping[str, Any]) -> str:
    """All arguments in one sentence: `It takes: path (string, required), depth (integer).`"""
    parts: list[str] = []
    for name in sorted(properties, key=lambda name: (name not in required, name)):
        kinds = " or ".join(sorted(_types(properties[name], schema))) or "any"
        parts.append(f"{name} ({kinds}{', required' if name in required else ''})")
    return f"It takes: {', '.join(parts)}." if parts else "It takes no arguments."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]


def _list(value: Any) -> list[Any]:
    """The value of a keyword as a list: `type` may be one value or a list."""
    return value if isinstance(value, list) else [] if value is None else [value]  # pyright: ignore[reportUnknownVariableType]


SIZE_LIMIT = 16 * 2**20
"""Largest file for `key=@file`, in bytes."""


async def read_arguments(
    words: Sequence[str], document: str | None, tool: Tool, out: Output
) -> dict[str, Any]:
    """The arguments for the tool; on a terminal, missing ones are asked for.

    Raises:
        UsageError: they do not fit the tool, or one is missing and there is no terminal.
    """
    ask = sys.stdin.isatty() and out.interactive and not out.options.json
    schema = tool.input_schema
    typed = next((word for word in words if word.partition("=")[2] == "@-"), None)
    stdin = "" if typed is None else await read_stdin("@-", f"the value of {typed.partition('=')[0]}", out)

    def read(name: str) -> str:
        return stdin if name == "-" else _read(name)

    arguments = parse_arguments(words, document, schema, read=read, complete=not ask)
    for name in missing(arguments, schema):
        arguments[name] = await _ask(name, schema, out)
    return arguments


async def read_stdin(place: str, what: str, out: Output) -> str:
    """Read standard input.

    Args:
        place: The word of the command line that asks for it.
        what: What to type, for a terminal.
        out: Silent with `--quiet`.

    Raises:
        UsageError: it is not UTF-8 text.
    """
    from mooring.cli.ask import typed_text

    try:
        return (await typed_text("" if out.options.quiet else what)).removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise UsageError(f"{place}: standard input is not UTF-8 text.") from None


def _read(name: str) -> str:
    try:
        path = Path(name).expanduser()
        if path.stat().st_size > SIZE_LIMIT:
            raise UsageError(f"@{name}: the file is larger than {SIZE_LIMIT >> 20} MiB.")
        return path.read_text("utf-8")
    except OSError as problem:
        raise UsageError(f"@{name}: {problem.strerror or problem}. Write @@ for a literal @.") from None
    except UnicodeDecodeError:
        raise UsageError(f"@{name}: the file is not UTF-8 text.") from None


async def _ask(name: str, schema: Mapping[str, Any], out: Output) -> Any:
    """Ask for one argument on the terminal until it fits the schema."""
    from mooring.cli.ask import typed_line

    properties = schema.get("properties")
    about: Any = properties.get(name) if isinstance(properties, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    description = about.get("description") if isinstance(about, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    hint = f" ({clean_line(description)[:60]})" if isinstance(description, str) and description else ""
    while True:
        sys.stderr.write(f"{clean_line(name)}{hint}: ")
        sys.stderr.flush()
        typed = await typed_line()
        if not typed:
            raise UsageError(f"Missing: {name}. The terminal was closed before it was entered.")
        try:
            return typed_value(typed.decode("utf-8", "replace").rstrip("\r\n"), name, schema)
        except UsageError as problem:
            out.error(str(problem))
