"""`serve --workers`: every connection may reach another process, and clients notice nothing of that."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

import mooring
from mooring.gateway.tokens import TokenFile
from tests.cluster.lab import Nodes, acquainted, fresh, lab_entry, workers, written
from tests.gateway.test_operation import command, configured, until_ready
from tests.gateway.test_reverse import ABLE, ACCEPTED, FIXTURE, QUESTION, answering
from tests.lab.caller import Caller, soon
from tests.lab.http import HttpLab
from tests.lab.libraries import SCRIPT as LIBRARY
from tests.lab.wait import until

pytestmark = [pytest.mark.anyio, pytest.mark.cluster]

MANY = 16
"""Requests on connections of their own. Of 2**15 runs, one would reach the same of two workers with all."""
TOKENS = {
    "tokens": [{"name": name, "token": "${" + name.upper() + "}"} for name in ("ana", "bob", "eve", "kim")]
}
SECRETS = {name.upper(): f"the-long-token-of-{name}" for name in ("ana", "bob", "eve", "kim")}


def library(**script: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", str(LIBRARY), json.dumps(script)]}


def caller(http: aiohttp.ClientSession, nodes: Nodes, *, modern: bool, token: str | None = None) -> Caller:
    headers = {"Authorization": f"Bearer {SECRETS[token.upper()]}"} if token else {}
    return Caller(http, nodes[0].base + "/mcp", modern=modern, headers=headers)


async def begun(
    http: aiohttp.ClientSession,
    nodes: Nodes,
    *,
    modern: bool,
    token: str | None = None,
    capabilities: dict[str, Any] | None = None,
) -> Caller:
    client = caller(http, nodes, modern=modern, token=token)
    await client.begin(capabilities)
    return client


def worker_pids(nodes: Nodes) -> list[int]:
    found = psutil.Process(nodes[0].process.pid).children()
    return [one.pid for one in found if "mooring" in one.cmdline()]


@pytest.mark.parametrize("modern", [False, True])
async def test_each_client_has_one_private_server_whichever_worker_it_reaches(
    tmp_path: Path, modern: bool
) -> None:
    servers = {"lab": lab_entry(tools=["pid"], settings={"isolation": "session"})}
    async with (
        workers(tmp_path, servers=servers, gateway=TOKENS, environment=SECRETS) as nodes,
        fresh() as http,
    ):
        pids = list[str]()
        for name in ("ana", "bob", "eve", "kim"):
            client = await begun(http, nodes, modern=modern, token=name)
            answers = Counter([(await client.call("pid")).text for _ in range(MANY)])
            assert len(answers) == 1, answers
            pids += answers
        assert len(set(pids)) == 4
        if not modern:  # two sessions of one principal
            again = await begun(http, nodes, modern=False, token="ana")
            assert (await again.call("pid")).text not in pids


@pytest.mark.parametrize("modern", [False, True])
async def test_every_elicitation_comes_back_to_its_call(tmp_path: Path, modern: bool) -> None:
    servers = {"fixture": {"command": sys.executable, "args": [str(FIXTURE), "stdio", "legacy"]}}
    async with workers(tmp_path, servers=servers) as nodes, fresh() as http:
        for _ in range(10):
            client = await begun(http, nodes, modern=modern, capabilities=ABLE)
            if not modern:
                _, answer = await answering(client, "test_elicitation", ACCEPTED)
                assert answer["result"]["content"][0]["text"].startswith("User response: action=accept")
                continue
            first = await client.call("test_elicitation", QUESTION)
            assert "result" in first.last, first.last
            asked = first.result
            [key] = asked["inputRequests"]
            more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
            reply = await client.call("test_elicitation", QUESTION, **more)
            assert reply.text.startswith("User response: action=accept"), reply.last


@pytest.mark.parametrize("modern", [False, True])
async def test_what_a_client_selects_is_in_all_of_its_lists(tmp_path: Path, modern: bool) -> None:
    async with workers(tmp_path, words=("--discovery",)) as nodes, fresh() as http:
        client = await begun(http, nodes, modern=modern)
        assert "echo" not in await client.tools()
        await client.call("tools_select", {"tools": ["echo"]})
        lists = [await client.tools() for _ in range(MANY)]
        assert all("echo" in names for names in lists), lists
        assert (await client.call("echo", {"text": "hi"})).text == "hi"


async def test_the_rate_of_a_client_is_counted_once(tmp_path: Path) -> None:
    gateway = {**TOKENS, "rate": 0.001, "burst": 7}
    async with workers(tmp_path, gateway=gateway, environment=SECRETS) as nodes, fresh() as http:

        async def statuses(name: str) -> Counter[int]:
            client = caller(http, nodes, modern=True, token=name)
            replies = await asyncio.gather(*(client.ask("tools/list") for _ in range(40)))
            return Counter(reply.status for reply in replies)

        for name in ("ana", "bob"):
            assert await statuses(name) == {200: 7, 429: 33}
        assert await statuses("ana") == {429: 40}


async def test_running_requests_of_a_client_are_counted_once_and_those_of_a_dead_worker_not_at_all(
    tmp_path: Path,
) -> None:
    async with workers(tmp_path, gateway={"concurrency": 3}) as nodes, fresh() as http:
        client = caller(http, nodes, modern=True)

        async def call(seconds: float) -> int:
            try:
                return (await client.call("sleep", {"seconds": seconds})).status
            except aiohttp.ClientError:
                return 0

        async with asyncio.timeout(120):
            running = [asyncio.create_task(call(30)) for _ in range(12)]
            refused: set[asyncio.Task[int]] = set()
            while len(refused) < 9:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                refused |= done
                running = [one for one in running if one not in done]
            assert {one.result() for one in refused} == {429}
            assert len(running) == 3
            assert (await client.ask("tools/list")).status == 429
            for pid in worker_pids(nodes):
                psutil.Process(pid).kill()
            assert set(await asyncio.gather(*running)) == {0}
            while True:  # the workers are started again
                try:
                    if (await client.ask("tools/list")).status == 200:
                        break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
            replies = await asyncio.gather(*(call(1) for _ in range(3)))
            assert replies == [200] * 3  # nothing of the dead ones is counted


async def test_sessions_of_a_client_are_limited_over_all_workers_and_the_longest_idle_one_ends(
    tmp_path: Path,
) -> None:
    gateway = {**TOKENS, "client_sessions": 4, "max_sessions": 6}
    async with workers(tmp_path, 3, gateway=gateway, environment=SECRETS) as nodes, fresh() as http:
        mine = [await begun(http, nodes, modern=False, token="ana") for _ in range(7)]
        statuses = [(await client.ask("tools/list")).status for client in mine]
        assert statuses == [404, 404, 404, 200, 200, 200, 200]
        # Two more fit in total. Then ana, who has more than half of them, loses the longest idle one.
        others = [await begun(http, nodes, modern=False, token="bob") for _ in range(3)]
        assert all(client.session for client in others)
        statuses = [(await client.ask("tools/list")).status for client in (*mine[3:], *others)]
        assert statuses == [404, 200, 200, 200, 200, 200, 200]
        # No client has more than half of them now: bob loses one of his own.
        others.append(await begun(http, nodes, modern=False, token="bob"))
        statuses = [(await client.ask("tools/list")).status for client in (*mine[4:], *others)]
        assert statuses == [200, 200, 200, 404, 200, 200, 200]


async def test_a_server_gets_no_more_calls_at_once_than_it_may_have(tmp_path: Path) -> None:
    peak, now = 0, 0

    async with HttpLab(era="modern") as lab:

        async def slow(*_: Any) -> None:
            nonlocal peak, now
            now += 1
            peak = max(peak, now)
            await asyncio.sleep(0.05)  # so that calls overlap if they may
            now -= 1

        lab.faults["tools/call"] = slow
        entry = {"url": lab.url, "max_concurrency": 2}
        async with workers(tmp_path, 3, servers={"lab": entry}) as nodes, fresh() as http:
            client = caller(http, nodes, modern=True)
            replies = await asyncio.gather(*(client.call("echo", {"text": str(n)}) for n in range(30)))
            assert [reply.text for reply in replies] == [str(n) for n in range(30)]
            assert peak == 2


async def test_metrics_are_the_sums_of_all_workers_also_of_those_that_ended(tmp_path: Path) -> None:
    async with workers(tmp_path, 3) as nodes, fresh() as http:

        async def counted(name: str) -> int:
            async with http.get(nodes[0].base + "/metrics") as response:
                assert response.status == 200
                found = re.search(re.escape(name) + r" (\d+)$", await response.text(), re.MULTILINE)
                return int(found[1]) if found else 0

        calls = 'mooring_tool_calls_total{server="lab",tool="echo",outcome="ok"}'
        client = await begun(http, nodes, modern=False)
        for number in range(1, 4):
            modern = caller(http, nodes, modern=True)
            calls_made = [one.call("echo", {"text": "x"}) for one in (client, modern) for _ in range(10)]
            assert [reply.text for reply in await asyncio.gather(*calls_made)] == ["x"] * 20
            assert await counted(calls) == 20 * number
        sessions = [await begun(http, nodes, modern=False) for _ in range(9)]
        assert len(sessions) == 9
        assert await counted("mooring_gateway_sessions") == 10
        assert await counted(calls) == 60
        pids = worker_pids(nodes)
        psutil.Process(pids[0]).kill()
        assert await counted(calls) == 60  # a dead worker breaks nothing
        await until(lambda: len(worker_pids(nodes)) == 3 and pids[0] not in worker_pids(nodes), 30)
        assert await counted(calls) == 60
        modern = caller(http, nodes, modern=True)
        await modern.call("echo", {"text": "x"})
        assert await counted(calls) == 61
        assert await counted(f'mooring_build_info{{version="{mooring.__version__}"}}') == 1


async def test_a_session_gets_its_notifications_and_its_own_updates(tmp_path: Path) -> None:
    servers = {"lib": library(era="legacy", resources={"memo:///a": "old"})}
    async with workers(tmp_path, servers=servers) as nodes, fresh() as http:
        for number in range(6):
            client = await begun(http, nodes, modern=False)
            async with client.standing() as messages:
                assert (await client.ask("resources/subscribe", {"uri": "memo:///a"})).result == {}
                await client.call("touch", {"uri": "memo:///a", "text": str(number)})
                said = await soon(messages)
                assert said["method"] == "notifications/resources/updated"
                read = await client.ask("resources/read", {"uri": "memo:///a"})
                assert read.result["contents"][0]["text"] == str(number)


async def test_a_change_in_one_copy_is_announced_to_the_subscribers_of_all_workers(tmp_path: Path) -> None:
    servers = {"lib": library(era="legacy", resources={"memo:///a": "old"})}
    async with workers(tmp_path, servers=servers) as nodes, fresh() as http, AsyncExitStack() as stack:
        await acquainted(nodes)
        streams = []
        for _ in range(6):  # each on a connection of its own, so on both workers
            client = await begun(http, nodes, modern=False)
            streams.append(await stack.enter_async_context(client.standing()))
            assert (await client.ask("resources/subscribe", {"uri": "memo:///a"})).result == {}
        await client.call("touch", {"uri": "memo:///a", "text": "new"})
        for messages in streams:
            assert (await soon(messages))["method"] == "notifications/resources/updated"


async def test_a_client_of_2024_has_its_stream_and_its_requests_on_any_connection(tmp_path: Path) -> None:
    async with workers(tmp_path, words=("--sse",)) as nodes, fresh() as http:
        for number in range(6):
            async with http.get(nodes[0].base + "/sse") as stream:
                lines = aiter(stream.content)

                async def data(lines: Any = lines) -> str:
                    async with asyncio.timeout(20):
                        while True:
                            line = (await anext(lines)).decode()
                            if line.startswith("data: "):
                                return line[6:].strip()

                where = nodes[0].base + await data()

                async def say(message: dict[str, Any], where: str = where) -> None:
                    async with http.post(where, json={"jsonrpc": "2.0", **message}) as response:
                        assert response.status == 202, await response.text()

                hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old"}}
                await say({"id": 1, "method": "initialize", "params": hello})
                assert "protocolVersion" in json.loads(await data())["result"]
                params = {"name": "echo", "arguments": {"text": str(number)}}
                await say({"id": 2, "method": "tools/call", "params": params})
                assert json.loads(await data())["result"]["content"][0]["text"] == str(number)


async def test_a_killed_worker_is_started_again_and_only_its_sessions_are_gone(tmp_path: Path) -> None:
    servers = {"lab": lab_entry(tools=["pid"], settings={"isolation": "session"})}
    async with (
        workers(tmp_path, servers=servers, gateway=TOKENS, environment=SECRETS) as nodes,
        fresh() as http,
    ):
        clients = [await begun(http, nodes, modern=False, token="ana") for _ in range(12)]
        modern = [caller(http, nodes, modern=True, token=name) for name in ("ana", "bob", "eve", "kim")]
        before = [(await client.call("pid")).text for client in (*clients, *modern)]
        dead = worker_pids(nodes)[0]
        gone = {str(one.pid) for one in psutil.Process(dead).children(recursive=True)}
        psutil.Process(dead).kill()
        # Not only dead: its other threads hold its connections until its parent has waited for it.
        await until(lambda: not psutil.pid_exists(dead), 10)

        async def answer(client: Caller) -> tuple[int, str]:
            while True:
                with suppress(aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                    # Such a connection was in the backlog of the dead worker: the system resets it.
                    reply = await client.call("pid")
                    return reply.status, reply.text if reply.status == 200 else ""

        for client, pid in zip(clients, before, strict=False):
            assert await answer(client) == ((404, "") if pid in gone else (200, pid))
        # Clients without a session wait for the successor of their worker.
        for client, pid in zip(modern, before[len(clients) :], strict=True):
            status, now = await answer(client)
            assert status == 200
            assert (now != pid) == (pid in gone)
        await until(lambda: len(worker_pids(nodes)) == 2, 30)


async def test_a_killed_parent_leaves_no_process_and_no_folder_behind(tmp_path: Path) -> None:
    async with workers(tmp_path) as nodes:
        environment = psutil.Process(worker_pids(nodes)[0]).environ()
        folder = Path(json.loads(environment["MOORING_GATEWAY_WORKER"])["folder"])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(list(folder.glob("*.sock"))) == 2
        children = psutil.Process(nodes[0].process.pid).children(recursive=True)
        nodes[0].process.send_signal(signal.SIGKILL)
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, 30)
        assert not alive
        assert not folder.exists()


async def test_settings_that_workers_do_not_have_are_refused(tmp_path: Path) -> None:
    for settings, gateway, named in (
        ({"placement": "cluster"}, {}, "server 'lab' has `placement: cluster`"),
        ({}, {"nodes": {"a": "http://127.0.0.1:1"}}, "gateway.nodes"),
    ):
        words = ("serve", "--http", "127.0.0.1:0", "--workers", "2")
        file = str(written(tmp_path, {"lab": lab_entry(settings=settings)}, gateway))
        done = await asyncio.to_thread(
            subprocess.run, command("--config", file, *words), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2, done.stderr
        assert named in done.stderr


async def test_workers_share_one_free_port_and_one_document_says_where(tmp_path: Path) -> None:
    words = ("--json", "serve", "--http", "127.0.0.1:0", "--workers", "2")
    serve = command("--config", configured(tmp_path), *words)
    process = await asyncio.to_thread(
        subprocess.Popen, serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        read = await asyncio.to_thread(process.stdout.readline)
        port = int(json.loads(read)["url"].split(":")[2].split("/")[0])
        async with aiohttp.ClientSession() as http:
            await until_ready(http, port, 2)
    finally:
        process.send_signal(signal.SIGTERM)
        rest, said = await asyncio.to_thread(process.communicate, timeout=30)
    assert (rest, said, process.returncode) == ("", "", 0)


def test_workers_are_not_started_on_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serve = ("--json", "serve", "--http", f"127.0.0.1:{taken.getsockname()[1]}", "--workers", "2")
        words = command("--config", configured(tmp_path), *serve)
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2  # as one process
    message = json.loads(done.stdout)["error"]["message"]
    assert message.startswith("Cannot listen on 127.0.0.1:")
    assert "bug" not in done.stderr
    assert done.stderr.count("error:") == 1


async def test_the_admin_api_answers_for_all_workers(tmp_path: Path) -> None:
    token, _ = TokenFile(tmp_path / "tokens.json").create("root", scopes=["admin"])
    gateway = {"token_file": str(tmp_path / "tokens.json")}
    async with workers(tmp_path, gateway=gateway) as nodes, fresh() as http:
        headers = {"Authorization": f"Bearer {token}"}

        async def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            url = f"{nodes[0].base}/admin/v1{path}"
            async with http.request(method, url, headers=headers, json=body) as response:
                return response.status, await response.json()

        clients = [Caller(http, nodes[0].base + "/mcp", modern=False, headers=headers) for _ in range(6)]
        for client in clients:
            await client.begin()
            assert (await client.call("echo", {"text": "x"})).text == "x"
        for _ in range(4):  # whichever worker is asked
            [row] = (await ask("GET", "/servers"))[1]["servers"]
            assert (row["name"], row["state"], row["processes"]) == ("lab", "connected", 2)
            assert len((await ask("GET", "/sessions"))[1]["sessions"]) == 6
            principals = {one["name"]: one for one in (await ask("GET", "/principals"))[1]["principals"]}
            assert [one["sessions"] for one in principals.values()] == [6]
        assert (await ask("POST", "/servers/lab/disable"))[0] == 200
        for client in clients:  # on both workers
            assert "error" in (await client.call("echo", {"text": "x"})).last
        assert (await ask("POST", "/servers/lab/enable"))[0] == 200
        for client in clients:
            assert (await client.call("echo", {"text": "y"})).text == "y"
        listed = (await ask("GET", "/sessions"))[1]["sessions"]
        for row in listed:
            assert (await ask("DELETE", f"/sessions/{row['id']}"))[0] == 200, row
        assert (await ask("GET", "/sessions"))[1]["sessions"] == []
        assert (await ask("DELETE", f"/sessions/{listed[0]['id']}"))[0] == 404
