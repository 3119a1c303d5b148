"""Children, their pipes and their end on uvloop. `make test-uvloop` runs every test there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import ConnectionLost
from tests.lab.program import processes, running
from tests.lab.stdio import COMMAND, cue, lab_server, methods, starts
from tests.lab.wait import until

pytest.importorskip("uvloop")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


async def test_a_child_is_connected_and_called(hosting: Any) -> None:
    assert "uvloop" in type(asyncio.get_running_loop()).__module__
    async with hosting(lab_server(), lab_server("old", era="legacy")) as host:
        assert [status.state for status in host.status()] == ["connected", "connected"]
        calls = [host.call(f"mcp_{name}_echo", {"text": name}) for name in ("lab", "old") for _ in range(50)]
        assert {result.text for result in await asyncio.gather(*calls)} == {"lab", "old"}


async def test_an_answer_of_megabytes_arrives_whole(hosting: Any) -> None:
    async with hosting(lab_server(tools=["big", "echo"])) as host:
        size = 3 * 2**20
        assert len((await host.call("mcp_lab_big", {"size": size}, timeout=30, budget=0)).text) == size
        text = "x" * 2**20
        assert (await host.call("mcp_lab_echo", {"text": text}, timeout=30, budget=0)).text == text


async def test_a_child_that_dies_fails_its_call_with_its_exit_and_comes_back(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["crash", "echo"], log=str(log))) as host:
        result = await host.call("mcp_lab_crash")
        assert isinstance(result.error, ConnectionLost)
        assert "signal 9" in result.text
        assert "crashing on purpose" in result.text
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"
        assert len(starts(log)) == 2


async def test_a_request_that_the_child_never_read_is_sent_again(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    server = lab_server(tools=["say", "echo"], log=str(log), settings={"shutdown_grace": 0.1})
    async with hosting(server) as host:
        deaf = asyncio.create_task(host.call("mcp_lab_say", cue(then="deaf"), timeout=20))
        await until(lambda: "tools/call" in methods(log))
        unread = asyncio.create_task(host.call("mcp_lab_echo", {"text": "x"}, timeout=20))
        await until(lambda: len(host.provider("lab").supervisor.live.channel.waiting) == 3)
        os.kill(starts(log)[0], signal.SIGKILL)
        assert isinstance((await deaf).error, ConnectionLost)
        assert (await unread).text == "x"


async def test_a_cancelled_call_is_cancelled_on_the_wire(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["sleep", "echo"], log=str(log))) as host:
        call = asyncio.create_task(host.call("mcp_lab_sleep", {"seconds": 30}))
        await until(lambda: "tools/call" in methods(log))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: "notifications/cancelled" in methods(log))
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"


@pytest.mark.usefixtures("leaves_nothing")
async def test_closing_ends_stubborn_children_and_their_grandchildren(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    stubborn: dict[str, Any] = {"ignore_sigterm": True, "ignore_eof": True, "spawn_grandchild": "own session"}
    server = lab_server(log=str(log), settings={"shutdown_grace": 0.1}, **stubborn)
    async with hosting(server):
        pids = processes(log)
        assert len(pids) == 2
    assert not any(running(pid) for pid in pids)


def test_the_gateway_serves_its_stdio_on_uvloop(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(
        json.dumps({"mcpServers": {"lab": {"command": COMMAND[0], "args": [*COMMAND[1:], "{}"]}}})
    )
    code = "import sys, uvloop; uvloop.install(); from mooring.cli import main; sys.exit(main())"
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        code,
        "--config",
        str(config),
        "--no-lock",
        "serve",
        "--stdio",
    ]
    initialize = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    call = {"name": "mcp_lab_echo", "arguments": {"text": "over uvloop"}}
    said = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        for message in said:
            gateway.stdin.write(json.dumps(message) + "\n")
        gateway.stdin.flush()
        for line in gateway.stdout:
            answer = json.loads(line)
            if answer.get("id") == 2:
                assert answer["result"]["content"][0]["text"] == "over uvloop"
                break
        else:
            pytest.fail("the gateway gave no answer")
        gateway.stdin.close()
        assert gateway.wait(20) == 0
