"""Whether the application lets the event loop turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mooring.config.logs import logger
from mooring.core.events import Event, LoopLagged

log = logger("mooring.host")

PULSE, LAG = 1.0, 0.5
"""How often the loop is felt, and from how many seconds on a lag is told."""


async def feel(emit: Callable[[Event], None]) -> None:
    """Tell when the application has blocked the loop; its servers are not held for dead because of it."""
    while True:
        asleep = time.monotonic()
        await asyncio.sleep(PULSE)
        if (late := time.monotonic() - asleep - PULSE) > LAG:
            log.warning("the event loop was blocked for %.1f s", late)
            emit(LoopLagged(seconds=late))
