"""A real nats-server, a TCP proxy that cuts and slows connections to it, and nodes that use both."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import KEY, NAMES, Node, Nodes, free_ports, lab_entry, running, serve_words, written

TTL = 3.0
"""Lease TTL of the tests. All durations of the rules scale with it."""


def nats_server() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = (
        str(beside)
        if beside.exists()
        else shutil.which("nats-server", path="/usr/sbin:" + os.environ["PATH"])
    )
    if found is None:
        pytest.skip("needs nats-server")
    return found


@dataclass
class NatsServer:
    """One nats-server with JetStream."""

    folder: Path
    port: int
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        with (self.folder / "nats.log").open("ab") as out:
            self.process = subprocess.Popen(  # noqa: ASYNC220
                [
                    nats_server(),
                    "-js",
                    "-a",
                    "127.0.0.1",
                    "-p",
                    str(self.port),
                    "-sd",
                    str(self.folder / "js"),
                ]
                + list(self.options),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        async with asyncio.timeout(30):
            while True:
                assert self.process.poll() is None, (self.folder / "nats.log").read_text()[-2000:]
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                await asyncio.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


class Proxy:
    """Forwards TCP connections of one node to the engine. It can cut them, and delay what passes."""

    def __init__(self) -> None:
        self.target = 0
        self.delay = 0.0
        self.silent = False
        """Whether bytes are held back, as by a firewall that drops packets."""
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._refusing = False

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._open |= {writer, far_writer}
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, far_writer):
            one.close()
            self._open.discard(one)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                while self.silent:
                    await asyncio.sleep(0.01)
                writer.write(data)
                await writer.drain()

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._refusing = True
        for one in list(self._open):
            one.transport.abort()

    def heal(self) -> None:
        self._refusing = self.silent = False

    async def stop(self) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()


@dataclass
class EngineCluster:
    """Nodes with an engine, each behind a proxy of its own."""

    nodes: Nodes
    engine: NatsServer
    proxies: list[Proxy]
    folder: Path
    file: Path

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    async def state(self, number: int) -> dict[str, Any]:
        """The part of `/ready` about the cluster."""
        async with self.nodes.http.get(self.nodes[number].base + "/ready") as response:
            return (await response.json()).get("cluster") or {}

    def node(self, name: str, port: int, proxy_port: int, **more: Any) -> Node:
        return engine_node(self.folder, more.pop("file", self.file), name, port, proxy_port, **more)


def engine_node(
    folder: Path,
    file: Path,
    name: str,
    port: int,
    engine: int,
    *,
    key: str = KEY,
    words: Sequence[str] = (),
    scheme: str = "http",
) -> Node:
    listen = ("--http", f"127.0.0.1:{port}", "--node", name, "--cluster", f"nats://127.0.0.1:{engine}")
    command = serve_words(file, *listen, *words)
    return Node(name, port, command, {"NODE_KEY": key}, folder / f"{name}.err", scheme)


@asynccontextmanager
async def engine_nodes(
    folder: Path,
    count: int = 3,
    *,
    servers: Mapping[str, Any] | None = None,
    gateway: Mapping[str, Any] | None = None,
    ttl: float = TTL,
    options: Sequence[str] = (),
    cluster: Mapping[str, Any] | None = None,
    homes: bool = False,
    words: Sequence[Sequence[str]] = ((),) * 4,
    scheme: str = "http",
    ssl: Any = True,
    **more: Any,
) -> AsyncIterator[EngineCluster]:
    """Nodes `a`, `b`, … of one cluster; with `homes`, each has a folder for its state."""
    async with AsyncExitStack() as stack:
        proxies = [Proxy() for _ in range(count)]
        proxy_ports = [await proxy.start() for proxy in proxies]  # before free ports are chosen
        ports = free_ports(count + 1)
        engine = NatsServer(folder, ports.pop(), options)
        for proxy in proxies:
            proxy.target = engine.port
            stack.push_async_callback(proxy.stop)
        await engine.start()
        stack.callback(engine.kill)
        settings = {
            "key": "${NODE_KEY}",
            "cluster": {"url": engine.url, "ttl": ttl, **(cluster or {})},
            "drain": 5,
            **(gateway or {}),
        }
        private = lab_entry(tools=["echo", "pid", "sleep"], settings={"isolation": "session"})
        file = written(folder, servers or {"lab": private}, settings, **more)
        nodes = [
            engine_node(folder, file, name, port, proxy, words=own, scheme=scheme)
            for name, port, proxy, own in zip(NAMES, ports, proxy_ports, words, strict=False)
        ]
        if homes:
            for node in nodes:
                node.environment["MOORING_HOME"] = str(folder / f"home-{node.name}")
        found = await stack.enter_async_context(running(nodes, ssl))
        yield EngineCluster(found, engine, proxies, folder, file)


def text_of(result: Mapping[str, Any]) -> str:
    return result["content"][0]["text"]


def errors_of(cluster: EngineCluster) -> str:
    return json.dumps({one.name: one.errors.read_text()[-3000:] for one in cluster.nodes.nodes})


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


async def until(holds: Any, seconds: float) -> None:
    """Wait until `holds()` is true."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


async def joined(cluster: EngineCluster, number: int, nodes: int) -> None:
    """Wait until a node is connected to the engine, has a lease and knows this many nodes."""
    async with asyncio.timeout(60):
        while True:
            with suppress(OSError):
                state = await cluster.state(number)
                if state["engine"] == "connected" and state["lease"] and len(state["nodes"]) >= nodes:
                    return
            await asyncio.sleep(0.05)


async def owner_number(cluster: EngineCluster) -> int:
    """The number of the node that owns the one key."""
    owned = [(await cluster.state(number))["owned"] for number in range(len(cluster.nodes))]
    assert sorted(owned)[-1] == 1, owned
    return owned.index(1)
