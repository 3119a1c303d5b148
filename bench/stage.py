"""Where contestants are measured: the running fixtures, and one long-lived process for each contestant."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal, Self

from bench.clients import Server
from bench.entries import Entry
from bench.fixtures.start import http_servers, stdio_servers
from bench.process import Process

Transport = Literal["stdio", "http"]
HTTP_SERVERS = 30
LARGE = 1_000_000
TOOLS = 10


class Stage:
    """Gives scenarios servers to connect to and processes to ask. Use it as a context."""

    def __init__(self, entries: Sequence[Entry], *, era: str) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._era = era
        self._processes: dict[str, Process] = {}
        self._open: dict[str, set[str]] = {}
        self._http: list[Server] = []
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(TemporaryDirectory()))
        """For files of a scenario."""

    def __enter__(self) -> Self:
        http = http_servers(HTTP_SERVERS, tools=TOOLS, payload=LARGE, era=self._era)
        self._http = self._stack.enter_context(http)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.close()
        self._stack.close()

    def entry(self, name: str) -> Entry:
        return self._entries[name]

    def servers(self, transport: Transport, count: int, **options: Any) -> list[Server]:
        """`count` servers; `options` are those of the stdio fixture."""
        if transport == "http":
            return self._http[:count]
        return stdio_servers(count, **{"tools": TOOLS, "era": self._era, **options})

    def process(self, name: str) -> Process:
        """The contestant's long-lived process; a new one if it has ended."""
        known = self._processes.get(name)
        if known is not None and known.alive:
            return known
        if known is not None:
            known.close()
        self._open[name] = set()
        self._processes[name] = Process(self._entries[name])
        return self._processes[name]

    def connected(self, name: str, transport: Transport) -> Process:
        """The same, holding one server open under the key `transport`."""
        process = self.process(name)
        if transport not in self._open[name]:
            process.ask("open", key=transport, servers=self.servers(transport, 1, payload=LARGE))
            self._open[name].add(transport)
        return process
