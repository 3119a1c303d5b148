"""Configuration text with single values changed in place: comments, order and layout of the rest stay.

What comes out is read again. If anything else than what was meant has changed, nothing is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from mooring.config.documents import parse_document
from mooring.config.spans import KeyPath
from mooring.config.syntax import BadSyntaxError
from mooring.core.checks import text_of
from mooring.errors import ConfigError

__all__ = ["Drop", "Put", "edited"]

# Each has `put` and `drop`. Loaded when a file is edited, with the library that it needs.
_EDITORS = {
    ".json": "mooring.config.editjson",
    ".jsonc": "mooring.config.editjson",
    ".yaml": "mooring.config.edityaml",
    ".yml": "mooring.config.edityaml",
    ".toml": "mooring.config.edittoml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Set what stands at `path`; mappings on the way there are made where they are missing."""

    path: KeyPath
    value: Any

    def __repr__(self) -> str:
        """Without the value, which may hold a secret."""
        return f"Put({self.path!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Take away what stands at `path`."""

    path: KeyPath


def edited(text: str, changes: Sequence[Put | Drop], *, file: Path) -> str:
    """`text` with the changes made; `file` tells the format. An empty text is a new file.

    Raises:
        ConfigError: it cannot be parsed, or not be changed without touching something else.
    """
    kind = file.suffix.lower()
    if kind not in _EDITORS:
        raise ConfigError("has no known format; name it .yaml, .toml or .json", file=str(file))
    editor: Any = import_module(_EDITORS[kind])
    is_yaml = kind in (".yaml", ".yml")
    blank = all(not line.strip() or (is_yaml and line.lstrip().startswith("#")) for line in text.splitlines())
    meant: Any = {} if blank else _copied(parse_document(text, file))
    dos = "\r\n" in text and text.count("\r\n") == text.count("\n")
    new = text.replace("\r\n", "\n") if dos else text
    if blank and editor.__name__.endswith("json"):
        new = "{}\n"
    for change in changes:
        new = _one(editor, new, change, file)
        _imitate(meant, change, _as_yaml if is_yaml else lambda value: value)
    found = {} if not new.strip() else parse_document(new, file)
    if _pruned(found) != _pruned(meant):
        raise _refusal(file)
    return new.replace("\n", "\r\n") if dos else new


def _one(editor: Any, text: str, change: Put | Drop, file: Path) -> str:
    try:
        if isinstance(change, Put):
            return editor.put(text, change.path, change.value)
        return editor.drop(text, change.path)
    except (LookupError, TypeError, ValueError, AttributeError) as problem:
        # The libraries raise what they like about a layout that they do not expect.
        if isinstance(problem, BadSyntaxError):
            raise ConfigError(problem.problem, file=str(file), place=problem.place) from None
        raise _refusal(file) from problem


def _refusal(file: Path) -> ConfigError:
    return ConfigError(
        "cannot be changed here without touching something else in it; nothing was written: edit it by hand",
        file=str(file),
    )


def _imitate(data: Any, change: Put | Drop, reads: Callable[[Any], Any]) -> None:
    """Does to the data what was meant to happen to the text."""
    for key, following in zip(change.path[:-1], change.path[1:], strict=True):
        if isinstance(key, str) and data.get(key) is None:
            data[key] = {} if isinstance(following, str) else []
        data = data[key]
    last = change.path[-1]
    if isinstance(change, Drop):
        del data[last]
    elif isinstance(last, int) and last == len(data):
        data.append(reads(change.value))
    else:
        data[last] = reads(change.value)


def _copied(data: Any) -> Any:
    """Without anything that stands in it twice, as an alias of YAML does."""
    match data:
        case dict():
            return {key: _copied(item) for key, item in cast("dict[str, Any]", data).items()}
        case list():
            return [_copied(item) for item in cast("list[Any]", data)]
        case _:
            return data


def _as_yaml(value: Any) -> Any:
    """What our reader of YAML, to which every scalar is text, makes of a value."""
    match value:
        case Mapping():
            pairs = cast("Mapping[Any, Any]", value).items()
            return {str(key): _as_yaml(item) for key, item in pairs}
        case list() | tuple():
            return [_as_yaml(item) for item in cast("Sequence[Any]", value)]
        case None:
            return None
        case _:
            return text_of(value)


def _pruned(data: Any) -> Any:
    """Without mappings that hold nothing: a TOML table goes with its last entry."""
    if not isinstance(data, dict):
        return data
    items = {key: _pruned(item) for key, item in cast("dict[str, Any]", data).items()}
    return {key: item for key, item in items.items() if item is not None and item != {}}
