"""Every exchange with a server, for whoever listens to the logger `mooring.wire` at level DEBUG.

The text names server and method alone. The exchange itself, which may hold anything, is the record's
attribute `exchange`: only a handler that asks for it sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

log = logging.getLogger("mooring.wire")


class Exchange(NamedTuple):
    server: str
    method: str
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None = None
    """What the server answered instead of a result."""


def note(exchange: Exchange) -> None:
    """Tell of an exchange, if anybody listens."""
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s: %s", exchange.server, exchange.method, extra={"exchange": exchange})
