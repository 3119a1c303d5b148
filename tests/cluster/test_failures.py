"""Failures of a cluster with a real engine: outages, partitions between nodes, certificates, restarts."""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
import statistics
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import pytest

from mooring import Host
from mooring.cluster.engine_nodes import engine_nodes as nodes_of_engine
from mooring.gateway import serve_http
from mooring.gateway.http import HttpHandler
from tests.cluster.engine_lab import (
    TTL,
    EngineCluster,
    Proxy,
    alive,
    engine_nodes,
    errors_of,
    joined,
    owner_number,
    until,
)
from tests.cluster.lab import KEY, free_ports, fresh, lab_entry
from tests.lab.caller import Caller
from tests.lab.certificates import Authority

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(180)]

BOTH = {
    "private": lab_entry(tools=["pid"], settings={"isolation": "session"}),
    "shared": lab_entry(tools=["echo"]),
}


async def test_calls_go_on_while_the_engine_is_down_for_ten_seconds(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, servers=BOTH, ttl=30.0) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        pid = (await client.call("pid")).text
        handshake = await cluster.nodes.caller(1)
        own = (await handshake.call("pid")).text
        for number in range(3):  # each node has learned the owner
            assert (await cluster.nodes.through(client, number).call("pid")).text == pid
        cluster.engine.kill()
        loop = asyncio.get_running_loop()
        down, calls = loop.time(), 0
        while loop.time() < down + 10:
            for number in range(3):
                through = cluster.nodes.through(client, number)
                assert (await through.call("pid")).text == pid, errors_of(cluster)
                assert (await through.call("echo", {"text": "x"})).text == "x", errors_of(cluster)
                assert (await cluster.nodes.through(handshake, number).call("pid")).text == own
                calls += 3
        assert calls >= 9
        await cluster.engine.start()
        for number in range(3):
            await joined(cluster, number, 3)
            assert (await cluster.state(number))["fenced"] == 0, errors_of(cluster)
        assert (await client.call("pid")).text == pid  # the lease was not lost


async def test_the_median_of_owned_calls_is_unchanged_while_the_engine_is_slow(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 1, ttl=12.0) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        pid = (await client.call("pid")).text
        took: dict[float, list[float]] = {0.0: [], 0.5: []}
        for delay in (0.0, 0.5) * 50:  # by turns, so that other work on this machine slows both
            cluster.proxies[0].delay = delay
            for _ in range(5):
                started = perf_counter()
                assert (await client.call("pid")).text == pid
                took[delay].append(perf_counter() - started)
        normal, slow = (statistics.median(took[delay]) for delay in (0.0, 0.5))
        assert slow < 1.2 * normal + 0.001, (normal, slow)
        assert (await cluster.state(0))["fenced"] == 0


async def test_an_engine_without_space_counts_as_lost_and_is_used_again(tmp_path: Path) -> None:
    """The engine refuses every write, as with a full disk: leases end in time, other calls go on."""
    async with engine_nodes(tmp_path, 2, servers=BOTH) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        pid = int((await client.call("pid")).text)
        limit = tmp_path / "full.conf"
        limit.write_text("jetstream { max_file_store: 1 }\n")
        cluster.engine.kill()
        cluster.engine.options = ("-c", str(limit))
        await cluster.engine.start()
        await until(lambda: not alive(pid), 30)
        for number in range(2):
            reply = await cluster.nodes.through(client, number).call("echo", {"text": "x"})
            assert reply.text == "x", errors_of(cluster)
        cluster.engine.kill()
        cluster.engine.options = ()
        await cluster.engine.start()
        for number in range(2):
            await joined(cluster, number, 2)
        reply = await client.call("pid")
        assert reply.status == 200, (reply.messages, errors_of(cluster))
        assert int(reply.text) != pid


async def forgotten(cluster: EngineCluster, number: int, name: str) -> None:
    """Wait until a node does not hear of another one any more."""
    async with asyncio.timeout(60):
        while name in (await cluster.state(number))["nodes"]:
            await asyncio.sleep(0.05)


async def test_sessions_of_a_node_without_the_engine_are_reached_through_other_nodes(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2, servers=BOTH) as cluster:
        session = await cluster.nodes.caller(1)
        pid = (await session.call("pid")).text
        through = cluster.nodes.through(session, 0)
        cluster.proxies[1].cut()
        await forgotten(cluster, 0, "b")
        for _ in range(3):
            reply = await through.call("pid")
            assert reply.status == 200, (reply.messages, errors_of(cluster))
            assert reply.text == pid
        await asyncio.to_thread(cluster[1].kill)
        assert (await through.call("pid")).status == 404


@pytest.mark.skipif(sys.platform != "linux", reason="limits the files of another process")
async def test_sessions_are_reached_through_other_nodes_while_the_disk_of_the_engine_is_full(
    tmp_path: Path,
) -> None:
    import resource

    async with engine_nodes(tmp_path, 2, servers=BOTH) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        leased = int((await client.call("pid")).text)
        session = await cluster.nodes.caller(1)
        pid = (await session.call("pid")).text
        engine = cluster.engine.process.pid
        whole = resource.prlimit(engine, resource.RLIMIT_FSIZE)
        resource.prlimit(engine, resource.RLIMIT_FSIZE, (0, whole[1]))
        await until(lambda: not alive(leased), TTL + 30)
        async with asyncio.timeout(60):
            for number, name in ((0, "b"), (1, "a")):
                while (state := await cluster.state(number))["nodes"][name]["heard"] < 2 * TTL:
                    await asyncio.sleep(0.05)
                assert state["engine"] == "connected"
        for number in range(2):
            reply = await cluster.nodes.through(session, number).call("pid")
            assert reply.status == 200, (reply.messages, errors_of(cluster))
            assert reply.text == pid
        # nats-server writes nothing more until it is restarted, even if there is space again.
        cluster.engine.kill()
        await cluster.engine.start()
        for number in range(2):
            await joined(cluster, number, 2)
        reply = await client.call("pid")
        assert reply.status == 200, (reply.messages, errors_of(cluster))


async def test_nodes_that_do_not_reach_each_other_refuse_what_the_other_owns_and_go_on(
    tmp_path: Path,
) -> None:
    """Each node is reached by the others through a proxy, which is cut."""
    async with AsyncExitStack() as stack:
        proxies = [Proxy() for _ in range(2)]
        ports = [await proxy.start() for proxy in proxies]
        for proxy in proxies:
            stack.push_async_callback(proxy.stop)
        words = [("--address", f"http://127.0.0.1:{port}") for port in ports]
        cluster = await stack.enter_async_context(engine_nodes(tmp_path, 2, servers=BOTH, words=words))
        for proxy, node in zip(proxies, cluster.nodes.nodes, strict=True):
            proxy.target = node.port
        client = await cluster.nodes.caller(0, modern=True)
        pid = (await client.call("pid")).text
        owner = await owner_number(cluster)
        here, there = (cluster.nodes.through(client, number) for number in (owner, 1 - owner))
        assert (await there.call("pid")).text == pid
        proxies[owner].cut()
        for _ in range(3):
            assert (await here.call("pid")).text == pid  # it keeps what it owns
            assert (await there.call("echo", {"text": "x"})).text == "x"
        refused = await there.call("pid")
        assert refused.status in (502, 503), refused.messages
        assert "error" in refused.messages[0]
        assert alive(int(pid))
        proxies[owner].heal()
        async with asyncio.timeout(40):
            while (reply := await there.call("pid")).status != 200:
                await asyncio.sleep(0.1)
        assert reply.text == pid


def pem(authority: Authority, name: str) -> str:
    """A file with a certificate for loopback and its key, of a node or of the engine."""
    leaf = authority.made.issue_cert("127.0.0.1", "localhost", common_name=name)
    file = authority.folder / f"{name}.pem"
    leaf.private_key_and_cert_chain_pem.write_to_path(str(file))
    return str(file)


async def test_nodes_use_mutual_tls_among_themselves_and_tls_with_a_password_for_the_engine(
    tmp_path: Path,
) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    ca = str(authority.folder / "ca.pem")
    authority.made.cert_pem.write_to_path(ca)
    strange = str(other.folder / "ca.pem")
    other.made.cert_pem.write_to_path(strange)
    node, engine = pem(authority, "node"), pem(authority, "engine")
    options = ("--tls", "--tlscert", engine, "--tlskey", engine, "--user", "m", "--pass", "engine-secret")
    access = {"user": "m", "password": "${ENGINE_PASSWORD}", "tls": {"ca": ca}}
    servers = {**BOTH, "once": lab_entry(tools=["sleep"], settings={"placement": "cluster"})}
    gateway = {"tls": {"cert": node, "client_ca": ca, "client": "required"}}
    os.environ["ENGINE_PASSWORD"] = "engine-secret"
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(node)
    try:
        async with engine_nodes(
            tmp_path, 2, servers=servers, gateway=gateway, cluster=access, options=options,
            tls={"ca": ca, "cert": node}, scheme="https", ssl=context,
        ) as cluster:  # fmt: skip
            handshake = await cluster.nodes.caller(0)
            own = (await handshake.call("pid")).text
            assert (await cluster.nodes.through(handshake, 1).call("pid")).text == own, errors_of(cluster)
            modern = await cluster.nodes.caller(0, modern=True)
            pids = {(await cluster.nodes.through(modern, number).call("pid")).text for number in range(2)}
            assert len(pids) == 1, errors_of(cluster)
            for number in range(2):
                slept = await cluster.nodes.through(modern, number).call("sleep", {"seconds": 0})
                assert slept.status == 200, errors_of(cluster)
                assert not slept.result.get("isError"), (slept.last, errors_of(cluster))
            async with fresh() as http:  # a client without a certificate is refused
                with pytest.raises(aiohttp.ClientError):
                    trusting = authority.trusting()
                    async with http.get(cluster[0].base + "/health", ssl=trusting) as response:
                        await response.read()
            file = tmp_path / "strange.json"
            changed = cluster.file.read_text().replace(
                f'"tls": {{"ca": "{ca}"}}', f'"tls": {{"ca": "{strange}"}}'
            )
            file.write_text(changed)
            [port] = free_ports(1)
            late = cluster.node("c", port, cluster.engine.port, file=file, scheme="https")
            late.start()
            assert await asyncio.to_thread(late.process.wait, 60) == 2
            assert "cannot be used" in late.errors.read_text()
            assert "engine-secret" not in late.errors.read_text()
            refused = cluster.node("d", port, cluster.engine.port, scheme="https")
            refused.environment["ENGINE_PASSWORD"] = "another-secret"
            refused.start()
            assert await asyncio.to_thread(refused.process.wait, 60) == 2
            [said] = refused.errors.read_text().splitlines()
            assert "Authorization Violation" in said
            assert "another-secret" not in said
            status = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mooring", "--config", str(cluster.file), "cluster", "status"),
                env={**os.environ, "NODE_KEY": KEY},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            table, errors = await status.communicate()
            assert (status.returncode, errors) == (0, b""), (table, errors)
    finally:
        del os.environ["ENGINE_PASSWORD"]


async def test_a_node_that_ends_keeps_a_session_until_a_request_that_it_accepted_has_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node ends between the placement of the request and the begin of its call."""
    accepted, go_on = asyncio.Event(), asyncio.Event()
    original = HttpHandler._modern

    async def slow(self: HttpHandler, context: Any, message: dict[str, Any]) -> Any:
        accepted.set()
        await go_on.wait()
        return await original(self, context, message)

    monkeypatch.setenv("NODE_KEY", KEY)
    async with engine_nodes(tmp_path, 1, servers=BOTH) as cluster, AsyncExitStack() as stack:
        [port] = free_ports(1)
        host = Host.from_config(cluster.file, style="raw")
        options = {"--style": "raw", "--discovery": False, "--sse": False, "--no-lock": True}
        nodes = nodes_of_engine(host, cluster.engine.url, "c", None, ("127.0.0.1", port), options)
        assert nodes is not None
        await stack.enter_async_context(host)
        await stack.enter_async_context(serve_http(host, "127.0.0.1", port, cluster=nodes))
        client = Caller(cluster.nodes.http, f"http://127.0.0.1:{port}/mcp", modern=True)
        assert (await client.call("pid")).text
        async with asyncio.timeout(30):
            while not nodes.coordinator.placement.owned:  # the other node placed it, and ends
                await asyncio.to_thread(cluster[0].end)
                await client.call("pid")
        monkeypatch.setattr(HttpHandler, "_modern", slow)
        calling = asyncio.create_task(client.call("pid"))
        await asyncio.wait_for(accepted.wait(), 20)
        leaving = asyncio.create_task(nodes.leave())
        await asyncio.wait((leaving,), timeout=0.5)
        go_on.set()
        reply = await calling
        assert reply.status == 200, reply.messages
        assert not reply.result.get("isError"), reply.messages
        await asyncio.wait_for(leaving, 20)
        assert not nodes.coordinator.placement.owned


async def test_no_call_of_2026_fails_while_all_nodes_are_restarted(tmp_path: Path) -> None:
    """The clients do what a balancer does: a connection that is refused goes to the next node."""
    effects = tmp_path / "effects"
    servers = {
        "private": lab_entry(tools=["pid"], settings={"isolation": "session"}),
        "shared": lab_entry(tools=["effect"], effects=str(effects)),
        "once": lab_entry(tools=["echo"], settings={"placement": "cluster"}),
    }
    async with engine_nodes(tmp_path, servers=servers, ttl=12.0) as cluster, fresh() as http:
        numbers, turns, ending = itertools.count(), itertools.count(), asyncio.Event()
        failed, done = list[str](), list[int]()

        async def call(tool: str, arguments: dict[str, Any]) -> str | None:
            while True:
                client = Caller(http, cluster[next(turns) % 3].base + "/mcp", modern=True)
                try:
                    reply = await client.call(tool, arguments)
                except aiohttp.ClientConnectorError:
                    continue  # refused: nothing was sent
                except aiohttp.ClientError as problem:
                    failed.append(f"{tool} {problem!r}")
                    return None
                if reply.status != 200 or "result" not in reply.last or reply.result.get("isError"):
                    failed.append(f"{tool} {reply.status} {reply.last}")
                    return None
                return reply.text

        async def work() -> None:
            while not ending.is_set():
                number = next(numbers)
                if await call("effect", {"n": number}) == f"done {number}":
                    done.append(number)
                await call("pid", {})
                await call("echo", {"text": "x"})

        working = [asyncio.create_task(work()) for _ in range(4)]
        for node in cluster.nodes.nodes:
            before = len(done)
            await until(lambda before=before: len(done) > before + 20 or bool(failed), 60)
            assert await asyncio.to_thread(node.end) == 0
            node.start()
            await node.ready(cluster.nodes.http)
        ending.set()
        await asyncio.gather(*working)
        assert not failed, (failed[:3], errors_of(cluster))
        written = effects.read_text().split()
        assert sorted(map(int, written)) == sorted(done)  # each once


WALL_CLOCK = """
import sys, time
from pathlib import Path

file, real, real_ns = Path(sys.argv.pop(1)), time.time, time.time_ns

def offset():
    return int(file.read_text() or 0)

time.time = lambda: real() + offset()
time.time_ns = lambda: real_ns() + offset() * 10**9
from mooring.cli import main
sys.exit(main())
"""
"""A node whose wall clock is ahead by the number of seconds in a file."""


async def test_a_wall_clock_that_jumps_costs_no_lease_no_session_and_no_hop(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2) as cluster:
        program = tmp_path / "wall_clock.py"
        program.write_text(WALL_CLOCK)
        ahead = [tmp_path / f"ahead-{number}" for number in range(2)]
        for node, file in zip(cluster.nodes.nodes, ahead, strict=True):  # restarted with such a clock
            file.write_text("0")
            assert await asyncio.to_thread(node.end) == 0
            node.words = [node.words[0], str(program), str(file), *node.words[3:]]
            node.start()
            await node.ready(cluster.nodes.http)
        for number in range(2):
            await joined(cluster, number, 2)
        modern = await cluster.nodes.caller(0, modern=True)
        handshake = await cluster.nodes.caller(0)
        clients = [cluster.nodes.through(one, number) for one in (modern, handshake) for number in range(2)]
        before = [(await client.call("pid")).text for client in clients]
        for first, second in ((86_400, 0), (86_400, -86_400), (0, -86_400), (0, 0)):
            ahead[0].write_text(str(first))
            ahead[1].write_text(str(second))
            states = [await cluster.state(number) for number in range(2)]
            renewed = asyncio.get_running_loop().time() + TTL  # more than one renewal with these clocks
            while asyncio.get_running_loop().time() < renewed:
                assert [(await client.call("pid")).text for client in clients] == before, errors_of(cluster)
            assert [state["fenced"] for state in states] == [0, 0], errors_of(cluster)
        assert [(await cluster.state(number))["fenced"] for number in range(2)] == [0, 0], errors_of(cluster)
