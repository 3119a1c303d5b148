"""Unknown tool names: servers are listed once more first, then the error explains the cause."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mooring import AuthNeeded, Host, HostConfig, ServerConfig, UnknownResource, UnknownTool
from mooring.config.models import Style
from mooring.config.sections import ProfileSettings
from mooring.gateway.serve import serve_http
from mooring.servers import status
from mooring.transport.forwarding import ClientBridge
from tests.lab.caller import Caller
from tests.lab.http import HttpLab
from tests.lab.project import tool
from tests.lab.stdio import lab_server, methods, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

SILENT: dict[str, Any] = {"era": "legacy", "capabilities": {"tools": {}}}


def lists(log: Path) -> int:
    return methods(log).count("tools/list")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_that_was_just_announced_can_be_called_at_once(era: str) -> None:
    async with Host([lab_server(tools=["grow"], era=era)], lock=False) as host:
        await host.ready(10)
        for name in ("one", "two", "three", "four", "five"):
            await host.call("mcp_lab_grow", {"name": name})
            assert (await host.call(f"mcp_lab_{name}")).text == f"called {name}"


async def test_a_tool_that_was_never_announced_can_be_called(tmp_path: Path) -> None:
    offer = tmp_path / "offer"
    offer.write_text('{"definitions": []}')
    async with Host([lab_server(reread=str(offer), **SILENT)], lock=False) as host:
        await host.ready(10)
        offer.write_text(json.dumps({"definitions": [tool("fresh")]}))
        assert (await host.call("mcp_lab_fresh")).text == "called fresh"


async def test_names_that_a_model_invents_cause_few_listings(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(log=str(log), **SILENT)], lock=False) as host:
        await host.ready(10)
        for number in range(100):
            result = await host.call(f"mcp_lab_invented_{number}")
            assert isinstance(result.error, UnknownTool)
        assert lists(log) <= 1 + 5


async def test_however_many_ask_for_a_new_tool_at_once_one_listing_serves_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(tools=["grow"], era="legacy", log=str(log))], lock=False) as host:
        await host.ready(10)
        await host.call("mcp_lab_grow", {"name": "fresh"})
        results = await asyncio.gather(*(host.call("mcp_lab_fresh") for _ in range(50)))
        assert {result.text for result in results} == {"called fresh"}
        assert lists(log) == 2


async def test_other_servers_are_not_listed_for_a_name_that_they_cannot_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    servers = [lab_server("one", **SILENT), lab_server("two", log=str(log), **SILENT)]
    async with Host(servers, lock=False) as host:
        await host.ready(10)
        await host.call("mcp_one_invented")
        assert lists(log) == 1


async def test_a_failed_server_is_tried_again_for_a_name_that_it_could_own(tmp_path: Path) -> None:
    command = tmp_path / "server"
    command.write_text("#!/bin/sh\nexit 3\n")
    command.chmod(0o755)
    async with Host([ServerConfig(name="lab", command=str(command))], lock=False) as host:
        await host.ready(10)
        assert host.status()[0].state == "failed"
        good = lab_server()
        assert good.command is not None
        command.write_text(f"#!/bin/sh\nexec {shlex.join([good.command, *good.args])}\n")
        assert (await host.call("mcp_lab_echo", {"text": "hi"})).text == "hi"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_waited_for_a_failing_start_does_not_start_the_server_again(
    era: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    server = lab_server(hang_on_list=True, era=era, log=str(log), settings={"connect_timeout": 0.5})
    async with Host([server], lock=False) as host:
        results = await asyncio.gather(*(host.call("mcp_lab_echo") for _ in range(3)))
        assert {type(result.error) for result in results} == {UnknownTool}
        assert "no answer within 0.5 s" in results[0].text
        assert len(starts(log)) == 1


async def test_the_error_names_the_server_that_failed(tmp_path: Path) -> None:
    async with Host([ServerConfig(name="lab", command="/no/such/program")], lock=False) as host:
        await host.ready(10)
        result = await host.call("mcp_lab_echo")
        assert isinstance(result.error, UnknownTool)
        assert (result.error.server, result.error.state) == ("lab", "failed")
        assert "Server 'lab' is not connected: " in result.text


async def test_the_error_names_a_server_that_is_disabled() -> None:
    async with Host([lab_server(settings={"disabled": True})], lock=False) as host:
        result = await host.call("mcp_lab_echo")
        assert "Server 'lab' is disabled: `mooring enable lab`" in result.text


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            HostConfig(servers=(lab_server(),), enabled_servers=("other",)),
            "`enabled_servers` does not list it",
        ),
        (HostConfig(servers=(lab_server(),), enabled=False), "`enabled` is false in the settings"),
    ],
    ids=["enabled_servers", "enabled"],
)
async def test_the_error_names_the_setting_that_turns_a_server_off(config: HostConfig, why: str) -> None:
    async with Host(config, lock=False) as host:
        result = await host.call("mcp_lab_echo")
        assert f"Server 'lab' is disabled, because {why}." in result.text
        assert "mooring enable" not in result.text  # that does not help


async def test_an_unknown_resource_names_a_server_that_is_not_approved(tmp_path: Path) -> None:
    server = lab_server()
    entry = {"command": server.command, "args": list(server.args)}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"lab": entry}}))
    async with Host.from_config(cwd=tmp_path, trust=False) as host:
        with pytest.raises(UnknownResource, match=r"'lab' is not started.*not approved.*`mooring trust`"):
            await host.read("memo:///x")


async def test_a_server_that_wanted_a_login_is_named_as_such_while_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.servers.waiting.RELISTED_WITHIN", 0.2)
    silent = asyncio.Event()

    async def refuse(request: Any, message: dict[str, Any]) -> Any:
        if silent.is_set():
            await asyncio.Event().wait()
        return web.Response(status=401)

    async with HttpLab() as lab:
        lab.faults["server/discover"] = lab.faults["initialize"] = refuse
        async with Host([lab.config()], lock=False) as host:
            await host.ready(10)
            silent.set()
            again = asyncio.ensure_future(host.refresh())
            await until(lambda: host.status()[0].state == "pending")
            result = await host.call(f"mcp_{lab.config().name}_read")
            assert host.status()[0].state == "pending"
            assert "needs a login" in result.text
            again.cancel()


async def test_no_login_is_advised_for_a_server_that_offers_none() -> None:
    async def refuse(request: Any, message: dict[str, Any]) -> Any:
        return web.Response(status=401)

    async with HttpLab() as lab:
        lab.faults["server/discover"] = lab.faults["initialize"] = refuse
        async with Host([lab.config()], lock=False) as host:
            await host.ready(10)
            result = await host.call("mcp_web_read")
            assert isinstance(result.error, UnknownTool)
            assert (result.error.server, result.error.state) == ("web", "needs-auth")
            assert "give it a token in `headers`" in result.text
            assert "mooring login" not in result.text


async def test_a_server_with_401_and_metadata_that_never_come_says_why_its_login_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.auth.credentials.PROBE", 0.2)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
            writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()
        else:
            await reader.read()  # until the client gives up
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        async with Host([ServerConfig(name="web", url=url)], lock=False) as host:
            await host.ready(10)
            error = host.status()[0].error
            assert error is not None
            assert error.endswith("(where to is not known yet: no response in time)")


async def test_an_unknown_resource_and_a_prompt_name_the_server_that_needs_a_login() -> None:
    async def refuse(request: Any, message: dict[str, Any]) -> Any:
        return web.Response(status=401)

    async with HttpLab() as lab:
        lab.faults["server/discover"] = lab.faults["initialize"] = refuse
        broken = ServerConfig(name="broken", command="/no/such/program")
        async with Host([broken, lab.config("vault")], lock=False) as host:
            await host.ready(10)
            with pytest.raises(UnknownResource) as missing:
                await host.read("ledger:///2026")
            assert (missing.value.server, missing.value.state) == ("vault", "needs-auth")
            assert "Server 'vault' needs a login" in str(missing.value)
            assert "Server 'broken' is not connected" in str(missing.value)
            with pytest.raises(AuthNeeded):
                await host.prompt("vault", "summarise")


@pytest.mark.parametrize(("style", "name"), [("raw", "summarise"), ("mcp", "read_mcp_resource")])
async def test_of_servers_that_may_all_have_the_tool_the_one_that_needs_a_login_is_named_first(
    style: Style, name: str
) -> None:
    async def refuse(request: Any, message: dict[str, Any]) -> Any:
        return web.Response(status=401)

    async with HttpLab() as lab:
        lab.faults["server/discover"] = lab.faults["initialize"] = refuse
        broken = [ServerConfig(name=name, command="/no/such/program") for name in ("a", "b", "c")]
        async with Host([*broken, lab.config("vault")], style=style, lock=False) as host:
            await host.ready(10)
            error = (await host.call(name)).error
            assert isinstance(error, UnknownTool)
            assert (error.server, error.state) == ("vault", "needs-auth")
            assert "Server 'a' is not connected" in str(error)


async def test_of_nested_names_the_longest_is_meant() -> None:
    servers = [ServerConfig(name=name, command="/no/such/program") for name in ("a", "a_b")]
    async with Host(servers, lock=False) as host:
        await host.ready(10)
        error = (await host.call("mcp_a_b_c")).error
        assert isinstance(error, UnknownTool)
        assert error.server == "a_b"


@pytest.mark.parametrize("modern", [True, False])
async def test_the_gateway_waits_no_longer_than_the_host(tmp_path: Path, modern: bool) -> None:
    """A server that could own the name is there at once; another one never comes up."""
    servers = [lab_server("lab", hang=True), lab_server("lab_fast", settings={"start": "lazy"})]
    async with (
        Host(servers, lock=False, relay=ClientBridge()) as host,
        serve_http(host) as serving,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        caller = Caller(http, f"http://127.0.0.1:{serving.port}/mcp", modern=modern, headers={})
        await caller.begin()
        async with asyncio.timeout(15):  # `lab` takes 30 s to fail
            reply = await caller.call("mcp_lab_fast_echo", {"text": "hi"})
        assert reply.result["content"][0]["text"] == "hi"


async def test_a_call_through_the_gateway_that_waits_for_a_failing_start_causes_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "backoff", lambda failures, chance: 60.0)  # no rest ends by itself
    log, go = tmp_path / "log", tmp_path / "go"
    code = f"echo started >> {log}; until [ -e {go} ]; do sleep 0.05; done; exit 5"
    server = ServerConfig(name="lab", command="/bin/sh", args=("-c", code))
    async with (
        Host([server], lock=False, relay=ClientBridge()) as host,
        serve_http(host) as serving,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        caller = Caller(http, f"http://127.0.0.1:{serving.port}/mcp", modern=True, headers={})
        await caller.begin()
        calling = asyncio.create_task(caller.call("mcp_lab_echo"))
        await until(lambda: host._servers.connections["lab"].supervisor._urgency == 2)  # the call waits
        go.touch()
        assert "exited with code 5" in (await calling).error["message"]
        assert log.read_text().splitlines() == ["started"]


@pytest.mark.parametrize("modern", [True, False])
async def test_a_new_tool_can_be_called_at_once_through_the_gateway(modern: bool) -> None:
    async with (
        Host([lab_server(tools=["grow"], era="legacy")], lock=False, relay=ClientBridge()) as host,
        serve_http(host, default_profile=ProfileSettings(style="raw")) as serving,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        await host.ready(10)
        caller = Caller(http, f"http://127.0.0.1:{serving.port}/mcp", modern=modern, headers={})
        await caller.begin()
        await caller.call("grow", {"name": "fresh"})
        assert "called fresh" in (await caller.call("fresh")).text


async def test_a_listing_that_finds_its_session_expired_gets_another_one() -> None:
    """A server that was restarted: only a request shows that its sessions are gone."""
    async with HttpLab(era="legacy", stream=False) as lab, Host([lab.config("lab")], lock=False) as host:
        await host.ready(10)
        lab.tools = ["echo", "first"]
        lab.live_sessions.clear()
        assert (await host.refresh())["lab"].ok
        assert "mcp_lab_first" in host.catalog.tools
        lab.tools = ["echo", "second"]
        lab.live_sessions.clear()
        assert not (await host.call("mcp_lab_second")).is_error
        assert [one.state for one in host.status()] == ["connected"]
        assert len(lab.live_sessions) == 1
