"""What search reads of a tool or a group: its texts by field, and the weight of each term in it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, cast

from mooring.core.types import EMPTY, Group, Tool
from mooring.core.words import runs, terms_of

__all__ = ["FULL", "GROUP", "RULES", "TOOL", "Fields", "Texts", "group_texts", "tool_texts", "weigh"]

RULES = 1
"""Raised when the same tool would be weighed otherwise: what was weighed once is kept for later starts."""

Texts = tuple[list[str], ...]
"""The words of each field."""

FULL = 255
"""The weight of a term that a document is all about. Whole numbers: sums do not depend on their order."""

_LONGEST_TEXT = 4_000
_LONGEST_NAME = 100
_LEAD_WORDS = 22
"""A description says its purpose first; what follows is detail and counts half."""
_MOST_PARAMETERS = 80
_MOST_CHOICES = 8
_SATURATION = 0.9
_STEP = 256
_MOST = 5 * _STEP
"""A little over what name and description together bring: repeating a word does not help further."""
_WEIGHTS = bytes(int(FULL * total / (total + _SATURATION * _STEP)) or 1 for total in range(_MOST))
"""The weight of a term for each sum of shares."""


Fields = Mapping[str, tuple[float, int]]
"""Kinds of text: the weight of one of the usual length, and how many words that is; longer ones thin out."""

TOOL: Fields = {
    "name": (3.6, 3),
    "title": (1.5, 3),
    "description": (1.0, 15),
    "details": (0.5, 40),
    "parameters": (0.8, 5),
    "parameter descriptions": (0.5, 25),
}
GROUP: Fields = {
    "server": (1.7, 2),
    "server title": (1.0, 3),
    "server description": (1.0, 25),
    "server instructions": (0.5, 60),
}


def weigh(fields: Fields, texts: Texts) -> dict[str, int]:
    """Return the weight of each term, from 1 to `FULL`: what the fields say of it, added and saturated."""
    sums: dict[str, int] = {}
    known = sums.get
    for (weight, usual), words in zip(fields.values(), texts, strict=True):
        if words:
            share = int(_STEP * weight / (0.7 + 0.3 * len(words) / usual))
            for term in chain.from_iterable(map(terms_of, words)):
                sums[term] = known(term, 0) + share
    return {term: _WEIGHTS[total] if total < _MOST else _WEIGHTS[-1] for term, total in sums.items()}


def tool_texts(tool: Tool) -> Texts:
    """Return the words of a tool, by the fields of `TOOL`."""
    description = runs(tool.description[:_LONGEST_TEXT])
    names, texts = _parameters(tool.input_schema)
    return (
        runs(tool.remote_name[:_LONGEST_NAME]),
        runs(tool.title[:_LONGEST_NAME]) if tool.title else [],
        description[:_LEAD_WORDS],
        description[_LEAD_WORDS:],
        runs(" ".join(names)),
        runs(" ".join(texts)[:_LONGEST_TEXT]),
    )


def group_texts(group: Group) -> Texts:
    """Return the words of a group, by the fields of `GROUP`."""
    name = runs(group.id[:_LONGEST_NAME].removeprefix("mcp:"))
    return (
        name,
        [word for word in runs(group.title[:_LONGEST_NAME]) if word not in name],
        runs(group.description[:_LONGEST_TEXT]),
        runs((group.instructions or "")[:_LONGEST_TEXT]),
    )


def _parameters(schema: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the parameters, nested ones too, and what is said about them."""
    names: list[str] = []
    texts: list[str] = []
    pending = [_mapping(schema)]
    for node in pending:  # grows as nested objects are met, until there are enough names
        for name, value in _mapping(node.get("properties")).items():
            if len(names) == _MOST_PARAMETERS:
                return names, texts
            names.append(str(name)[:_LONGEST_NAME])
            parameter = _mapping(value)
            description: Any = parameter.get("description")
            if isinstance(description, str):
                texts.append(description[:_LONGEST_TEXT])
            if "enum" in parameter:
                texts += _choices(parameter["enum"])
            if "properties" in parameter:
                pending.append(parameter)
            if "items" in parameter:
                pending.append(_mapping(parameter["items"]))
    return names, texts


def _choices(value: Any) -> list[str]:
    choices = cast("list[Any]", value)[:_MOST_CHOICES] if isinstance(value, list) else []
    return [choice[:_LONGEST_NAME] for choice in choices if isinstance(choice, str)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, (dict, MappingProxyType)) else EMPTY
