"""Reloading the configuration with connected clients: they stay connected, and changes apply at once."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from mooring import Host
from mooring.errors import ConfigError
from mooring.gateway.serve import Serving, serve_http
from tests.gateway.test_operation import command, free_port, until_ready
from tests.lab.caller import Caller, soon
from tests.lab.stdio import COMMAND
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

ANA, BOB = "ana-0123456789abcdef", "bob-0123456789abcdef"
BOTH = [{"name": "ana", "token": "${ANA}"}, {"name": "bob", "token": "${BOB}"}]


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANA", ANA)
    monkeypatch.setenv("BOB", BOB)
    monkeypatch.setenv("ANA_NEW", "another-" + ANA)


class Place:
    """A configuration file, the gateway that runs on it, and clients."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tools = ["echo", "pid"]
        self.env: dict[str, str] = {}
        self.host: Host
        self.serving: Serving
        self.http: aiohttp.ClientSession

    def write(self, **gateway: Any) -> None:
        script = json.dumps({"tools": self.tools})
        entry = {"command": COMMAND[0], "args": [*COMMAND[1:], script], "env": self.env}
        self.file.write_text(json.dumps({"mcpServers": {"lab": entry}, "style": "raw", "gateway": gateway}))

    async def reload(self, **gateway: Any) -> None:
        self.write(**gateway)
        await self.host.reload()

    async def caller(self, token: str | None = None, path: str = "", *, modern: bool = False) -> Caller:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        caller = Caller(self.http, self.serving.url + path, modern=modern, headers=headers)
        await caller.begin()
        return caller


@pytest.fixture
def place(tmp_path: Path) -> Any:
    @asynccontextmanager
    async def placed(
        bind: str = "127.0.0.1", tools: list[str] | None = None, **gateway: Any
    ) -> AsyncIterator[Place]:
        here = Place(tmp_path / "mcp.json")
        here.tools = tools or here.tools
        here.write(**gateway)
        with anyio.fail_after(90):
            async with (
                Host.from_config(here.file, lock=False) as here.host,
                serve_http(here.host, bind) as here.serving,
                aiohttp.ClientSession() as here.http,
            ):
                await here.host.ready(10)
                yield here

    return placed


async def test_a_token_that_is_taken_away_stops_working_at_once_and_the_others_keep_their_sessions(
    place: Any,
) -> None:
    async with place(tokens=BOTH) as here:
        ana, bob, new = await here.caller(ANA), await here.caller(BOB), await here.caller(BOB, modern=True)
        pid = (await ana.call("pid")).text
        async with (
            bob.standing() as standing,
            new.listening(toolsListChanged=True) as listening,
            ana.standing(),
        ):
            await here.reload(tokens=BOTH[:1], profiles={"narrow": {"deny": ["lab/pid"]}})
            assert (await soon(listening))["id"] == "listen"
            with pytest.raises(StopAsyncIteration):
                await soon(standing)
            assert (await bob.ask("ping")).status == 401
            assert (await ana.call("pid")).text == pid  # the same session, the same server
            assert [client.principal.name for client in here.serving.gateway.registry] == ["token:ana"]
            await here.reload(tokens=BOTH)
            assert (await bob.ask("ping")).status == 404  # the token is good again, the session is over
            assert (await ana.ask("ping")).status == 200


async def test_a_token_of_another_value_ends_what_was_begun_with_the_old_one(place: Any) -> None:
    async with place(tokens=BOTH) as here:
        ana, bob = await here.caller(ANA), await here.caller(BOB)
        await here.reload(tokens=[{"name": "ana", "token": "${ANA_NEW}"}, BOTH[1]])
        assert (await ana.ask("ping")).status == 401
        ana.headers["Authorization"] = f"Bearer another-{ANA}"
        assert (await ana.ask("ping")).status == 404
        assert (await bob.ask("ping")).status == 200


async def test_a_token_in_a_file_is_read_again_though_the_configuration_says_the_same(
    place: Any, tmp_path: Path
) -> None:
    kept = tmp_path / "token"
    kept.write_text(ANA)
    tokens = [{"name": "ana", "token": f"${{file:{kept}}}"}]
    async with place(tokens=tokens) as here:
        ana = await here.caller(ANA)
        await here.host.reload()
        assert (await ana.ask("ping")).status == 200
        kept.write_text(BOB)
        await here.host.reload()
        assert (await ana.ask("ping")).status == 401
        assert (await (await here.caller(BOB)).ask("ping")).status == 200


async def test_calls_under_way_end_well_and_new_ones_wait_when_a_server_is_replaced(place: Any) -> None:
    async with place(tools=["pid", "sleep"]) as here:
        client = await here.caller()
        old = (await client.call("pid")).text
        slow = asyncio.create_task(client.call("sleep", {"seconds": 0.5, "text": "slept well"}))
        await until(lambda: here.serving.gateway.under_way == 1)
        here.env = {"ANOTHER": "1"}
        reloading = asyncio.create_task(here.reload())
        await until(lambda: here.host.config.servers[0].env != {})
        new = await asyncio.gather(*(client.call("pid") for _ in range(20)))
        assert {reply.text for reply in new} - {old} == {reply.text for reply in new[-1:]}
        assert (await slow).text == "slept well"
        await reloading


async def test_profiles_come_change_and_go_under_the_clients_that_use_them(place: Any) -> None:
    async with place(profiles={"one": {}, "two": {}}) as here:
        one, two = await here.caller(path="/one"), await here.caller(path="/two")
        assert await one.tools() == ["echo", "pid"]
        async with one.standing() as standing:
            await here.reload(profiles={"one": {"deny": ["lab/pid"]}, "three": {"allow": ["lab/pid"]}})
            assert (await soon(standing))["method"] == "notifications/tools/list_changed"
            assert await one.tools() == ["echo"]
            assert (await one.call("pid")).error["code"] == -32602
        assert (await two.ask("ping")).status == 404
        assert await (await here.caller(path="/three")).tools() == ["pid"]


async def test_limits_and_allowed_names_hold_from_then_on(place: Any) -> None:
    async with place() as here:
        client = await here.caller()
        named = {"Host": "mcp.example.com"}
        assert (await client.ask("ping", None, **named)).status == 403
        await here.reload(allowed_hosts=["mcp.example.com"], max_body=2000, max_sessions=1)
        assert (await client.ask("ping", None, **named)).status == 200
        assert (await client.call("echo", {"text": "x" * 3000})).status == 413
        other = Caller(here.http, here.serving.url, modern=False)
        async with client.standing():
            assert (await other.ask("initialize", {"protocolVersion": "2025-11-25"})).status == 503
        await here.reload(rate=0.001, burst=1)
        assert [(await client.ask("ping")).status for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"tokens": [{"name": "ana", "token": "${NOBODY_SET_THIS}"}]}, "NOBODY_SET_THIS"),
        ({"tokens": [{"name": "ana", "token": "written-out-in-full"}]}, "reference"),
        ({"oauth": {"issuer": "https://id.example.com", "key_file": "/does/not/exist"}}, "/does/not/exist"),
        ({"profiles": {"a b": {}}}, "a b"),
        ({}, "no token is required"),
    ],
)
async def test_a_bad_file_leaves_the_old_one_in_force_and_says_why(
    place: Any, bad: dict[str, Any], problem: str
) -> None:
    async with place("0.0.0.0", tokens=BOTH) as here:
        ana = await here.caller(ANA)
        with pytest.raises(ConfigError, match=problem):
            await here.reload(**bad)
        assert (await ana.call("echo", {"text": "still here"})).text == "still here"
        assert (await (await here.caller()).ask("ping")).status == 401


async def test_a_watched_file_is_applied_and_a_bad_one_is_reported_and_watched_further(
    tmp_path: Path, place: Any
) -> None:
    from mooring.core.events import ConfigApplied, ConfigRejected

    file = tmp_path / "mcp.json"

    def write(here: Place, **gateway: Any) -> None:
        here.write(**gateway)
        file.write_text(
            json.dumps({**json.loads(file.read_text()), "watch": {"enabled": True, "debounce": 0.05}})
        )

    here = Place(file)
    write(here, tokens=BOTH)
    with anyio.fail_after(90):
        async with (
            Host.from_config(file, lock=False) as here.host,
            serve_http(here.host) as here.serving,
            aiohttp.ClientSession() as here.http,
        ):
            events = here.host.events(ConfigApplied, ConfigRejected)
            await here.host.ready(10)
            ana, bob = await here.caller(ANA), await here.caller(BOB)
            write(here, tokens=[{"name": "ana", "token": "${NOBODY_SET_THIS}"}])
            assert isinstance(await anext(events), ConfigRejected)
            assert (await bob.ask("ping")).status == 200
            write(here, tokens=BOTH[:1])
            assert isinstance(await anext(events), ConfigApplied)
            assert ((await bob.ask("ping")).status, (await ana.ask("ping")).status) == (401, 200)


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_command_reloads_on_sighup_and_reports_a_rejected_file(
    tmp_path: Path, workers: int
) -> None:
    here = Place(tmp_path / "mcp.json")
    here.write(tokens=BOTH)
    port = free_port()
    words = command("--config", str(here.file), "--no-lock", "serve", "--http", f"127.0.0.1:{port}")
    said = tmp_path / "said"
    with said.open("wb") as stream:
        process = await asyncio.to_thread(
            subprocess.Popen, [*words, "--workers", str(workers)], stderr=stream
        )
    try:
        async with aiohttp.ClientSession() as http:
            await until_ready(http, port, workers)
            ana, bob = [
                Caller(
                    http,
                    f"http://127.0.0.1:{port}/mcp",
                    modern=True,
                    headers={"Authorization": f"Bearer {token}"},
                )
                for token in (ANA, BOB)
            ]

            async def statuses(client: Caller) -> set[int]:
                """Of many requests, each on a connection of its own: every worker gets some."""
                return {(await client.ask("tools/list", None, Connection="close")).status for _ in range(24)}

            assert (await statuses(ana), await statuses(bob)) == ({200}, {200})
            here.file.write_text("{")
            process.send_signal(signal.SIGHUP)
            await until(lambda: said.read_text().count("stays in use") >= workers)
            assert (await statuses(ana), await statuses(bob)) == ({200}, {200})
            here.write(tokens=BOTH[:1])
            process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(10):
                while await statuses(bob) != {401}:
                    pass
            assert await statuses(ana) == {200}
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 20) == 0
