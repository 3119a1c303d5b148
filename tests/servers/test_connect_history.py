"""How often a failing server is tried again, and in which era."""

from __future__ import annotations

import pytest

from mooring.servers.status import ConnectHistory
from mooring.transport.message import WireError


def _exit(*, read: bool) -> WireError:
    return WireError("exited", kind="closed", outcome="unknown" if read else "not sent")


def test_rests_double_however_often_the_server_was_started() -> None:
    attempts = ConnectHistory(None)
    for expected in (1, 2, 4, 8, 16, 30, 30):
        attempts.restarts.started(0.0)
        assert attempts.failed(full_wait=True, waiting=False) == pytest.approx(expected, rel=0.2)


def test_callers_cannot_keep_a_crash_loop_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.concurrency.monotonic", lambda: 5.0)
    attempts = ConnectHistory(None)
    rests: list[float] = []
    for second in range(5):
        attempts.restarts.started(float(second))
        rests.append(attempts.failed(full_wait=False, waiting=True))
    assert rests[-1] == pytest.approx(55)
    assert all(rest < 2 for rest in rests[:-1])


def test_a_child_that_exits_before_it_reads_is_started_once_per_attempt() -> None:
    attempts = ConnectHistory(None)
    for _ in range(3):
        assert not attempts.another_way(["stdio"], _exit(read=False))
        assert attempts.era is None


def test_a_child_that_exits_on_the_probe_is_started_again_with_the_handshake() -> None:
    attempts = ConnectHistory(None)
    assert attempts.another_way(["stdio"], _exit(read=True))
    assert attempts.era == "legacy"


def test_a_child_that_exits_in_both_eras_is_started_once_per_later_attempt_in_alternate_eras() -> None:
    attempts = ConnectHistory(None)
    assert attempts.another_way(["stdio"], _exit(read=True))
    assert not attempts.another_way(["stdio"], _exit(read=True))
    eras = [attempts.era]
    for _ in range(3):
        assert not attempts.another_way(["stdio"], _exit(read=True))
        eras.append(attempts.era)
    assert eras == [None, "legacy", None, "legacy"]
    refused = WireError("unknown method", kind="answer", outcome="failed", code=-32601)
    assert attempts.another_way(["stdio"], refused)  # it runs again, and does not know the handshake
    assert attempts.era is None
