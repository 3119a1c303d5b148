"""`mooring run`: run a script that calls tools."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, UsageError, add_style
from mooring.cli.output import Output
from mooring.core.text import clean
from mooring.errors import TELL_USER

if TYPE_CHECKING:
    from mooring.core.types import Result
    from mooring.policy import ApprovalRequest

USAGE = "mooring run FILE.py [--yes] [options]"
DETAILS = """

Each tool is an async function with the name that `mooring tools` shows and
keyword arguments: `await mcp_time_get_current_time(timezone="UTC")`. What the
script prints, and the value of its last expression, go to standard output. The
script runs in a sandbox without files, network and environment, and is checked
before it starts. Needs the extra `mooring[scripts]`.

Before the first call that may change something, mooring shows the plan of all
such calls and asks on the terminal. Without a terminal, it prints the plan on
standard error and stops: review it, then use --yes. Exit code 3: the plan was
not approved and nothing was written. Exit code 1: the script failed."""
EXAMPLES = """\
  mooring run report.py
  mooring run cleanup.py --yes
  mooring run report.py --json | jq .value
  echo 'await mcp_time_get_current_time(timezone="UTC")' | mooring run -"""


def configure(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE.py", help="the script; - reads standard input")
    parser.add_argument("-y", "--yes", action="store_true", help="approve the plan without asking")
    add_style(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.app import FAILED, exit_code
    from mooring.cli.arguments import read_stdin
    from mooring.cli.ask import elicitation_handler
    from mooring.cli.hosting import chosen, gather, open_host
    from mooring.cli.progress import progress_bar
    from mooring.host import runtime_of
    from mooring.scripts.tools import run_script

    code = await read_stdin("-", "the script", out) if args.file == "-" else _read(args.file)

    async def approve(request: ApprovalRequest) -> bool:
        return args.yes or await _approved(request, out)

    async with open_host(
        options, out, style=args.style, idle=True, on_approval=approve, on_elicit=elicitation_handler(out)
    ) as host:
        await gather(host, out, chosen(host), options.timeout)
        timeout = options.timeout or host.config.scripts.time
        with progress_bar(out) as bar:
            # The budget limits results for models; a person gets the whole result.
            result = await run_script(
                host.session(), runtime_of(host), code, timeout, on_progress=bar, budget=0
            )
    if options.json:
        out.document(_document(result))
    elif result.is_error:
        out.error(result.text.replace(f" {TELL_USER}", ""))
    elif result.text:
        out.lines([result.text if out.width is None else clean(result.text)])
    if result.error is None:
        return int(result.is_error)
    return FAILED if _wrote(result) else exit_code(result.error)


async def _approved(request: ApprovalRequest, out: Output) -> bool:
    from mooring.cli.ask import confirm, on_terminal
    from mooring.policy import plan_text

    if request.name != "script_run":
        question = (
            f"Call {request.tool!r} of server {request.server!r}? Approval is required: {request.reason}."
        )
        return await confirm(question, "The tool was not called.", out)
    if not on_terminal():
        advice = "There is no terminal to approve it on: review it, then use --yes."
        out.error(f"{clean(plan_text(request))}\n{advice}", label="plan:")
        return False
    return await confirm(f"{plan_text(request)}\nApprove?", "", out)  # the result says that it was not


def _wrote(result: Result) -> bool:
    """Whether a write of the script took effect, or may have."""
    from mooring.scripts.run import META

    calls = result.meta.get(META, {}).get("calls", [])
    return any(call.get("write") and call["state"] in ("ok", "unknown", "cancelled") for call in calls)


def _document(result: Result) -> dict[str, object]:
    from mooring.scripts.run import META

    calls = result.meta.get(META, {}).get("calls", [])
    kept = ("tool", "server", "ok", "ms", "planning")
    return {
        "is_error": result.is_error,
        "value": result.structured,
        "text": result.text,
        "calls": [{key: call[key] for key in kept if key in call} for call in calls],
    }


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise UsageError(f"The script {path!r} cannot be read: {why}.") from None
