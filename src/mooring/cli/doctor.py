"""`mooring doctor`: find problems and say what to do next."""

from __future__ import annotations

import platform
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from mooring.cli.options import Options, Parser
from mooring.cli.output import GAP, Output, Style, plural, wrap
from mooring.core.text import clean
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.cli.trace import Trace
    from mooring.host import Host
    from mooring.lock.compare import Lock

USAGE = "mooring doctor [--trace FILE] [options]"
DETAILS = """

Checks the environment, the configuration files, the lock and processes left by
earlier runs, connects every enabled server, and says for each finding what
to do next. The last line counts the servers. Changes nothing and stops no
process.

With --trace, every message between mooring and the servers is written to FILE,
with the stderr of the servers. Long messages are cut, secrets become ***.

Exit code 1 if a finding is an error."""
EXAMPLES = """\
  mooring doctor
  mooring doctor --timeout 10
  mooring doctor --trace trace.log
  mooring doctor --json | jq -r '.[] | select(.level == "error") | .next'"""

Level = Literal["info", "warning", "error"]

_SYMBOLS: dict[Level, tuple[str, Style]] = {
    "info": ("✓", "green"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: Level
    server: str | None = None
    finding: str
    next: str | None = None


def configure(parser: Parser) -> None:
    parser.add_argument("--trace", metavar="FILE", help="write every message to FILE, without secrets")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.trace import Trace

    with Trace(args.trace) if args.trace is not None else nullcontext() as trace:
        findings = [*_environment(), *_orphans()]
        summary: list[Finding] = []
        try:
            findings += _files(options)
            lock, lock_findings = _lock(options)
            found, summary = await _servers(options, out, lock, trace)
            findings += [*lock_findings, *found]
        except ConfigError as problem:
            findings.append(
                Finding(
                    level="error",
                    finding=str(problem),
                    next="Correct the file, then try again.",
                )
            )
    findings += [*_traced(trace), *summary]
    if options.json:
        out.document([asdict(finding) for finding in findings])
    else:
        out.lines(line for finding in findings for line in _lines(finding, out))
    return int(any(finding.level == "error" for finding in findings))


def _environment() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    yield Finding(level="info", finding=f"python {platform.python_version()} ({sys.executable})")
    for package in ("mooring", "aiohttp", "mcp"):
        try:
            yield Finding(level="info", finding=f"{package} {version(package)}")
        except PackageNotFoundError:
            if package == "mcp":  # optional: the extra `sdk`
                continue
            install = f"{sys.executable} -m pip install mooring"
            yield Finding(level="error", finding=f"{package} is not installed", next=install)


def _orphans() -> Iterator[Finding]:
    from mooring.cli.trace import orphans

    for orphan in orphans():
        left = f"process {orphan.pid} of an earlier run is still running: {orphan.command}"
        yield Finding(level="warning", finding=left, next=f"kill {orphan.pid}")


def _files(options: Options) -> Iterator[Finding]:
    from mooring.config import found_files

    files = found_files(options.files)
    for number, file in enumerate(files, 1):
        place = f", file {number} of {len(files)}: later files take precedence" if len(files) > 1 else ""
        yield Finding(level="info", finding=f"configuration {file.path} ({file.scope}{place})")
    if not files:
        yield Finding(
            level="warning", finding="there is no configuration file", next="mooring --config mcp.json doctor"
        )


def _lock(options: Options) -> tuple[Lock | None, list[Finding]]:
    from mooring.cli.locking import lock_file
    from mooring.lock.cache import load_lock
    from mooring.lock.model import LockError, NewerLockError

    file = lock_file(options)
    try:
        lock = load_lock(file)
    except LockError as problem:
        upgrade = isinstance(problem, NewerLockError)
        advice = "pip install -U mooring" if upgrade else f"git checkout {file.name}, or mooring lock --force"
        return None, [Finding(level="error", finding=f"the lock is ignored: {problem}", next=advice)]
    if lock is None:
        return None, [Finding(level="info", finding=f"there is no lock at {file}: see mooring lock --help")]
    return lock, [Finding(level="info", finding=f"lock {file}: {plural(len(lock.servers), 'server')}")]


async def _servers(
    options: Options, out: Output, lock: Lock | None, trace: Trace | None
) -> tuple[list[Finding], list[Finding]]:
    """Findings about each server, and a summary of all."""
    from mooring.cli.hosting import chosen, open_host, watch
    from mooring.cli.locking import uncovered
    from mooring.host import runtime_of

    silent = Output(replace(options, quiet=True))  # warnings are findings here
    async with open_host(options, silent, idle=True, lock=False) as host:
        if names := chosen(host):
            with trace.of(host.redact) if trace is not None else nullcontext():
                await watch(host, out, lambda: host.refresh(*names), timeout=options.timeout, names=names)
        excluded = uncovered(host, options)
        audit = runtime_of(host).audit
        problem = await audit.problem() if audit is not None else None
        found = [
            Finding(level="warning", server=w.server, finding=str(w), next=_correct(w.file))
            for w in host.config.warnings
        ]
        if audit is not None and problem is not None:
            path = audit.settings.path
            finding = f"the audit log {path} cannot be written: {problem}"
            found.append(Finding(level="error", finding=finding, next="Correct `audit`, or the file."))
        found += _scripts(host)
        for server in sorted(host.config.servers, key=lambda server: server.name):
            found += _server(host, server.name, None if server.name in excluded else lock)
        states = [(status.state, status.name in host.held) for status in host.status()]
    return found, [_summary(states)] if states else []


def _scripts(host: Host) -> Iterator[Finding]:
    """Findings about scripts, if they are enabled for the host or a profile of its gateway."""
    profiles = host.config.gateway.profiles.values()
    if not any(one.scripts.enabled for one in (host.config, *profiles)):
        return
    from mooring.scripts.workers import missing_walls, scripts_installed

    if not scripts_installed():
        install = f"{sys.executable} -m pip install 'mooring[scripts]'"
        yield Finding(level="error", finding="scripts are enabled and not installed", next=install)
    elif missing := missing_walls():
        lacks = f"this system has no {' and no '.join(missing)}"
        finding = f"scripts are confined by their interpreter only: {lacks}"
        yield Finding(level="warning", finding=finding, next="Use Linux 5.13 or newer on x86-64 or arm64.")
    else:
        yield Finding(level="info", finding="scripts: interpreter in a process without files and network")


def _summary(states: Sequence[tuple[str, bool]]) -> Finding:
    """Count the servers by state: `3 servers: 2 ok, 1 failed`."""
    words = {"connected": "ok", "pending": "failed", "needs-auth": "not logged in"}
    counts: dict[str, int] = dict.fromkeys(("ok", "failed", "not logged in", "not approved", "disabled"), 0)
    for state, held in states:
        counts["not approved" if held else words.get(state, state)] += 1
    listed = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    good = counts["ok"] + counts["disabled"] == len(states)
    return Finding(level="info" if good else "warning", finding=f"{plural(len(states), 'server')}: {listed}")


def _traced(trace: Trace | None) -> Iterator[Finding]:
    if trace is None:
        return
    if trace.problem is None:
        yield Finding(level="info", finding=f"all messages were written to {trace.path}")
    else:
        cut = f"not all messages were written to {trace.path}: {trace.problem}"
        yield Finding(level="warning", finding=cut, next="mooring doctor --trace OTHER_FILE")


def _correct(file: str | None) -> str | None:
    return None if file is None else f"Correct it in {file}."


def _server(host: Host, name: str, lock: Lock | None) -> Iterator[Finding]:
    from mooring.cli.locking import compared
    from mooring.config.plan import fingerprint
    from mooring.config.trust import forbidden
    from mooring.core.injection_scan import doubts
    from mooring.servers.diagnosis import diagnose, unpinned_package

    server = next(one for one in host.config.servers if one.name == name)
    status = next(one for one in host.status() if one.name == name)
    trouble = diagnose(server, status)
    if trouble is not None:
        reason = status.error or "it did not connect in time"
        yield Finding(level="error", server=name, finding=f"{trouble.cause}: {reason}", next=trouble.next)
    elif status.state == "connected":
        about = f"{status.transport}, protocol {status.protocol}, {plural(status.tools, 'tool')}"
        yield Finding(level="info", server=name, finding=f"connected: {about}")
    elif (held := host.held.get(name)) is not None:
        remedy = None if forbidden(server) else f"mooring trust {held.file}"
        yield Finding(level="warning", server=name, finding=str(held), next=remedy)
    else:
        yield Finding(level="info", server=name, finding=status.state)
    for text in status.warnings:
        yield Finding(level="warning", server=name, finding=text)
    if status.state == "connected":
        for text in doubts(host.provider(name).snapshot):
            advice = (
                f"Read it with `mooring tools --server {name} --json`. Exclude it with `deny` in its entry."
            )
            yield Finding(level="warning", server=name, finding=text.removeprefix(f"{name}: "), next=advice)
    if (package := unpinned_package(server)) is not None:
        unpinned = f"{server.command} installs the newest version of {package} at each start"
        yield Finding(level="warning", server=name, finding=unpinned, next=_pin(server.command, package))
    if lock is not None and status.state == "connected" and server.pins != "off":
        changes = compared(lock.servers.get(name), host.provider(name).snapshot, fingerprint(server))
        if changes:
            changed = f"{plural(len(changes), 'change')} since the lock was written"
            yield Finding(level="warning", server=name, finding=changed, next="mooring check")


def _pin(command: str | None, package: str) -> str:
    name = package.rpartition("@")[0] or package
    listing = "npm view" if "npx" in (command or "") else "pip index versions"
    return f"Add a version in `args`, such as {name}@1.2.3; see `{listing} {name}`."


def _lines(finding: Finding, out: Output) -> Sequence[str]:
    symbol, style = _SYMBOLS[finding.level]
    server = f"{finding.server}: " if finding.server else ""
    first, *rest = wrap(clean(server + finding.finding), out.width, GAP * 2) or [""]
    lines = [f"{out.paint(symbol, style)} {first.lstrip()}", *(out.paint(line, "dim") for line in rest)]
    if finding.next:
        lines.extend(out.paint(line, "bold") for line in wrap(clean(f"→ {finding.next}"), out.width, GAP * 2))
    return lines
