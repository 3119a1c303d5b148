"""Findings in what a server says of its tools: hidden characters, and orders to the model.

A description tells what a tool does. One that speaks of other tools, of the user's secrets or of the model's
own instructions may be an attack. The rules know common tricks in plain words and no others; what they do not
find is not thereby harmless. They stay quiet about real servers: "You must provide a path" or "Call
`list_items` first" is how those explain themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from mooring.core.lookalike import latin
from mooring.core.merging import LONGEST
from mooring.core.poisonrules import RULES, Needs, Rule
from mooring.core.text import hides
from mooring.core.types import Snapshot, Tool
from mooring.core.weight import recalled

__all__ = ["doubts", "suspicion"]

_SHOWN = 5
_MOST_TEXTS = 2_000
_LONGEST_TEXT = 8_192
"""Characters of one text that are searched; a model is shown fewer of a description."""
_MOST_READ = 65_536
"""Characters of one tool that are searched."""

_UNSEEN = ("\\u", "\\b", "\\f", "\\r", "\x7f")
"""How JSON writes what nobody sees."""


def suspicion(tool: Tool) -> str | None:
    """What is doubtful in the tool's definition; None when nothing stands out."""
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
    return "speaks to the model instead of describing itself" if ordering else overlong


def doubts(snapshot: Snapshot) -> tuple[str, ...]:
    """A warning for each kind of doubt that names the first few tools it is about."""
    found: dict[str, list[str]] = {}
    for tool in snapshot.tools:
        if (problem := suspicion(tool)) is not None:
            found.setdefault(problem, []).append(tool.name)
    if snapshot.instructions and (hides(snapshot.instructions) or _orders(snapshot.instructions, RULES)):
        found.setdefault("is doubtful: read the instructions of this server", []).append("(instructions)")
    return tuple(_warning(snapshot.server, what, names) for what, names in found.items())


def _warning(server: str, what: str, names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{server}: {shown}{more} {what}"


def _possible_rules(tool: Tool) -> Sequence[Rule]:
    """The rules that could apply to the definition: one look at its JSON settles most. Empty: nothing is
    hidden in it either."""
    from pydantic_core import to_json  # only what lists needs it

    said = [tool.title, tool.description, tool.input_schema, tool.output_schema, dict(tool.annotations)]
    try:
        text = to_json(said).decode()
    except ValueError:
        return RULES
    if not text.isascii() or any(sign in text for sign in _UNSEEN):
        return RULES
    small = text.lower()
    return [rule for rule in RULES if _possible(rule[0], small)]


def _orders(text: str, rules: Sequence[Rule]) -> bool:
    text = text[:_LONGEST_TEXT]
    for form in (text,) if text.isascii() else (text, latin(text)):
        small = form.lower()
        if any(_possible(needs, small) and pattern.search(form) is not None for needs, pattern in rules):
            return True
    return False


def _possible(needs: Needs, small: str) -> bool:
    return all(any(map(small.__contains__, group)) for group in needs)


def _texts(tool: Tool) -> Iterator[str]:
    """Every text of the definition that a model may read, as many as are worth looking at."""
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
            waiting += [*entries.values(), *(key for key in entries if isinstance(key, str) and hides(key))]
        elif isinstance(value, list | tuple):
            waiting += cast("list[object]", value)
