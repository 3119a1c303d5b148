"""`mooring logs`: what servers wrote to stderr, in this and earlier runs of the command line."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from mooring.cli.options import Options, Parser, UsageError, positive
from mooring.cli.output import Output
from mooring.core.text import clean_line, nearest
from mooring.errors import ConfigError, UnknownServer

USAGE = "mooring logs [SERVER ...] [-n LINES] [-f] [options]"
DETAILS = """

Every command that starts a server, `mooring serve` included, appends its stderr
to a file in the state directory: at most 50 lines per second, 1 MiB and one
older file per server, for its owner only, without secrets. Programs that use
mooring as a library have their own log.

With --gateway it shows the last lines of the log of a running gateway, or of
what one of its servers wrote; with --audit, of its audit log."""
EXAMPLES = """\
  mooring logs
  mooring logs github -n 100
  mooring logs -f
  mooring --gateway https://mcp.example.com logs --audit"""

_SIZE = 2**20
_LINES = 50
"""Lines of one server that are kept in a second."""
_POLL = 0.5
"""Seconds between two looks at the files with `--follow`."""


def configure(parser: Parser) -> None:
    parser.add_argument("servers", metavar="SERVER", nargs="*", help="only these servers")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, default=50, help="last lines of each (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for new lines; Ctrl-C ends it")
    parser.add_argument("--audit", action="store_true", help="with --gateway: the audit log")


def _count(text: str) -> int:
    """An argparse type: a positive integer, or 0."""
    return 0 if text == "0" else positive(text)


async def run(args: Namespace, options: Options, out: Output) -> int:
    if options.gateway is not None:
        return await _remote(args, options, out)
    if args.audit:
        raise UsageError("--audit needs --gateway URL.")
    files = _files()
    if unwritten := [name for name in args.servers if name not in files]:
        configured = _configured(options)
        for name in unwritten:
            if name not in configured:
                raise UnknownServer(name, nearest(name, {*files, *configured}), hint="See `mooring list`.")
    chosen = {name: files[name] for name in args.servers or files if name in files}
    if not args.follow:
        for name in unwritten:
            out.note(f"{name} has written nothing to stderr yet.")
        if not files and not unwritten:
            out.note("No server has written to stderr yet.")
    tails = {name: _tail(path, args.lines) for name, path in chosen.items()}
    if options.json and not args.follow:
        out.document([{"server": name, "file": str(chosen[name]), "lines": tails[name]} for name in tails])
        return 0
    _print(((name, line) for name, lines in tails.items() for line in lines), options, out)
    if args.follow:
        await _follow(args.servers, options, out)
    return 0


async def _remote(args: Namespace, options: Options, out: Output) -> int:
    from urllib.parse import urlencode

    from mooring.cli.remote import RemoteGateway

    if args.follow or len(args.servers) > 1:
        raise UsageError("With --gateway, `mooring logs` takes one SERVER and no --follow.")
    query: dict[str, Any] = {"limit": min(args.lines, 1000)}
    if args.servers:
        query["server"] = args.servers[0]
    path = "/audit" if args.audit else "/log"
    found = (await RemoteGateway(options).get(f"{path}?{urlencode(query)}"))["lines"]
    if options.json:
        out.document(found)
        return 0
    if not found:
        out.note("This log has no lines yet.")
    for line in found:
        if args.audit:
            out.line(" ".join(f"{name}={clean_line(str(value))}" for name, value in line.items()))
        else:
            parts = (line["time"], line["level"], line["logger"], line["message"])
            out.line(" ".join(clean_line(str(part)) for part in parts))
    return 0


async def _follow(servers: list[str], options: Options, out: Output) -> None:
    import anyio

    read = {name: path.stat().st_size for name, path in _files().items()}
    while True:
        await anyio.sleep(_POLL)
        for name, path in _files().items():
            if servers and name not in servers:
                continue
            start, size = read.get(name, 0), path.stat().st_size
            with path.open("rb") as file:
                file.seek(start if size >= start else 0)  # smaller: it was rotated
                *lines, rest = file.read().split(b"\n")
                read[name] = file.tell() - len(rest)
            _print(((name, line.decode("utf-8", "replace")) for line in lines), options, out)


def _print(lines: Iterator[tuple[str, str]], options: Options, out: Output) -> None:
    for name, line in lines:
        if options.json:
            out.json_line({"server": name, "line": line})
        else:
            out.line(f"{out.paint(clean_line(name), 'cyan')} {clean_line(line)}")
    out.flush()


def _configured(options: Options) -> list[str]:
    from mooring.config import load

    with suppress(ConfigError):
        return [server.name for server in load(options.files).servers]
    return []


def _files() -> dict[str, Path]:
    return {unquote(path.stem): path for path in sorted(_directory().glob("*.log"))}


def _directory() -> Path:
    from mooring.config.files import state_home

    return state_home() / "logs"


def _tail(path: Path, count: int) -> list[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, count)]


@contextmanager
def kept_server_logs() -> Generator[None]:
    """During the block, append the stderr of each server to its own file.

    A server may fill `_LINES` lines per second; the rest is counted. A full disk loses lines and fails no
    command.
    """
    import logging

    from mooring.config.logs import logger

    class ServerLogs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            server = getattr(record, "server", None)
            if isinstance(server, str):
                if server not in files:
                    files[server] = _ServerLog(server)
                files[server].append(record.created, record.getMessage().removeprefix(f"{server}: "))

    files: dict[str, _ServerLog] = {}
    handler, servers = ServerLogs(logging.INFO), logger("mooring.server")
    before = servers.level
    servers.addHandler(handler)
    servers.setLevel(min(servers.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        servers.removeHandler(handler)
        servers.setLevel(before)
        for file in files.values():
            file.close()


class _ServerLog:
    """The log file of one server."""

    def __init__(self, server: str) -> None:
        self._path = _directory() / f"{quote(server, safe=' ')[:200]}.log"
        self._file: int | None = None
        self._second, self._lines, self._dropped = 0, 0, 0

    def append(self, when: float, text: str) -> None:
        if int(when) != self._second:
            dropped, self._dropped = self._dropped, 0
            self._second, self._lines = int(when), 0
            if dropped:
                self._write(when, f"({dropped} more lines in the last second)")
        if self._lines >= _LINES:
            self._dropped += 1
            return
        self._lines += 1
        self._write(when, text)

    def _write(self, when: float, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
        with suppress(OSError):
            if self._file is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            os.write(self._file, f"{stamp} {clean_line(text)}\n".encode("utf-8", "replace"))
            if os.fstat(self._file).st_size > _SIZE:
                self.close()
                os.replace(self._path, self._path.with_suffix(".old"))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
