"""`mooring explain`: what a finding of `mooring doctor` means and how to solve it."""

from __future__ import annotations

import re
from argparse import Namespace
from functools import cache
from importlib.resources import files

from mooring.cli.options import Options, Parser, UsageError, suggestion
from mooring.cli.output import GAP, Output, crop, wrap

USAGE = "mooring explain [CODE] [options]"
DETAILS = """

`mooring doctor` prints the code of each problem in brackets. Without CODE, all
codes are listed. docs/troubleshooting.md has the same texts."""
EXAMPLES = """\
  mooring explain no-answer
  mooring explain --json | jq -r '.[].code'"""


@cache
def explanations() -> dict[str, str]:
    """The text for each code, in Markdown."""
    text = files("mooring.cli").joinpath("explanations.md").read_text("utf-8")
    return {code: body.strip() for code, body in re.findall(r"(?ms)^## ([a-z-]+)\n(.*?)(?=^## |\Z)", text)}


def configure(parser: Parser) -> None:
    parser.add_argument("code", metavar="CODE", nargs="?", help="as `mooring doctor` prints it")


async def run(args: Namespace, options: Options, out: Output) -> int:
    known = explanations()
    if args.code is None:
        _list(known, options, out)
        return 0
    if args.code not in known:
        raise UsageError(
            f"Unknown code {args.code!r}.{suggestion(args.code, list(known))} See `mooring explain`."
        )
    if options.json:
        out.document({"code": args.code, "text": known[args.code]})
    else:
        out.line(out.paint(args.code, "bold"))
        for paragraph in _paragraphs(known[args.code]):
            item = paragraph.startswith("- ")
            first, *rest = wrap(paragraph, out.width) or [""]
            # wrapped again, because the indent takes room
            out.lines([first, *(wrap(" ".join(rest), out.width, indent=GAP) if item and rest else rest)])
    return 0


def _list(known: dict[str, str], options: Options, out: Output) -> None:
    if options.json:
        out.document([{"code": code, "text": text} for code, text in known.items()])
        return
    room = max(map(len, known)) + len(GAP)
    for code, text in known.items():
        first = " ".join(text.split("\n\n")[0].split())
        about = first if out.width is None else crop(first, max(out.width - room, 20))
        out.line(f"{out.paint(code.ljust(room), 'cyan')}{about}")


def _paragraphs(text: str) -> list[str]:
    """Paragraphs and list items, each on one line; `wrap` breaks them to the width of the terminal."""
    found: list[str] = []
    for line in text.splitlines():
        starts = not line.strip() or line.startswith("- ") or not found or not found[-1]
        if starts:
            found.append(line.strip())
        else:
            found[-1] += " " + line.strip()
    return found
