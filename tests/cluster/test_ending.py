"""The end of a node: within a bound after SIGTERM, whatever hangs, and at once after a second SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mooring.cluster.engine import EngineAccess, NatsEngine
from mooring.gateway.shutdown import END_GRACE, SAME
from tests.cluster.engine_lab import NatsServer, alive, engine_nodes, owner_number, until
from tests.cluster.lab import (
    Node,
    Nodes,
    acquainted,
    free_ports,
    lab_entry,
    running,
    serve_words,
    static_nodes,
    workers,
    written,
)
from tests.gateway.test_reverse import ABLE, ACCEPTED, FIXTURE, QUESTION

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(180)]

DRAIN, SERVER_GRACE = 2.0, 2.0
BOUND = DRAIN + SERVER_GRACE + END_GRACE
LATE = 5.0
"""Seconds by which a busy machine may be late."""
STUBBORN = """
import asyncio, sys, time
from mooring.gateway.serve import Service

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

started = Service.start

async def start(self, audit):
    await started(self, audit)
    {task}

Service.start = start
from mooring.cli import main
sys.exit(main())
"""
HANGS = {
    "a task that the gateway ends": "self._tasks.append(asyncio.create_task(stubborn()))",
    "a task of nobody": "self.stubborn = asyncio.create_task(stubborn())",
    "a blocked event loop": "asyncio.get_running_loop().call_later(1, time.sleep, 3600)",
    "a thread": "__import__('threading').Thread(target=time.sleep, args=(3600,)).start()",
}


async def ended(node: Node, seconds: float) -> int:
    """Wait for the end of a process; return its exit code."""
    await until(lambda: node.process.poll() is not None, seconds)
    return node.process.returncode


async def until_running(http: aiohttp.ClientSession, node: Node) -> None:
    """Wait until a call is running."""
    async with asyncio.timeout(20):
        while True:
            async with http.get(node.base + "/metrics") as response:
                if "mooring_gateway_under_way 1" in await response.text():
                    return
            await asyncio.sleep(0.02)


def unread(port: int) -> int:
    """Connections of a server with bytes that it has not read."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        line[1].endswith(f":{port:04X}") and line[3] == "01" and line[4][9:] != "0" * 8 for line in lines
    )


async def until_closed(node: Node) -> None:
    """Wait until a node does not listen any more."""
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", node.port)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.02)


def lone(folder: Path, drain: float) -> Node:
    [port] = free_ports(1)
    file = written(folder, {"lab": lab_entry(tools=["echo", "pid", "sleep"])}, {"drain": drain})
    return Node("one", port, serve_words(file, "--http", f"127.0.0.1:{port}"), {}, folder / "one.err")


@pytest.mark.parametrize("hang", HANGS)
async def test_a_process_ends_within_its_bound_whatever_hangs(tmp_path: Path, hang: str) -> None:
    node = lone(tmp_path, DRAIN)
    program = tmp_path / "stubborn.py"
    program.write_text(STUBBORN.replace("{task}", HANGS[hang]))
    node.words = [node.words[0], str(program), *node.words[3:]]
    async with running([node]) as nodes:
        pid = int((await (await nodes.caller(0)).call("pid")).text)
        if hang == "a blocked event loop":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(20):
                    while True:
                        async with asyncio.timeout(2), nodes.http.get(node.base + "/live"):
                            pass
        started = time.monotonic()
        node.terminate()
        assert await ended(node, BOUND + LATE) == 1
        assert time.monotonic() - started > DRAIN
        await until(lambda: not alive(pid), 5)
        assert "The shutdown is not complete: it took more than" in node.errors.read_text()


@pytest.mark.parametrize("kind", ["one process", "workers"])
async def test_a_second_sigterm_ends_it_at_once(tmp_path: Path, kind: str) -> None:
    one = kind == "one process"
    async with running([lone(tmp_path, 60)]) if one else workers(tmp_path, gateway={"drain": 60}) as nodes:
        client = await nodes.caller(0)
        pid = int((await client.call("pid")).text)
        call = asyncio.create_task(client.call("sleep", {"seconds": 50}))
        await until_running(nodes.http, nodes[0])
        nodes[0].terminate()
        await until_closed(nodes[0])
        again = time.monotonic() + SAME  # a busy machine delivers the first signal late
        await until(lambda: time.monotonic() > again, 5)
        assert nodes[0].process.poll() is None
        nodes[0].process.terminate()
        await ended(nodes[0], 5 + LATE)
        await until(lambda: not alive(pid), 5)
        with suppress(aiohttp.ClientError):
            reply = await call
            assert reply.status >= 500 or reply.result["isError"]


async def test_a_node_ends_in_order_although_the_engine_does_not_answer(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2, gateway={"drain": DRAIN}) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        pid = int((await client.call("pid")).text)
        owner = await owner_number(cluster)
        cluster.proxies[owner].silent = True
        cluster[owner].terminate()
        assert await ended(cluster[owner], BOUND + LATE) == 0
        assert not alive(pid)


async def test_a_node_ends_in_order_although_another_node_does_not_answer(tmp_path: Path) -> None:
    async with static_nodes(tmp_path, 2, gateway={"drain": DRAIN}) as nodes:
        await acquainted(nodes)
        client = nodes.through(await nodes.caller(0), 1)
        assert (await client.call("echo", {"text": "x"})).text == "x"
        nodes[0].signal(signal.SIGSTOP)
        call = asyncio.create_task(client.call("echo", {"text": "y"}))
        await until(lambda: unread(nodes[0].port) > 1, 20)  # the call, and a check whether it answers
        nodes[1].terminate()
        assert await ended(nodes[1], BOUND + LATE) == 0
        with suppress(aiohttp.ClientError):
            assert (await call).status >= 500


async def test_a_request_to_the_engine_can_always_be_cancelled(tmp_path: Path) -> None:
    """`wait_for` of Python 3.11 loses a cancellation that comes together with the answer, and nats-py loses
    others: a task that ran on after that kept its node from ending."""
    server = NatsServer(tmp_path, free_ports(1)[0])
    await server.start()

    async def connected(_: str) -> None: ...

    engine = NatsEngine(EngineAccess(urls=(server.url,), ttl=30.0), connected, lambda: None)
    try:
        await engine.open()
        answers = 0

        async def ask_on() -> None:
            nonlocal answers
            while True:
                await engine.read("leases", "x")
                answers += 1

        for turns in range(200):
            before, task = answers, asyncio.create_task(ask_on())
            await until(lambda before=before: answers > before, 20)
            for _ in range(turns % 20):  # at any step of a request
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait((task,), timeout=20)
            assert task in done, f"cancellation {turns} was lost"
    finally:
        await engine.close()
        server.kill()


@asynccontextmanager
async def two_nodes(folder: Path, kind: str, servers: Mapping[str, Any]) -> AsyncIterator[Nodes]:
    if kind == "static":
        async with static_nodes(folder, 2, servers=servers, gateway={"drain": 20}) as nodes:
            await acquainted(nodes)
            yield nodes
    else:
        async with engine_nodes(folder, 2, servers=servers, gateway={"drain": 20}) as cluster:
            yield cluster.nodes


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("static", {}),
        ("engine", {}),
        ("engine", {"isolation": "session"}),
        ("engine", {"placement": "cluster"}),
    ],
    ids=["static", "shared", "private", "once"],
)
async def test_a_node_that_ends_waits_for_the_answers_to_suspended_calls(
    tmp_path: Path, kind: str, settings: dict[str, str]
) -> None:
    fixture = {"command": sys.executable, "args": [str(FIXTURE), "stdio", "legacy"], **settings}
    async with two_nodes(tmp_path, kind, {"asks": fixture}) as nodes:
        client = await nodes.caller(0, modern=True, capabilities=ABLE)
        asked = (await client.call("test_elicitation", QUESTION)).result
        [key] = asked["inputRequests"]
        nodes[0].terminate()
        with suppress(TimeoutError):  # without the wait, it ends within a second
            await ended(nodes[0], 2)
        more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
        reply = await nodes.through(client, 1).call("test_elicitation", QUESTION, **more)
        assert "result" in reply.last, (reply.last, nodes[0].errors.read_text())
        assert reply.text.startswith("User response: action=accept"), reply.last
        assert await ended(nodes[0], BOUND + LATE) == 0


async def test_calls_that_ask_go_on_while_the_node_of_their_private_server_is_restarted(
    tmp_path: Path,
) -> None:
    fixture = {"command": sys.executable, "args": [str(FIXTURE), "stdio", "legacy"], "isolation": "session"}
    done, failed, stop = 0, list[Any](), asyncio.Event()

    async def ask_on(nodes: Nodes) -> None:
        nonlocal done
        client = await nodes.caller(1, modern=True, capabilities=ABLE)
        while not stop.is_set():
            reply = await client.call("test_elicitation", QUESTION)
            if reply.last.get("result", {}).get("resultType") == "input_required":
                [key] = reply.result["inputRequests"]
                answers = {key: ACCEPTED["result"]}
                more = {"requestState": reply.result["requestState"], "inputResponses": answers}
                reply = await client.call("test_elicitation", QUESTION, **more)
            if "result" not in reply.last or reply.result.get("isError"):
                failed.append(reply.last)
            done += 1

    async with engine_nodes(tmp_path, 2, servers={"asks": fixture}) as cluster:
        first = await cluster.nodes.caller(0, modern=True, capabilities=ABLE)
        await first.call("test_simple_text")  # node 0 runs the private server
        assert await owner_number(cluster) == 0
        asking = asyncio.create_task(ask_on(cluster.nodes))
        for _ in range(2):
            seen = done
            await until(lambda seen=seen: done > seen + 5, 60)
            cluster.nodes[0].terminate()
            assert await ended(cluster.nodes[0], BOUND + LATE) == 0
            cluster.nodes[0].start()
            await cluster.nodes[0].ready(cluster.nodes.http)
        seen = done
        await until(lambda: done > seen + 5, 60)
        stop.set()
        await asking
        assert not failed, failed
