from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mooring.core.breaker import Breaker, Restarts, backoff


def _opened() -> Breaker:
    breaker = Breaker()
    for _ in range(5):
        breaker.failed(0.0)
    return breaker


def test_four_failures_do_not_open_it_and_the_fifth_does() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.failed(0.0)
    assert breaker.state(0.0) == "closed"
    breaker.failed(0.0)
    assert breaker.state(0.0) == "open"
    assert breaker.retry_after(0.0) == 10.0


def test_a_success_in_between_starts_the_count_again() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(0.0)
    assert breaker.state(0.0) == "closed"


def test_timeouts_count_from_the_time_on_that_the_server_may_take() -> None:
    breaker = Breaker()
    assert [breaker.timed_out(start, start + 4.0, 10.0) for start in (0.0, 2.0, 100.0)] == [
        False,
        False,
        True,
    ]
    breaker.succeeded()
    assert [breaker.timed_out(start, start + 4.0, 10.0) for start in (200.0, 200.0)] == [False, False]
    assert breaker.timed_out(300.0, 310.0, 10.0)


def test_while_open_nothing_is_let_through() -> None:
    assert not _opened().admit(9.9)


def test_after_the_rest_exactly_one_probe_is_let_through() -> None:
    breaker = _opened()
    assert breaker.state(10.0) == "half-open"
    assert [breaker.admit(10.0) for _ in range(5)] == [True, False, False, False, False]


def test_a_failed_probe_doubles_the_rest_up_to_two_minutes() -> None:
    breaker, now, rests = _opened(), 0.0, []
    for _ in range(6):
        rests.append(breaker.retry_after(now))
        now += rests[-1]
        assert breaker.admit(now)
        breaker.failed(now)
    assert rests == [10, 20, 40, 80, 120, 120]


def test_two_successes_close_it() -> None:
    breaker = _opened()
    assert breaker.admit(10.0)
    breaker.succeeded()
    assert breaker.state(10.0) == "half-open"
    assert breaker.admit(10.0)
    breaker.succeeded()
    assert breaker.state(10.0) == "closed"


def test_a_probe_whose_caller_went_away_makes_room_for_another() -> None:
    breaker = _opened()
    assert breaker.admit(10.0)
    breaker.abandoned()
    assert breaker.admit(10.0)


def test_failures_of_calls_let_through_before_it_opened_do_not_lengthen_its_rest() -> None:
    breaker = _opened()
    for _ in range(20):
        breaker.failed(1.0)
    assert breaker.retry_after(0.0) == 10.0


class BreakerMachine(RuleBasedStateMachine):
    """At most one probe is under way while it is not closed, whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker, self.now, self.probes = Breaker(), 0.0, 0

    @rule(seconds=st.floats(0, 300))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_call_asks(self) -> None:
        closed = self.breaker.state(self.now) == "closed"
        if self.breaker.admit(self.now) and not closed:
            self.probes += 1

    @precondition(lambda self: self.probes or self.breaker.state(self.now) == "closed")
    @rule()
    def a_call_fails(self) -> None:
        self.breaker.failed(self.now)
        self.probes = 0
        if self.breaker.state(self.now) == "open":
            assert 9.999 <= self.breaker.retry_after(self.now) <= 120.001  # sums of floats

    @precondition(lambda self: self.probes or self.breaker.state(self.now) == "closed")
    @rule()
    def a_call_succeeds(self) -> None:
        self.breaker.succeeded()
        self.probes = 0

    @invariant()
    def one_probe_at_most(self) -> None:
        assert self.probes <= 1


TestBreakerMachine = BreakerMachine.TestCase


@given(st.integers(1, 1000), st.floats(0, 1))
def test_backoff_grows_to_half_a_minute_and_spreads_by_a_fifth(failures: int, chance: float) -> None:
    assert 0.8 <= backoff(failures, chance) <= 36.0
    assert backoff(failures, chance) <= backoff(failures + 1, chance)


def test_there_is_no_rest_before_the_first_try() -> None:
    assert backoff(0, 0.5) == 0.0


def test_a_start_counts_for_a_minute_and_no_longer() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.started(0.0)
    assert restarts.rest(59.0) == 1.0
    assert restarts.rest(60.0) == 0.0
    restarts.started(60.0)
    assert restarts.rest(60.0) == 0.0
    restarts.started(60.0)
    restarts.clear()
    assert restarts.rest(60.0) == 0.0


def test_five_starts_in_a_minute_are_enough_for_that_minute() -> None:
    restarts = Restarts()
    for second in range(4):
        restarts.started(float(second))
    assert restarts.rest(4.0) == 0.0
    restarts.started(4.0)
    assert restarts.rest(4.0) == 56.0
    assert restarts.rest(61.0) == 0.0


def test_after_a_success_it_takes_five_failures_again() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.failed(0.0)
    breaker.succeeded()
    for _ in range(4):
        breaker.failed(0.0)
    assert breaker.state(0.0) == "closed"
    breaker.failed(0.0)
    assert breaker.state(0.0) == "open"
