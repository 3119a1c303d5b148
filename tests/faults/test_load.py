"""Load: limits of running and waiting calls, a clear error beyond them, and no effect on other servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from mooring import CallTimeout, HostConfig, Overloaded
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


class Busy:
    """A fault that keeps calls under way until `go` is set, and remembers how many there were at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now = self.most = self.served = 0

    async def __call__(self, request: web.Request, message: dict[str, Any]) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        self.served += 1


@pytest.mark.parametrize(("settings", "waiting"), [({}, 64), ({"max_queue": 3}, 3), ({"max_queue": 0}, 0)])
async def test_no_more_than_max_concurrency_calls_are_under_way_and_max_queue_wait(
    settings: dict[str, Any], waiting: int, hosting: Any
) -> None:
    async with HttpLab() as lab, hosting(lab.config(max_concurrency=2, **settings)) as host:
        busy = lab.faults["tools/call"] = Busy()
        calls = [
            asyncio.create_task(host.call("mcp_web_echo", {"text": "x"})) for _ in range(2 + waiting + 5)
        ]
        await until(lambda: busy.now == 2 and sum(call.done() for call in calls) == 5)
        busy.go.set()
        results = await asyncio.gather(*calls)
        outcomes = Counter(type(result.error) for result in results)
        assert outcomes == {type(None): 2 + waiting, Overloaded: 5}
        assert (busy.most, busy.served) == (2, 2 + waiting)
        refused = next(result for result in results if result.error is not None)
        assert f"The call queue of server 'web' is full (max_queue={waiting})" in refused.text


async def test_a_call_cancelled_as_its_turn_comes_is_cancelled_and_loses_no_permit(hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config(max_concurrency=1)) as host:
        for _ in range(20):
            busy = lab.faults["tools/call"] = Busy()
            first = asyncio.create_task(host.call("mcp_web_echo", {"text": "first"}))
            await until(lambda busy=busy: busy.now == 1)
            second = asyncio.create_task(host.call("mcp_web_echo", {"text": "second"}))
            await asyncio.sleep(0)
            # Both end in the same turn of the loop: one gives its permit back as the other stops waiting.
            first.cancel()
            second.cancel()
            outcomes = await asyncio.gather(first, second, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2
        del lab.faults["tools/call"]
        assert (await host.call("mcp_web_echo", {"text": "next"}, timeout=10)).text == "next"


async def test_a_changed_max_concurrency_holds_for_the_running_connection(hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        await host.apply(HostConfig(servers=(lab.config(max_concurrency=1, max_queue=0),)))
        busy = lab.faults["tools/call"] = Busy()
        first = asyncio.create_task(host.call("mcp_web_echo", {"text": "first"}))
        await until(lambda: busy.now == 1)
        assert isinstance((await host.call("mcp_web_echo", {"text": "x"})).error, Overloaded)
        busy.go.set()
        assert (await first).text == "first"


async def test_a_call_waits_for_its_turn_no_longer_than_its_own_deadline(hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config(max_concurrency=1)) as host:
        busy = lab.faults["tools/call"] = Busy()
        first = asyncio.create_task(host.call("mcp_web_echo", {"text": "first"}))
        await until(lambda: busy.now == 1)
        late = await host.call("mcp_web_echo", {"text": "late"}, timeout=0.2)
        assert isinstance(late.error, CallTimeout)
        assert late.error.outcome == "not sent"
        busy.go.set()
        assert (await first).text == "first"
        assert (await host.call("mcp_web_echo", {"text": "next"})).text == "next"
        assert busy.served == 2


async def test_a_waiting_caller_who_goes_away_leaves_no_gap_in_the_queue(hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config(max_concurrency=1)) as host:
        busy = lab.faults["tools/call"] = Busy()
        calls = [asyncio.create_task(host.call("mcp_web_echo", {"text": str(n)})) for n in range(10)]
        await until(lambda: busy.now == 1)
        for call in calls[1:6]:
            call.cancel()
        busy.go.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [r.text for r in results if not isinstance(r, BaseException)] == ["0", "6", "7", "8", "9"]
        assert busy.most == 1


async def test_one_server_that_never_answers_costs_the_calls_of_another_nothing(hosting: Any) -> None:
    slow = lab_server("slow", tools=["sleep"], settings={"max_concurrency": 4})
    async with hosting(slow, lab_server("quick")) as host:
        stuck = [asyncio.create_task(host.call("mcp_slow_sleep", {"seconds": 30})) for _ in range(40)]
        results = await asyncio.gather(*(host.call("mcp_quick_echo", {"text": str(n)}) for n in range(200)))
        assert [result.text for result in results] == [str(n) for n in range(200)]
        assert not any(call.done() for call in stuck)
        for call in stuck:
            call.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
