"""A ping ends in a few seconds, whatever state the server is in."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import CallTimeout, ConnectionLost, Host, SyncHost
from mooring.cli.ping import TIMEOUT
from tests.lab.http import HttpLab
from tests.lab.program import running
from tests.lab.stdio import COMMAND, lab_server, starts

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("verb", ["ping", "health_check"])
@pytest.mark.parametrize("face", [Host, SyncHost])
def test_pings_have_five_seconds_by_default(verb: str, face: Any) -> None:
    assert inspect.signature(getattr(face, verb)).parameters["timeout"].default == TIMEOUT == 5.0


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_stopped_child_fails_its_ping_in_time(era: str, tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(era=era, log=str(log)), lab_server("fine")) as host:
        assert await host.health_check()
        os.kill(starts(log)[0], signal.SIGSTOP)
        with pytest.raises(CallTimeout):
            await host.ping("lab", 0.3)
        assert not await host.health_check(timeout=0.3)
        assert await host.ping("fine") < 5
        os.kill(starts(log)[0], signal.SIGKILL)


async def test_a_hung_http_server_fails_its_ping_in_time(hosting: Any) -> None:
    async def hang(request: Any, message: Any) -> None:
        await asyncio.sleep(60)

    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["ping"] = lab.faults["server/discover"] = hang
        with pytest.raises(CallTimeout):
            await host.ping("web", timeout=0.3)
        assert not await host.health_check(timeout=0.3)


@pytest.mark.parametrize("start", ["lazy", "background"])
async def test_a_server_that_does_not_come_up_fails_its_ping_in_time(start: str, hosting: Any) -> None:
    server = lab_server(hang=True, settings={"start": start, "shutdown_grace": 0})
    async with hosting(server, ready=False) as host:
        with pytest.raises(ConnectionLost, match="not connected in time"):
            await host.ping("lab", timeout=0.3)
        assert not await host.health_check(timeout=0.3)


async def test_a_lazy_server_is_started_by_a_ping(hosting: Any) -> None:
    async with hosting(lab_server(settings={"start": "lazy"})) as host:
        assert await host.ping("lab", timeout=20) > 0


@pytest.mark.parametrize("kind", ["hang", "hang_on_list"])
def test_the_command_ends_in_time_and_says_what_was_missing(kind: str, tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "mcp.json"
    script = json.dumps({kind: True, "log": str(log)})
    entry = {"command": COMMAND[0], "args": [*COMMAND[1:], script], "shutdown_grace": 0}
    config.write_text(json.dumps({"mcpServers": {"slow": entry}}))
    done = _mooring("ping", "--config", str(config), "--timeout", "0.5", "--json")
    assert done.returncode == 1
    (answer,) = json.loads(done.stdout)
    assert (answer["name"], answer["ok"]) == ("slow", False)
    assert "still starting after 0.5 s" in answer["error"]
    assert not any(running(pid) for pid in starts(log))


@pytest.mark.parametrize("named", [True, False])
def test_the_command_pings_each_server_without_waiting_for_the_others(named: bool, tmp_path: Path) -> None:
    entries = {
        name: {"command": COMMAND[0], "args": [*COMMAND[1:], json.dumps(script)], "shutdown_grace": 0}
        for name, script in {"well": {}, "mute": {"hang": True}, "quiet": {"hang_on_list": True}}.items()
    }
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    names = list(entries) if named else []
    done = _mooring("ping", *names, "--config", str(config), "--timeout", "3", "--json")
    assert {answer["name"]: answer["ok"] for answer in json.loads(done.stdout)} == {
        "well": True,
        "mute": False,
        "quiet": False,
    }


def _mooring(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mooring", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
