"""`mooring eval`: measure the search on questions with known answers."""

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
    """A labelled file has the wrong format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A search text and the tools that it should find."""

    text: str
    gold: tuple[tuple[str, ...], ...]
    """One entry for each needed tool: the ids of equally good alternatives."""


def questions_of(document: Any) -> dict[str, list[Question]]:
    """Return the questions of a labelled file by their list: `queries`, `steps` or `tasks`.

    A question is `{"text", "tools": [id, …]}`, where every tool is needed, or `{"text", "gold": [[id, …],
    …]}`, where one of each inner list is needed. A document that is a list counts as `queries`.

    Raises:
        LabelError: there are no questions, or one has the wrong format.
    """
    lists = {"queries": cast("object", document)} if isinstance(document, list) else _object(document)
    found = {kind: _entries(lists[kind], kind) for kind in _KINDS if lists.get(kind)}
    if not found:
        raise LabelError(f"no questions found: write a list under one of {', '.join(map(repr, _KINDS))}")
    return {
        kind: [_question(entry, f"{kind}[{number}]") for number, entry in enumerate(entries)]
        for kind, entries in found.items()
    }


def catalog_of(document: Any) -> Catalog | None:
    """Return a catalog of the tools in the labelled file; None if there are none.

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
    """Return the ids of each tool: `server/tool`, its name in the catalog, its own id."""
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
    """Return, for each question, its recall at each limit and the names that were found.

    Args:
        questions: The questions.
        search: Returns at most `limit` names for a text, the best first.
        ids: See `ids_of`.
        limits: Recall is computed over this many results.
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

Recall at 1, 5 and 10: the share of the needed tools among the first 1, 5 and 10
results. FILE is JSON with `queries`, or has one question per line:

  {"text": "open pull requests", "tools": ["github/list_pull_requests"]}

Tools are named as `server/tool` or as in `mooring tools`, and are searched in
the configured servers. For alternatives write `"gold": [["a", "b"], ["c"]]`
instead of `tools`. No servers are needed for a file with its own `tools` (each
with `server`, `name`, `description`, `inputSchema`) and with `queries`, `steps`
or `tasks`."""
EXAMPLES = """\
  mooring eval questions.jsonl
  mooring eval questions.json --limit 3 --misses
  mooring eval questions.jsonl --json | jq '.results[].recall."5"'"""

LIMITS = (1, 5, 10)


def configure(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="questions and the tools they should find")
    parser.add_argument("--limit", metavar="N", type=positive, help="also compute recall at N")
    parser.add_argument("--misses", action="store_true", help="list the questions with missing tools")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.core.search import Index

    data = _read(Path(args.file))
    try:
        questions, own = questions_of(data), catalog_of(data)
    except LabelError as problem:
        raise ConfigError(str(problem), file=args.file) from None
    limits = sorted({*LIMITS, args.limit or 1})
    if own is not None:
        return _report(questions, own, Index.build(own.tools, own.groups).search, limits, args, out)

    from mooring.cli.hosting import chosen, gather, open_host

    async with open_host(options, out, idle=True) as host:
        await gather(host, out, chosen(host), options.timeout)
        return _report(questions, host.catalog, host.search, limits, args, out)


def _report(
    questions: dict[str, list[Question]],
    catalog: Catalog,
    find: Callable[[str, int], Sequence[Any]],
    limits: list[int],
    args: Namespace,
    out: Output,
) -> int:
    ids = ids_of(catalog)
    _warn_unknown(questions, {label for labels in ids.values() for label in labels}, out)

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


def _warn_unknown(questions: dict[str, list[Question]], known: set[str], out: Output) -> None:
    """Warn about labels that match no tool, most often typos."""
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
        out.warning(f"No tool is named {named}{more}. These questions count as missed.")


def _read(file: Path) -> Any:
    """Read a JSON document, or a list of one document per line."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot be read: {reason}", file=str(file)) from None
    try:
        whole: Any = json.loads(text)
    except (ValueError, RecursionError):
        return [_line(line, number, file) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    # A single question is a file of one line.
    return [whole] if isinstance(whole, dict) and "text" in whole else cast("object", whole)


def _line(line: str, number: int, file: Path) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"is neither JSON nor JSON lines: {problem}", file=str(file), place=f"line {number}"
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
