"""Nodes behind a load balancer: nginx with the configuration of the documentation, and a rolling restart."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest

from tests.cluster.lab import free_ports, fresh, lab_entry, static_nodes
from tests.lab.caller import Caller
from tests.lab.wait import until

pytestmark = [pytest.mark.anyio, pytest.mark.cluster]
DOCS = Path(__file__).parents[2] / "docs" / "cluster.md"


def documented(ports: list[int], listen: int, folder: Path) -> str:
    """The example of the documentation with other addresses, as a whole file."""
    found = re.search(r"```nginx\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    servers = "".join(f"    server 127.0.0.1:{port};\n" for port in ports)
    text = re.sub(r"(    server 10\.\S+;\n)+", servers, found[1])
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{listen};")
    return (
        f"pid {folder}/nginx.pid; daemon off; error_log {folder}/nginx.log; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n{text} }}\n"
    )


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
async def test_the_documented_nginx_serves_sessions_of_all_nodes(tmp_path: Path) -> None:
    gateway = {"allowed_hosts": ["127.0.0.1"]}
    async with static_nodes(tmp_path, 3, gateway=gateway) as nodes, fresh() as http:
        [listen] = free_ports(1)
        config = tmp_path / "nginx.conf"
        config.write_text(documented([node.port for node in nodes.nodes], listen, tmp_path))
        balancer = await asyncio.to_thread(
            subprocess.Popen, ["nginx", "-p", str(tmp_path), "-c", str(config)], stderr=subprocess.DEVNULL
        )
        try:
            await until(lambda: (tmp_path / "nginx.pid").exists(), 20)
            owners = set[str]()
            for _ in range(6):
                client = Caller(http, f"http://127.0.0.1:{listen}/mcp", modern=False)
                await client.begin()
                answers = {(await client.call("pid")).text for _ in range(6)}
                assert len(answers) == 1
                owners |= answers
            assert len(owners) > 1
            nodes[0].kill()
            modern = Caller(http, f"http://127.0.0.1:{listen}/mcp", modern=True)
            for number in range(12):  # a node that is gone is passed over
                assert (await modern.call("echo", {"text": str(number)})).text == str(number)
        finally:
            balancer.terminate()
            await asyncio.to_thread(balancer.wait, 20)


@pytest.mark.timeout(170)
async def test_no_call_of_2026_fails_while_all_nodes_are_restarted(tmp_path: Path) -> None:
    """The clients do what a balancer does: a connection that is refused goes to the next node."""
    effects = tmp_path / "effects"
    servers = {"lab": lab_entry(tools=["effect"], effects=str(effects))}
    async with static_nodes(tmp_path, 3, servers=servers) as nodes, fresh() as http:
        numbers, turns, ending = itertools.count(), itertools.count(), asyncio.Event()
        failed, done = list[str](), list[int]()

        async def call(number: int) -> None:
            while True:
                node = nodes[next(turns) % 3]
                client = Caller(http, node.base + "/mcp", modern=True)
                try:
                    reply = await client.call("effect", {"n": number})
                except aiohttp.ClientConnectorError:
                    continue  # refused: nothing was sent
                except aiohttp.ClientError as problem:
                    failed.append(repr(problem))
                    return
                if reply.status != 200 or "result" not in reply.last or reply.text != f"done {number}":
                    failed.append(f"{reply.status} {reply.last}")
                done.append(number)
                return

        async def work() -> None:
            while not ending.is_set():
                await call(next(numbers))
                await asyncio.sleep(0.01)

        working = [asyncio.create_task(work()) for _ in range(6)]
        for node in nodes.nodes:
            before = len(done)
            await until(lambda before=before: len(done) > before + 20 or bool(failed), 60)
            assert await asyncio.to_thread(node.end) == 0
            node.start()
            await node.ready(nodes.http)
        ending.set()
        await asyncio.gather(*working)
        assert not failed
        written = effects.read_text().split()
        assert sorted(map(int, written)) == sorted(done)  # each once
