"""How well a search finds what people meant: recall on questions whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mooring.core.catalog import Catalog
from mooring.core.merging import merge
from mooring.core.types import ServerInfo, Snapshot, Tool

__all__ = ["LabelError", "Question", "catalog_of", "ids_of", "questions_of", "recall"]

_KINDS = ("queries", "steps", "tasks")


class LabelError(ValueError):
    """A labelled file is not of a known shape; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Words that somebody might search with, and the tools that would help."""

    text: str
    gold: tuple[tuple[str, ...], ...]
    """One entry for each tool that is needed: the ids of those of which any one will do."""


def questions_of(document: Any) -> dict[str, list[Question]]:
    """Return the questions of a labelled file, by the list that they stand in.

    A question is `{"text", "tools": [id, …]}`, each of which is needed, or `{"text", "gold": [[id, …],
    …]}`, where any one of each inner list will do. A mere list of questions is one of `queries`.

    Raises:
        LabelError: it holds no questions, or one is of another shape.
    """
    lists = {"queries": cast("object", document)} if isinstance(document, list) else _object(document)
    found = {kind: _entries(lists[kind], kind) for kind in _KINDS if lists.get(kind)}
    if not found:
        raise LabelError(f"it has none of {', '.join(map(repr, _KINDS))}: a list of questions")
    return {
        kind: [_question(entry, f"{kind}[{number}]") for number, entry in enumerate(entries)]
        for kind, entries in found.items()
    }


def catalog_of(document: Any) -> Catalog | None:
    """Return the catalog of the tools that a labelled file brings along; None when it brings none.

    Raises:
        LabelError: a tool has no name or no server.
    """
    servers: dict[str, list[Mapping[str, Any]]] = {}
    for number, entry in enumerate(_entries(_object(document).get("tools", []), "tools")):
        if not isinstance(entry.get("server"), str) or not isinstance(entry.get("name"), str):
            raise LabelError(f"tools[{number}] must have a 'server' and a 'name'")
        servers.setdefault(entry["server"], []).append(entry)
    if not servers:
        return None
    return merge(_snapshot(server, entries) for server, entries in servers.items())


def ids_of(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Return the ids by which a label may name each tool: `server/tool`, the local name, its own id."""
    return {
        name: (f"{tool.server}/{tool.remote_name}", name, str(tool.extra.get("id", name)))
        for name, tool in catalog.tools.items()
    }


def recall(
    questions: Iterable[Question],
    search: Callable[[str, int], Sequence[str]],
    ids: Mapping[str, Sequence[str]],
    limits: Sequence[int],
) -> list[tuple[Question, dict[int, float], list[str]]]:
    """Return, for each question, the share of the needed tools among the first so many found, and those.

    Args:
        questions: What is searched for.
        search: Local names for a text, the best first, at most so many.
        ids: See `ids_of`.
        limits: How many of the found tools are looked at.
    """
    answers: list[tuple[Question, dict[int, float], list[str]]] = []
    for question in questions:
        names = list(search(question.text, max(limits)))
        shares = {limit: _share(question, names[:limit], ids) for limit in limits}
        answers.append((question, shares, names))
    return answers


def _share(question: Question, names: Sequence[str], ids: Mapping[str, Sequence[str]]) -> float:
    found = {label for name in names for label in ids[name]}
    return sum(not found.isdisjoint(needed) for needed in question.gold) / len(question.gold)


def _question(entry: Mapping[str, Any], place: str) -> Question:
    gold = entry.get("gold")
    if gold is None:
        tools = entry.get("tools")
        gold = [[tool] for tool in cast("list[object]", tools)] if isinstance(tools, list) else None
    text = entry.get("text")
    if not isinstance(text, str) or not isinstance(gold, list) or not gold:
        raise LabelError(f"{place} must have a 'text', and 'tools' (names) or 'gold' (lists of names)")
    return Question(text=text, gold=tuple(_names(needed, place) for needed in cast("list[object]", gold)))


def _names(needed: object, place: str) -> tuple[str, ...]:
    names = cast("list[object]", needed) if isinstance(needed, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise LabelError(f"{place}: the tools must be names")
    return tuple(map(str, names))


def _snapshot(server: str, entries: Sequence[Mapping[str, Any]]) -> Snapshot:
    tools = tuple(
        Tool(
            name=entry["name"],
            server=server,
            remote_name=entry["name"],
            description=str(entry.get("description") or ""),
            input_schema=_object(entry.get("inputSchema") or {"type": "object"}),
            extra={"id": entry["id"]} if "id" in entry else {},
        )
        for entry in entries
    )
    about = entries[0].get("server_description") or None
    return Snapshot(server=server, info=ServerInfo(description=about and str(about)), tools=tools)


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _entries(value: Any, place: str) -> list[Mapping[str, Any]]:
    entries = cast("list[object]", value) if isinstance(value, list) else [None]
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise LabelError(f"{place}[{number}] must be an object")
    return cast("list[Mapping[str, Any]]", entries)
