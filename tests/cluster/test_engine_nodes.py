"""Nodes with an engine: a real nats-server, real `mooring serve` processes, real child processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.engine_lab import engine_nodes, errors_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def test_the_private_server_of_a_2026_client_runs_once_in_the_cluster(tmp_path: Path) -> None:
    async with engine_nodes(tmp_path) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        through = [cluster.nodes.through(client, number) for number in range(3)]
        replies = await asyncio.gather(*(one.call("pid") for one in through * 5))
        assert len({reply.text for reply in replies}) == 1, errors_of(cluster)
        owned = [(await cluster.state(number))["owned"] for number in range(3)]
        assert sorted(owned) == [0, 0, 1]
