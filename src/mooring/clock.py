"""The one clock of the library: that of the event loop.

Time-outs, rests, breakers and idle sessions all follow it, so whoever turns the loop's clock forward
(`mooring.testing.VirtualClock`) sees all of them act as if the time had passed.
"""

from __future__ import annotations

import asyncio
import time

_turned = False


def turned() -> None:
    """A loop's clock is no longer the system's. Until then the system's is asked, which is much quicker."""
    global _turned
    _turned = True


def monotonic() -> float:
    """Seconds on the loop's clock; outside a loop, on the system's monotonic one, which it follows."""
    if not _turned:
        return time.monotonic()
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
