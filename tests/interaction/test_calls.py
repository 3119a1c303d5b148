"""Calls: routing, timeouts, cancellation at the server, and always a result."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web

from mooring import (
    AuthNeeded,
    CallError,
    CallFinished,
    CallStarted,
    CallTimeout,
    ConnectionLost,
    Host,
    LocalTools,
    ServerConfig,
    ServerError,
    UnknownTool,
)
from mooring.testing import FakeServer
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server, methods, starts, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


async def test_a_result_shows_text_data_server_and_the_tools_own_name(hosting: Any) -> None:
    async with hosting(lab_server("My Lab!")) as host:
        result = await host.call("mcp_my_lab__echo", {"text": "hi"})
        assert (result.text, result.structured, result.is_error) == ("hi", {"text": "hi"}, False)
        assert (result.server, result.tool) == ("My Lab!", "echo")
        assert result.content == [{"type": "text", "text": "hi"}]
        assert result.duration > 0


async def test_what_the_tool_calls_a_failure_is_an_error_result_of_the_tool(hosting: Any) -> None:
    async with hosting(lab_server(tools=["fail"])) as host:
        result = await host.call("mcp_lab_fail")
        assert (result.is_error, result.text, result.error) == (True, "it did not work", None)
        with pytest.raises(CallError, match="it did not work"):
            await host.call("mcp_lab_fail", check=True)


async def test_an_error_of_the_protocol_is_readable_and_keeps_its_code(hosting: Any) -> None:
    async with hosting(lab_server(tools=["refuse"])) as host:
        result = await host.call("mcp_lab_refuse")
        assert "refused on purpose" in result.text
        with pytest.raises(ServerError) as caught:
            await host.call("mcp_lab_refuse", check=True)
        assert (caught.value.code, caught.value.outcome) == (-32602, "failed")


async def test_an_unknown_tool_gets_the_nearest_names(hosting: Any) -> None:
    async with hosting(lab_server()) as host:
        result = await host.call("mcp_lab_ecko")
        assert result.is_error
        assert "'mcp_lab_echo'" in result.text
        with pytest.raises(UnknownTool) as caught:
            await host.call("mcp_lab_ecko", check=True)
        assert "mcp_lab_echo" in caught.value.suggestions


@pytest.mark.parametrize("arguments", [["a list"], "text", 7])
async def test_arguments_that_are_no_object_are_refused_before_sending(arguments: Any, hosting: Any) -> None:
    async with hosting(lab_server()) as host:
        result = await host.call("mcp_lab_echo", arguments)
        assert result.is_error
        assert "must be an object" in result.text


def _endless() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), object(), {1, 2}, [{"deep": b"bytes"}], 10**5000, _endless],
    ids=["nan", "object", "set", "bytes", "long", "deep"],
)
async def test_arguments_that_json_cannot_say_are_refused_before_sending(
    value: Any, tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(log=str(log))) as host:
        result = await host.call("mcp_lab_echo", {"text": _endless() if value is _endless else value})
        assert result.is_error
        assert "not JSON" in result.text
        assert "tools/call" not in methods(log)


async def test_arguments_are_checked_before_a_person_is_asked_and_before_a_server_starts(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"

    async def approve(request: Any) -> bool:
        raise AssertionError("asked about a call that cannot be made")

    server = lab_server(log=str(log), settings={"start": "lazy", "approve": ["*"]})
    async with hosting(server) as host:
        await host.refresh()  # from now on its tools are known without a start
    async with hosting(server, on_approval=approve) as host:
        result = await host.call("mcp_lab_echo", {"text": object()})
        assert "not JSON" in result.text
        assert len(starts(log)) == 1


@pytest.mark.parametrize("problem", [ValueError("secret-7"), TypeError("secret-7"), KeyError("secret-7")])
async def test_an_exception_of_a_provider_is_not_called_a_fault_of_the_arguments(
    problem: Exception, hosting: Any
) -> None:
    class Broken(LocalTools):
        async def call(self, tool: str, *args: Any, **options: Any) -> Any:
            raise problem

    def greet(name: str) -> str:
        return name

    async with hosting(providers=[Broken(greet, name="own")]) as host:
        name = next(name for name in host.catalog.tools if "greet" in name)
        result = await host.call(name, {"name": "x"})
        assert result.is_error
        assert "not JSON" not in result.text
        assert type(problem).__name__ in result.text
        assert "secret-7" not in result.text


async def test_FA09_a_call_that_takes_too_long_is_cancelled_on_the_wire(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["sleep", "echo"], log=str(log))) as host:
        result = await host.call("mcp_lab_sleep", {"seconds": 30}, timeout=0.2)
        assert isinstance(result.error, CallTimeout)
        assert result.error.outcome == "unknown"
        assert (await host.call("mcp_lab_echo", {"text": "alive"})).text == "alive"
        assert methods(log).count("notifications/cancelled") == 1


async def test_FA09_progress_keeps_a_call_alive_within_its_idle_time(hosting: Any) -> None:
    server = lab_server(tools=["sleep"], progress=True, settings={"idle_timeout": 0.4})
    async with hosting(server) as host:
        assert (await host.call("mcp_lab_sleep", {"seconds": 1.0})).text == "slept"


async def test_FA09_silence_ends_a_call_at_its_idle_time(hosting: Any) -> None:
    async with hosting(lab_server(tools=["sleep"], settings={"idle_timeout": 0.2})) as host:
        result = await host.call("mcp_lab_sleep", {"seconds": 30})
        assert isinstance(result.error, CallTimeout)


async def test_progress_reaches_the_caller(hosting: Any) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with hosting(lab_server(tools=["sleep"], progress=True)) as host:
        await host.call("mcp_lab_sleep", {"seconds": 0.1}, on_progress=on_progress)
    assert heard[0] == (1.0, 100.0, "step 1")


async def test_FA71_cancelling_the_caller_cancels_the_request_and_the_connection_lives(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["sleep", "echo"], log=str(log))) as host:
        call = asyncio.create_task(host.call("mcp_lab_sleep", {"seconds": 30}))
        await until(lambda: "tools/call" in methods(log))
        call.cancel()
        await asyncio.wait({call}, timeout=5)
        assert call.cancelled()
        assert (await host.call("mcp_lab_echo", {"text": "alive"})).text == "alive"
        (request,) = [m for m in wire_log(log) if m.get("params", {}).get("name") == "sleep"]
        (notice,) = [m for m in wire_log(log) if m.get("method") == "notifications/cancelled"]
        assert notice["params"]["requestId"] == request["id"]


async def test_a_modern_http_call_is_cancelled_by_closing_its_stream(hosting: Any) -> None:
    async with HttpLab(era="modern") as lab, hosting(lab.config()) as host:
        result = await host.call("mcp_web_sleep", {"seconds": 30}, timeout=0.2)
        assert isinstance(result.error, CallTimeout)
        await lab.until(lambda: lab.running == 0)
        assert "notifications/cancelled" not in lab.methods()


async def test_an_old_http_call_is_cancelled_by_a_notice(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        await host.call("mcp_web_sleep", {"seconds": 30}, timeout=0.2)
        await lab.until(lambda: "notifications/cancelled" in lab.methods())


async def test_FA10_a_server_killed_in_mid_call_leaves_the_outcome_unknown_and_says_why(hosting: Any) -> None:
    async with hosting(lab_server(tools=["crash", "echo"])) as host:
        result = await host.call("mcp_lab_crash")
        assert isinstance(result.error, ConnectionLost)
        assert result.error.outcome == "unknown"
        assert "signal 9" in result.text
        assert "crashing on purpose" in result.text


async def test_FA10_the_call_after_a_crash_finds_a_new_server(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["crash", "echo"], log=str(log))) as host:
        await host.call("mcp_lab_crash")
        results = await asyncio.gather(*(host.call("mcp_lab_echo", {"text": str(n)}) for n in range(64)))
        assert [result.text for result in results] == [str(n) for n in range(64)]
        assert len(starts(log)) == 2


async def test_the_wait_for_a_starting_server_counts_in_the_calls_own_time(hosting: Any) -> None:
    async with hosting(lab_server(tools=["sleep"], start_delay=0.5), ready=False) as host:
        started = asyncio.get_running_loop().time()
        result = await host.call("mcp_lab_sleep", {"seconds": 30}, timeout=1.0)
        assert isinstance(result.error, CallTimeout)
        assert asyncio.get_running_loop().time() - started < 1.45


async def test_calls_to_a_server_that_is_starting_wait_for_that_server_only(hosting: Any) -> None:
    slow = lab_server("slow", start_delay=0.5)
    async with hosting(slow, lab_server("quick"), ready=False) as host:
        order: list[str] = []

        async def call(name: str) -> None:
            result = await host.call(f"mcp_{name}_echo", {"text": name})
            order.append(result.text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "slow")
            tasks.start_soon(call, "quick")
        assert order == ["quick", "slow"]


async def test_FA15_a_message_beyond_the_cap_ends_the_connection_and_names_the_setting(hosting: Any) -> None:
    server = lab_server(tools=["big", "echo"], settings={"max_message": 100_000})
    async with hosting(server) as host:
        assert len((await host.call("mcp_lab_big", {"size": 90_000})).text) == 90_000
        result = await host.call("mcp_lab_big", {"size": 200_000})
        assert "max_message" in result.text
        assert (await host.call("mcp_lab_echo", {"text": "again"})).text == "again"


async def test_FA53_a_lost_http_session_is_made_again_and_the_call_sent_again(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        lab.live_sessions.clear()
        results = await asyncio.gather(*(host.call("mcp_web_echo", {"text": str(n)}) for n in range(20)))
        assert [result.text for result in results] == [str(n) for n in range(20)]
        assert lab.methods().count("initialize") == 2


async def test_FA55_the_http_status_survives_into_the_error_and_the_neighbours_live(hosting: Any) -> None:
    async def fail(request: web.Request, message: dict[str, Any]) -> web.Response | None:
        if message["params"].get("arguments", {}).get("text") == "bad":
            return web.Response(status=418, text="I am a teapot")
        return None

    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = fail
        bad, good = await asyncio.gather(
            host.call("mcp_web_echo", {"text": "bad"}), host.call("mcp_web_echo", {"text": "good"})
        )
        assert good.text == "good"
        assert "418" in bad.text
        assert "teapot" in bad.text


async def test_FA51_a_401_in_mid_session_says_that_a_login_is_needed(hosting: Any) -> None:
    async def expired(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=401)

    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = expired
        lab.faults["server/discover"] = lab.faults["initialize"] = expired
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert isinstance(result.error, AuthNeeded)
        await until(lambda: host.status()[0].state == "needs-auth")


async def test_FA59_a_connection_cut_in_mid_answer_costs_that_call_only(hosting: Any) -> None:
    async def cut(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message["params"].get("arguments", {}).get("text") != "cut":
            return None
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"jsonrpc":')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = cut
        bad, good = await asyncio.gather(
            host.call("mcp_web_echo", {"text": "cut"}), host.call("mcp_web_echo", {"text": "good"})
        )
        assert good.text == "good"
        assert isinstance(bad.error, ConnectionLost)
        assert bad.error.outcome == "unknown"


async def test_FA62_a_stream_that_breaks_off_is_resumed_where_the_server_numbers_its_events(
    hosting: Any,
) -> None:
    async def broken(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"id: 5\nretry: 10\ndata:\n\n")
        lab.faults["GET"] = rest_of(message["id"])
        return response

    def rest_of(request_id: int) -> Any:
        async def rest(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
            if request.headers.get("Last-Event-ID") != "5":
                return None
            reply, _ = await lab.reply(
                {
                    "id": request_id,
                    "method": "tools/call",
                    "params": {"name": "echo", "arguments": {"text": "x"}},
                },
                modern=False,
            )
            return web.Response(
                body=f"id: 6\ndata: {__import__('json').dumps(reply)}\n\n".encode(),
                headers={"Content-Type": "text/event-stream"},
            )

        return rest

    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = broken
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        assert lab.methods().count("tools/call") == 1


async def test_FA66_a_login_page_is_called_one(hosting: Any) -> None:
    async def page(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(text="<html><form>Sign in</form></html>", content_type="text/html")

    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = page
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert "text/html" in result.text
        assert "login" in result.text


async def test_FA65_a_compressed_bomb_is_refused_at_the_cap(hosting: Any) -> None:
    import gzip

    bomb = gzip.compress(b" " * (64 * 2**20))

    async def explode(request: web.Request, message: dict[str, Any]) -> web.Response:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        return web.Response(body=bomb, headers=headers)

    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = explode
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert "max_message" in result.text


async def test_FA58_a_redirect_within_the_origin_is_followed_and_one_out_of_it_is_not(hosting: Any) -> None:
    async def elsewhere(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=307, headers={"Location": target})

    async with HttpLab() as lab, HttpLab() as foreign, hosting(lab.config(headers={"X-Key": "k"})) as host:
        target = foreign.url
        lab.faults["tools/call"] = elsewhere
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert "another origin" in result.text
        assert foreign.seen == []


async def test_a_proxy_that_the_environment_names_is_used_and_one_it_excepts_is_not(
    monkeypatch: pytest.MonkeyPatch, hosting: Any
) -> None:
    asked: list[str] = []

    async def forward(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(str(request.raw_path if hasattr(request, "raw_path") else request.url))
        message = json.loads(await request.read())
        reply, status = await lab.reply(message, modern=True)
        return web.json_response(reply, status=status)

    async with HttpLab(era="modern") as lab:
        runner = web.ServerRunner(web.Server(forward))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{runner.addresses[0][1]}")
        try:
            far = ServerConfig(name="far", url="http://server.invalid/mcp")
            async with hosting(far) as host:
                assert (await host.call("mcp_far_echo", {"text": "by proxy"})).text == "by proxy"
            assert asked
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            before = len(asked)
            async with hosting(lab.config()) as host:
                assert (await host.call("mcp_web_echo", {"text": "direct"})).text == "direct"
            assert len(asked) == before
        finally:
            await runner.cleanup()


async def test_custom_headers_go_with_every_request(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config(headers={"X-Api-Key": "k1"})) as host:
        await host.call("mcp_web_echo", {"text": "x"})
        assert all(headers.get("X-Api-Key") == "k1" for _, headers in lab.seen)


async def test_modern_http_requests_name_their_method_and_tool_in_headers(hosting: Any) -> None:
    async with HttpLab(era="modern", tools=("größe",)) as lab, hosting(lab.config()) as host:
        (name,) = host.catalog.tools
        assert not (await host.call(name, {"text": "x"})).is_error
        headers = dict(lab.seen)["tools/call"]
        assert headers["Mcp-Method"] == "tools/call"
        assert headers["Mcp-Name"].startswith("=?base64?")
        assert headers["MCP-Protocol-Version"] == "2026-07-28"


async def test_every_call_ends_with_one_event(hosting: Any) -> None:
    async with hosting(lab_server(tools=["echo", "fail"])) as host:
        events = host.events()
        await host.call("mcp_lab_echo", {"text": "x"})
        await host.call("mcp_lab_fail")
        events.end()
        finished = [event async for event in events if isinstance(event, CallFinished)]
        assert [(event.tool, event.is_error) for event in finished] == [("echo", False), ("fail", True)]


async def test_a_ping_measures_a_round_trip_in_both_eras(hosting: Any) -> None:
    async with hosting(lab_server("old", era="legacy"), lab_server("new", era="modern")) as host:
        assert await host.ping("old") > 0
        assert await host.ping("new") > 0
        assert await host.health_check()


async def test_the_health_check_is_false_when_a_server_is_down(hosting: Any) -> None:
    async with hosting(lab_server("up"), lab_server("down", crash_at_start=1)) as host:
        assert not await host.health_check()


@pytest.mark.parametrize("kind", [CallStarted, CallFinished])
async def test_a_stream_of_one_kind_of_call_events_gets_them_without_another_stream(
    kind: Any, hosting: Any
) -> None:
    async with hosting(lab_server()) as host:
        events = host.events(kind)
        await host.call("mcp_lab_echo", {"text": "hi"})
        with anyio.fail_after(10):
            assert type(await anext(events)) is kind


async def test_a_model_that_misspells_an_argument_reads_which_one_was_meant() -> None:
    server = FakeServer("shop")

    @server.tool
    def price(item: str) -> float:
        """What an item costs."""
        return 9.5

    async with server, Host([server.http()], lock=False) as host:
        failed = await host.call("mcp_shop_price", {"itme": "rope"})
        assert failed.is_error
        assert "there is no argument 'itme', did you mean 'item'?" in failed.text
        assert "did you mean" not in (await host.call("mcp_shop_price", {"item": "rope"})).text
        assert "did you mean" not in (await host.call("mcp_shop_price", {"other": 1})).text
