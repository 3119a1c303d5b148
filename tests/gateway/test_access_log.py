"""The access log and the application log: one line per request, JSON or text, and nothing secret."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import Host, HostConfig, LocalTools
from mooring.config.operation import LogSettings
from mooring.config.sections import GatewaySettings
from mooring.errors import ConfigError, MooringError
from mooring.gateway import access
from mooring.gateway.access import RequestRecord, as_json, as_text, trace_of
from mooring.gateway.app import Gateway
from mooring.gateway.clients import ANONYMOUS
from mooring.gateway.logs import ApplicationLog
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio
TOKEN = "a-token-of-twenty-letters"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_each_request_has_one_line_with_who_what_and_how_it_ended(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANA", TOKEN)
    log = tmp_path / "access.log"
    settings = {
        "tokens": [{"name": "ana", "token": "${ANA}"}],
        "profiles": {"reading": {}},
        "access_log": {"path": str(log), "format": "json"},
    }
    async with serving(lab_server(tools=["echo", "fail"]), gateway=settings) as here:
        modern = await here.caller(path="/mcp/reading", token=TOKEN)
        meta = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        await modern.ask("tools/call", {"name": "echo", "arguments": {"text": "hi"}, "_meta": meta})
        legacy = await here.caller(modern=False, token=TOKEN)
        await legacy.call("fail")
        await legacy.call("no_such_tool")
        await legacy.ask("no/such/method")
        async with here.http.get(here.base + "/health") as answer:
            health_size = len(await answer.read())
        async with here.http.post(here.base + "/mcp", data="{}") as answer:
            assert answer.status == 401
            refused_size = len(await answer.read())
    found = lines(log)
    call, hello, ready, fail, unknown, method, health, refused = found
    assert call == call | {
        "remote": "127.0.0.1",
        "principal": "token:ana",
        "profile": "reading",
        "method": "tools/call",
        "server": "lab",
        "tool": "echo",
        "http": "POST",
        "path": "/mcp/reading",
        "status": 200,
        "outcome": "ok",
        "trace": TRACE,
    }
    assert call["ms"] > 0
    assert call["in"] > 100
    assert call["out"] > 50
    assert "session" not in call
    assert hello["method"] == "initialize"
    assert ready["status"] == 202
    assert (fail["tool"], fail["outcome"], fail["error"]) == ("fail", "error", "tool_error")
    assert legacy.session is not None
    assert fail["session"] == legacy.session[:8]
    assert legacy.session not in log.read_text(), "the whole id would give access to the session"
    assert (unknown["method"], unknown["outcome"], unknown["error"]) == (
        "tools/call",
        "refused",
        "unknown_tool",
    )
    assert (method["method"], method["outcome"]) == ("unknown", "refused")
    assert (health["path"], health["outcome"], health["out"]) == ("/health", "ok", health_size)
    assert (refused["status"], refused["outcome"], refused["out"]) == (401, "refused", refused_size)
    assert refused["path"] == "/mcp"
    assert "principal" not in refused


async def test_a_refused_request_has_its_path_and_its_principal_as_far_as_they_are_known(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANA", TOKEN)
    log = tmp_path / "access.log"
    settings = {
        "tokens": [{"name": "ana", "token": "${ANA}"}],
        "profiles": {"reading": {"scopes": ["read"]}},
        "access_log": str(log),
    }
    async with serving(lab_server(), gateway=settings) as here:
        ours = {"Authorization": f"Bearer {TOKEN}"}
        for path, headers, expected in (
            ("/mcp/reading", ours, 403),
            ("/mcp/reading", {"Authorization": "Bearer nonsense"}, 401),
            ("/mcp/no-such-profile", ours, 404),
            ("/admin/v1/tokens", ours, 403),
        ):
            async with here.http.post(here.base + path, data="{}", headers=headers) as answer:
                assert answer.status == expected
    keys = ("path", "profile", "principal", "outcome")
    assert [tuple(line.get(key) for key in keys) for line in lines(log)] == [
        ("/mcp/reading", "reading", "token:ana", "refused"),
        ("/mcp/reading", "reading", None, "refused"),
        (None, None, "token:ana", "refused"),
        ("/admin/v1/tokens", None, "token:ana", "refused"),
    ]


async def test_a_batch_has_a_line_for_each_request_and_stdio_is_logged_too(
    serving: Any, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    async with serving(lab_server(), gateway={"access_log": str(log)}) as here:
        hello = {"protocolVersion": "2025-03-26", "capabilities": {}}
        legacy = await here.caller(modern=False)
        reply = await legacy.ask("initialize", hello)
        legacy.session = reply.headers["Mcp-Session-Id"]
        calls = [
            {
                "jsonrpc": "2.0",
                "id": n,
                "method": "tools/call",
                "params": {"name": "echo", "arguments": {"text": "x"}},
            }
            for n in range(3)
        ]
        _, headers = legacy.message("tools/list", {}, 1)
        answers = await legacy.post(calls, {**headers, "MCP-Protocol-Version": "2025-03-26"})
        assert len(answers.messages[0]) == 3
    assert sum(line.get("method") == "tools/call" for line in lines(log)) == 3


SECRETS = ("hunter2-hunter2-hunter2", "s3cr3t-in-the-query", "s3cr3t-in-an-argument", "s3cr3t-in-a-name")


async def test_no_secret_reaches_a_log_whatever_a_client_or_server_sends(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens in the query, in headers, in paths, as arguments, as names, and in texts of errors."""
    caplog.set_level(logging.DEBUG)
    password, query, argument, name = SECRETS
    monkeypatch.setenv("ANA", password)
    log = tmp_path / "access.log"
    settings = {"tokens": [{"name": "ana", "token": "${ANA}"}], "access_log": str(log)}
    async with serving(lab_server(tools=["echo", "fail"]), gateway=settings) as here:
        for path in (f"/mcp?access_token={query}", f"/mcp/{query}", f"/{query}", f"/health?key={query}"):
            for headers in ({"Authorization": f"Bearer {argument}"}, {"Authorization": f"Bearer {password}"}):
                async with here.http.post(here.base + path, data="{", headers=headers):
                    pass
        caller = await here.caller(modern=False, token=password)
        caller.headers |= {"X-Api-Key": query, "Cookie": f"session={query}", "traceparent": name}
        await caller.call("echo", {"text": "x", "password": argument, "api_key": argument})
        await caller.call("fail", {"token": argument})
        await caller.call(name)
        await caller.ask(name)
        await caller.ask("tools/call", {"name": {"a": argument}})
        await caller.ask("prompts/get", {"name": name, "arguments": {"secret": argument}})
        await caller.ask("resources/read", {"uri": f"https://user:{argument}@host/{name}"})
        await caller.post("{not json " + argument, {**caller.message("x", {}, 1)[1]})
        async with here.http.get(here.base + "/metrics", headers=caller.headers) as answer:
            metrics = await answer.text()
    seen = {"access log": log.read_text(), "log": caplog.text, "metrics": metrics}
    for where, text in seen.items():
        for secret in SECRETS:
            assert secret not in text, (where, secret)
    assert len(lines(log)) >= 18


@given(st.lists(st.text(max_size=300) | st.none(), min_size=12, max_size=12))
def test_a_line_stays_one_line_of_printable_text(said: list[str | None]) -> None:
    entry = (1.5, tuple(said), 0.25, 1, 2, None)
    for shape in (as_json, as_text):
        line = shape(entry)
        assert len(line.splitlines()) == 1
        assert line.isprintable()
        assert len(line) < 12 * 1300
    read = json.loads(as_json(entry))
    assert (read["time"], read["ms"], read["in"], read["out"]) == ("1970-01-01T00:00:01.500Z", 250.0, 1, 2)
    assert ("principal" in read) == bool(said[1])


def test_only_valid_trace_ids_are_logged() -> None:
    good = f"00-{TRACE}-b7ad6b7169203331-01"
    assert trace_of({"traceparent": good}, {}) == TRACE
    assert (
        trace_of({"traceparent": good}, {"traceparent": good.replace("0af7", "ffff")}) == "ffff" + TRACE[4:]
    )
    for bad in ("", "x", good.upper(), good + "\n", good + "-x", f"00-{TRACE}"):
        assert trace_of({"traceparent": bad}, {"traceparent": 1}) is None


async def test_the_file_is_opened_again_so_that_it_can_be_renamed(serving: Any, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    async with serving(lab_server(), gateway={"access_log": {"path": str(log), "format": "text"}}) as here:
        caller = await here.caller()
        await caller.call("echo", {"text": "1"})
        await until(lambda: log.exists() and log.read_text() != "", 10)
        log.rename(tmp_path / "access.log.1")
        await caller.call("echo", {"text": "2"})
    for name in ("access.log", "access.log.1"):
        assert "method=tools/call server=lab tool=echo" in (tmp_path / name).read_text()


async def test_a_log_that_cannot_be_written_stops_no_request_and_says_what_was_lost(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access, "MAX_WAITING", 3)
    monkeypatch.setattr(access, "RETRY", 0.05)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "access.log"
    async with serving(lab_server(), gateway={"access_log": str(log)}) as here:
        caller = await here.caller()
        log.unlink()
        (tmp_path / "logs").rename(tmp_path / "away")
        for n in range(10):
            assert (await caller.call("echo", {"text": str(n)})).text == str(n)
        await until(lambda: "access log cannot be written" in caplog.text, 10)
        (tmp_path / "away").rename(tmp_path / "logs")
        await until(log.exists, 10)
    assert caplog.text.count("access log cannot be written") == 1
    found = lines(log)
    assert sum(line.get("lost", 1) for line in found) == 10
    with pytest.raises(ConfigError, match="access log cannot be written"):
        async with serving(lab_server(), gateway={"access_log": str(tmp_path / "no" / "such")}):
            pass


# --- the application log ----------------------------------------------------------------------------------


def test_the_application_log_is_json_redacted_and_its_levels_change_while_it_runs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from mooring.config.logs import guard
    from mooring.core.redact import Redactor

    redactor = Redactor(["very-secret-value"])
    guard(redactor)
    log = ApplicationLog()
    try:
        log.use(LogSettings(format="json", level="warning", levels={"mooring.gateway": "debug"}))
        logging.getLogger("mooring.gateway").debug("shown %s", "\x1b[31mvery-secret-value")
        logging.getLogger("mooring.host").info("not shown")
        log.set_level("mooring", "info")
        try:
            raise ValueError("very-secret-value")
        except ValueError:
            logging.getLogger("mooring.host").exception("now\nshown")
        found = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
        assert [(one["level"], one["logger"]) for one in found] == [
            ("debug", "mooring.gateway"),
            ("error", "mooring.host"),
        ]
        assert found[0]["message"] == "shown \\x1b[31m***"
        assert "very-secret-value" not in json.dumps(found)
        assert found[1]["exception"].endswith("ValueError: ***")
        assert [one["message"] for one in log.lines] == [one["message"] for one in found]
        for name, level in (("root", "debug"), ("aiohttp", "debug"), ("mooring", "loud")):
            with pytest.raises(MooringError):
                log.set_level(name, level)
    finally:
        log.close()
    logging.getLogger("mooring.gateway").debug("afterwards")
    assert capfd.readouterr().err == ""


async def test_a_reload_changes_the_logs(serving: Any, tmp_path: Path) -> None:
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    async with serving(lab_server(), gateway={"access_log": str(one)}) as here:
        caller = await here.caller()
        await caller.call("echo", {"text": "1"})
        await until(lambda: one.exists() and one.read_text() != "", 10)
        settings = GatewaySettings(access_log=str(two), log={"level": "debug"})
        await here.host.apply(HostConfig(servers=here.host.config.servers, style="raw", gateway=settings))
        await caller.call("echo", {"text": "2"})
        assert here.serving.service.report == ["gateway.access_log changed", "gateway.log changed"]
        assert logging.getLogger("mooring").level == logging.DEBUG
    assert len(lines(one)) == len(lines(two)) == 1


class LeavingClient:
    """A channel of a client that does not read messages."""

    headers: Mapping[str, str] = {}
    streams = False

    def __init__(self) -> None:
        self.record: RequestRecord | None = None

    def send(self, body: bytes) -> None: ...


async def test_a_client_that_leaves_at_any_moment_has_one_outcome_in_all_records(tmp_path: Path) -> None:
    async def work() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return "done"

    log = tmp_path / "audit.jsonl"
    host = Host(HostConfig(audit=str(log)), local=[LocalTools(work)], lock=False)
    outcomes: list[str] = []
    async with host, asyncio.timeout(60):
        gateway = Gateway(host)
        profile = gateway.profile("")
        assert profile is not None
        message = {"method": "tools/call", "params": {"name": "work", "arguments": {}}}
        for steps in range(1_000):
            exchange = LeavingClient()
            client = gateway.registry.transient(profile, ANONYMOUS, "modern", "2026-07-28", {})
            answering = asyncio.create_task(gateway.answer(client, message, exchange))
            for _ in range(steps):
                await asyncio.sleep(0)
            ended = not answering.cancel()
            await asyncio.wait({answering})
            if exchange.record is not None:  # else it left before the request was read
                outcomes.append(exchange.record.outcome)
            if ended:
                break
        counted = gateway.metrics.text()
    audited = [json.loads(line)["outcome"] for line in log.read_text().splitlines()]
    assert audited == outcomes
    assert outcomes.count("cancelled") > 1, "it left during the call"
    assert outcomes.count("ok") > 1, "it left between the result and the response"
    for outcome in ("ok", "cancelled"):
        assert f'method="tools/call",outcome="{outcome}"}} {outcomes.count(outcome)}\n' in counted
