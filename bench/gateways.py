"""Measure `mooring serve` beside other gateways on the same upstream: `python -m bench.gateways`.

A raw HTTP client stands in front, so that the figures are the gateway's. Rounds are interleaved; a figure is
the median over rounds, and latency is what a gateway adds to asking the HTTP fixture directly.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `bench` is a package

from bench.entries import Entry, Unavailable, install
from bench.fixtures.start import http_servers, stdio_servers
from bench.listening import free_port, listening

RESULTS = Path(__file__).with_name("results") / "gateways.json"
SOURCE = str(Path(__file__).resolve().parents[1] / "src")
ECHO = {"text": "x" * 100}
OBSERVED = {
    "access_log": {"path": "FOLDER/access.log", "format": "json"},
    "log": {"format": "json", "level": "info"},
    "metrics": {"principals": True},
}
"""Settings of `mooring-observed`: access log, application log and metrics switched on together."""
FASTMCP = """
import asyncio, sys
from fastmcp import FastMCP
from fastmcp.client import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

async def main():
    transport = StdioTransport(sys.argv[2], sys.argv[3:], keep_alive=True)
    async with Client(transport) as client:
        proxy = create_proxy(client)
        await proxy.run_async(transport="http", host="127.0.0.1", port=int(sys.argv[1]), log_level="error",
                              show_banner=False)

asyncio.run(main())
"""


def running(command: list[str], port: int, **environment: str) -> AbstractContextManager[None]:
    return listening(command, lambda: _takes_connections(port), environment)


def _takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Front:
    """A client of the handshake era that keeps `connections` open and does nothing else."""

    def __init__(self, url: str, tool: str) -> None:
        self.host, _, rest = url.removeprefix("http://").partition(":")
        port, _, path = rest.partition("/")
        self.port, self.path, self.tool = int(port), "/" + path, tool
        self.session: str | None = None
        self._ids = itertools.count(2)
        self._pool: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self) -> None:
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        for _ in range(100):
            try:
                await self.ask("initialize", hello, key=1)
                break
            except (OSError, ValueError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)
        await self.ask("notifications/initialized", {}, key=None)

    async def call(self) -> float:
        started = time.perf_counter()
        answer = await self.ask("tools/call", {"name": self.tool, "arguments": ECHO}, next(self._ids))
        if len(answer["result"]["content"][0]["text"]) != 100:
            raise ValueError("a wrong answer")
        return time.perf_counter() - started

    async def ask(self, method: str, params: dict[str, Any], key: int | None) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if key is not None:
            message["id"] = key
        body = json.dumps(message).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            "Content-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n"
        )
        if self.session:
            head += f"Mcp-Session-Id: {self.session}\r\nMCP-Protocol-Version: 2025-06-18\r\n"
        while self._pool and (self._pool[-1][0].at_eof() or self._pool[-1][1].is_closing()):
            self._pool.pop()  # the gateway has closed what was idle
        kept = bool(self._pool)
        wire = self._pool.pop() if kept else await asyncio.open_connection(self.host, self.port)
        reader, writer = wire
        try:
            writer.write(head.encode() + b"\r\n" + body)
            answer = await self._read(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            if kept:  # closed in the very moment in which it was taken
                return await self.ask(method, params, key)
            raise
        self._pool.append(wire)
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> Any:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = (line.partition(": ") for line in head.split("\r\n")[1:] if ": " in line)
        fields = {name.lower(): value for name, _, value in lines}
        self.session = fields.get("mcp-session-id", self.session)
        if "content-length" in fields:
            data = await reader.readexactly(int(fields["content-length"]))
        elif "transfer-encoding" in fields:
            parts: list[bytes] = []
            while size := int(await reader.readline(), 16):
                parts.append(await reader.readexactly(size))
                await reader.readexactly(2)
            await reader.readline()
            data = b"".join(parts)
        else:
            data = b""
        if "event-stream" in fields.get("content-type", ""):
            lines = [line[5:] for line in data.splitlines() if line.startswith(b"data:") and line[5:].strip()]
            data = lines[-1]
        return json.loads(data) if data.strip() else None

    async def burst(self, calls: int, in_flight: int) -> float:
        """Calls per second."""
        left = iter(range(calls))

        async def work() -> None:
            for _ in left:
                await self.call()

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(in_flight)))
        return calls / (time.perf_counter() - started)


@contextmanager
def contestants(names: list[str]) -> Generator[dict[str, Front]]:
    """Every gateway, in front of a stdio fixture of its own; `direct` is the HTTP fixture."""
    fronts: dict[str, Front] = {}
    with ExitStack() as stack:
        [server] = stdio_servers(1, tools=10)
        upstream = [server["command"], *server["args"]]
        [web] = stack.enter_context(http_servers(1, tools=10))
        fronts["direct"] = Front(web["url"], "echo")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in names:
            port = free_port()
            url = f"http://127.0.0.1:{port}/mcp"
            if name.startswith("mooring"):
                config = folder / f"{name}.json"
                settings = OBSERVED if name == "mooring-observed" else {}
                text = json.dumps({"mcpServers": {"s0": server}, "gateway": settings})
                config.write_text(text.replace("FOLDER", str(folder)))
                words = ["--config", str(config), "--no-lock", "serve", "--http", f"127.0.0.1:{port}"]
                command = [sys.executable, "-m", "mooring", *words, "--style", "raw"]
                stack.enter_context(running(command, port, PYTHONPATH=SOURCE))
            elif name == "mcp-proxy":
                binary = _environment("mcp_proxy", "mcp-proxy") / "mcp-proxy"
                command = [str(binary), "--host", "127.0.0.1", "--port", str(port), "--", *upstream]
                stack.enter_context(running(command, port))
            else:
                python = _environment("fastmcp", "fastmcp==4.1.2") / "python"
                script = folder / "proxy.py"
                script.write_text(FASTMCP)
                stack.enter_context(running([str(python), str(script), str(port), *upstream], port))
            fronts[name] = Front(url, "echo")
        yield fronts


def _environment(name: str, *requires: str) -> Path:
    entry = Entry(name=name, label=name, requires=requires, statement="pass")
    if not (entry.python.parent / "python").exists():
        try:
            install(entry)
        except Unavailable as problem:
            raise RuntimeError(f"{name} cannot be installed: {problem}") from None
    return entry.python.parent


async def measure(fronts: dict[str, Front], rounds: int, calls: int, in_flight: int) -> dict[str, Any]:
    latency: dict[str, list[float]] = {name: [] for name in fronts}
    rate: dict[str, list[float]] = {name: [] for name in fronts}
    for front in fronts.values():
        await front.open()
        for _ in range(20):
            await front.call()
    for _ in range(rounds):
        for name, front in fronts.items():
            latency[name].append(statistics.median([await front.call() for _ in range(calls)]))
        for name, front in fronts.items():
            rate[name].append(await front.burst(calls * 4, in_flight))
    direct = statistics.median(latency["direct"])
    return {
        name: {
            "p50_us": round(statistics.median(latency[name]) * 1e6),
            "added_us": round((statistics.median(latency[name]) - direct) * 1e6),
            "calls_per_second": round(statistics.median(rate[name])),
        }
        for name in fronts
    }


_NAMES = "of mooring, mooring-observed (logs and metrics switched on), mcp-proxy and fastmcp"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--only", nargs="+", default=["mooring", "mcp-proxy", "fastmcp"], help=_NAMES)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    with contestants(args.only) as fronts:
        figures = asyncio.run(measure(fronts, args.rounds, args.calls, args.in_flight))
    for name, figure in figures.items():
        print(f"{name:12} p50 {figure['p50_us']:7} µs  added {figure['added_us']:7} µs", end="")
        print(f"  {figure['calls_per_second']:6} calls/s at {args.in_flight}")
    args.results.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
