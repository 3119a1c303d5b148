"""Doubtful things in what a server says of its tools.

A simple reader that flags what has no business in a description: characters that nobody sees, and
phrases that talk to the model instead of describing a tool. It finds the known tricks in plain words and
no others; what it does not flag is not thereby harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from mooring.core.catalog import LONGEST
from mooring.core.text import hides
from mooring.core.types import Snapshot, Tool

__all__ = ["doubts", "suspicion"]

_SHOWN = 5
_MOST_TEXTS = 2_000
_PHRASES = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|all|any|other|your)\b"
    r".{0,30}\b(?:instruction|prompt|rule|guideline|tool|message|direction)"
    r"|<\s*/?\s*(?:important|system|instructions?|assistant|secret|critical|admin)\s*>"
    r"|\[\s*(?:system|inst|important)\s*\]|<\|im_start\|>|###\s*(?:system|instruction)"
    r"|\b(?:do\s+not|don't|never|without)\b.{0,20}\b(?:tell|inform|mention|notify|show|reveal|alert|ask(?:ing)?"
    r"|telling|informing|mentioning|notifying)\b.{0,30}\b(?:user|human|anyone|person|this)"
    r"|\b(?:you|assistant|model|agent|ai)\s+(?:must|should|need\s+to|have\s+to|are\s+required\s+to)\s+"
    r"(?:always\s+|first\s+|also\s+)*(?:call|use|read|send|include|pass|provide|invoke|run|execute|fetch|append|copy)"
    r"\b"
    r"|\b(?:before|prior\s+to|after)\s+(?:using|calling|invoking|running|any|every|each)\b.{0,60}"
    r"\b(?:read|send|call|fetch|include|pass|invoke|run|upload)\b"
    r"|\binstead\s+of\s+(?:using\s+)?(?:the\s+)?\w+\s+tool|\balways\s+(?:use|call|prefer)\s+this\s+tool"
    r"|\b(?:system\s+prompt|conversation\s+history|previous\s+messages|chat\s+history)\b"
    r"|~?/\.ssh\b|\bid_rsa\b|\.aws/credentials|/etc/passwd|\.cursor/mcp\.json|mcp\.json|\.env\b.{0,40}\b(?:content|send|pass)"
    r"|\b(?:exfiltrate|bcc)\b|\bforward\s+(?:all|every|a\s+copy)\b"
    r"|\byou\s+are\s+now\b|\bact\s+as\b.{0,30}\b(?:admin|root|system|developer)\b|\bjailbreak\b",
    re.IGNORECASE | re.DOTALL,
)
_STEMS = (
    *(
        "ignore",
        "disregard",
        "forget",
        "override",
        "<",
        "[",
        "###",
        "do not",
        "don't",
        "never",
        "without",
        "must",
    ),
    *("should", "need to", "have to", "required to", "before", "prior to", "after", "instead of", "always"),
    *(
        "system prompt",
        "history",
        "previous messages",
        ".ssh",
        "id_rsa",
        ".aws",
        "passwd",
        "mcp.json",
        ".env",
    ),
    *("exfiltrate", "bcc", "forward", "you are now", "act as", "jailbreak"),
)
"""Without any of these there is no such phrase, and looking for one is a hundred times as quick."""


def suspicion(tool: Tool) -> str | None:
    """What is doubtful in the tool's definition; None when nothing stands out."""
    if hides(tool.name):
        return "holds hidden characters"
    texts = list(_texts(tool))
    if any(hides(text) for text in texts):
        return "holds hidden characters"
    if any(_orders(text) for text in texts):
        return "speaks to the model instead of describing itself"
    return "has an overlong description, which is cut" if len(tool.description) > LONGEST else None


def doubts(snapshot: Snapshot) -> tuple[str, ...]:
    """A warning for each kind of doubt that names the first few tools it is about."""
    found: dict[str, list[str]] = {}
    for tool in snapshot.tools:
        if (problem := suspicion(tool)) is not None:
            found.setdefault(problem, []).append(tool.name)
    if snapshot.instructions and (hides(snapshot.instructions) or _orders(snapshot.instructions)):
        found.setdefault("is doubtful: read the instructions of this server", []).append("(instructions)")
    return tuple(_warning(snapshot.server, what, names) for what, names in found.items())


def _warning(server: str, what: str, names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{server}: {shown}{more} {what}"


def _orders(text: str) -> bool:
    small = text.lower()
    return any(stem in small for stem in _STEMS) and _PHRASES.search(text) is not None


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
