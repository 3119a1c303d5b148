"""Damaged messages by the thousand: no crash, no hang, and the session still answers.

`FUZZ=100000` in the environment makes it a night's work.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from mooring import Host, ServerConfig
from tests.lab.http import HttpLab
from tests.lab.mutate import MESSAGES, mutated
from tests.lab.stdio import cue, lab_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60 + int(os.environ.get("FUZZ", "0")) // 50)]

LINES = int(os.environ.get("FUZZ", "3000"))
BODIES = max(LINES // 5, 300)
BATCH = 100


@asynccontextmanager
async def _hosting(server: ServerConfig) -> AsyncIterator[Host]:
    async with Host([server]) as host:
        assert await host.ready(20)
        yield host


async def _answers(host: Host, tool: str) -> bool:
    # An answer forged by accident is an answer; a second one would be no accident.
    return "alive" in [(await host.call(tool, {"text": "alive"}, timeout=5)).text for _ in range(2)]


def _no_surprise(caplog: pytest.LogCaptureFixture) -> None:
    surprises = [
        record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")
    ]
    assert surprises == []


@pytest.mark.parametrize("seed", [1, 2])
async def test_damaged_lines_on_stdout_neither_crash_nor_hang_nor_end_the_session(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    async with _hosting(lab_server(tools=["say", "echo", "pid"])) as host:
        pid = (await host.call("mcp_lab_pid")).text
        for _ in range(LINES // BATCH // 2):
            lines = b"\n".join(mutated(chance) for _ in range(BATCH)) + b"\n"
            await host.call("mcp_lab_say", cue(lines), timeout=5)
            assert await _answers(host, "mcp_lab_echo")
        assert pid in [(await host.call("mcp_lab_pid")).text for _ in range(2)]
    _no_surprise(caplog)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_damaged_http_answers_and_streams_cost_their_own_call_only(
    era: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(era)
    monkeypatch.setattr("mooring.core.breaker.Breaker.THRESHOLD", 10**9)
    monkeypatch.setattr("mooring.transport.http.RESUME_WAIT", 0.0)

    async def damage(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message["params"]["arguments"].get("text") == "alive":
            return None
        body = mutated(chance, chance.choice(MESSAGES[:5])).replace(b"@ID@", str(message["id"]).encode())
        kind = chance.choice(["application/json", "text/event-stream"])
        if kind == "text/event-stream":
            fields = chance.choices([b"data: ", b"event: ", b"id: ", b"retry: ", b": ", b"", b"\r"], k=3)
            body = mutated(chance, b"\n".join(field + body for field in fields) + b"\n\n")
        status = chance.choice([200] * 8 + [202, 400, 404 if era == "modern" else 409, 500])
        headers = {"Content-Type": kind, "Retry-After": chance.choice(["x", "0", "-1"])}
        return web.Response(body=body, status=status, headers=headers)

    async def nothing_to_resume(request: web.Request, message: dict[str, Any]) -> web.Response | None:
        return web.Response(status=405) if "Last-Event-ID" in request.headers else None

    async with HttpLab(era=era) as lab, _hosting(lab.config()) as host:
        lab.faults["tools/call"], lab.faults["GET"] = damage, nothing_to_resume
        for n in range(BODIES // 2):
            await host.call("mcp_web_echo", {"text": str(n)}, timeout=5)
            if n % 50 == 0:
                assert await _answers(host, "mcp_web_echo")
        assert await _answers(host, "mcp_web_echo")
        assert lab.methods().count("initialize" if era == "legacy" else "server/discover") == 1
    _no_surprise(caplog)


async def test_damaged_lists_leave_a_catalog_and_a_server_that_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chance = random.Random(3)
    damaged = True

    async def damage(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        body = mutated(chance, MESSAGES[3]).replace(b"@ID@", str(message["id"]).encode())
        return web.Response(body=body, content_type="application/json") if damaged else None

    async with HttpLab(era="modern") as lab, _hosting(lab.config()) as host:
        lab.faults["tools/list"] = damage
        for _ in range(BODIES // 2):
            await host.refresh("web")
            assert len(host.catalog.tools) <= 64
        damaged = False
        assert (await host.refresh("web"))["web"].ok
        assert await _answers(host, "mcp_web_echo")
    _no_surprise(caplog)
