"""`mooring policy`: test the policy, and try it on a past audit log."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, fields, plural, wrap
from mooring.core.text import clean_line
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.config.models import HostConfig

USAGE = "mooring policy test|replay FILE [options]"
DETAILS = """

`test` runs the cases in FILE (YAML, TOML or JSON): each has a call and the
decision that is expected. `replay` reads an audit log and shows which calls
the policy of the configuration would refuse now. Arguments that the log does
not hold are unknown: log them with `audit: {arguments: redact}`. No server is
started, and no decision service is asked.

Exit code 0: all cases passed, or no past call would be refused. 1: otherwise.
2: a file or a rule is wrong."""
EXAMPLES = """\
  mooring policy test policy-tests.yaml
  mooring --config new.yaml policy replay audit.jsonl
  mooring policy replay audit.jsonl --json | jq '.refused[].tool'"""

_MOST_LINES = 200


def configure(parser: Parser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=("test", "replay"), help="what to do")
    parser.add_argument("file", metavar="FILE", help="test cases, or an audit log")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.config import load

    config = load(options.files)
    for warning in config.warnings:
        out.warning(str(warning))
    path = Path(args.file)
    return _test(path, config, options, out) if args.action == "test" else _replay(path, config, options, out)


def _test(path: Path, config: HostConfig, options: Options, out: Output) -> int:
    from mooring.config.documents import read_document
    from mooring.config.models import HostConfig
    from mooring.policy.replay import enforcer, read_cases, run_cases

    document = read_document(path)
    if (own := document.get("policy")) is not None:
        config = HostConfig(policy=own, servers=config.servers)
    outcomes = list(run_cases(read_cases(document, str(path)), enforcer(config)))
    failed = [one for one in outcomes if not one.ok]
    if options.json:
        cases = [
            {
                "name": one.name,
                "ok": one.ok,
                "expected": one.case.expect,
                "decision": one.decision.verdict,
                "reason": one.decision.reason,
            }
            for one in outcomes
        ]
        out.document({"passed": len(outcomes) - len(failed), "failed": len(failed), "cases": cases})
    else:
        for one in outcomes:
            mark = out.paint("✓", "green") if one.ok else out.paint("✗", "red")
            out.line(f"{mark} {clean_line(one.name)}")
            if not one.ok:
                said = f"expected {one.case.expect}, got {one.decision.verdict}: {one.decision.reason}"
                out.lines(wrap(clean_line(said), out.width, "    "))
        out.note(f"{plural(len(outcomes) - len(failed), 'case')} passed, {len(failed)} failed.")
    return 1 if failed else 0


def _replay(path: Path, config: HostConfig, options: Options, out: Output) -> int:
    from mooring.policy.replay import enforcer, replay

    try:
        with path.open("rb") as log:
            calls = list(replay(log, enforcer(config), _annotations(options)))
    except OSError as problem:
        raise ConfigError(f"cannot be read: {problem.strerror or problem}", file=str(path)) from None
    except ValueError as problem:
        raise ConfigError(str(problem), file=str(path)) from None
    found = {kind: [one for one in calls if one.result == kind] for kind in ("refused", "asked", "unknown")}
    if options.json:
        names = ("time", "server", "tool", "principal", "outcome", "reason")
        document: dict[str, Any] = {"calls": len(calls)}
        document |= {kind: [fields(one, *names) for one in some] for kind, some in found.items()}
        out.document(document)
        return 1 if found["refused"] else 0
    for kind, title in (("refused", "would be refused"), ("asked", "would need approval")):
        groups = Counter((one.server, one.tool, one.principal or "-", one.reason) for one in found[kind])
        for (server, tool, who, reason), count in groups.most_common(_MOST_LINES):
            said = f"{plural(count, 'call')} {title}: {server}/{tool} by {who} ({reason})"
            out.lines(wrap(clean_line(said), out.width))
    unknown = Counter((one.server, one.tool) for one in found["unknown"])
    for (server, tool), count in unknown.most_common(_MOST_LINES):
        out.line(clean_line(f"{plural(count, 'call')} could not be replayed: {server}/{tool}"))
    if unknown:
        out.note(
            "The log does not hold what the rules need of these calls: their arguments are hashed, masked, "
            "cut or left out, or the annotations of the tool are not in mooring.lock."
        )
    parts = [f"{len(found[kind])} {kind}" for kind in ("refused", "asked", "unknown")]
    out.note(f"{plural(len(calls), 'call')}: {', '.join(parts)}.")
    return 1 if found["refused"] else 0


def _annotations(options: Options) -> dict[tuple[str, str], Any]:
    """The annotations of the tools in the lock."""
    from mooring.cli.locking import lock_file, own_lock_file
    from mooring.lock.cache import load_lock

    found: dict[tuple[str, str], Any] = {}
    for file in (own_lock_file(options), lock_file(options)):
        lock = None if file is None else load_lock(file)
        for server, pin in () if lock is None else lock.servers.items():
            found |= {(server, tool.remote_name): tool.annotations for tool in pin.snapshot.tools}
    return found
