"""Configuration applied while running: only changed servers restart, and an invalid file is not applied."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mooring import ConfigApplied, ConfigRejected, Host, HostConfig
from tests.lab.stdio import COMMAND, lab_server, methods, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


def _entry(log: Path, **more: Any) -> dict[str, Any]:
    return {"command": COMMAND[0], "args": [*COMMAND[1:], json.dumps({"log": str(log)})], **more}


def _write(path: Path, servers: dict[str, Any]) -> None:
    """As editors do: a new file in the old one's place."""
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps({"watch": {"enabled": True, "debounce": "50ms"}, "mcpServers": servers}))
    os.replace(fresh, path)


def _states(host: Host) -> dict[str, str]:
    return {status.name: status.state for status in host.status()}


async def test_apply_starts_stops_and_restarts_only_what_differs(tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("keep", "gone", "other", "new")}

    def server(name: str, **settings: Any) -> Any:
        return lab_server(name, log=str(logs[name]), settings=settings)

    async with Host([server("keep"), server("gone"), server("other")]) as host:
        await host.ready(10)
        new = HostConfig(
            servers=(server("keep", deny=["pid"]), server("other", env={"X": "1"}), server("new"))
        )
        plan = await host.apply(new)
        assert [s.name for s in plan.start] == ["new"]
        assert plan.stop == ("gone",)
        assert [s.name for s in plan.restart] == ["other"]
        await host.ready(10)
        await until(lambda: set(_states(host).values()) == {"connected"})
        assert sorted(_states(host)) == ["keep", "new", "other"]
        assert len(starts(logs["keep"])) == 1
        assert len(starts(logs["other"])) == 2
        # Filters of a kept connection hold at once.
        assert "mcp_keep_pid" not in host.catalog.tools
        assert "mcp_keep_echo" in host.catalog.tools
        assert not any(name.startswith("mcp_gone") for name in host.catalog.tools)


@pytest.mark.parametrize("allowed", [30.0, 0.2])
async def test_running_calls_of_a_replaced_server_get_a_limited_time_to_end(
    allowed: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.servers.connection.RETIREMENT", allowed)
    log = tmp_path / "log"

    def server(**settings: Any) -> Any:
        return lab_server(tools=["sleep", "echo"], log=str(log), settings={"shutdown_grace": 0, **settings})

    async with Host([server()]) as host:
        await host.ready(10)
        seconds = 0.5 if allowed > 1 else 60
        call = asyncio.create_task(host.call("mcp_lab_sleep", {"seconds": seconds}))
        await until(lambda: "tools/call" in methods(log))
        await host.apply(HostConfig(servers=(server(env={"X": "1"}),)))
        result = await asyncio.wait_for(call, 30)
        assert result.is_error == (allowed < 1), result.text
        assert (await host.call("mcp_lab_echo", {"text": "hi"})).text == "hi"


async def test_a_server_that_is_disabled_while_running_is_ended_and_shown(tmp_path: Path) -> None:
    async with Host([lab_server("one"), lab_server("two")]) as host:
        await host.ready(10)
        await host.apply(
            HostConfig(servers=(lab_server("one"), lab_server("two", settings={"disabled": True})))
        )
        assert _states(host) == {"one": "connected", "two": "disabled"}
        assert not any("two" in name for name in host.catalog.tools)


async def test_FA80_a_saved_file_is_taken_over_and_the_others_are_left_alone(tmp_path: Path) -> None:
    file, log_a, log_b = tmp_path / "mooring.json", tmp_path / "a", tmp_path / "b"
    _write(file, {"a": _entry(log_a), "b": _entry(log_b)})
    async with Host.from_config(file) as host:
        await host.ready(10)
        events = host.events()
        for n in range(10):
            _write(file, {"a": _entry(log_a), "b": _entry(log_b, env={"N": str(n)})})
        await until(lambda: len(starts(log_b)) == 2)
        await until(lambda: _states(host) == {"a": "connected", "b": "connected"})
        assert len(starts(log_a)) == 1
        events.end()
        applied = [event async for event in events if isinstance(event, ConfigApplied)]
        assert applied == [ConfigApplied(restarted=("b",))]


@pytest.mark.parametrize("content", ["", "{", '{"mcpServers": {"a": {"command": 3}}}', "null"])
async def test_FA79_a_half_written_file_drops_no_server_and_is_taken_when_it_is_whole(
    tmp_path: Path, content: str
) -> None:
    file, log = tmp_path / "mooring.json", tmp_path / "a"
    _write(file, {"a": _entry(log)})
    async with Host.from_config(file) as host:
        await host.ready(10)
        events = host.events()
        file.write_text(content)
        assert isinstance(await anext(_only(events, ConfigRejected)), ConfigRejected)
        assert _states(host) == {"a": "connected"}
        _write(file, {"a": _entry(log), "later": _entry(tmp_path / "later")})
        await until(lambda: _states(host).get("later") == "connected")
        assert len(starts(log)) == 1


async def test_FA79_a_deleted_file_drops_no_server(tmp_path: Path) -> None:
    file = tmp_path / "mooring.json"
    _write(file, {"a": _entry(tmp_path / "a")})
    async with Host.from_config(file) as host:
        await host.ready(10)
        events = host.events()
        file.unlink()
        rejected = await anext(_only(events, ConfigRejected))
        assert "mooring.json" in rejected.problem
        assert _states(host) == {"a": "connected"}


async def _only(events: Any, kind: type[Any]) -> Any:
    async for event in events:
        if isinstance(event, kind):
            yield event
