"""`mooring eval`: how well the search finds what people meant, on questions with known answers."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.cli.layout import GAP, table, wrap
from mooring.cli.options import Options, Parser, positive
from mooring.cli.output import Output
from mooring.core.text import clean_line
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.core.catalog import Catalog
    from mooring.core.recall import Question

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
    from mooring.core.recall import LabelError, catalog_of, questions_of
    from mooring.core.search import Index

    data = _read(Path(args.file))
    try:
        questions, own = questions_of(data), catalog_of(data)
    except LabelError as problem:
        raise ConfigError(str(problem), file=args.file) from None
    limits = sorted({*LIMITS, args.limit or 1})
    if own is not None:
        return _tell(questions, own, Index.build(own.tools, own.groups).search, limits, args, out)

    from mooring.cli.hosting import open_host
    from mooring.cli.servers import chosen, gather

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
    from mooring.core.recall import ids_of, recall

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
