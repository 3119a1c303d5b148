"""Configuration files as plain data: decoded, parsed by their suffix, limited in size and depth."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.config.validate import plain_scalar, shown
from mooring.errors import ConfigError

if TYPE_CHECKING:
    import yaml

    from mooring.config.edit.toml import Statement

_NODE_LIMIT = 200_000
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class _OpenNode:
    """A mapping or sequence whose end has not been read yet."""

    def __init__(self, line: int, anchor: str | None, before: int, *, is_map: bool) -> None:
        self.line = line
        self.anchor = anchor
        self.before = before
        self.is_map = is_map
        self.items: list[object] = []
        self.lines: dict[str, int] = {}
        """Keys of a mapping with their line numbers."""
        self.key: str | None = None
        self.merged: int | None = None
        """Line of the merge key `<<`; None without one. In quotes it is an ordinary key."""

    def notice_merge(self, event: yaml.ScalarEvent) -> None:
        if self.is_map and self.key is None and not event.style and event.value == "<<":
            self.merged = event.start_mark.line + 1

    def add(self, value: object, line: int) -> int | None:
        """Add a key or a value. Returns the line of an earlier key that is the same, if there is one."""
        if not self.is_map:
            self.items.append(value)
        elif self.key is None:
            self.key = _key(value, line)
            if self.key in self.lines:
                return self.lines[self.key]
            self.lines[self.key] = line
        else:
            self.items.append((self.key, value))
            self.key = None
        return None

    def done(self) -> object:
        if not self.is_map:
            return self.items
        own: dict[str, object] = {}
        for key, value in cast("list[tuple[str, object]]", self.items):
            own.setdefault(key, value)
        return own if self.merged is None else _merged(own, self.merged)


class _YamlBuilder:
    def __init__(self, repeated: list[RepeatedKey] | None) -> None:
        self.repeated = repeated
        self.stack: list[_OpenNode] = []
        self.anchors: dict[str, tuple[object, int]] = {}
        """By anchor: its value, and the number of values in it."""
        self.count = 0
        self.root: object = None

    def event(self, event: yaml.Event) -> None:
        import yaml

        line = event.start_mark.line + 1
        anchor = cast("str | None", getattr(event, "anchor", None))
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self.stack) >= DEPTH_LIMIT:
                    raise BadSyntaxError("is nested too deeply", line=line)
                is_map = isinstance(event, yaml.MappingStartEvent)
                self.stack.append(_OpenNode(line, anchor, self.count, is_map=is_map))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node = self.stack.pop()
                self.put(node.done(), node.line, node.anchor, node.before)
            case yaml.ScalarEvent():
                if self.stack:
                    self.stack[-1].notice_merge(event)
                named = bool(self.stack) and self.stack[-1].is_map and self.stack[-1].key is None
                plain_null = not event.style and event.value in _NULLS and not (named and event.value)
                text = event.value if event.style else plain_scalar(event.value)
                self.put(None if plain_null else text, line, anchor, self.count)
            case yaml.AliasEvent():
                if anchor not in self.anchors:
                    raise BadSyntaxError(
                        f"the alias '*{anchor}' is used before or inside its anchor", line=line
                    )
                value, weight = self.anchors[anchor]
                self.count += weight
                self.put(value, line, None, self.count)
            case _:
                pass

    def put(self, value: object, line: int, anchor: str | None, before: int) -> None:
        self.count += 1
        if self.count > _NODE_LIMIT:
            raise BadSyntaxError("expands to too many values; use fewer aliases", line=line)
        if anchor is not None:
            self.anchors[anchor] = (value, self.count - before)
        if not self.stack:
            self.root = value
        elif (first := self.stack[-1].add(value, line)) is not None:
            path = [len(node.items) if node.key is None else node.key for node in self.stack]
            RepeatedKey(path, first, line).report(self.repeated)


def parse_yaml(text: str, repeated: list[RepeatedKey] | None = None) -> object:
    """Return the value in a YAML text: mappings, lists, texts and None.

    Every scalar stays text, so that `no`, `1.10` and `22:22` keep their spelling. The value is built from the
    events of the parser without recursion. An alias counts as a copy, so a small file cannot expand into
    billions of values.

    Args:
        text: One document.
        repeated: Receives keys that a mapping has more than once; the first value counts.

    Raises:
        BadSyntaxError: it is not YAML, too large, or too deep; without `repeated`, also for a repeated key.
    """
    import yaml

    builder, documents = _YamlBuilder(repeated), 0
    module: Any = yaml  # `parse` is untyped in the stubs
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        for event in cast("Iterator[yaml.Event]", module.parse(text, Loader=loader)):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise BadSyntaxError("holds a second document; keep one", line=event.start_mark.line + 1)
            builder.event(event)
    except yaml.MarkedYAMLError as error:
        raise _yaml_problem(text, error) from None
    except yaml.YAMLError:
        raise BadSyntaxError("is not valid YAML: it holds a character that YAML does not allow") from None
    return builder.root


def _yaml_problem(text: str, error: yaml.MarkedYAMLError) -> BadSyntaxError:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return BadSyntaxError("is not valid YAML")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = f"is not valid YAML: {error.problem or 'it cannot be read'}"
    if "\t" in line[: mark.column + 1]:
        problem += "; indent with spaces, never with tabs"
    elif "${" in line:
        problem += '; put a text that holds ${…} in double quotes, as in ["${NAME}"]'
    else:
        problem += "; check the indentation, and put texts with special characters in quotes"
    return BadSyntaxError(problem, line=mark.line + 1, column=mark.column + 1)


def _key(value: object, line: int) -> str:
    if isinstance(value, str):
        return value
    raise BadSyntaxError("a name in a mapping must be text", line=line)


def _merged(own: dict[str, object], line: int) -> dict[str, object]:
    """Return `own` merged over the mappings that its `<<` names."""
    given = own.pop("<<")
    bases = cast("list[object]", given) if isinstance(given, list) else [given]
    result: dict[str, object] = {}
    for base in reversed(bases):
        if not isinstance(base, dict):
            raise BadSyntaxError("'<<' must name a mapping", line=line)
        result |= cast("dict[str, object]", base)
    return result | own


DEPTH_LIMIT = 64


class BadSyntaxError(ValueError):
    """A text cannot be parsed. The caller turns it into a `ConfigError` with the file."""

    def __init__(self, problem: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = None
        if line is not None:
            self.place = f"line {line}" if column is None else f"line {line}, column {column}"


class RepeatedKey:
    """A key that a mapping has more than once, with the lines of two of them."""

    def __init__(self, path: Sequence[str | int], first: int, again: int) -> None:
        self.path = tuple(path)
        """Keys and positions from the top of the document."""
        self.again = again
        self.problem = f"is defined twice, on line {first} and on line {again}"

    def report(self, repeated: list[RepeatedKey] | None) -> None:
        """Add it to the list, or raise BadSyntaxError without one."""
        if repeated is None:
            raise self.error()
        repeated.append(self)

    def error(self) -> BadSyntaxError:
        return BadSyntaxError(f"{shown(str(self.path[-1]))} {self.problem}; keep one", line=self.again)


def too_deep(data: object) -> bool:
    """Whether the value is nested too deeply."""
    level = [data]
    for _ in range(DEPTH_LIMIT):
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper += cast("dict[str, object]", value).values()
            elif isinstance(value, list):
                deeper += cast("list[object]", value)
        if not deeper:
            return False
        level = deeper
    return True


SIZE_LIMIT = 4 * 2**20


def read_document(path: Path, repeated: list[RepeatedKey] | None = None) -> dict[str, Any]:
    """Return the mapping in a file.

    Args:
        path: Its suffix is the format.
        repeated: Receives keys that a mapping has more than once; the first value counts.

    Raises:
        ConfigError: the file cannot be read, cannot be parsed, or is not a mapping.
    """
    parse = _parser(path)  # before reading the file
    return _mapping(read_text(path), parse, str(path), repeated)


def parse_document(text: str, path: Path) -> dict[str, Any]:
    """Return the mapping in `text`, the content of `path`.

    Raises:
        ConfigError: it cannot be parsed, or is not a mapping.
    """
    return _mapping(text, _parser(path), str(path))


def _parser(path: Path) -> _Parser:
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None and not path.exists():
        raise ConfigError("there is no such file", file=str(path))
    if parse is None:
        problem = (
            "is a directory; name a file in it"
            if path.is_dir()
            else "has no known format; name it .yaml, .toml or .json"
        )
        raise ConfigError(problem, file=str(path))
    return parse


def _mapping(
    text: str, parse: _Parser, file: str, repeated: list[RepeatedKey] | None = None
) -> dict[str, Any]:
    if not text.strip():
        raise ConfigError("the file is empty; write 'servers: {}' to mean no servers", file=file)
    try:
        data = parse(text, repeated)
    except BadSyntaxError as error:
        raise ConfigError(error.problem, file=file, place=error.place) from None
    if not isinstance(data, dict):
        raise ConfigError(
            'must be a mapping at the top, such as {"mcpServers": {"name": {"command": "…"}}}', file=file
        )
    return cast("dict[str, Any]", data)


def read_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ConfigError: it cannot be read, is too large, or is not UTF-8.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise ConfigError("there is no such file", file=file) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or type(error).__name__}", file=file) from None
    if len(raw) > SIZE_LIMIT:
        raise ConfigError("is larger than 4 MiB, too large for a configuration", file=file)
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text; save it as UTF-8", file=file, place=f"line {line}") from None


def _json(text: str, repeated: list[RepeatedKey] | None) -> object:
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        data = None
    if data is not None and not too_deep(data):
        return data
    return parse_jsonc(text, repeated)  # our own parser: it supports comments and reports line numbers


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> object:
    raise ValueError


_MOST_REPEATED = 20
"""Repeated keys of a TOML file that are left out: each costs a pass over the file."""


def _toml(text: str, repeated: list[RepeatedKey] | None) -> object:
    import tomllib

    text, found = text.replace("\r\n", "\n"), cast("list[Statement]", [])
    for _ in range(_MOST_REPEATED):
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            text = _without_repeated(text, str(error), repeated, found)
        except RecursionError:
            raise BadSyntaxError("is nested too deeply") from None
        else:
            if too_deep(data):
                raise BadSyntaxError("is nested too deeply")
            return data
    raise BadSyntaxError("has too many keys that are defined twice; keep one of each")


_TWICE = re.compile(
    r"Cannot (?:declare|overwrite|redefine) |(?:Duplicate inline table key|Cannot mutate .*) \(?'(.*?)'"
)


def _without_repeated(
    text: str, message: str, repeated: list[RepeatedKey] | None, found: list[Statement]
) -> str:
    """Return the text without the repeated key that `tomllib` reported. `found` keeps its statements."""
    words, _, _ = message.partition(" (at ")
    place = re.search(r"at line (\d+), column (\d+)", message)
    line, column = (int(place[1]), int(place[2])) if place else (len(text.rstrip().split("\n")), None)
    if (twice := _TWICE.match(words)) is not None:
        from mooring.config.edit.toml import left_out, statements

        found += [] if found else statements(text)
        with suppress(KeyError):
            own, first, text = left_out(text, found, line - 1)
            path = own.key
            if first is None and twice[1]:  # both are in one inline table
                path, first = (*path, twice[1]), own.start
            if first is not None:
                RepeatedKey(path, first + 1, own.start + 1).report(repeated)
                return text
    remedy = "put texts in quotes and close every bracket"
    raise BadSyntaxError(f"is not valid TOML: {words}; {remedy}", line=line, column=column)


_Parser = Callable[[str, list[RepeatedKey] | None], object]
_PARSERS: dict[str, _Parser] = {
    ".json": _json,
    ".jsonc": _json,
    ".toml": _toml,
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
}


BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_ATOM = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z.+-])|\b(?:true|false|null)\b"
)


def parse_jsonc(text: str, repeated: list[RepeatedKey] | None = None) -> object:
    """Return the value in a JSON text that may contain comments.

    Args:
        text: One document.
        repeated: Receives keys that an object has more than once; the first value counts.

    Raises:
        BadSyntaxError: it is not JSON, or nested too deeply; without `repeated`, also for a repeated key.
    """
    return JsoncParser(text, repeated).document()


class JsoncParser:
    """Parser of one text. Subclasses override `member` to record more than the values."""

    def __init__(self, text: str, repeated: list[RepeatedKey] | None = None) -> None:
        self.text = text
        self.repeated = repeated
        self.path: list[str | int] = []
        self.at = 0
        self.open: list[tuple[str, int]] = []
        """The open brackets around the current position, each with its own position."""

    def document(self) -> object:
        value = self.value()
        self.blank()
        if self.at < len(self.text):
            raise self.wrong("there is more after the end of the document; remove it")
        return value

    def value(self) -> object:
        self.blank()
        match self.text[self.at : self.at + 1]:
            case "{":
                return self.object()
            case "[":
                return self.array()
            case '"':
                return self.string()
            case "":
                raise self.ended()
            case _:
                found = _ATOM.match(self.text, self.at)
                if found is None:
                    raise self.wrong(
                        "expected a value: text in double quotes, a number, true, false, null, { or ["
                    )
                self.at = found.end()
                try:
                    return json.loads(found[0])
                except ValueError:
                    raise self.wrong("this number is too long") from None

    def object(self) -> dict[str, object]:
        result: dict[str, object] = {}
        places: dict[str, int] = {}
        self.enter("{")
        while not self.leaves("}"):
            place = self.at
            if self.text[self.at : self.at + 1] != '"':
                raise self.wrong('expected a name in double quotes, or "}"')
            key = self.string()
            self.path.append(key)
            if key in result:
                RepeatedKey(self.path, self.line(places[key]), self.line(place)).report(self.repeated)
            self.blank()
            if self.text[self.at : self.at + 1] != ":":
                raise self.wrong('expected ":" after the name')
            self.at += 1
            result.setdefault(key, self.member(place))
            places.setdefault(key, place)
            self.path.pop()
            self.separator("}")
        return result

    def member(self, place: int) -> object:
        """Return the value of the member whose name begins at `place`."""
        return self.value()

    def array(self) -> list[object]:
        result: list[object] = []
        self.enter("[")
        while not self.leaves("]"):
            self.path.append(len(result))
            result.append(self.value())
            self.path.pop()
            self.separator("]")
        return result

    def string(self) -> str:
        found = _STRING.match(self.text, self.at)
        try:
            if found is not None:
                value: str = json.loads(found[0])
                self.at = found.end()
                return value
        except ValueError:
            pass
        raise self.wrong("this text is not closed on its line, or holds a wrong escape after a backslash")

    def enter(self, bracket: str) -> None:
        if len(self.open) >= DEPTH_LIMIT:
            raise self.wrong("is nested too deeply")
        self.open.append((bracket, self.at))
        self.at += 1

    def leaves(self, bracket: str) -> bool:
        """Whether the object or array ends here; if so, moves past its bracket."""
        self.blank()
        here = self.text[self.at : self.at + 1]
        if here == bracket:
            self.open.pop()
            self.at += 1
        elif not here:
            raise self.ended()
        return here == bracket

    def separator(self, bracket: str) -> None:
        self.blank()
        here = self.text[self.at : self.at + 1]
        if here == ",":
            self.at += 1
        elif not here:
            raise self.ended()
        elif here != bracket:
            raise self.wrong(f'expected "," or "{bracket}"')

    def blank(self) -> None:
        found = BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if self.text.startswith("/*", self.at):
            raise self.wrong("this comment is never closed; end it with */")

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def wrong(self, problem: str) -> BadSyntaxError:
        column = self.at - self.text.rfind("\n", 0, self.at)
        return BadSyntaxError(f"is not valid JSON: {problem}", line=self.line(self.at), column=column)

    def ended(self) -> BadSyntaxError:
        if not self.open:
            return self.wrong("the file ends before its value")
        bracket, at = self.open[-1]
        closing = "}" if bracket == "{" else "]"
        return self.wrong(
            f'the file ends inside the "{bracket}" of line {self.line(at)}; add the missing "{closing}"'
        )
