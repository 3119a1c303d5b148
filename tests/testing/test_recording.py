"""Recording and replay of real traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mooring import ConfigError, Host, HostConfig, ServerConfig, ServerError, SyncHost
from mooring.testing import FakeServer, Recorder, Replay
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio


async def record(tape: Path, *servers: ServerConfig, **options: Any) -> None:
    config = HostConfig(servers=servers)
    with Recorder(tape, config, **options):
        async with Host(config, lock=False) as host:
            await host.ready(10)
            await host.call("mcp_lab_echo", {"text": "first", "password": "hunter22"})
            await host.call("mcp_lab_count_lists")
            await host.call("mcp_lab_refuse")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_was_recorded_is_played_again_without_the_server(tmp_path: Path, era: str) -> None:
    tape = tmp_path / "tape.jsonl"
    await record(tape, lab_server(tools=["echo", "count_lists", "refuse"], era=era))
    async with Replay(tape) as replay, Host(replay.servers, lock=False) as host:
        await host.ready(10)
        assert [status.state for status in host.status()] == ["connected"]
        assert {tool.remote_name for tool in host.catalog.tools.values()} == {"echo", "count_lists", "refuse"}
        echoed = await host.call("mcp_lab_echo", {"text": "first", "password": "anything"})
        assert (echoed.text, echoed.structured) == ("first", {"text": "first"})
        assert isinstance((await host.call("mcp_lab_refuse")).error, ServerError)
        strange = await host.call("mcp_lab_echo", {"text": "never asked"})
        assert strange.is_error
        assert "was not recorded" in strange.text


async def test_answers_come_in_the_order_of_then_and_the_last_one_stays(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    async with FakeServer("count") as server:
        numbers = iter(range(1, 9))
        server.define({"name": "next", "inputSchema": {"type": "object"}}, lambda _: f"{next(numbers)}")
        with Recorder(tape):
            async with Host([server.http()], lock=False) as host:
                for _ in range(2):
                    await host.call("mcp_count_next")
    async with Replay(tape) as replay, Host(replay.servers, lock=False) as host:
        assert [(await host.call("mcp_count_next")).text for _ in range(3)] == ["1", "2", "2"]


async def test_a_tape_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "s3cr3t-of-the-lab")
    tape = tmp_path / "tape.jsonl"
    server = lab_server(
        tools=["echo", "count_lists", "refuse", "env"], settings={"env": {"KEY": "${LAB_KEY}"}}
    )
    config = HostConfig(servers=(server,))
    with Recorder(tape, config, secrets=["told-by-hand"]):
        async with Host(config, lock=False) as host:
            await host.ready(10)
            assert "s3cr3t-of-the-lab" in (await host.call("mcp_lab_env", check=True)).text
            await host.call("mcp_lab_echo", {"text": "told-by-hand", "api-key": "sk-123"})
    text = tape.read_text()
    assert "***" in text
    assert not [secret for secret in ("s3cr3t-of-the-lab", "told-by-hand", "sk-123") if secret in text]
    assert all(json.loads(line)["server"] == "lab" for line in text.splitlines())


async def test_nothing_is_recorded_after_the_end(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    await record(tape, lab_server(tools=["echo", "count_lists", "refuse"]))
    size = tape.stat().st_size
    async with Host([lab_server()], lock=False) as host:
        await host.call("mcp_lab_echo", {"text": "x"}, check=True)
    assert tape.stat().st_size == size


def test_a_synchronous_agent_is_tested_offline(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with Recorder(tape), SyncHost([lab_server()], lock=False) as host:
        host.call("mcp_lab_echo", {"text": "hi"}, check=True)
    with Replay(tape) as replay, SyncHost(replay.servers, lock=False) as host:
        assert host.call("mcp_lab_echo", {"text": "hi"}, check=True).text == "hi"


@pytest.mark.parametrize("text", ["{", "[]", '{"server": "x"}'])
def test_a_damaged_tape_is_refused_by_line(tmp_path: Path, text: str) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_text(text + "\n")
    with pytest.raises(ConfigError, match=r"tape\.jsonl: line 1: is not a recorded exchange; record again"):
        Replay(tape)


def test_a_missing_tape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Replay(tmp_path / "none.jsonl")
