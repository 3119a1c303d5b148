"""`mooring doctor`: find problems and say what to do next."""

from __future__ import annotations

import json
import os
import platform
import stat
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import GAP, Output, Style, plural, wrap
from mooring.core.text import clean, clean_line
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.config.models import ServerConfig
    from mooring.host import Host
    from mooring.lock.compare import Lock
    from mooring.transport.base import Passing

USAGE = "mooring doctor [--trace FILE] [options]"
DETAILS = """

Checks the environment, the configuration files, the lock and processes left by
earlier runs, connects every enabled server, and says for each finding what
to do next. The last line counts the servers. Changes nothing and stops no
process.

With --trace, every message between mooring and the servers is written to FILE,
with the stderr of the servers. Long messages are cut, secrets become ***.

`mooring explain CODE` explains the code of a finding.

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
    code: str | None = None
    """For `mooring explain`; None for an info."""


def configure(parser: Parser) -> None:
    parser.add_argument("--trace", metavar="FILE", help="write every message to FILE, without secrets")


async def run(args: Namespace, options: Options, out: Output) -> int:

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
                    code="configuration",
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

    for orphan in orphans():
        left = f"process {orphan.pid} of an earlier run is still running: {orphan.command}"
        yield Finding(level="warning", finding=left, next=f"kill {orphan.pid}", code="orphan")


def _files(options: Options) -> Iterator[Finding]:
    from mooring.config import found_files

    files = found_files(options.files)
    for number, file in enumerate(files, 1):
        place = f", file {number} of {len(files)}: later files take precedence" if len(files) > 1 else ""
        yield Finding(level="info", finding=f"configuration {file.path} ({file.scope}{place})")
    if not files:
        yield Finding(
            level="warning",
            finding="there is no configuration file",
            next="mooring init",
            code="no-configuration",
        )


def _lock(options: Options) -> tuple[Lock | None, list[Finding]]:
    from mooring.cli.locking import lock_file
    from mooring.lock import LockError, NewerLockError
    from mooring.lock.cache import load_lock

    file = lock_file(options)
    try:
        lock = load_lock(file)
    except LockError as problem:
        upgrade = isinstance(problem, NewerLockError)
        advice = "pip install -U mooring" if upgrade else f"git checkout {file.name}, or mooring lock --force"
        ignored = f"the lock cannot be used, and hides the tools that it covers: {problem}"
        return None, [Finding(level="error", finding=ignored, next=advice, code="lock")]
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
            Finding(
                level="warning", server=w.server, finding=str(w), next=_correct(w.file), code="configuration"
            )
            for w in host.config.warnings
        ]
        if audit is not None and problem is not None:
            path = audit.settings.path
            finding = f"the audit log {path} cannot be written: {problem}"
            found.append(
                Finding(level="error", finding=finding, next="Correct `audit`, or the file.", code="audit")
            )
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
        yield Finding(
            level="error", finding="scripts are enabled and not installed", next=install, code="scripts"
        )
    elif missing := missing_walls():
        lacks = f"this system has no {' and no '.join(missing)}"
        finding = f"scripts are confined by their interpreter only: {lacks}"
        yield Finding(level="warning", finding=finding, next="Use Linux 5.13 or newer.", code="scripts")
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
        yield Finding(level="warning", finding=cut, next="mooring doctor --trace OTHER_FILE", code="trace")


def _correct(file: str | None) -> str | None:
    return None if file is None else f"Correct it in {file}."


def _server(host: Host, name: str, lock: Lock | None) -> Iterator[Finding]:
    from mooring.cli.locking import compared
    from mooring.config.plan import fingerprint
    from mooring.config.trust import forbidden
    from mooring.core.injection_scan import injection_warnings
    from mooring.servers.diagnosis import diagnose, unpinned_package, without_advice

    server = next(one for one in host.config.servers if one.name == name)
    status = next(one for one in host.status() if one.name == name)
    trouble = diagnose(server, status)
    if trouble is not None:
        reason = without_advice(status.error or "it did not connect in time", name)
        finding = f"{trouble.cause}: {reason}"
        yield Finding(level="error", server=name, finding=finding, next=trouble.next, code=trouble.cause)
    elif status.state == "connected":
        about = f"{status.transport}, protocol {status.protocol}, {plural(status.tools, 'tool')}"
        yield Finding(level="info", server=name, finding=f"connected: {about}")
    elif (held := host.held.get(name)) is not None:
        remedy = None if forbidden(server) else f"mooring trust {held.file}"
        yield Finding(level="warning", server=name, finding=str(held), next=remedy, code="not-approved")
    else:
        yield Finding(level="info", server=name, finding=status.state)
    for text in status.warnings:
        yield Finding(level="warning", server=name, finding=text, code="warning")
    if status.state == "connected":
        for text in injection_warnings(host.provider(name).snapshot):
            advice = (
                f"Read it with `mooring tools --server {name} --json`. Exclude it with `deny` in its entry."
            )
            doubt = text.removeprefix(f"{name}: ")
            yield Finding(level="warning", server=name, finding=doubt, next=advice, code="injection")
    if (package := unpinned_package(server)) is not None:
        unpinned = f"{server.command} installs the newest version of {package} at each start"
        advice = _pin(server.command, package)
        yield Finding(level="warning", server=name, finding=unpinned, next=advice, code="unpinned")
    yield from _secrets(server)
    if server.auth and server.auth.get("client_secret") and not server.auth.get("issuer"):
        sent = "its client_secret goes to the authorization server that it names first"
        advice = "Set `issuer` in its `auth` to the authorization server at which the client is registered."
        yield Finding(level="warning", server=name, finding=sent, next=advice, code="issuer")
    if lock is not None and status.state == "connected" and server.pins != "off":
        found = compared(lock.servers.get(name), host.provider(name).snapshot, fingerprint(server))
        # The lock has what the server lists in all its eras, this snapshot that of one connection.
        changes = [change for change in found if change.kind != "removed"]
        if changes:
            changed = f"{plural(len(changes), 'change')} since the lock was written"
            yield Finding(level="warning", server=name, finding=changed, next="mooring check", code="changed")


def _secrets(server: ServerConfig) -> Iterator[Finding]:
    """Values in the entry that look like secrets, without the values."""
    from mooring.config.programs.model import Vault

    entry = {"args": list(server.args), "env": dict(server.env), "headers": dict(server.headers)}
    _, notes = Vault().scrub("secret", {**entry, "url": server.url} if server.url else entry)
    for note in notes:
        written = f"{note.partition(' held ')[0]} looks like a secret that is written in the file"
        advice = "Write '${NAME}' instead, and set NAME in the environment."
        yield Finding(level="warning", server=server.name, finding=written, next=advice, code="secret")


def _pin(command: str | None, package: str) -> str:
    name = package.rpartition("@")[0] or package
    listing = "npm view" if "npx" in (command or "") else "pip index versions"
    return f"Add a version in `args`, such as {name}@1.2.3; see `{listing} {name}`."


def _lines(finding: Finding, out: Output) -> Sequence[str]:
    symbol, style = _SYMBOLS[finding.level]
    server = f"{finding.server}: " if finding.server else ""
    # The code ends the first line: an error may have lines of stderr below it.
    about, line, more = finding.finding.removeprefix(f"{finding.code}: ").partition("\n")
    code = "" if finding.code is None else f" [{finding.code}]"
    first, *rest = wrap(clean(server + about + code + line + more), out.width, GAP * 2) or [""]
    lines = [f"{out.paint(symbol, style)} {first.lstrip()}", *(out.paint(line, "dim") for line in rest)]
    if finding.next:
        lines.extend(out.paint(line, "bold") for line in wrap(clean(f"→ {finding.next}"), out.width, GAP * 2))
    return lines


MAX_LENGTH = 4_096
"""Longest message, in characters; the rest is cut."""
MAX_MESSAGES = 2_000
"""Messages per server, so that a flood does not fill the disk."""
_LABEL = 200
_LINE = 100
"""Messages up to this length are written on one line."""
_MARKS = {"sent": "→", "received": "←", "stdout": "stdout", "stderr": "stderr", "fault": "!"}


class Trace:
    """A file with every message in order of time, without secrets and control characters."""

    def __init__(self, path: str) -> None:
        """Create the file, readable only by its owner.

        Raises:
            UsageError: it cannot be written.
        """
        self.path = path
        self.problem: str | None = None
        """Why the file is incomplete; None if it is complete."""
        try:
            self._file = _private(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"Cannot write the trace to {path!r}: {reason}.") from None
        self._redact: Callable[[str], str] = str
        self._start = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._asked: dict[tuple[str, bool, str], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    @contextmanager
    def of(self, redact: Callable[[str], str]) -> Generator[None]:
        """Write all messages during the block, redacted with `redact`."""
        from mooring.transport import base

        self._redact = redact
        base.taps.append(self._take)
        try:
            yield
        finally:
            base.taps.remove(self._take)

    def _take(self, seen: Passing) -> None:
        self._counts[seen.server] += 1
        if self.problem is not None or self._counts[seen.server] > MAX_MESSAGES:
            return
        try:
            label, *body = self._lines(seen)
        except (RecursionError, ValueError):  # nested too deeply, or a number with thousands of digits
            label, *body = ["(message cannot be shown)"]
        # Only the first line starts in the first column, so that a message cannot imitate a second one.
        prefix = f"{time.monotonic() - self._start:.3f} s  {clean_line(seen.server)}"
        lines = [f"{prefix}  {_MARKS[seen.way]}  {label}", *(f"    {line}" for line in body)]
        if self._counts[seen.server] == MAX_MESSAGES:
            lines.append(f"{prefix}  …  further messages of this server are left out")
        try:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()  # complete even if the command is interrupted
        except OSError as error:
            self._fail(error)

    def _lines(self, seen: Passing) -> list[str]:
        """A message as lines; the first is a label."""
        if isinstance(seen.said, str):
            return self._bounded(seen.said).split("\n")
        label = self._safe(self._label(seen.server, seen.way, seen.said))
        return [clean_line(label)[:_LABEL], *self._bounded(_pretty(seen.said)).split("\n")]

    def _label(self, server: str, way: str, message: Mapping[str, Any]) -> str:
        method, number = message.get("method"), message.get("id")
        if number is None:
            return str(method)
        ours = (way == "sent") == (method is not None)  # a response travels against its request
        key = (server, ours, str(number))
        if method is not None:
            self._asked[key] = str(method)
            return f"{method} (id {number})"
        kind = "error" if "error" in message else "result"
        return f"{kind} of {self._asked.pop(key, 'unknown request')} (id {number})"

    def _bounded(self, text: str) -> str:
        text = self._safe(text)  # redact before cutting: half a secret would not be recognised
        return (
            text
            if len(text) <= MAX_LENGTH
            else f"{text[:MAX_LENGTH]}\n… {len(text) - MAX_LENGTH} more characters"
        )

    def _safe(self, text: str) -> str:
        return clean(self._redact(text))

    def _fail(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)


def _private(path: str) -> IO[str]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.chmod(path, 0o600)  # an existing file may have other permissions
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace")


def _pretty(message: Mapping[str, Any]) -> str:
    line = json.dumps(message, ensure_ascii=False)
    return line if len(line) <= _LINE else json.dumps(message, ensure_ascii=False, indent=2)


_STARTED = 19
"""Index of the start time in /proc/PID/stat, counted after the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    pid: int
    command: str


def orphans(proc: Path = Path("/proc")) -> Iterator[Orphan]:
    """Processes whose host has ended, sorted by process id."""
    for folder in sorted(proc.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        with suppress(OSError, ValueError, IndexError):  # ended meanwhile, or owned by another user
            if (host := _host_of(folder)) is not None and not _is_running(proc / str(host), folder):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                # Arguments may contain secrets: show only the program and its first argument.
                command = b" ".join(words[:2]).decode("utf-8", "replace")
                yield Orphan(pid=int(folder.name), command=command)


def _host_of(folder: Path) -> int | None:
    """Process id of the host that started this process; None if no host did."""
    from mooring.transport.process_tree import MARKER

    mark = f"{MARKER}=".encode()
    for variable in (folder / "environ").read_bytes().split(b"\0"):
        if variable.startswith(mark) and int(folder.name) != os.getpid():
            return int(variable.removeprefix(mark).split(b"-")[0])
    return None


def _is_running(host: Path, child: Path) -> bool:
    """Whether the host still runs. Process ids are reused: a younger process is not the host."""
    try:
        return _started(host) <= _started(child)
    except OSError:
        return False


def _started(folder: Path) -> int:
    return int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[_STARTED])
