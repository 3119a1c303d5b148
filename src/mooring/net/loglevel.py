"""From which level on a server of the handshake era logs: one level holds for a whole connection.

In the 2026 era every request says for itself what it wants to be told.
"""

from __future__ import annotations

from contextlib import suppress

from mooring.net.live import Live
from mooring.net.message import WireError

__all__ = ["LEVELS", "USUAL", "louder", "set_level"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
USUAL = "info"
"""What somebody who asked for no level is told from."""
WITHIN = 5.0


def louder(one: str, other: str) -> str:
    """The level of the two at which more is told."""
    return min(one, other, key=LEVELS.index)


async def set_level(live: Live, level: str) -> None:
    """Have the server log from `level` on, where it can be told. One that refuses logs as it likes."""
    able = live.peer.era == "legacy" and "logging" in live.peer.info.capabilities
    if able and live.log_level != level:
        live.log_level = level
        with suppress(WireError):
            await live.ask("logging/setLevel", {"level": level}, timeout=WITHIN)
