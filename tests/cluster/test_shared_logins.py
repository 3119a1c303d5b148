"""Logins of a cluster: stored once for all nodes, encrypted, and refreshed once."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.auth.conftest import kept_file
from tests.auth.test_login import log_in
from tests.cluster.engine_lab import EngineCluster, engine_nodes, errors_of
from tests.lab.caller import Caller, Reply
from tests.lab.oauth import AuthLab

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(180)]


async def usable(client: Caller, cluster: EngineCluster) -> Reply:
    """The first answer of the server behind a node, after its login has arrived there."""
    reply = None
    with suppress(TimeoutError):
        async with asyncio.timeout(40):
            while True:
                reply = await client.call("echo", {"text": "x"})
                if "result" in reply.last and not reply.result.get("isError"):
                    return reply
                await asyncio.sleep(0.1)
    raise AssertionError((reply and reply.last, errors_of(cluster)))


async def test_one_login_serves_all_nodes_and_is_refreshed_once(tmp_path: Path, hosting: Any) -> None:
    async with AuthLab(rotates=True, token_delay=0.3) as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        home = tmp_path / "home-a" / "oauth"
        home.parent.mkdir(mode=0o700)
        shutil.copytree(kept_file().parent, home)  # one node has the login
        servers = {"web": {"url": auth.lab.url, "auth": {"type": "oauth"}}}
        async with engine_nodes(tmp_path, servers=servers, homes=True) as cluster:
            clients = [await cluster.nodes.caller(number, modern=True) for number in range(3)]
            for client in clients:
                assert (await usable(client, cluster)).text == "x", errors_of(cluster)
            assert auth.refreshes() == 0
            for expected in (1, 2, 3):
                auth.revoke_all()
                replies = await asyncio.gather(*(one.call("echo", {"text": "y"}) for one in clients * 3))
                assert [reply.text for reply in replies] == ["y"] * 9, errors_of(cluster)
                assert auth.refreshes() == expected
            stored = b"".join(one.read_bytes() for one in (tmp_path / "js").rglob("*") if one.is_file())
            [refresh] = auth.refresh
            assert b"login." in stored
            for secret in (refresh, *auth.tokens, auth.lab.url):
                assert secret.encode() not in stored
