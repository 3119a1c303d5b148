"""Nodes with an engine: a real nats-server, real `mooring serve` processes, real child processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from mooring import Host
from mooring.cluster.engine_nodes import engine_nodes as nodes_of_engine
from mooring.cluster.nodes import peer_tls
from mooring.config.models import HostConfig
from mooring.gateway import serve_http
from tests.cluster.engine_lab import (
    TTL,
    EngineCluster,
    alive,
    engine_nodes,
    errors_of,
    joined,
    owner_number,
    until,
)
from tests.cluster.lab import KEY, free_ports, lab_entry
from tests.lab.caller import Caller, Reply

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(180)]


async def placed(cluster: EngineCluster) -> tuple[int, int, Caller]:
    """A 2026 client whose private server runs: the number of its owner, its process id, and the client."""
    client = await cluster.nodes.caller(0, modern=True)
    pid = int((await client.call("pid")).text)
    return await owner_number(cluster), pid, client


async def first_answer(client: Caller) -> Reply:
    """Ask again and again, with a short patience, until a server answers."""
    async with asyncio.timeout(TTL + 30):
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    reply = await client.call("pid")
                    if reply.status == 200 and not reply.result.get("isError"):
                        return reply
            await asyncio.sleep(0.02)


async def test_the_private_server_of_a_2026_client_runs_once_in_the_cluster(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        through = [cluster.nodes.through(client, number) for number in range(3)]
        replies = await asyncio.gather(*(one.call("pid") for one in through * 5))
        assert len({reply.text for reply in replies}) == 1, errors_of(cluster)
        owned = [(await cluster.state(number))["owned"] for number in range(3)]
        assert sorted(owned) == [0, 0, 1]


async def test_the_placement_of_a_killed_node_is_taken_over(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path) as cluster:
        owner, pid, client = await placed(cluster)
        cluster[owner].kill()
        other = cluster.nodes.through(client, (owner + 1) % 3)
        reply = await other.call("pid")  # it waits for the end of the lease
        assert reply.status == 200, (reply.messages, errors_of(cluster))
        assert int(reply.text) != pid
        assert not alive(pid)
        third = cluster.nodes.through(client, (owner + 2) % 3)
        assert (await third.call("pid")).text == reply.text


async def test_a_stopped_node_is_fenced_before_another_one_takes_over(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path) as cluster:
        owner, pid, client = await placed(cluster)
        cluster[owner].signal(signal.SIGSTOP)
        # Requests that are sent to the stopped node wait there: their fate is not known.
        reply = await first_answer(cluster.nodes.through(client, (owner + 1) % 3))
        assert int(reply.text) != pid, errors_of(cluster)
        assert not alive(pid), "the server of the stopped node must be dead when another one answers"
        cluster[owner].signal(signal.SIGCONT)
        again = await cluster.nodes.through(client, owner).call("pid")
        assert again.status == 200, (again.messages, errors_of(cluster))
        assert again.text == reply.text


async def test_a_node_that_loses_the_engine_fences_itself_before_the_takeover(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path) as cluster:
        owner, pid, client = await placed(cluster)
        cluster.proxies[owner].cut()
        await until(lambda: not alive(pid), TTL + 10)
        reply = await cluster.nodes.through(client, (owner + 1) % 3).call("pid")
        assert reply.status == 200, (reply.messages, errors_of(cluster))
        cut_off = await cluster.nodes.through(client, owner).call("pid")  # it forwards, or says what is wrong
        assert cut_off.status in (200, 503)
        if cut_off.status == 200:
            assert cut_off.text == reply.text
        cluster.proxies[owner].heal()
        await joined(cluster, owner, 3)
        assert (await cluster.nodes.through(client, owner).call("pid")).text == reply.text


async def test_an_engine_that_is_silent_to_one_node_counts_as_lost(tmp_path: Path) -> None:
    """Packets are dropped, nothing is closed: only timeouts show it."""
    async with engine_nodes(tmp_path) as cluster:
        owner, pid, client = await placed(cluster)
        cluster.proxies[owner].silent = True
        await until(lambda: not alive(pid), TTL + 10)
        reply = await cluster.nodes.through(client, (owner + 1) % 3).call("pid")
        assert reply.status == 200, (reply.messages, errors_of(cluster))
        assert int(reply.text) != pid


async def test_a_running_call_of_a_session_goes_on_when_its_node_loses_the_engine(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path) as cluster:
        client = cluster.nodes.through(await cluster.nodes.caller(0), 1)
        call = asyncio.create_task(client.call("sleep", {"seconds": TTL + 4}))
        assert (await client.call("pid")).status == 200  # the call before it has arrived
        cluster.proxies[0].silent = True
        async with asyncio.timeout(TTL + 10):
            while len((await cluster.state(1))["nodes"]) > 2:
                assert not call.done()
        reply = await call
        assert reply.text == "slept", reply.messages


async def test_a_new_placement_waits_for_the_engine_and_then_says_what_is_missing(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 1, ttl=2.0) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        cluster.engine.kill()
        reply = await client.call("pid")
        assert reply.status == 503
        assert "engine" in reply.messages[0]["error"]
        await cluster.engine.start()
        async with asyncio.timeout(30):
            while (reply := await client.call("pid")).status != 200:
                await asyncio.sleep(0.1)


async def test_a_restarted_engine_costs_no_lease(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, ttl=10.0) as cluster:
        owner, pid, client = await placed(cluster)
        cluster.engine.kill()
        await cluster.engine.start()
        for number in range(3):
            await joined(cluster, number, 3)
        assert (await client.call("pid")).text == str(pid)
        assert (await cluster.state(owner))["fenced"] == 0


async def test_an_engine_that_lost_its_data_ends_all_leases_and_starts_again(tmp_path: Path) -> None:
    import shutil

    async with engine_nodes(tmp_path) as cluster:
        _, pid, client = await placed(cluster)
        cluster.engine.kill()
        shutil.rmtree(tmp_path / "js")
        await cluster.engine.start()
        await until(lambda: not alive(pid), TTL + 10)
        for number in range(3):
            await joined(cluster, number, 3)
        seen: set[str] = set()
        async with asyncio.timeout(
            30
        ):  # a node that notices the loss later ends what it has placed meanwhile
            while True:
                replies = [await cluster.nodes.through(client, number).call("pid") for number in range(3)]
                found = {reply.text for reply in replies if reply.status == 200}
                seen |= found
                if len(found) == 1 and all(reply.status == 200 for reply in replies):
                    break
        assert [one for one in seen if alive(int(one))] == [*found], errors_of(cluster)


async def status(cluster: EngineCluster) -> tuple[dict[str, Any], int]:
    """The document and the exit code of `mooring cluster status`."""
    words = ["--config", str(cluster.file), "--json", "cluster", "status"]
    asked = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mooring", *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asked.communicate()
    assert asked.returncode is not None
    return json.loads(out), asked.returncode


async def test_status_shows_nodes_owners_and_the_fencing_number(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2) as cluster:
        owner, _, _ = await placed(cluster)
        report, code = await status(cluster)
        assert [(node["name"], node["state"]) for node in report["nodes"]] == [("a", "live"), ("b", "live")]
        [row] = report["owners"]
        assert (row["node"], row["lease"], row["principal"]) == (cluster[owner].name, "current", "anonymous")
        assert row["fence"] > 0
        assert code == 0
        cluster[1 - owner].signal(signal.SIGSTOP)
        report, code = await status(cluster)
        states = {node["name"]: node["state"] for node in report["nodes"]}
        assert states[cluster[1 - owner].name] == "silent"
        assert code == 1


async def test_an_engine_that_needs_a_password_is_used_with_it_and_refuses_others(tmp_path: Path) -> None:
    options = ("--user", "mooring", "--pass", "secret-of-nats")
    os.environ["NATS_TEST_PASSWORD"] = "secret-of-nats"
    try:
        access = {"user": "mooring", "password": "${NATS_TEST_PASSWORD}"}
        async with engine_nodes(tmp_path, 1, options=options, cluster=access) as cluster:
            await placed(cluster)
            [port] = free_ports(1)
            node = cluster.node("b", port, cluster.engine.port)
            node.environment["NATS_TEST_PASSWORD"] = "wrong-secret"
            node.start()
            assert await asyncio.to_thread(node.process.wait, 60) == 2
            message = node.errors.read_text()
            assert "cannot be used" in message
            assert "wrong-secret" not in message
            assert "Traceback" not in message
    finally:
        del os.environ["NATS_TEST_PASSWORD"]


@pytest.mark.parametrize("exact", [True, False])
async def test_a_client_gets_its_rate_once_from_all_nodes_together(tmp_path: Path, exact: bool) -> None:
    settings = {"rate": 0.001, "burst": 9}
    async with engine_nodes(tmp_path, gateway=settings, cluster={"exact": exact}) as cluster:
        for number in range(3):
            await joined(cluster, number, 3)
        client = await cluster.nodes.caller(0, modern=True)
        through = [cluster.nodes.through(client, number) for number in range(3)]
        # All at one node first: the whole burst if it is exact, the share of that node otherwise.
        first = [(await through[0].ask("tools/list")).status for _ in range(5)]
        rest = await asyncio.gather(*(one.ask("tools/list") for one in through * 4))
        allowed = first.count(200) + sum(reply.status == 200 for reply in rest)
        assert {reply.status for reply in rest} == {200, 429}
        assert allowed == 9, (first, [reply.status for reply in rest], errors_of(cluster))
        assert first.count(200) == (5 if exact else 3)


async def test_a_second_node_with_the_same_name_is_refused(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2) as cluster:
        [port] = free_ports(1)
        second = cluster.node("a", port, cluster.engine.port)
        second.errors = tmp_path / "second.err"
        second.start()
        assert await asyncio.to_thread(second.process.wait, 60) == 2
        message = second.errors.read_text()
        assert "A node with the name 'a' runs already" in message
        assert "--node" in message
        assert "Traceback" not in message
        client = await cluster.nodes.caller(0, modern=True)
        assert (await client.call("pid")).status == 200


async def test_a_node_with_another_configuration_is_not_ready_and_says_why(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2) as cluster:
        await other_node(cluster, tmp_path, "another configuration than the nodes a, b", change='"pid"')


async def test_a_node_with_another_key_is_not_ready_and_says_why(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2) as cluster:
        await other_node(cluster, tmp_path, "another `gateway.key` than the nodes a, b", key="k" * 40)


async def test_a_node_with_other_options_is_not_ready_and_names_the_option(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2) as cluster:
        expected = "another `--style` than the nodes a, b"
        await other_node(cluster, tmp_path, expected, words=("--style", "double"))
        await other_node(cluster, tmp_path, "another `--sse` than the nodes a, b", words=("--sse",))


async def other_node(
    cluster: EngineCluster,
    folder: Path,
    expected: str,
    *,
    change: str = "",
    key: str | None = None,
    words: tuple[str, ...] = (),
) -> None:
    """Start a node that differs, and read why it is not ready."""
    file = folder / "other.json"
    text = cluster.file.read_text()
    file.write_text(text.replace('"drain": 5', '"drain": 6') if change else text)
    [port] = free_ports(1)
    node = cluster.node(
        "c", port, cluster.engine.port, file=file, words=words, **({"key": key} if key else {})
    )
    node.start()
    try:
        async with asyncio.timeout(60):
            while True:
                assert node.process.poll() is None, node.errors.read_text()
                try:
                    async with cluster.nodes.http.get(node.base + "/ready") as response:
                        report = await response.json()
                except OSError:
                    report = {}
                if expected in report.get("cluster", {}).get("problems", ()):
                    assert response.status == 503
                    break
                await asyncio.sleep(0.1)
        for number in range(2):  # the others stay ready
            state = await cluster.state(number)
            assert state["problems"] == []
            assert state["nodes"]["c"]["state"] == "not ready"  # as in `mooring cluster status`
    finally:
        await asyncio.to_thread(node.end)


async def test_a_node_that_ends_in_order_hands_its_placements_on_without_a_failed_call(
    tmp_path: Path,
) -> None:
    async with engine_nodes(tmp_path, ttl=12.0) as cluster:
        owner, pid, client = await placed(cluster)
        through = [cluster.nodes.through(client, number) for number in range(3) if number != owner]
        ending = asyncio.create_task(asyncio.to_thread(cluster[owner].end))
        seen = {str(pid)}
        while not ending.done() or len(seen) < 2:
            for one in through:
                reply = await one.call("pid")
                assert reply.status == 200, (reply.messages, errors_of(cluster))
                seen.add(reply.text)
            assert len(seen) <= 2
        assert not alive(pid)
        assert await ending == 0


async def test_a_request_that_reaches_a_draining_owner_through_an_idle_node_is_placed_again(
    tmp_path: Path,
) -> None:
    """The node that forwards it was not asked since the owner gave the session up."""
    async with engine_nodes(tmp_path, ttl=12.0) as cluster:
        owner, pid, client = await placed(cluster)
        idle = cluster.nodes.through(client, (owner + 1) % 3)
        assert (await idle.call("pid")).text == str(pid)  # it knows the owner and has a connection to it
        session = await cluster.nodes.caller(owner)
        running = asyncio.create_task(session.call("sleep", {"seconds": 4}))
        assert (await session.call("pid")).status == 200  # the call before it has arrived
        cluster[owner].terminate()
        async with asyncio.timeout(10):
            with suppress(OSError):
                while True:
                    _, writer = await asyncio.open_connection("127.0.0.1", cluster[owner].port)
                    writer.close()
        reply = await idle.call("pid")
        assert reply.status == 200, (reply.messages, errors_of(cluster))
        assert reply.text != str(pid)
        assert (await running).text == "slept"


async def test_a_node_that_ends_while_it_renews_its_lease_gives_it_up(tmp_path: Path) -> None:
    """Its record must not look like that of a killed node: `status` would fail, and a restart would wait."""
    async with engine_nodes(tmp_path, 2, ttl=30.0) as cluster:
        cluster.proxies[1].delay = 1.5  # the renewal of the drain is on its way when the node ends
        await asyncio.to_thread(cluster[1].end)
        report, code = await status(cluster)
        assert [(node["name"], node["state"]) for node in report["nodes"]] == [("a", "live"), ("b", "ended")]
        assert code == 0
        cluster.proxies[1].delay = 0
        cluster[1].start()
        await cluster[1].ready(cluster.nodes.http, 15)
        assert sorted((await cluster.state(0))["nodes"]) == ["a", "b"]


async def test_a_node_with_another_configuration_claims_nothing_from_its_start_on(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 2, ttl=12.0, gateway={"profiles": {"other": {}}}) as cluster:
        await placed(cluster)  # the data of the engine is not new any more
        file = tmp_path / "other.json"
        file.write_text(cluster.file.read_text().replace('"drain": 5', '"drain": 6'))
        [port] = free_ports(1)
        node = cluster.node("c", port, cluster.engine.port, file=file)
        cluster.nodes.nodes.append(node)
        node.start()
        try:
            await until(lambda: listens(port), 30)
            client = await cluster.nodes.caller(2, modern=True, path="/mcp/other")
            assert (await client.call("pid")).status == 200
            report, code = await status(cluster)
        finally:
            await asyncio.to_thread(node.end)
            cluster.nodes.nodes.remove(node)
        assert {row["node"] for row in report["owners"]} <= {"a", "b"}
        assert {node["name"]: (node["state"], node["drift"]) for node in report["nodes"]} == {
            "a": ("live", []),
            "b": ("live", []),
            "c": ("not ready", ["configuration"]),
        }
        assert code == 1


async def test_a_node_that_differs_claims_nothing_after_the_engine_was_gone_for_longer_than_a_lease(
    tmp_path: Path,
) -> None:
    """It is the first node that reaches the engine again."""
    async with engine_nodes(tmp_path, 2) as cluster:
        _, pid, client = await placed(cluster)
        file = tmp_path / "other.json"
        file.write_text(cluster.file.read_text().replace('"drain": 5', '"drain": 6'))
        [port] = free_ports(1)
        node = cluster.node("c", port, cluster.engine.port, file=file)
        cluster.nodes.nodes.append(node)
        node.start()
        try:
            await until(lambda: listens(port), 30)
            await joined(cluster, 2, 3)
            for proxy in cluster.proxies:
                proxy.cut()
            cluster.engine.kill()
            await until(lambda: not alive(pid), TTL + 10)
            await asyncio.sleep(TTL)  # the leases of all nodes end
            await cluster.engine.start()
            async with asyncio.timeout(30):
                while (await cluster.state(2))["lease"] is None:
                    await asyncio.sleep(0.02)
            with suppress(TimeoutError):
                async with asyncio.timeout(TTL / 2):  # after `TTL` it is the only node
                    await first_answer(cluster.nodes.through(client, 2))
            state = await cluster.state(2)
            assert state["owned"] == 0
            assert state["problems"] == ["another configuration than the nodes a, b"]
            for proxy in cluster.proxies:
                proxy.heal()
            await first_answer(client)
            assert (await cluster.state(2))["owned"] == 0
        finally:
            await asyncio.to_thread(node.end)
            cluster.nodes.nodes.remove(node)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_a_node_is_ready_without_the_engine_although_a_server_that_runs_once_is_not(
    tmp_path: Path,
) -> None:
    """Otherwise a balancer takes all nodes out at once."""
    servers = {
        "lab": lab_entry(tools=["echo"]),
        "once": lab_entry(tools=["pid"], settings={"placement": "cluster"}),
    }
    async with engine_nodes(tmp_path, 2, servers=servers) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        pid = int((await client.call("pid")).text)
        cluster.engine.kill()
        await until(lambda: not alive(pid), TTL + 10)
        calls = [asyncio.create_task(cluster.nodes.through(client, number).call("pid")) for number in (0, 1)]
        while not all(call.done() for call in calls):  # both nodes look for a node that runs it
            for node in cluster.nodes.nodes:
                async with cluster.nodes.http.get(node.base + "/ready") as response:
                    assert response.status == 200, await response.text()
        assert (await client.call("echo", {"text": "x"})).status == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--node", "a b/.."), "is no name of a node"),
        (("--node", "c", "--address", "c.internal"), "must be a URL such as https://"),
    ],
)
async def test_a_name_or_address_that_other_nodes_cannot_use_is_refused_at_once(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    async with engine_nodes(tmp_path, 1) as cluster:
        [port] = free_ports(1)
        node = cluster.node("c", port, cluster.engine.port, words=words)
        node.start()
        assert await asyncio.to_thread(node.process.wait, 20) == 2
        assert said in node.errors.read_text()


async def test_a_watchdog_that_is_killed_ends_the_lease_and_is_replaced(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 1) as cluster:
        _, pid, client = await placed(cluster)
        [watchdog] = [
            int(one.name)
            for one in Path("/proc").iterdir()
            if one.name.isdigit() and _is_watchdog(one, cluster[0].process.pid)
        ]
        os.kill(watchdog, signal.SIGKILL)
        await until(lambda: not alive(pid), 20)
        async with asyncio.timeout(30):
            while (reply := await client.call("pid")).status != 200 or reply.result.get("isError"):
                await asyncio.sleep(0.05)
        assert int(reply.text) != pid


def _is_watchdog(process: Path, parent: int) -> bool:
    try:
        words = (process / "cmdline").read_bytes()
        status = (process / "stat").read_text()
    except OSError:
        return False
    return b"watchdog.py" in words and int(status.rpartition(")")[2].split()[1]) == parent


async def test_a_node_that_joins_while_another_one_is_prepared_is_used_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates are read before a node is used; meanwhile others join."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(config: HostConfig, url: str) -> Any:
        begun.set()
        await go_on.wait()
        return await peer_tls(config, url)

    monkeypatch.setattr("mooring.cluster.engine_nodes.peer_tls", slow)
    monkeypatch.setenv("NODE_KEY", KEY)
    servers = {"lab": lab_entry(tools=["echo"])}
    async with engine_nodes(tmp_path, 1, servers=servers) as cluster, AsyncExitStack() as stack:
        mine, port = free_ports(2)
        host = await stack.enter_async_context(Host.from_config(cluster.file))
        options = {"--style": "raw", "--discovery": False, "--sse": False, "--no-lock": True}
        nodes = nodes_of_engine(host, cluster.engine.url, "c", None, ("127.0.0.1", mine), options)
        assert nodes is not None
        await stack.enter_async_context(serve_http(host, "127.0.0.1", mine, cluster=nodes))
        await asyncio.wait_for(begun.wait(), 20)
        late = cluster.node("b", port, cluster.engine.port)
        stack.push_async_callback(asyncio.to_thread, late.end)
        late.start()
        await until(lambda: set(nodes.coordinator.members) == {"a", "b", "c"}, 60)
        go_on.set()

        def states() -> set[str]:
            return {str(one["state"]) for one in nodes.document()["nodes"].values()}

        await until(lambda: states() == {"here", "up"}, 30)
