"""Nodes of a fixed table: any node answers any client, because it forwards what another one keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.lab import static_nodes

pytestmark = pytest.mark.anyio


async def test_a_session_is_answered_by_its_owner_through_every_node(tmp_path: Path) -> None:
    async with static_nodes(tmp_path) as nodes:
        pids = set[str]()
        for owner in range(3):
            client = await nodes.caller(owner)
            answers = {(await nodes.through(client, other).call("pid")).text for other in range(3)}
            assert len(answers) == 1  # the child process of one node, whichever was asked
            pids |= answers
        assert len(pids) == 3
