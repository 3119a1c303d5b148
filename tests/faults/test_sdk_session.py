"""The seam to the SDK: its own `ClientSession` stands on our channels as on any `Dispatcher`.

`Dispatcher.run` is provisional in the SDK, so this is run on the oldest and the newest release we support.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.session import ClientSession
from mcp.client.subscriptions import listen
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.exceptions import MCPError

from mooring import ServerConfig
from mooring.core.config import Target
from mooring.core.redact import Redactor
from mooring.net.negotiate import negotiate
from mooring.net.open import open_channel, wires
from mooring.net.pool import HttpPool
from mooring.net.rpc import Channel
from tests.lab.http import HttpLab
from tests.lab.stdio import cue, lab_server, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

ELICIT = {
    "jsonrpc": "2.0",
    "id": "ask-1",
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}


async def _elicited(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


@asynccontextmanager
async def _channel(config: ServerConfig) -> AsyncIterator[Channel]:
    pool = HttpPool()
    target = Target(command=config.command, args=config.args, url=config.url)
    try:
        with anyio.fail_after(20):
            async with open_channel(wires(config)[0], config, target, pool, Redactor()) as channel:
                yield channel
    finally:
        await pool.close()


@asynccontextmanager
async def _session(config: ServerConfig) -> AsyncIterator[tuple[ClientSession, Channel]]:
    """A session over our channel that takes over what our own negotiation found out."""
    async with _channel(config) as channel:
        able = {"elicitation": {}}
        peer = await negotiate(channel, era=None, config=config, probe_timeout=5, capabilities=able)
        async with ClientSession(dispatcher=channel, elicitation_callback=_elicited) as session:
            kind = types.DiscoverResult if peer.era == "modern" else types.InitializeResult
            session.adopt(kind.model_validate(peer.raw))
            yield session, channel


async def _use(session: ClientSession) -> None:
    listed = await session.list_tools()
    assert "echo" in [tool.name for tool in listed.tools]
    result = await session.call_tool("echo", {"text": "hi"})
    assert [block.text for block in result.content if block.type == "text"] == ["hi"]


async def test_a_channel_is_a_dispatcher() -> None:
    async with _channel(lab_server()) as channel:
        assert isinstance(channel, Dispatcher)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_session_lists_and_calls_over_stdio(era: str) -> None:
    async with _session(lab_server(era=era)) as (session, _):
        await _use(session)


@pytest.mark.parametrize("answers", ["json", "sse"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_session_lists_and_calls_over_http(era: str, answers: str) -> None:
    async with HttpLab(era=era, answers=answers) as lab, _session(lab.config()) as (session, _):
        await _use(session)


async def test_the_session_lists_and_calls_over_old_sse() -> None:
    async with HttpLab(era="legacy") as lab:
        config = ServerConfig(name="old", url=lab.url.replace("/mcp", "/sse"), transport="sse")
        async with _session(config) as (session, _):
            await _use(session)


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_the_session_may_greet_by_itself(wire: str) -> None:
    async with HttpLab(era="legacy") as lab:
        config = lab_server(era="legacy") if wire == "stdio" else lab.config()
        async with _channel(config) as channel, ClientSession(dispatcher=channel) as session:
            assert (await session.initialize()).protocol_version == "2025-11-25"
            await _use(session)


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_the_session_may_discover_by_itself(wire: str) -> None:
    async with HttpLab(era="modern") as lab:
        config = lab_server(era="modern") if wire == "stdio" else lab.config()
        async with _channel(config) as channel, ClientSession(dispatcher=channel) as session:
            assert "2026-07-28" in (await session.discover()).supported_versions
            await _use(session)


async def test_requests_of_a_stdio_server_are_answered_through_the_sessions_callbacks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ping = {"jsonrpc": "2.0", "id": "ask-2", "method": "ping"}
    lines = b"".join(json.dumps(message).encode() + b"\n" for message in (ELICIT, ping))
    async with _session(lab_server(era="legacy", tools=["say", "echo"], log=str(log))) as (session, _):
        await session.call_tool("say", cue(lines))
        await until(lambda: sum("result" in entry for entry in wire_log(log)) == 2)
    answers = {entry["id"]: entry["result"] for entry in wire_log(log) if "result" in entry}
    assert answers == {"ask-1": {"action": "accept", "content": {"name": "Ada"}}, "ask-2": {}}


async def test_requests_of_an_http_server_are_answered_through_the_sessions_callbacks() -> None:
    async with HttpLab(era="legacy") as lab, _session(lab.config()):
        await lab.until(lambda: lab.open_streams == 1)
        lab.announce(ELICIT)
        await lab.until(lambda: any(message.get("id") == "ask-1" for message in lab.messages))
        (answer,) = [message for message in lab.messages if message.get("id") == "ask-1"]
        assert answer["result"] == {"action": "accept", "content": {"name": "Ada"}}


async def test_the_sessions_own_subscription_hears_changes_over_stdio() -> None:
    async with _session(lab_server(era="modern", tools=["grow", "echo"])) as (session, _):
        async with listen(session, tools_list_changed=True) as subscription:
            await session.call_tool("grow", {"name": "extra"})
            async for event in subscription:
                assert "tools" in type(event).__name__.lower() or "tools" in str(event).lower()
                break


async def test_the_sessions_own_subscription_hears_changes_over_http() -> None:
    async with HttpLab(era="modern") as lab, _session(lab.config()) as (session, _):
        async with listen(session, tools_list_changed=True) as subscription:
            await until(lambda: lab.subscriptions == 1)
            lab.publish_change()
            async for _event in subscription:
                break


async def test_errors_time_outs_and_progress_come_up_as_the_session_expects() -> None:
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    server = lab_server(era="legacy", tools=["sleep", "refuse", "echo"], progress=True)
    async with _session(server) as (session, _):
        with pytest.raises(MCPError, match="refused on purpose"):
            await session.call_tool("refuse", {})
        await session.call_tool("sleep", {"seconds": 0.1}, progress_callback=on_progress)
        assert heard
        with pytest.raises(MCPError):
            await session.call_tool("sleep", {"seconds": 30}, read_timeout_seconds=0.2)
        await _use(session)


async def test_the_death_of_the_wire_is_a_closed_connection_for_the_session() -> None:
    async with _session(lab_server(era="legacy", tools=["crash"])) as (session, channel):
        with pytest.raises(MCPError, match="closed"):
            await session.call_tool("crash", {})
        assert channel.death is not None
        with pytest.raises(MCPError):
            await session.call_tool("crash", {})
