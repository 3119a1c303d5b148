"""`mooring eval`: how well the search finds tools, on questions with known answers."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.cli.options import Options, Parser, positive
from mooring.cli.output import GAP, Output, table, wrap
from mooring.core.catalog import Catalog, merge
from mooring.core.text import clean_line
from mooring.core.types import ServerInfo, Snapshot, Tool
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.core.catalog import Catalog


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


USAGE = "mooring eval FILE [--limit N] [--misses] [options]"
DETAILS = """

Recall at 1, 5 and 10: the share of the tools needed that are among the
first so many found. FILE is JSON with `queries`, or one question a line:

  {"text": "open pull requests", "tools": ["github/list_pull_requests"]}

Tools are named as `server/tool` or as `mooring tools` shows them, and are
looked for in the configured servers. Where one of several will do, write
`"gold": [["a", "b"], ["c"]]` in place of `tools`. A file that brings its own
`tools` (each `server`, `name`, `description`, `inputSchema`), with `queries`,
`steps` or `tasks`, needs no servers."""
EXAMPLES = """\
  mooring eval questions.jsonl
  mooring eval questions.json --limit 3 --misses
  mooring eval questions.jsonl --json | jq '.results[].recall."5"'"""

LIMITS = (1, 5, 10)


def configure(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="questions with the tools that answer them")
    parser.add_argument("--limit", metavar="N", type=positive, help="recall at this limit too")
    parser.add_argument("--misses", action="store_true", help="show the questions that were not answered")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.core.search import Index

    data = _read(Path(args.file))
    try:
        questions, own = questions_of(data), catalog_of(data)
    except LabelError as problem:
        raise ConfigError(str(problem), file=args.file) from None
    limits = sorted({*LIMITS, args.limit or 1})
    if own is not None:
        return _tell(questions, own, Index.build(own.tools, own.groups).search, limits, args, out)

    from mooring.cli.hosting import chosen, gather, open_host

    async with open_host(options, out, idle=True) as host:
        await gather(host, out, chosen(host), options.timeout)
        return _tell(questions, host.catalog, host.search, limits, args, out)


def _tell(
    questions: dict[str, list[Question]],
    catalog: Catalog,
    find: Callable[[str, int], Sequence[Any]],
    limits: list[int],
    args: Namespace,
    out: Output,
) -> int:

    ids = ids_of(catalog)
    _warn_of_strangers(questions, {label for labels in ids.values() for label in labels}, out)

    def search(text: str, limit: int) -> list[str]:
        return [hit.name for hit in find(text, limit)]

    results: list[dict[str, Any]] = []
    misses: list[dict[str, Any]] = []
    for kind, asked in questions.items():
        answers = recall(asked, search, ids, limits)
        means = {str(n): round(sum(shares[n] for _, shares, _ in answers) / len(answers), 4) for n in limits}
        results.append({"questions": kind, "count": len(answers), "recall": means})
        misses += (
            {"questions": kind, "text": question.text, "wanted": question.gold, "found": found}
            for question, shares, found in answers
            if shares[limits[-1]] < 1
        )
    document: dict[str, Any] = {"tools": len(catalog.tools), "results": results}
    if out.options.json:
        out.document(document | {"misses": misses} if args.misses else document)
    else:
        out.lines(_table(results, limits, out))
        out.lines(_missed(misses, out) if args.misses else ())
    return 0


def _warn_of_strangers(questions: dict[str, list[Question]], known: set[str], out: Output) -> None:
    """Labels that no tool has can never be found: most often a slip of the pen."""
    wanted = dict.fromkeys(
        label
        for asked in questions.values()
        for question in asked
        for needed in question.gold
        if known.isdisjoint(needed)
        for label in needed
    )
    if wanted:
        named = ", ".join(repr(label) for label in list(wanted)[:5])
        more = f" and {len(wanted) - 5} more" if len(wanted) > 5 else ""
        out.warning(f"No tool is called {named}{more}: such questions count as not answered.")


def _read(file: Path) -> Any:
    """The JSON document, or the list of the documents on the lines."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot be read: {reason}", file=str(file)) from None
    try:
        whole: Any = json.loads(text)
    except (ValueError, RecursionError):
        return [_line(line, number, file) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    # One question alone is a file of one line.
    return [whole] if isinstance(whole, dict) and "text" in whole else cast("object", whole)


def _line(line: str, number: int, file: Path) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"neither JSON nor JSON lines: {problem}", file=str(file), place=f"line {number}"
        ) from None


def _table(results: list[dict[str, Any]], limits: list[int], out: Output) -> list[str]:
    header = ["QUESTIONS", "COUNT", *(f"RECALL@{limit}" for limit in limits)]
    rows = [
        [result["questions"], str(result["count"]), *(f"{share:.3f}" for share in result["recall"].values())]
        for result in results
    ]
    first, *rest = table([header, *rows], width=out.width, right=range(1, len(header)))
    return [out.paint(GAP.join(first), "dim"), *(GAP.join(cells) for cells in rest)]


def _missed(misses: list[dict[str, Any]], out: Output) -> list[str]:
    lines: list[str] = []
    for miss in misses:
        wanted = "; ".join(" or ".join(needed) for needed in miss["wanted"])
        lines.extend(["", *(out.paint(line, "bold") for line in wrap(clean_line(miss["text"]), out.width))])
        lines.extend(wrap(clean_line(f"wanted {wanted}"), out.width, GAP))
        lines.extend(wrap(clean_line(f"found {', '.join(miss['found'][:5]) or 'nothing'}"), out.width, GAP))
    return lines
