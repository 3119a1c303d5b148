"""The stream of changes: readers that come back, readers that are slow, and many events."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import anyio
import pytest

from mooring import Host
from mooring.console import web
from mooring.console.journal import KEPT_OPS, apply
from mooring.core.events import CallFinished, CallStarted
from mooring.host import runtime_of
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio


def emit_call(host: Host, number: int) -> None:
    about = {"server": "lab", "tool": "echo", "session": "load", "call": 10_000 + number}
    emit = runtime_of(host).emit
    emit(CallStarted(**about))
    emit(CallFinished(**about, duration=0.01, is_error=False))


async def test_a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice(opened: Any) -> None:
    async with opened(lab_server(tools=["echo"])) as page:
        await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
        state = await page.get("state")
        last, seen = f"{state['epoch']}-{state['rev']}", []
        done = asyncio.Event()

        async def work() -> None:
            for number in range(60):
                emit_call(page.host, number)
                await anyio.sleep(0.02)
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            with anyio.fail_after(60):
                while not done.is_set() or state["values"]["activity"]["finished"] < 60:
                    async for key, kind, data in page.events(last):  # cut off after each event
                        assert kind == "patch"
                        assert data["rev"] > state["rev"]
                        seen += [op[2]["id"] for op in data["ops"] if op[:2] == ["put", "calls"]]
                        apply(state, data["ops"])
                        state["rev"], last = data["rev"], key
                        break
        assert sorted(set(seen), key=lambda one: int(one[1:])) == [f"c{10_000 + n}" for n in range(60)]
        now = await page.get("state")
        while state["rev"] < now["rev"]:
            async for key, _, data in page.events(last):
                apply(state, data["ops"])
                state["rev"], last = data["rev"], key
                break
        later = await page.get("state")
        if later["rev"] == state["rev"]:
            assert {**state, "time": 0} == {**later, "time": 0}


async def test_a_reader_of_another_process_or_from_too_long_ago_starts_again(opened: Any) -> None:
    async with opened(lab_server()) as page:
        state = await page.get("state")
        strange = ["", "x", "deadbeef-1", f"{state['epoch']}-999999999", f"{state['epoch']}--1", "9" * 5_000]
        for since in strange:
            async for _, kind, data in page.events(since):
                assert (kind, data["epoch"]) == ("reset", state["epoch"])
                break
        for number in range(KEPT_OPS + 10):
            page.console.journal.put("log", {"id": f"x{number}"})
        async for _, kind, data in page.events(f"{state['epoch']}-{state['rev']}"):
            assert (kind, data["rev"] >= KEPT_OPS) == ("reset", True)
            break


async def test_the_header_of_a_reconnecting_browser_is_understood(opened: Any) -> None:
    async with opened(lab_server()) as page:
        await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
        state = await page.get("state")
        headers = {"Last-Event-ID": f"{state['epoch']}-{state['rev']}"}
        page.console.state.add_log("after", "info", time.time())
        async with page.http.get(f"{page.address}api/events?since=old", headers=headers) as answer:
            while not (line := (await answer.content.readline()).decode()).startswith("event:"):
                pass
            assert line == "event: patch\n"


async def test_a_slow_reader_costs_no_memory_and_continues_with_a_snapshot(opened: Any) -> None:
    async with opened(lab_server(), large=2**14) as page:
        async with page.http.get(f"{page.address}api/events") as answer:
            for round_ in range(40):  # far more than fits into the buffers of the sockets
                for number in range(web.MOST_OPS):
                    page.console.journal.put("log", {"id": f"x{round_}-{number}", "text": "x" * 200})
                await anyio.sleep(0.01)
            assert len(page.console.journal._ops) == KEPT_OPS
            text = b""
            with anyio.fail_after(60):
                while b'"x39-1999"' not in text:
                    text += await answer.content.readany()
        resets, patches = text.count(b"event: reset\n"), text.count(b"event: patch\n")
        assert resets >= 2, "the first one, and one after the pause"
        assert resets + patches < 40, "fewer than there were rounds"


async def test_many_events_are_few_frames_and_every_call_is_counted(opened: Any) -> None:
    """500 calls a second for some seconds: at most ten events a second reach a reader."""
    async with opened(lab_server()) as page:
        await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
        frames: list[float] = []

        async def load() -> None:
            for number in range(1_500):
                emit_call(page.host, number)
                if number % 10 == 9:
                    await anyio.sleep(0.02)

        state = await page.get("state")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            with anyio.fail_after(60):
                async for _, kind, data in page.events(f"{state['epoch']}-{state['rev']}"):
                    frames.append(time.monotonic())
                    if kind == "reset":
                        state = data
                    else:
                        apply(state, data["ops"])
                    if state["values"]["activity"]["finished"] == 1_500:
                        break
        assert len(state["tables"]["calls"]) == 1_000
        assert all(row["outcome"] == "ok" for row in state["tables"]["calls"])
        took = frames[-1] - frames[0]
        assert len(frames) <= took / web.INTERVAL + 2
        assert len(json.dumps(page.console.journal.snapshot())) < 3_000_000


async def test_memory_of_the_wire_is_bounded_under_load(opened: Any) -> None:
    async with opened(lab_server(tools=["echo", "big"])) as page:
        await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
        for _ in range(30):
            await page.host.call("mcp_lab_big", {"size": 1_000_000}, budget=0)
        for number in range(300):
            await page.host.call("mcp_lab_echo", {"text": f"{number}"})
        await page.until(lambda state: state["values"]["activity"]["finished"] == 330)
        wire = page.console._wire
        assert len(page.state["tables"]["wire"]) <= 500
        assert wire._size <= 16 * 2**20
        assert wire._call_size <= 32 * 2**20
        assert page.state["values"]["wire"]["messages"] >= 660
