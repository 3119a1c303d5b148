"""Findings in texts of servers: hidden characters, and instructions to the model."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, cast

from mooring.core.catalog import LONGEST
from mooring.core.injection_phrases import RULES, Rule, applies, possible
from mooring.core.json_values import recalled
from mooring.core.names import latin
from mooring.core.text import hides
from mooring.core.types import Snapshot, Tool

_SHOWN = 5
_MOST_TEXTS = 2_000
_LONGEST_TEXT = 8_192
"""Characters of one text that are searched; a model is shown fewer of a description."""
_MOST_READ = 65_536
"""Characters of one tool that are searched."""

_NAME = 24
"""Characters of a name in a schema from which on it is searched: a phrase is not shorter."""
_UNSEEN = ("\\u", "\\b", "\\f", "\\r", "\x7f")
"""JSON escapes of invisible characters."""


_SPACED = re.compile(r"\b(?:[A-Za-z][ .*|_-]){4,}[A-Za-z]\b")
"""A word written letter by letter."""
_ENCODED = re.compile(r"\b[A-Za-z0-9+/]{24,}")
"""Text that may be base64."""
_MOST_DECODED = 8


def suspicion(tool: Tool) -> str | None:
    """Return what is suspicious in the tool's definition, or None."""
    if (found := recalled(suspicion, tool)) is not None:
        return found[0]
    if hides(tool.name):
        return "holds hidden characters"
    overlong = "has an overlong description, which is cut" if len(tool.description) > LONGEST else None
    rules = _possible_rules(tool)
    if not rules:
        return overlong
    left, ordering = _MOST_READ, False
    for text in _texts(tool):
        if hides(text):
            return "holds hidden characters"
        if not ordering and left > 0:
            ordering = _orders(text[:left], rules)
            left -= min(len(text), _LONGEST_TEXT)
    return "contains instructions to the model" if ordering else overlong


def injection_warnings(snapshot: Snapshot) -> tuple[str, ...]:
    """Return one warning for each kind of finding, with the names of the first few tools."""
    found: dict[str, list[str]] = {}
    for tool in snapshot.tools:
        if (problem := suspicion(tool)) is not None:
            found.setdefault(problem, []).append(tool.name)
    if snapshot.instructions and (hides(snapshot.instructions) or _orders(snapshot.instructions, RULES)):
        found.setdefault("look suspicious: review the instructions of this server", []).append(
            "(instructions)"
        )
    return tuple(_warning(snapshot.server, what, names) for what, names in found.items())


def _warning(server: str, what: str, names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{server}: {shown}{more} {what}"


def _possible_rules(tool: Tool) -> Sequence[Rule]:
    """Return the rules that could apply, after a fast search in the JSON of the definition. If it is empty,
    the definition has no hidden characters either."""
    from pydantic_core import to_json  # lazy: only needed for listings

    said = [tool.title, tool.description, tool.input_schema, tool.output_schema, dict(tool.annotations)]
    try:
        text = to_json(said).decode()
    except ValueError:
        return RULES
    if not text.isascii() or any(sign in text for sign in _UNSEEN):
        return RULES
    if _SPACED.search(text) or _ENCODED.search(text):
        return RULES
    small = text.lower()
    return [rule for rule in RULES if possible(rule, small)]


def _orders(text: str, rules: Sequence[Rule]) -> bool:
    for form in _forms(text[:_LONGEST_TEXT]):
        small = form.lower()
        if any(applies(rule, form, small) for rule in rules):
            return True
    return False


def _forms(text: str) -> Iterator[str]:
    """Yield the text, and the same without look-alike letters, without spaced letters, and decoded."""
    yield text
    if not text.isascii():
        yield latin(text)
    if _SPACED.search(text):
        yield _SPACED.sub(lambda found: re.sub(r"[\W_]", "", found[0]), text)
    for found in islice(_ENCODED.finditer(text), _MOST_DECODED):
        with suppress(ValueError):
            yield b64decode(found[0] + "=" * (-len(found[0]) % 4)).decode("ascii")


def _texts(tool: Tool) -> Iterator[str]:
    """Yield the texts of the definition that a model may read, at most `_MOST_TEXTS` values."""
    yield from (text for text in (tool.title, tool.description) if text)
    waiting: list[object] = [tool.input_schema, tool.output_schema, tool.annotations]
    for _ in range(_MOST_TEXTS):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            entries = cast("Mapping[Any, object]", value)
            names = (key for key in entries if isinstance(key, str) and (hides(key) or len(key) > _NAME))
            waiting += [*entries.values(), *(name.replace("_", " ") for name in names)]
        elif isinstance(value, list | tuple):
            waiting += cast("list[object]", value)
