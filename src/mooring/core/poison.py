"""Doubtful things in what a server says of its tools.

A simple reader that flags what has no business in a description: characters that nobody sees, and
phrases that talk to the model instead of describing a tool. It finds the known tricks in plain words and
no others; what it does not flag is not thereby harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from mooring.core.merging import LONGEST
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


_UNSEEN = (b"\\u", b"\\b", b"\\f", b"\\r", b"\x7f")
"""How JSON writes what nobody sees."""
_CLAUSES = tuple(
    tuple(tuple(word.encode() for word in words.split("|")) for words in clause)
    for clause in (
        ("ignore|disregard|forget|override", "instruction|prompt|rule|guideline|tool|message|direction"),
        ("<", "important|system|instruction|assistant|secret|critical|admin|im_start"),
        ("[ |[s|[i|###",),  # no list in compact JSON begins like that
        (
            "do|don't|never|without",
            "tell|inform|mention|notif|show|reveal|alert|ask",
            "user|human|anyone|person|this",
        ),
        ("you|assistant|model|agent|ai", "must|should|need|have|required"),
        (
            "before|prior|after",
            "using|calling|invoking|running|any|every|each",
            "read|send|call|fetch|include|pass|invoke|run|upload",
        ),
        ("instead", "tool"),
        ("always", "this", "tool"),
        ("system|conversation|previous|chat", "prompt|history|messages"),
        (".ssh|id_rsa|.aws|passwd|mcp.json|.env|exfiltrate|bcc|jailbreak",),
        ("forward", "all|every|copy"),
        ("you", "are", "now"),
        ("act", "admin|root|system|developer"),
    )
)
"""Words of each phrase: where one of every group is missing, the phrase is not there."""
_WORD = re.compile(rb"[a-z']+")
_TRIGGERS = frozenset(word.strip() for clause in _CLAUSES for word in clause[0] if word.strip().isalpha()) | {
    b"don't"
}
_SIGNS = tuple(word for clause in _CLAUSES for word in clause[0] if not word.strip().isalpha())
"""How each phrase begins. Most definitions hold neither these words nor these signs."""


def suspicion(tool: Tool) -> str | None:
    """What is doubtful in the tool's definition; None when nothing stands out."""
    if hides(tool.name):
        return "holds hidden characters"
    overlong = "has an overlong description, which is cut" if len(tool.description) > LONGEST else None
    if not _worth_reading(tool):
        return overlong
    texts = list(_texts(tool))
    if any(hides(text) for text in texts):
        return "holds hidden characters"
    if any(_orders(text) for text in texts):
        return "speaks to the model instead of describing itself"
    return overlong


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


def _worth_reading(tool: Tool) -> bool:
    """Whether anything in the definition could be doubtful: one look at its JSON settles nearly all."""
    from pydantic_core import to_json  # only what lists needs it

    said = [tool.title, tool.description, tool.input_schema, tool.output_schema, dict(tool.annotations)]
    try:
        text = to_json(said)
    except ValueError:
        return True
    if not text.isascii() or any(sign in text for sign in _UNSEEN):
        return True
    small = text.lower()
    if _TRIGGERS.isdisjoint(_WORD.findall(small)) and not any(map(small.__contains__, _SIGNS)):
        return False
    return any(all(any(map(small.__contains__, group)) for group in clause) for clause in _CLAUSES)


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
