"""Many servers that start together: a limited number at once, each with its own timeout, and none waits
forever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mooring import Host, HostConfig, ServerConfig
from mooring.servers.start_queue import cpu_usage
from tests.lab.stdio import lab_server, starts, wire_log
from tests.lab.wait import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(cpu_usage(1) is None, reason="the use of the CPU cannot be measured here"),
]


def _most_at_once(log: Path) -> int:
    """How many servers were between their start and the end of their work."""
    now = most = 0
    for entry in wire_log(log):
        now += ("started" in entry) - ("worked" in entry)
        most = max(most, now)
    return most


def _workers(count: int, log: Path, work: float = 0.3, **settings: Any) -> list[ServerConfig]:
    return [
        lab_server(f"s{number}", start_work=work, log=str(log), settings=settings) for number in range(count)
    ]


def _states(host: Host) -> list[str]:
    return [status.state for status in host.status()]


@pytest.mark.parametrize("how", ["argument", "configuration"])
async def test_no_more_than_max_starting_servers_start_at_once(how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    servers = _workers(4, log, work=0.2)
    host = (
        Host(servers, max_starting=2)
        if how == "argument"
        else Host(HostConfig(servers=tuple(servers), max_starting=2))
    )
    async with host:
        await host.ready(40)
        assert _states(host) == ["connected"] * 4
        assert _most_at_once(log) <= 2


async def test_the_time_in_the_queue_is_not_time_to_connect(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # One after the other they take 1.2 s and more; each has 0.8 s.
    async with Host(_workers(4, log, connect_timeout=0.8), max_starting=1) as host:
        await host.ready(40)
        assert _states(host) == ["connected"] * 4
        assert len(starts(log)) == 4


async def test_time_without_a_cpu_is_not_time_to_connect(tmp_path: Path) -> None:
    log = tmp_path / "log"
    servers = _workers(10, log, work=0.4, connect_timeout=1.5)  # of two cores, each gets a fifth of one
    async with Host(servers, max_starting=10) as host:
        await host.ready(40)
        assert _states(host) == ["connected"] * 10
        assert len(starts(log)) == 10


async def test_servers_that_hang_do_not_keep_others_from_starting(tmp_path: Path) -> None:
    hung = [lab_server(f"h{number}", hang=True, settings={"shutdown_grace": 0}) for number in range(4)]
    async with Host([*hung, lab_server("fine")], max_starting=1) as host:
        await until(lambda: "mcp_fine_echo" in host.catalog.tools)


async def test_a_call_does_not_wait_for_servers_that_start_in_the_background(tmp_path: Path) -> None:
    log = tmp_path / "log"
    busy = _workers(6, log, work=0.5)
    async with Host([*busy, lab_server("wanted")], max_starting=1) as host:
        result = await host.call("mcp_wanted_echo", {"text": "now"}, timeout=30)
        assert result.text == "now"
        assert _states(host).count("pending") >= 3


async def test_servers_that_a_reload_restarts_are_limited_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    servers = _workers(3, log, work=0.1)
    async with Host(servers, max_starting=1) as host:
        await host.ready(40)
        # A reload that changes all of them starts all of them again.
        changed = tuple(lab_server(s.name, start_work=0.1, log=str(log), tools=["pid"]) for s in servers)
        await host.apply(HostConfig(servers=changed))
        await until(lambda: len(starts(log)) == 6 and _states(host) == ["connected"] * 3)
        assert _most_at_once(log) == 1


async def test_a_server_that_is_removed_while_it_queues_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host(_workers(3, log, work=0.4), max_starting=1) as host:
        await asyncio.wait_for(host.remove("s2"), 20)
        await host.ready(40)
        assert _states(host) == ["connected"] * 2
