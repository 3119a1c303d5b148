"""The one clock of the library: that of the event loop.

Time-outs, rests, breakers and idle sessions all follow it, so whoever turns the loop's clock forward
(`mooring.testing.VirtualClock`) sees all of them act as if the time had passed.
"""

from __future__ import annotations

import asyncio
import time


def monotonic() -> float:
    """Seconds on the loop's clock; outside a loop, on the system's monotonic one, which it follows."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
