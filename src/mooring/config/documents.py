"""Configuration files as plain data: decoded, parsed by their suffix, bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from mooring.config.validate import shown
from mooring.errors import ConfigError

DEPTH_LIMIT = 64
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")


class Unquoted(str):
    """A text without quotes in YAML that JSON would write as a number or a boolean.

    It is text everywhere else, so that `1.10` and `22:22` mean what they look like.
    """

    __slots__ = ()


def plain_scalar(text: str) -> str:
    """Return a text without quotes, marked if it could be a JSON value."""
    return Unquoted(text) if text in ("true", "false") or _NUMBER.fullmatch(text) else text


def as_json(value: object) -> Any:
    """Return a JSON value from a file.

    Raises:
        ValueError: It is none, such as a date of TOML.
    """
    if isinstance(value, Unquoted):
        found = _NUMBER.fullmatch(value)
        if found is None:
            return value == "true"
        return float(value) if found[1] or found[2] else int(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [as_json(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in cast("Mapping[object, object]", value).items()}
    raise ValueError("must hold JSON values; put dates and times in quotes")


class BadSyntaxError(ValueError):
    """A text cannot be parsed. The caller turns it into a `ConfigError` with the file."""

    def __init__(self, problem: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = None
        if line is not None:
            self.place = f"line {line}" if column is None else f"line {line}, column {column}"

    @classmethod
    def twice(cls, key: str, first: int, again: int) -> BadSyntaxError:
        """A mapping has a key twice."""
        return cls(f"{shown(key)} stands twice, on line {first} and on line {again}; keep one", line=again)


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


def read_document(path: Path) -> dict[str, Any]:
    """Return the mapping in a file.

    Raises:
        ConfigError: the file cannot be read, cannot be parsed, or is not a mapping.
    """
    parse = _parser(path)  # before reading the file
    return _mapping(read_text(path), parse, str(path))


def parse_document(text: str, path: Path) -> dict[str, Any]:
    """Return the mapping in `text`, the content of `path`.

    Raises:
        ConfigError: it cannot be parsed, or is not a mapping.
    """
    return _mapping(text, _parser(path), str(path))


def _parser(path: Path) -> Callable[[str], object]:
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigError("has no known format; name it .yaml, .toml or .json", file=str(path))
    return parse


def _mapping(text: str, parse: Callable[[str], object], file: str) -> dict[str, Any]:
    if not text.strip():
        raise ConfigError("the file is empty; write 'servers: {}' to mean no servers", file=file)
    try:
        data = parse(text)
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


def _json(text: str) -> object:
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        data = None
    if data is not None and not too_deep(data):
        return data
    from mooring.config import jsonc  # it supports comments and reports places

    return jsonc.parse(text)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> object:
    raise ValueError


def _yaml(text: str) -> object:
    from mooring.config import yaml

    return yaml.parse(text)


def _toml(text: str) -> object:
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _toml_problem(text, str(error)) from None
    except RecursionError:
        raise BadSyntaxError("is nested too deeply") from None
    if too_deep(data):
        raise BadSyntaxError("is nested too deeply")
    return data


def _toml_problem(text: str, message: str) -> BadSyntaxError:
    words, _, _ = message.partition(" (at ")
    found = re.search(r"at line (\d+), column (\d+)", message)
    line, column = (int(found[1]), int(found[2])) if found else (len(text.rstrip().splitlines()), None)
    if words.startswith(("Cannot overwrite", "Cannot declare")):
        key, first = _first_mention(text.splitlines(), line)
        if first is not None:
            return BadSyntaxError.twice(key, first, line)
    remedy = "put texts in quotes and close every bracket"
    return BadSyntaxError(f"is not valid TOML: {words}; {remedy}", line=line, column=column)


def _first_mention(lines: list[str], again: int) -> tuple[str, int | None]:
    """Return the key or table header on line `again`, and the earlier line with the same one."""

    def said(line: str) -> str:
        head = line.strip() if line.strip().startswith("[") else line.partition("=")[0]
        return re.sub(r"[\s\"']", "", head.partition("#")[0]).strip("[]")

    key, start = said(lines[again - 1]), 0
    if not lines[again - 1].strip().startswith("["):
        headers = (n for n, line in enumerate(lines[: again - 1]) if line.strip().startswith("["))
        start = max(headers, default=0)  # a key can only clash within its own table
    before = (n for n in range(start, again - 1) if said(lines[n]) == key)
    first = next(before, None)
    return key.rpartition(".")[2], None if first is None else first + 1


_PARSERS: dict[str, Callable[[str], object]] = {
    ".json": _json,
    ".jsonc": _json,
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
}
