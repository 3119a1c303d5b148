"""The gateway's own metrics: they show when a call is running, and that it was cancelled."""

import asyncio
from urllib.parse import urljoin
from urllib.request import urlopen

CANCELLED = 'mooring_gateway_requests_total{method="tools/call",outcome="cancelled"}'
UNDER_WAY = "mooring_gateway_under_way"


def figure(url: str, line: str) -> float:
    with urlopen(urljoin(url, "/metrics"), timeout=10) as response:
        lines = response.read().decode().splitlines()
    return next((float(one.rpartition(" ")[2]) for one in lines if one.startswith(f"{line} ")), 0.0)


async def above(url: str, line: str, least: float) -> bool:
    """Whether a figure comes to be more than that, within a bound."""
    for _ in range(200):
        if await asyncio.to_thread(figure, url, line) > least:
            return True
        await asyncio.sleep(0.05)
    return False
