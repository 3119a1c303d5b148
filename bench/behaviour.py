"""Behaviour of mooring and other libraries in four situations; writes the table of docs/comparison.md.

    python -m bench.behaviour            run all (after `make test-migrations`), and write the table
    PYTHON bench/behaviour.py NAME SITUATION    run one, and print what happened

Situations: `broken` (one of two servers exits at once), `killed` (the server is killed between two calls),
`same` (two servers with the same tools), `hang` (a server that never answers beside a good one).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIMIT = 20.0
CALLS = 3
"""After the server was killed."""
Servers = dict[str, dict[str, Any]]
Call = Callable[[], Awaitable[str]]


FAULTY = {"broken": "raise SystemExit('broken')", "silent": "import sys\nfor _ in sys.stdin.buffer: pass"}


def entry(name: str, mark: str = "") -> dict[str, Any]:
    if name in FAULTY:
        return {"command": sys.executable, "args": ["-S", "-c", FAULTY[name]]}
    return {
        "command": sys.executable,
        "args": ["-S", str(ROOT / f"src/mooring/demo/servers/{name}.py"), mark],
    }


SITUATIONS: dict[str, Servers] = {
    "broken": {"notes": entry("notes"), "broken": entry("broken")},
    "hang": {"notes": entry("notes"), "silent": entry("silent")},
    "killed": {"notes": entry("notes", f"mark-{os.getpid()}")},
    "same": {"notes": entry("notes"), "other": entry("notes")},
}


@asynccontextmanager
async def mooring(servers: Servers) -> AsyncIterator[tuple[list[str], Call]]:
    from mooring import Host, ServerConfig

    configs = [
        ServerConfig(name=name, command=one["command"], args=tuple(one["args"]))
        for name, one in servers.items()
    ]
    async with Host(configs, lock=False) as host:
        await host.ready(5)

        async def call() -> str:
            return (await host.call("mcp_notes_read_note", {"title": "welcome"}, check=True)).text

        yield list(host.catalog.tools), call


@asynccontextmanager
async def fastmcp(servers: Servers) -> AsyncIterator[tuple[list[str], Call]]:
    from fastmcp import Client

    async with Client({"mcpServers": servers}) as client:
        names = [tool.name for tool in await client.list_tools()]

        async def call() -> str:
            name = next(name for name in names if name.endswith("read_note"))
            return (await client.call_tool(name, {"title": "welcome"})).content[0].text

        yield names, call


@asynccontextmanager
async def langchain(servers: Servers) -> AsyncIterator[tuple[list[str], Call]]:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    client = MultiServerMCPClient({name: {**one, "transport": "stdio"} for name, one in servers.items()})
    if len(servers) > 1:
        tools = await client.get_tools()
        yield [tool.name for tool in tools], lambda: tools[0].ainvoke({})
        return
    async with client.session("notes") as session:  # one connection for several calls
        tools = await load_mcp_tools(session)
        read = next(tool for tool in tools if tool.name == "read_note")
        yield [tool.name for tool in tools], lambda: read.ainvoke({"title": "welcome"})


@asynccontextmanager
async def mcp_use(servers: Servers) -> AsyncIterator[tuple[list[str], Call]]:
    from mcp_use import MCPClient

    client = MCPClient.from_dict({"mcpServers": servers})
    try:
        sessions = await client.create_all_sessions()
        names = [tool.name for session in sessions.values() for tool in await session.list_tools()]

        async def call() -> str:
            return (await sessions["notes"].call_tool("read_note", {"title": "welcome"})).content[0].text

        yield names, call
    finally:
        await client.close_all_sessions()


@asynccontextmanager
async def openai_agents(servers: Servers) -> AsyncIterator[tuple[list[str], Call]]:
    from agents import Agent, RunContextWrapper
    from agents.mcp import MCPServerManager, MCPServerStdio

    made = [
        MCPServerStdio(params={"command": one["command"], "args": one["args"]}, name=name)
        for name, one in servers.items()
    ]
    async with MCPServerManager(made) as manager:
        agent = Agent(name="a", mcp_servers=manager.active_servers)
        tools = await agent.get_mcp_tools(RunContextWrapper(None))

        async def call() -> str:
            return (await made[0].call_tool("read_note", {"title": "welcome"})).content[0].text

        yield [tool.name for tool in tools], call


@asynccontextmanager
async def sdk(servers: Servers) -> AsyncIterator[tuple[list[str], Call]]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async with AsyncExitStack() as stack:
        sessions: dict[str, ClientSession] = {}
        for name, one in servers.items():
            parameters = StdioServerParameters(command=one["command"], args=one["args"])
            pipes = await stack.enter_async_context(stdio_client(parameters))
            sessions[name] = await stack.enter_async_context(ClientSession(*pipes))
            await sessions[name].initialize()
        names = [tool.name for one in sessions.values() for tool in (await one.list_tools()).tools]

        async def call() -> str:
            return (await sessions["notes"].call_tool("read_note", {"title": "welcome"})).content[0].text

        yield names, call


PEERS: dict[str, tuple[str, Any]] = {
    "mooring": ("fastmcp", mooring),
    "mcp (raw SDK)": ("sdk", sdk),
    "fastmcp": ("fastmcp", fastmcp),
    "langchain-mcp-adapters": ("langchain", langchain),
    "mcp-use": ("mcp-use", mcp_use),
    "openai-agents": ("openai-agents", openai_agents),
}


def kill_server() -> None:
    """Kill the server of this process, and only that."""
    mark = f"mark-{os.getpid()}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words and int(folder.name) != os.getpid():
            os.kill(int(folder.name), signal.SIGKILL)


async def one(name: str, situation: str) -> str:
    """What happened, in a few words."""
    started = time.monotonic()
    outcomes: list[str] = []
    try:
        async with asyncio.timeout(LIMIT), PEERS[name][1](SITUATIONS[situation]) as (names, call):
            took = time.monotonic() - started
            if situation == "same":
                return f"{len(names)} tools, {len(set(names))} names"
            if situation != "killed":
                await call()
                return f"{len(names)} tools after {took:.1f} s"
            await call()
            kill_server()
            for _ in range(CALLS):
                try:
                    async with asyncio.timeout(3):
                        await call()
                    outcomes.append("ok")
                except BaseException as problem:
                    outcomes.append("no answer in 3 s" if isinstance(problem, TimeoutError) else "error")
            return ", ".join(outcomes)
    except BaseException as problem:
        if len(outcomes) == CALLS:  # raised while closing, after all calls
            return ", ".join(outcomes)
        inner: Any = problem
        while getattr(inner, "exceptions", None):
            inner = inner.exceptions[0]
        if isinstance(inner, TimeoutError) and time.monotonic() - started > LIMIT - 1:
            return f"no answer in {LIMIT:g} s"
        return f"{type(inner).__name__}, no tools"


def packages(environment: str) -> str:
    """Versions of the packages of one environment."""
    python = ROOT / f".peers/migrations/{environment}/bin/python"
    code = "import json; from importlib.metadata import distributions as all_"
    code += "; print(json.dumps({one.name: one.version for one in all_()}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout


def main() -> None:
    rows = ["| | " + " | ".join(SITUATIONS) + " |", "|---|" + "---|" * len(SITUATIONS)]
    for name, (environment, _) in PEERS.items():
        found = json.loads(packages(environment))
        version = found.get("mcp" if "SDK" in name else name, "")
        cells = []
        for situation in SITUATIONS:
            python = ROOT / f".peers/migrations/{environment}/bin/python"
            try:
                done = subprocess.run(
                    [str(python), str(ROOT / "bench/behaviour.py"), name, situation],
                    capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                    env={**os.environ, "MCP_USE_ANONYMIZED_TELEMETRY": "false"},
                )  # fmt: skip
                cells.append((done.stdout.strip().splitlines() or ["crashed"])[-1])
            except subprocess.TimeoutExpired:
                cells.append("did not end in 60 s")
        rows.append(f"| {name} {version} | " + " | ".join(cells) + " |")
        print(rows[-1], flush=True)
    page = ROOT / "docs/comparison.md"
    before, _, rest = page.read_text().partition("<!-- behaviour -->")
    page.write_text(
        f"{before}<!-- behaviour -->\n"
        + "\n".join(rows)
        + "\n<!-- end of behaviour -->"
        + rest.partition("<!-- end of behaviour -->")[2]
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(asyncio.run(one(sys.argv[1], sys.argv[2])), flush=True)
        os._exit(0)  # a library may leave tasks that do not end
    main()
