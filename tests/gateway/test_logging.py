"""Log lines through the gateway: requested from servers at the clients' levels, and sent to no other
client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab.caller import Caller, Reply
from tests.lab.stdio import lab_server, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

WISH = "io.modelcontextprotocol/logLevel"
ALL = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def talker(log: Path, **more: Any) -> Any:
    """A handshake server that logs one line of each allowed level, and writes down the level it gets."""
    able = {"tools": {}, "logging": {}}
    return lab_server(era="legacy", tools=["chat", "crash"], capabilities=able, log=str(log), **more)


def logged(reply: Reply) -> list[str]:
    return [m["params"]["level"] for m in reply.messages if m.get("method") == "notifications/message"]


def wished(log: Path) -> list[str]:
    return [e["params"]["level"] for e in wire_log(log) if e.get("method") == "logging/setLevel"]


async def set_level(client: Caller, level: str) -> None:
    assert (await client.ask("logging/setLevel", {"level": level})).result == {}


async def test_a_level_is_passed_on_at_once_to_servers_of_the_handshake_era(
    serving: Any, tmp_path: Path
) -> None:
    log = tmp_path / "wire"
    async with serving(talker(log), lab_server("quiet", era="legacy"), style="server") as here:
        client = await here.caller(modern=False)
        await set_level(client, "error")
        assert wished(log) == ["error"]
        assert logged(await client.call("lab_chat")) == ALL[4:]
        await set_level(client, "debug")
        assert logged(await client.call("lab_chat")) == ALL
        await set_level(client, "alert")
        assert logged(await client.call("lab_chat")) == ALL[6:]
        assert wished(log) == ["error", "debug", "alert"]


async def test_each_client_gets_the_log_messages_of_its_own_level(serving: Any, tmp_path: Path) -> None:
    log = tmp_path / "wire"
    async with serving(talker(log)) as here:
        quiet, silent = await here.caller(modern=False), await here.caller(modern=False)
        modern, mute = await here.caller(), await here.caller()
        await set_level(quiet, "critical")
        assert wished(log) == ["info"]  # another client asked for no level
        assert logged(await silent.call("chat")) == ALL[1:]
        assert logged(await quiet.call("chat")) == ALL[5:]
        assert logged(await modern.call("chat", _meta={WISH: "debug"})) == ALL
        assert wished(log) == ["info", "debug"]
        assert logged(await mute.call("chat")) == []
        assert logged(await silent.call("chat")) == ALL[1:]
        assert logged(await quiet.call("chat")) == ALL[5:]
        assert wished(log) == ["info", "debug"]


async def test_a_level_is_passed_on_again_when_a_server_comes_back(serving: Any, tmp_path: Path) -> None:
    log = tmp_path / "wire"
    async with serving(talker(log)) as here:
        client = await here.caller(modern=False)
        await set_level(client, "debug")
        await client.call("crash")
        assert logged(await client.call("chat")) == ALL
        assert wished(log) == ["debug", "debug"]


async def test_a_server_of_its_own_hears_the_level_of_its_session_alone(serving: Any, tmp_path: Path) -> None:
    log = tmp_path / "wire"
    async with serving(talker(log, settings={"isolation": "session"})) as here:
        loud, quiet = await here.caller(modern=False), await here.caller(modern=False)
        await set_level(loud, "debug")
        await set_level(quiet, "alert")
        assert logged(await loud.call("chat")) == ALL
        assert logged(await quiet.call("chat")) == ALL[6:]
        await until(lambda: sorted(wished(log)) == ["alert", "debug"])


async def test_clients_without_a_log_level_do_not_set_one_on_servers(serving: Any, tmp_path: Path) -> None:
    log = tmp_path / "wire"
    async with serving(talker(log)) as here:
        for modern in (False, True):
            await (await here.caller(modern=modern)).call("chat")
        assert wished(log) == []


async def test_a_level_that_there_is_not_is_refused(serving: Any, tmp_path: Path) -> None:
    async with serving(talker(tmp_path / "wire")) as here:
        client = await here.caller(modern=False)
        assert (await client.ask("logging/setLevel", {"level": "loud"})).error["code"] == -32602
