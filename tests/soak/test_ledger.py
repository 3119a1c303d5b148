"""The soak reports calls that end late, unless the event loop stood still meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.soak.__main__ import Soak
from tests.soak.ledger import TOLERANCE, Ledger


def test_a_call_that_ends_late_is_a_breach() -> None:
    ledger = Ledger()
    ledger.end(ledger.begin(), "unknown", "CallTimeout", TOLERANCE)
    ledger.check_ends([0.0] * 20)
    assert not ledger.broken
    ledger.end(ledger.begin(), "unknown", "CallTimeout", 2 * TOLERANCE)
    ledger.check_ends([0.0] * 20)
    assert ledger.broken == ["1 calls outlived their deadline by more than 0.25 s, up to 0.50 s"]


def test_only_the_time_that_the_loop_stood_still_after_the_deadline_is_subtracted() -> None:
    servers: Any = None
    soak = Soak(servers, seconds=1, seed=1, pause=1)
    now = time.monotonic()
    soak._stalls.extend([(now - 3, 5.0), (now - 2, 5.25), (now - 1, 5.5)])
    soak._due = now + 60
    assert soak._stalled_since(now - 2.5) == pytest.approx(0.5)
    assert soak._stalled_since(now - 1.5) == pytest.approx(0.25)
    assert soak._stalled_since(now - 0.5) == 0
    soak._due = now - 0.4  # the tick under way is late, too
    assert soak._stalled_since(now - 0.5) == pytest.approx(0.4, abs=0.2)
