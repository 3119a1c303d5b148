"""Time that passes when a test says so."""

from __future__ import annotations

import asyncio

from mooring import clock

TURNS = 25
"""Rounds of the loop given to whatever has become due, and to what that starts."""


class VirtualClock:
    """Turns the running event loop's clock forward: every time-out, rest, breaker and idle session acts
    as if the time had passed. Real waiting (a child, a socket) goes on in real time.

        clock = VirtualClock()
        await clock.advance(1800)

    The clock is never turned back: a loop keeps what it was advanced by.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise RuntimeError(
                f"{type(loop).__name__} has a clock that cannot be turned; use asyncio's own loop"
            )
        self._system = loop.time
        self._ahead = 0.0
        vars(loop)["time"] = self.time
        clock.turned()

    def time(self) -> float:
        """The loop's clock."""
        return self._system() + self._ahead

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and whatever is due then begin."""
        self._ahead += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)
