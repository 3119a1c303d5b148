"""Nodes of a fixed table: any node answers any client, because it forwards what another one keeps."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster.lab import (
    KEY,
    Nodes,
    acquainted,
    free_ports,
    lab_entry,
    running,
    serve_words,
    static_node,
    static_nodes,
    written,
)
from tests.cluster.test_workers import library
from tests.gateway.test_reverse import ABLE, ACCEPTED, FIXTURE, QUESTION, answering
from tests.lab.caller import soon
from tests.lab.wait import until

pytestmark = [pytest.mark.anyio, pytest.mark.cluster]


async def test_a_session_is_answered_by_its_owner_through_every_node(tmp_path: Path) -> None:
    async with static_nodes(tmp_path) as nodes:
        pids = set[str]()
        for owner in range(3):
            client = await nodes.caller(owner)
            answers = {(await nodes.through(client, other).call("pid")).text for other in range(3)}
            assert len(answers) == 1  # the child process of one node, whichever was asked
            pids |= answers
        assert len(pids) == 3
        # A session that is ended through another node is ended.
        client = await nodes.caller(0)
        headers = {"Mcp-Session-Id": str(client.session)}
        async with nodes.http.delete(nodes[1].base + "/mcp", headers=headers) as response:
            assert response.status == 200
        assert [(await nodes.through(client, one).call("pid")).status for one in range(3)] == [404] * 3


async def test_streams_questions_and_large_bodies_pass_through_another_node(tmp_path: Path) -> None:
    servers = {
        "fixture": {"command": sys.executable, "args": [str(FIXTURE), "stdio", "legacy"]},
        "lab": lab_entry(tools=["echo", "sleep", "big", "grow"], progress=True),
    }
    async with static_nodes(tmp_path, 2, servers=servers) as nodes:
        here = await nodes.caller(0, capabilities=ABLE)
        there = nodes.through(here, 1)
        _, answer = await answering(there, "test_elicitation", ACCEPTED)
        assert answer["result"]["content"][0]["text"].startswith("User response: action=accept")
        # A 2026 client is asked by a result, and answers another node.
        modern = await nodes.caller(0, modern=True, capabilities=ABLE)
        asked = (await modern.call("test_elicitation", QUESTION)).result
        [key] = asked["inputRequests"]
        more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
        reply = await nodes.through(modern, 1).call("test_elicitation", QUESTION, **more)
        assert reply.text.startswith("User response: action=accept"), reply.last
        params = {"name": "sleep", "arguments": {"seconds": 0.2}, "_meta": {"progressToken": "p"}}
        messages = (await there.ask("tools/call", params)).messages
        assert [one["params"]["progressToken"] for one in messages[:-1]] == ["p"] * (len(messages) - 1)
        assert len(messages) > 2
        body, headers = there.message(
            "tools/call", {"name": "echo", "arguments": {"text": "x" * 3_000_000}}, 9
        )
        data = BytesIO(json.dumps(body).encode())
        async with nodes.http.post(there.url, data=data, headers=headers) as response:
            assert len((await response.json())["result"]["content"][0]["text"]) == 3_000_000
        assert len((await there.call("big", {"size": 8_000_000})).text) == 8_000_000
        async with there.standing() as notices:
            await here.call("grow", {"name": "more"})
            assert (await soon(notices))["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_change_in_the_copy_of_one_node_is_announced_to_subscribers_of_all(
    tmp_path: Path, era: str
) -> None:
    servers = {"lib": library(era=era, resources={"memo:///a": "old"})}
    async with static_nodes(tmp_path, servers=servers) as nodes:
        await acquainted(nodes)
        clients = [await nodes.caller(number) for number in range(3)]
        async with clients[1].standing() as one, clients[2].standing() as two:
            for client in clients[1:]:
                assert (await client.ask("resources/subscribe", {"uri": "memo:///a"})).result == {}
            await clients[0].call("touch", {"uri": "memo:///a", "text": "new"})
            for notices in (one, two):
                said = await soon(notices)
                assert said["method"] == "notifications/resources/updated"
                assert said["params"]["uri"] == "memo:///a"
            await clients[1].ask("resources/unsubscribe", {"uri": "memo:///a"})
            await clients[0].call("touch", {"uri": "memo:///a", "text": "newer"})
            assert (await soon(two))["method"] == "notifications/resources/updated"


async def test_a_client_that_leaves_ends_its_call_on_the_owner(tmp_path: Path) -> None:
    log = tmp_path / "wire"
    servers = {"lab": lab_entry(tools=["sleep"], log=str(log))}
    async with static_nodes(tmp_path, 2, servers=servers) as nodes:
        client = nodes.through(await nodes.caller(0), 1)
        call = asyncio.create_task(client.call("sleep", {"seconds": 50}))
        await until(lambda: "tools/call" in log.read_text(), 20)
        call.cancel()
        await until(lambda: "notifications/cancelled" in log.read_text(), 20)


async def test_the_owner_checks_the_token_and_logs_the_address_of_the_client(tmp_path: Path) -> None:
    names = ("ana", "bob")
    gateway = {
        "tokens": [{"name": name, "token": "${file:" + str(tmp_path / name) + "}"} for name in names],
        "access_log": str(tmp_path / "access.log"),
        "forwarded": {"proxies": ["127.0.0.0/8"]},
    }
    for name in names:
        (tmp_path / name).write_text(f"the-long-token-of-{name}")
    async with static_nodes(tmp_path, 2, gateway=gateway) as nodes:
        ana = await nodes.caller(0, token="the-long-token-of-ana")
        there = nodes.through(ana, 1)
        there.headers["X-Forwarded-For"] = "203.0.113.9"
        assert (await there.call("echo", {"text": "hi"})).text == "hi"
        thief = nodes.through(ana, 1)
        for token, status in (("the-long-token-of-bob", 404), ("no-token-of-this-gateway", 401)):
            thief.headers["Authorization"] = f"Bearer {token}"
            assert (await thief.call("echo", {"text": "hi"})).status == status
        del thief.headers["Authorization"]
        assert (await thief.call("echo", {"text": "hi"})).status == 401
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    calls = [line for line in lines if line.get("tool") == "echo"]
    assert [(one["remote"], one["principal"]) for one in calls] == [("203.0.113.9", "token:ana")]
    assert len([line for line in lines if line["status"] in (401, 404)]) == 3  # each once, by the owner


async def test_a_killed_owner_is_gone_at_once_and_a_new_start_of_it_knows_nothing(tmp_path: Path) -> None:
    async with static_nodes(tmp_path) as nodes:
        client = await nodes.caller(0)
        others = [await nodes.caller(number) for number in (1, 2)]
        running = asyncio.create_task(nodes.through(client, 1).call("sleep", {"seconds": 50}))
        # The call has reached its owner: another request of the same session is answered there.
        assert (await nodes.through(client, 1).call("pid")).status == 200
        nodes[0].kill()
        async with asyncio.timeout(20):
            assert (await running).status == 502
            assert (await nodes.through(client, 1).call("pid")).status == 404
            assert (await nodes.through(client, 2).ask("tools/list")).status == 404
        for number, other in zip((1, 2), others, strict=True):
            assert (await nodes.through(other, 3 - number).call("pid")).status == 200
        nodes[0].start()
        await nodes[0].ready(nodes.http)
        assert [(await nodes.through(client, one).call("pid")).status for one in range(3)] == [404] * 3
        assert (await nodes.caller(0)).session


async def test_a_stopped_owner_ends_no_call_early_and_holds_none_up_forever(tmp_path: Path) -> None:
    async with static_nodes(tmp_path, 2) as nodes:
        client = nodes.through(await nodes.caller(0), 1)
        stopped = asyncio.create_task(client.call("sleep", {"seconds": 2}))
        assert (await client.call("pid")).status == 200  # the call before it has arrived
        nodes[0].signal(signal.SIGSTOP)
        await asyncio.sleep(4)  # longer than the call, shorter than the limit
        nodes[0].signal(signal.SIGCONT)
        assert (await stopped).text == "slept"
        nodes[0].signal(signal.SIGSTOP)
        async with asyncio.timeout(40):
            reply = await client.call("pid")
        assert reply.status == 504
        assert "may have had effects" in reply.last["error"]
        assert (await client.call("pid")).status == 503  # nothing was sent
        fine = await nodes.caller(1)
        assert (await fine.call("pid")).status == 200
        nodes[0].signal(signal.SIGCONT)
        async with asyncio.timeout(20):
            while (await client.call("pid")).status != 200:
                await asyncio.sleep(0.1)


async def cluster_of(nodes: Nodes, number: int) -> tuple[int, dict[str, Any]]:
    async with nodes.http.get(nodes[number].base + "/ready") as response:
        return response.status, (await response.json())["cluster"]


async def test_a_node_with_another_key_is_not_ready_and_gets_no_requests_of_others(tmp_path: Path) -> None:
    ports = free_ports(3)
    table = {name: f"http://127.0.0.1:{port}" for name, port in zip("abc", ports, strict=True)}
    settings = {"key": "${NODE_KEY}", "nodes": table}
    file = written(tmp_path, {"lab": lab_entry(tools=["echo", "pid"])}, settings)
    good = [static_node(tmp_path, file, name, port) for name, port in zip("ab", ports, strict=False)]
    odd = static_node(tmp_path, file, "c", ports[2], key=KEY[::-1])
    async with running(good) as nodes:
        odd.start()
        try:
            nodes.nodes.append(odd)
            async with asyncio.timeout(30):
                while True:
                    try:
                        status, cluster = await cluster_of(nodes, 2)
                        if status == 503 and cluster["problems"]:
                            break
                    except (aiohttp.ClientError, OSError, KeyError):
                        pass
                    await asyncio.sleep(0.1)
            assert "gateway.key" in cluster["problems"][0]
            async with asyncio.timeout(30):
                while "another `gateway.key`" not in cluster["nodes"].get("c", {}).get("problem", ""):
                    status, cluster = await cluster_of(nodes, 0)
                    assert status == 200
            client = await nodes.caller(0)
            assert (await nodes.through(client, 1).call("pid")).status == 200
            assert (await nodes.through(client, 2).call("pid")).status == 404
        finally:
            odd.end()


async def test_a_key_is_changed_without_losing_a_session(tmp_path: Path) -> None:
    """Both nodes first learn the new key, then seal with it: one restart each."""
    old, new = KEY, KEY[::-1]
    gateway = {"key": ["${NODE_KEY}", "${OTHER_KEY}"]}
    ports = free_ports(2)
    table = {name: f"http://127.0.0.1:{port}" for name, port in zip("ab", ports, strict=True)}
    file = written(tmp_path, {"lab": lab_entry(tools=["echo", "pid"])}, {**gateway, "nodes": table})
    made = [static_node(tmp_path, file, name, port) for name, port in zip("ab", ports, strict=True)]
    for node, keys in zip(made, ((old, new), (new, old)), strict=True):
        node.environment = dict(zip(("NODE_KEY", "OTHER_KEY"), keys, strict=True))
    async with running(made) as nodes:
        for owner in range(2):
            client = await nodes.caller(owner)
            assert (await nodes.through(client, 1 - owner).call("pid")).status == 200


async def test_a_second_node_with_the_same_name_is_not_started(tmp_path: Path) -> None:
    async with static_nodes(tmp_path, 2) as nodes:
        [port] = free_ports(1)
        words = serve_words(tmp_path / "mcp.json", "--http", f"127.0.0.1:{port}", "--node", "a")
        done = await asyncio.to_thread(
            subprocess.run,
            words,
            env={**nodes[0].environment, "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert "'a' runs already" in done.stderr


@pytest.mark.parametrize(
    ("entry", "gateway", "words", "named"),
    [
        ({"isolation": "session"}, {}, ("--node", "a"), ["isolation: session", "--cluster"]),
        ({"placement": "cluster"}, {}, ("--node", "a"), ["placement: cluster", "--cluster"]),
        ({}, {"profiles": {"few": {"discovery": "auto"}}}, ("--node", "a"), ["profile 'few'", "--cluster"]),
        ({}, {}, ("--node", "a", "--discovery"), ["`--discovery`", "--cluster"]),
        ({}, {}, (), ["--node NAME", "gateway.node"]),
        ({}, {}, ("--node", "z"), ["'z' is not in `gateway.nodes`"]),
        ({}, {"key": []}, ("--node", "a"), ["gateway.key"]),
        ({}, {"nodes": {"a": "http://10.1.2.3:80"}}, ("--node", "a"), ["plain HTTP", "gateway.plain_nodes"]),
        (
            {},
            {"nodes": {"a": "http://127.0.0.1:80", "b": "HTTP://127.0.0.1/", "c": "http://127.0.0.1:1"}},
            ("--node", "c"),
            ["gateway.nodes: nodes 'a' and 'b' have the same URL", "Give each node its own"],
        ),
        (
            {},
            {"key": "${MISSING_KEY}"},
            ("--node", "a"),
            ["gateway.key: no value for ${MISSING_KEY}", "Set the environment variable MISSING_KEY"],
        ),
    ],
)
async def test_what_nodes_without_an_engine_cannot_keep_is_refused_at_the_start(
    tmp_path: Path, entry: dict[str, Any], gateway: dict[str, Any], words: tuple[str, ...], named: list[str]
) -> None:
    settings = {"key": "${NODE_KEY}", "nodes": {"a": "http://127.0.0.1:1"}, **gateway}
    file = written(tmp_path, {"lab": lab_entry(settings=entry)}, settings)
    done = await asyncio.to_thread(
        subprocess.run,
        serve_words(file, "--http", "127.0.0.1:0", *words),
        env={"NODE_KEY": KEY, "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert all(word in done.stderr for word in named), done.stderr


async def test_a_node_that_shuts_down_passes_requests_without_a_session_on(tmp_path: Path) -> None:
    log = tmp_path / "wire"
    servers = {"lab": lab_entry(tools=["echo", "sleep"], log=str(log))}
    async with static_nodes(tmp_path, 2, servers=servers) as nodes:
        client = await nodes.caller(0, modern=True)
        # A running call, so that draining takes a moment.
        held = asyncio.create_task(nodes.through(client, 0).call("sleep", {"seconds": 3}))
        await until(lambda: "tools/call" in log.read_text(), 20)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as kept:
            client.http = kept
            assert (await client.call("echo", {"text": "before"})).text == "before"
            nodes[0].signal(signal.SIGTERM)
            answers = list[str]()
            for number in range(50):
                try:
                    answers.append((await client.call("echo", {"text": str(number)})).text)
                except aiohttp.ClientError:
                    break  # the port is closed: a load balancer takes another node
            assert answers == [str(number) for number in range(len(answers))]
            assert answers
        assert (await held).text == "slept"
