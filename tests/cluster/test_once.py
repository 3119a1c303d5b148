"""Servers with `placement: cluster`: one instance for all nodes, with a real engine."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.engine_lab import TTL, EngineCluster, alive, engine_nodes, errors_of, joined, until
from tests.cluster.lab import free_ports, lab_entry
from tests.gateway.test_reverse import ABLE, ACCEPTED, FIXTURE, QUESTION, answering
from tests.lab.caller import Caller, soon

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(180)]


def once(**script: Any) -> dict[str, Any]:
    tools = {"tools": ["echo", "pid", "sleep"], **script}
    return {"once": lab_entry(**tools, settings={"placement": "cluster"})}


async def callers(cluster: EngineCluster, *, modern: bool = True) -> list[Caller]:
    """One client of each node; each is ready to call."""
    return [await cluster.nodes.caller(number, modern=modern) for number in range(len(cluster.nodes))]


async def runner(cluster: EngineCluster) -> int:
    """The number of the node that runs the server."""
    owned = [(await cluster.state(number))["owned"] for number in range(len(cluster.nodes))]
    assert sorted(owned)[-1] == 1, owned
    assert sum(owned) == 1, owned
    return owned.index(1)


async def test_the_server_runs_once_and_clients_of_both_eras_on_all_nodes_use_it(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, servers=once()) as cluster:
        pids: set[str] = set()
        for modern in (True, False):
            for client in await callers(cluster, modern=modern):
                reply = await client.call("pid")
                assert reply.status == 200, (reply.messages, errors_of(cluster))
                pids.add(reply.text)
                echoed = await client.call("echo", {"text": "é" * 10})
                assert echoed.text == "é" * 10
        assert len(pids) == 1, (pids, errors_of(cluster))
        assert alive(int(pids.pop()))


async def test_a_killed_node_loses_the_server_to_one_other(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, servers=once()) as cluster:
        clients = await callers(cluster)
        pid = int((await clients[0].call("pid")).text)
        owner = await runner(cluster)
        cluster[owner].kill()
        others = [clients[number] for number in range(3) if number != owner]
        replies = await asyncio.gather(*(one.call("pid") for one in others))
        assert [reply.status for reply in replies] == [200, 200], (replies, errors_of(cluster))
        assert len({reply.text for reply in replies}) == 1, (replies, errors_of(cluster))
        assert int(replies[0].text) != pid
        assert not alive(pid)


async def test_a_stopped_node_is_fenced_before_another_one_runs_the_server(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, servers=once()) as cluster:
        clients = await callers(cluster)
        pid = int((await clients[0].call("pid")).text)
        owner = await runner(cluster)
        cluster[owner].signal(signal.SIGSTOP)
        other = clients[(owner + 1) % 3]
        async with asyncio.timeout(TTL + 40):
            while True:
                try:
                    async with asyncio.timeout(2):
                        reply = await other.call("pid")
                except TimeoutError:
                    continue
                if reply.status == 200 and not reply.result.get("isError"):
                    break
                await asyncio.sleep(0.05)
        assert int(reply.text) != pid, errors_of(cluster)
        assert not alive(pid)
        cluster[owner].signal(signal.SIGCONT)
        await joined(cluster, owner, 3)
        again = await clients[owner].call("pid")
        assert again.text == reply.text, (again.messages, errors_of(cluster))


async def test_a_node_cut_off_from_the_engine_gives_the_server_up_before_the_takeover(
    tmp_path: Path,
) -> None:
    async with engine_nodes(tmp_path, servers=once()) as cluster:
        clients = await callers(cluster)
        pid = int((await clients[0].call("pid")).text)
        owner = await runner(cluster)
        cluster.proxies[owner].cut()
        await until(lambda: not alive(pid), TTL + 10)
        reply = await clients[(owner + 1) % 3].call("pid")
        assert reply.status == 200, (reply.messages, errors_of(cluster))
        assert not reply.result.get("isError"), (reply.messages, errors_of(cluster))
        assert int(reply.text) != pid


async def test_a_node_that_ends_in_order_hands_the_server_on_without_a_failed_call(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, servers=once(), ttl=12.0) as cluster:
        clients = await callers(cluster)
        pid = (await clients[0].call("pid")).text
        owner = await runner(cluster)
        others = [clients[number] for number in range(3) if number != owner]
        ending = asyncio.create_task(asyncio.to_thread(cluster[owner].end))
        seen = {pid}
        while not ending.done() or len(seen) < 2:
            for one in others:
                reply = await one.call("pid")
                assert reply.status == 200, (reply.messages, errors_of(cluster))
                assert not reply.result.get("isError"), (reply.messages, errors_of(cluster))
                seen.add(reply.text)
            assert len(seen) <= 2, seen
        assert not alive(int(pid))
        assert await ending == 0
        said = errors_of(cluster)
        assert "HTTP 421" not in said, said


async def test_questions_and_changes_of_the_server_reach_clients_of_other_nodes(tmp_path: Path) -> None:
    servers = {
        "asks": {
            "command": sys.executable,
            "args": [str(FIXTURE), "stdio", "legacy"],
            "placement": "cluster",
        },
        "grows": lab_entry(tools=["grow"], settings={"placement": "cluster"}),
    }
    async with engine_nodes(tmp_path, 2, servers=servers) as cluster:
        for number in range(2):
            client = await cluster.nodes.caller(number, capabilities=ABLE)
            _, answer = await answering(client, "test_elicitation", ACCEPTED)
            said = answer["result"]["content"][0]["text"]
            assert said.startswith("User response: action=accept"), (answer, errors_of(cluster))
            modern = await cluster.nodes.caller(number, modern=True, capabilities=ABLE)
            asked = (await modern.call("test_elicitation", QUESTION)).result
            [key] = asked["inputRequests"]
            more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
            reply = await cluster.nodes.through(modern, 1 - number).call("test_elicitation", QUESTION, **more)
            assert reply.text.startswith("User response: action=accept"), (reply.last, errors_of(cluster))
        first, second = [await cluster.nodes.caller(number) for number in range(2)]
        async with first.standing() as one, second.standing() as two:
            await first.call("grow", {"name": "more"})
            for notices in (one, two):
                assert (await soon(notices))["method"] == "notifications/tools/list_changed"


async def test_the_first_change_after_a_node_joined_reaches_its_clients(tmp_path: Path) -> None:
    servers = {"grows": lab_entry(tools=["grow"], settings={"placement": "cluster"})}
    async with engine_nodes(tmp_path, 1, servers=servers) as cluster, AsyncExitStack() as stack:
        first = await cluster.nodes.caller(0, modern=True)
        assert await first.tools() == ["grow"]
        [port] = free_ports(1)
        late = cluster.node("b", port, cluster.engine.port)
        stack.push_async_callback(asyncio.to_thread, late.end)
        late.start()
        cluster.nodes.nodes.append(late)
        await late.ready(cluster.nodes.http)
        second = await cluster.nodes.caller(1, modern=True)
        assert await second.tools() == ["grow"]
        async with second.listening(toolsListChanged=True) as notices:
            await first.call("grow", {"name": "more"})
            assert (await soon(notices))["method"] == "notifications/tools/list_changed", errors_of(cluster)
        assert await second.tools() == ["grow", "more"]


async def test_settings_that_contradict_it_are_refused_with_a_reason(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path, 1, servers=once()) as cluster:
        text = cluster.file.read_text()
        for change, expected in (
            ('"placement": "cluster", "isolation": "session"', "which contradict each other"),
            ('"placement": "cluster", "start": "eager"', "remove `start: eager`"),
        ):
            file = tmp_path / "other.json"
            file.write_text(text.replace('"placement": "cluster"', change))
            [port] = free_ports(1)
            node = cluster.node("b", port, cluster.engine.port, file=file)
            node.start()
            assert await asyncio.to_thread(node.process.wait, 60) == 2
            assert expected in node.errors.read_text()
