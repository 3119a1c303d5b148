"""Real nodes and workers on loopback, as child processes, and clients that choose whom they ask."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.gateway.test_operation import until_ready
from tests.lab.caller import Caller
from tests.lab.stdio import COMMAND

KEY = "a secret of more than thirty-two characters"
NAMES = ("a", "b", "c", "d")


def environment() -> dict[str, str]:
    """For a process that serves. Many start here: with compiled modules, each takes a quarter of the time."""
    return {name: one for name, one in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def lab_entry(**script: Any) -> dict[str, Any]:
    """An entry for the scripted server; `settings` are fields of the entry itself."""
    settings = script.pop("settings", {})
    return {"command": COMMAND[0], "args": [*COMMAND[1:], json.dumps(script)], **settings}


_reserved: list[int] = []
"""Descriptors, open until this process ends."""


def free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to other programs and to outgoing connections. On Linux, other
    test processes do not get them before this one ends."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = random.SystemRandom().randrange(10_000, 32_000)
            with suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                if sys.platform == "linux":
                    name = held.enter_context(socket.socket(socket.AF_UNIX))
                    name.bind(f"\0mooring-test-port-{port}")
                    _reserved.append(name.detach())
                found.append(port)
    return found


@dataclass
class Node:
    """One process that serves."""

    name: str
    port: int
    words: list[str]
    environment: dict[str, str]
    errors: Path
    scheme: str = "http"
    process: subprocess.Popen[bytes] = field(init=False)
    ending: bool = False

    @property
    def base(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.ending = False
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self.words,
                env={**environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def terminate(self) -> None:
        """Send SIGTERM, once: a second one ends a process at once."""
        if not self.ending and self.process.poll() is None:
            self.ending = True
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.terminate()

    def end(self) -> int:
        """End it in order; return its exit code."""
        self.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end: {self.errors.read_text()[-2000:]}") from None

    async def ready(self, http: aiohttp.ClientSession, seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while True:
                assert self.process.poll() is None, self.errors.read_text()[-2000:]
                with suppress(aiohttp.ClientError, OSError):
                    async with http.get(self.base + "/ready") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(0.05)


@dataclass
class Nodes:
    """Some nodes, and a session for requests to them."""

    nodes: list[Node]
    http: aiohttp.ClientSession

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def __len__(self) -> int:
        return len(self.nodes)

    async def caller(
        self, number: int, *, modern: bool = False, path: str = "/mcp", token: str | None = None, **more: Any
    ) -> Caller:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        caller = Caller(self.http, self[number].base + path, modern=modern, headers=headers)
        await caller.begin(more.get("capabilities"))
        return caller

    def through(self, caller: Caller, number: int, path: str = "/mcp") -> Caller:
        """The same client, which asks another node."""
        other = Caller(self.http, self[number].base + path, modern=caller.modern, headers=caller.headers)
        other.session, other.capabilities = caller.session, caller.capabilities
        other._ids = caller._ids
        return other


async def acquainted(nodes: Nodes) -> None:
    """Wait until every node has heard of every other one."""
    async with asyncio.timeout(60):
        for node in nodes.nodes:
            while True:
                async with nodes.http.get(node.base + "/ready") as response:
                    known = (await response.json())["cluster"]["nodes"]
                if all(one["state"] in ("here", "up") for one in known.values()):
                    break
                await asyncio.sleep(0.05)


def written(folder: Path, servers: Mapping[str, Any], gateway: Mapping[str, Any], **more: Any) -> Path:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, "gateway": gateway, **more}))
    return file


def serve_words(file: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "mooring",
        "--config",
        str(file),
        "--no-lock",
        "serve",
        "--style",
        "raw",
        *more,
    ]


@asynccontextmanager
async def running(nodes: Sequence[Node], ssl: Any = True) -> AsyncIterator[Nodes]:
    timeout, connector = aiohttp.ClientTimeout(total=60), aiohttp.TCPConnector(limit=0, ssl=ssl)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        try:
            for node in nodes:
                node.start()
            for node in nodes:
                await node.ready(http)
            yield Nodes(list(nodes), http)
        finally:
            for node in nodes:
                node.terminate()
            for node in nodes:
                await asyncio.to_thread(node.end)


def static_node(
    folder: Path, file: Path, name: str, port: int, *, key: str = KEY, words: Sequence[str] = ()
) -> Node:
    listen = ("--http", f"127.0.0.1:{port}", "--node", name)
    return Node(name, port, serve_words(file, *listen, *words), {"NODE_KEY": key}, folder / f"{name}.err")


@asynccontextmanager
async def static_nodes(
    folder: Path,
    count: int = 3,
    *,
    servers: Mapping[str, Any] | None = None,
    gateway: Mapping[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Nodes]:
    """Nodes of a fixed table."""
    ports = free_ports(count)
    table = {name: f"http://127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=False)}
    settings = {"key": "${NODE_KEY}", "nodes": table, **(gateway or {})}
    file = written(folder, servers or {"lab": lab_entry(tools=["echo", "pid", "sleep"])}, settings, **more)
    nodes = [static_node(folder, file, name, port) for name, port in zip(table, ports, strict=True)]
    async with running(nodes) as found:
        yield found


@asynccontextmanager
async def workers(
    folder: Path,
    count: int = 2,
    *,
    servers: Mapping[str, Any] | None = None,
    gateway: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[Nodes]:
    """One command with several workers. `Nodes` has one node: the port that they share."""
    [port] = free_ports(1)
    file = written(
        folder, servers or {"lab": lab_entry(tools=["echo", "pid", "sleep"])}, gateway or {}, **more
    )
    listen = ("--http", f"127.0.0.1:{port}", "--workers", str(count))
    node = Node(
        "workers", port, serve_words(file, *listen, *words), dict(environment or {}), folder / "workers.err"
    )
    async with running([node]) as found:
        async with fresh() as http:
            await until_ready(http, port, count)
        yield found


def fresh() -> aiohttp.ClientSession:
    """A client whose requests are on connections of their own, which reach any worker."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=60), connector=aiohttp.TCPConnector(force_close=True, limit=0)
    )
