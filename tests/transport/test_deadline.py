"""Requests time out on time, all of a transport by one timer, and a blocked loop loses no response."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from mooring.transport.limits import LATE, DeadlineTimer, Pending


class Request(Pending):
    """Remembers when it was given up."""

    def __init__(self, timeout: float | None = None, idle: float | None = None) -> None:
        super().__init__(timeout, idle, None)
        self.over = asyncio.Event()
        self.times = 0

    def expire(self) -> None:
        self.times += 1
        self.over.set()


async def given_up(*requests: Request) -> None:
    async with asyncio.timeout(5):
        for request in requests:
            await request.over.wait()


def watching(*requests: Request) -> tuple[dict[int | str, Any], DeadlineTimer]:
    under_way: dict[int | str, Any] = {}
    watch = DeadlineTimer(under_way)
    for number, request in enumerate(requests):
        under_way[number] = request
        watch.check_by(request.due)
    return under_way, watch


async def test_each_request_is_given_up_once_at_its_own_end() -> None:
    requests = [Request(timeout) for timeout in (0.03, 0.01, 0.02)]
    watching(*requests)
    await given_up(*requests)
    assert [request.times for request in requests] == [1, 1, 1]


async def test_what_was_answered_is_not_given_up() -> None:
    answered, late = Request(0.01), Request(0.02)
    under_way, _ = watching(answered, late)
    del under_way[0]
    await given_up(late)
    assert answered.times == 0


async def test_a_sign_of_life_puts_the_silence_off_but_not_the_end() -> None:
    request, other = Request(timeout=0.06, idle=0.04), Request(0.05)
    started = request.due
    watching(request, other)
    request.touch()
    assert request.due >= started
    await given_up(other, request)
    assert request.times == 1


async def test_excused_silence_counts_only_from_when_it_is_over() -> None:
    request, other = Request(idle=0.01), Request(0.03)
    _, watch = watching(request, other)
    request.pause()
    await given_up(other)
    assert request.times == 0
    request.resume()
    watch.check_by(request.due)
    await given_up(request)


async def test_a_blocked_loop_gives_answers_that_are_already_here_a_moment() -> None:
    request = Request(0.01)
    under_way, _ = watching(request)
    asyncio.get_running_loop().call_later(0.012 + 2 * LATE, under_way.clear)  # the answer, read at last
    time.sleep(3 * LATE)
    after = Request(0.01 + LATE)
    watch = DeadlineTimer({0: after})
    watch.check_by(after.due)
    await given_up(after)
    assert request.times == 0


async def test_a_watch_that_is_ended_gives_nothing_up() -> None:
    request, other = Request(0.01), Request(0.03)
    _, watch = watching(request)
    watching(other)
    watch.end()
    await given_up(other)
    assert request.times == 0
