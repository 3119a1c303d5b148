"""Delivery: every caller gets exactly one outcome, every effect happens at most once, and a request that
certainly did not reach a tool is sent again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mooring import ConnectionLost, Host
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


def _effects(file: Path) -> Counter[int]:
    return Counter(int(line) for line in file.read_text().split()) if file.exists() else Counter()


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def _pid(host: Host) -> int:
    return int((await host.call("mcp_lab_pid", check=True)).text)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_killed_with_9_between_two_calls_is_no_event_for_the_second(
    era: str, hosting: Any, tmp_path: Path
) -> None:
    # The second call goes out at the moment of the kill, before the host has noticed the exit.
    log = tmp_path / "log"
    async with hosting(lab_server(era=era, tools=["pid", "echo"], log=str(log))) as host:
        for n in range(6):
            # Stopped first: a process may still read what arrives in the moment before a kill reaches it.
            pid = await _pid(host)
            os.kill(pid, signal.SIGSTOP)
            await until(partial(_is_stopped, pid))
            os.kill(pid, signal.SIGKILL)
            result = await host.call("mcp_lab_echo", {"text": str(n)})
            assert result.text == str(n)
        assert len(starts(log)) == 7


async def test_64_callers_that_race_after_a_kill_get_one_new_child_and_64_answers(
    hosting: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["pid", "echo"], log=str(log))) as host:
        os.kill(await _pid(host), signal.SIGKILL)
        results = await asyncio.gather(*(host.call("mcp_lab_echo", {"text": str(n)}) for n in range(64)))
        assert [result.text for result in results] == [str(n) for n in range(64)]
        assert len(starts(log)) == 2


async def test_a_request_that_the_server_had_read_is_not_sent_again(hosting: Any, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    async with hosting(lab_server(tools=["effect"], effects=str(effects))) as host:
        lost = await host.call("mcp_lab_effect", {"n": 1, "fate": "die after"})
        assert isinstance(lost.error, ConnectionLost)
        assert lost.error.outcome == "unknown"
        assert (await host.call("mcp_lab_effect", {"n": 2})).text == "done 2"
    assert _effects(effects) == {1: 1, 2: 1}


async def test_a_tool_that_configuration_calls_idempotent_is_sent_again_once(
    hosting: Any, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    server = lab_server(tools=["effect"], effects=str(effects), settings={"idempotent": ["eff*"]})
    async with hosting(server) as host:
        lost = await host.call("mcp_lab_effect", {"n": 1, "fate": "die after"})
        assert isinstance(lost.error, ConnectionLost)
    assert _effects(effects) == {1: 2}


async def test_a_servers_own_idempotence_hint_is_no_licence(hosting: Any, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    hints = {"idempotentHint": True, "readOnlyHint": True}
    async with hosting(lab_server(tools=["effect"], annotations=hints, effects=str(effects))) as host:
        assert host.catalog.tools["mcp_lab_effect"].annotations == hints
        assert (await host.call("mcp_lab_effect", {"n": 1, "fate": "die after"})).is_error
    assert _effects(effects) == {1: 1}


FATES = ("live",) * 12 + ("die before", "die after")


@pytest.mark.parametrize("seed", [1, 2])
async def test_numbered_calls_through_random_crashes_end_once_each_and_act_at_most_once(
    seed: int, hosting: Any, tmp_path: Path
) -> None:
    effects, chance = tmp_path / "effects", random.Random(seed)
    server = lab_server(tools=["effect"], effects=str(effects))
    outcomes: dict[int, list[str]] = {n: [] for n in range(300)}
    todo = iter(outcomes)

    async def caller(host: Host) -> None:
        for n in todo:
            result = await host.call("mcp_lab_effect", {"n": n, "fate": chance.choice(FATES)})
            problem = getattr(result.error, "outcome", "foreign") if result.error else "answered"
            assert problem != "answered" or result.text == f"done {n}"
            outcomes[n].append(problem)

    async with hosting(server) as host:
        host.provider("lab")._sender._breaker.THRESHOLD = 10**6  # its rests are another test's business
        await asyncio.gather(*(caller(host) for _ in range(8)))
    done = _effects(effects)
    assert all(len(ends) == 1 for ends in outcomes.values())
    assert set(done.values()) == {1}
    assert all(done[n] == 1 for n, ends in outcomes.items() if ends == ["answered"])
    assert all(done[n] == 0 for n, ends in outcomes.items() if ends == ["not sent"])
    spread = Counter(ends[0] for ends in outcomes.values())
    assert spread["answered"] > 100
    assert spread["unknown"] > 5
    assert set(spread) <= {"answered", "unknown", "not sent"}


async def test_a_server_that_closes_its_output_but_goes_on_reading_is_sent_nothing_twice(
    hosting: Any, tmp_path: Path
) -> None:
    # It is unknown whether such a server has read the request.
    effects = tmp_path / "effects"
    server = lab_server(
        tools=["say", "effect"], effects=str(effects), settings={"shutdown_grace": 0.1, "call_timeout": 5}
    )
    async with hosting(server) as host:
        muted = asyncio.create_task(host.call("mcp_lab_say", {"then": "mute"}))
        behind = asyncio.create_task(host.call("mcp_lab_effect", {"n": 1}))
        results = await asyncio.gather(muted, behind)
        assert [getattr(result.error, "outcome", None) for result in results] == ["unknown", "unknown"]
        await until(lambda: host.status()[0].state == "connected")
    assert _effects(effects) == {}


async def test_an_http_server_that_was_away_under_load_is_met_again_soon_after_it_returns(
    hosting: Any,
) -> None:
    # Callers who find it away must neither use up its tries nor lengthen its rests.
    async with HttpLab() as lab:
        port = lab.port
        async with hosting(lab.config()) as host:
            await lab.__aexit__()
            for _ in range(30):
                await asyncio.gather(host.ping("web", 1), host.ping("web", 1), return_exceptions=True)
            await until(lambda: host.status()[0].state == "failed")
            for _ in range(10):
                await host.refresh("web")
            again = HttpLab(tools=("fresh",))
            again.port = port
            async with again:
                await until(lambda: "mcp_web_fresh" in host.catalog.tools, 5)
