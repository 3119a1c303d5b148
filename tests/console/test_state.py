"""The reducer: every number of the console is made from events, without a clock."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mooring.console.journal import Journal
from mooring.console.state import LIMITS, MOST_TOOLS, ConsoleState, percentile
from mooring.core.events import (
    CallDenied,
    CallFinished,
    CallStarted,
    EventsDropped,
    ScriptFinished,
    ScriptStarted,
    StateChanged,
    shown_session,
)
from mooring.core.types import ServerStatus


def made(**options: Any) -> ConsoleState:
    return ConsoleState(Journal("e", LIMITS), **options)


def started(call: int, server: str = "s", tool: str = "t", **more: Any) -> CallStarted:
    return CallStarted(server=server, tool=tool, session="shared", call=call, **more)


def finished(
    call: int, seconds: float = 0.1, server: str = "s", tool: str = "t", **more: Any
) -> CallFinished:
    more = {"is_error": False, **more}
    return CallFinished(server=server, tool=tool, session="shared", call=call, duration=seconds, **more)


def connected(name: str = "s", **more: Any) -> ServerStatus:
    return ServerStatus(**{"name": name, "state": "connected", "transport": "stdio", **more})


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_half_and_nineteen_in_twenty_calls_are_not_slower_than_the_percentiles(times: list[float]) -> None:
    ordered = sorted(times)
    for share in (0.5, 0.95):
        found = percentile(ordered, share)
        assert found is not None
        assert sum(round(one, 1) <= found for one in ordered) >= share * len(ordered)
        assert found in [round(one, 1) for one in ordered]
    assert percentile([], 0.5) is None


def test_calls_become_rows_and_the_same_numbers_everywhere() -> None:
    state = made()
    state.set_servers([connected()], {}, 0.0)
    for number, (seconds, error) in enumerate([(0.1, None), (0.2, None), (0.3, "CallTimeout")], 1):
        state.add_event(started(number, principal="ana", script="r1" if number == 2 else None), 10.0)
        state.add_event(finished(number, seconds, is_error=error is not None, error=error), 10.5)
    state.add_event(started(4), 11.0)
    state.flush(11.0)
    rows = state.journal.tables["calls"]
    assert [(row["id"], row["outcome"], row["ms"]) for row in rows.values()] == [
        ("c1", "ok", 100.0),
        ("c2", "ok", 200.0),
        ("c3", "failed", 300.0),
        ("c4", "running", None),
    ]
    assert (rows["c2"]["principal"], rows["c2"]["script"], rows["c3"]["error"]) == (
        "ana",
        "r1",
        "CallTimeout",
    )
    activity, server = state.journal.values["activity"], state.journal.rows("servers")[0]
    (top,) = activity["top"]
    for name in ("errors", "error_rate", "p50", "p95"):
        assert activity[name] == server[name] == top[name]
    assert (activity["finished"], server["calls"], activity["running"]) == (3, 3, 1)
    assert (activity["p50"], activity["p95"], activity["error_rate"]) == (200.0, 300.0, 0.3333)
    assert server["rate"] == activity["rate"] == 0.3
    state.flush(30.0)
    assert state.journal.values["activity"]["rate"] == state.journal.rows("servers")[0]["rate"] == 0.0
    assert server["trips"] == [100.0, 200.0, None]


def test_a_denied_call_is_a_row_of_its_own_and_no_call_of_the_server() -> None:
    state = made()
    state.add_event(CallDenied(server="s", tool="t", session="x", reason="no"), 1.0)
    state.flush(1.0)
    (row,) = state.journal.rows("calls")
    assert (row["outcome"], row["error"]) == ("denied", "no")
    assert (state.journal.values["activity"]["denied"], state.journal.values["activity"]["finished"]) == (
        1,
        0,
    )


def test_scripts_have_rows_with_the_number_of_their_calls() -> None:
    state = made()
    state.add_event(ScriptStarted(script="r1", session="chat"), 1.0)
    assert state.journal.rows("scripts")[0]["state"] == "running"
    state.add_event(ScriptFinished(script="r1", session="chat", calls=3, duration=2.0, is_error=True), 3.0)
    (row,) = state.journal.rows("scripts")
    assert (row["state"], row["ms"], row["calls"]) == ("error", 2000.0, 3)


def test_after_lost_events_no_call_is_shown_as_running_for_ever() -> None:
    state = made()
    state.add_event(started(1), 1.0)
    state.add_event(EventsDropped(count=5), 2.0)
    state.flush(2.0)
    assert state.journal.rows("calls")[0]["outcome"] == "unknown"
    assert state.journal.values["activity"]["running"] == 0


def test_memory_stays_bounded_whatever_happens() -> None:
    state = made(log_calls=True)
    for number in range(1, 6_001):
        tool = f"tool{number}"
        state.add_event(started(number, tool=tool), number / 500)
        state.add_event(finished(number, tool=tool), number / 500)
        state.add_log("x" * 10_000, "info", number / 500, server="s", source="stderr")
        state.mark_recorded(number + 10_000, True)
    state.flush(12.0)
    for name, rows in state.journal.tables.items():
        assert len(rows) <= LIMITS.get(name, 0), name
    assert len(state._tools) == MOST_TOOLS
    assert len(state._running) == 0
    assert len(state._recorded) <= LIMITS["calls"]
    assert max(len(row["text"]) for row in state.journal.rows("log")) <= 301
    assert state.journal.values["activity"]["finished"] == 6_000
    assert len(state.journal.values["activity"]["top"]) == 10


def test_a_server_that_writes_much_does_not_push_out_the_lines_of_others() -> None:
    state = made()
    state.add_log("quiet", "info", 1.0, server="quiet", source="stderr")
    for _ in range(5_000):
        state.add_log("noise", "info", 1.5, server="loud", source="stderr")
    assert [row["server"] for row in state.journal.rows("log")].count("quiet") == 1


def test_rows_of_servers_say_why_and_what_to_do() -> None:
    state = made()
    problem = "HTTP 401\nWhat to do: run `mooring login api --no-browser`."
    servers = [
        connected("good", fresh_within=300.0, protocol="2026-07-28"),
        connected("old", protocol="2025-11-25", breaker="open"),
        connected("bad", state="failed", error="exit 1", retry_in=4.2),
        connected("api", state="needs-auth", error=problem),
        connected("off", state="disabled"),
    ]
    state.set_servers(servers, {"bad": {"restarts": 2}}, 100.0)
    rows = {row["id"]: row for row in state.journal.rows("servers")}
    assert (rows["good"]["label"], rows["good"]["era"], rows["good"]["next"]) == (
        "fresh within 300 s",
        "modern",
        None,
    )
    assert (rows["old"]["label"], rows["old"]["era"]) == ("breaker open", "legacy")
    bad = rows["bad"]
    assert (bad["next"], bad["retry_at"], bad["restarts"]) == ("mooring doctor", 104, 2)
    assert rows["api"]["next"] == "mooring login api --no-browser"
    assert rows["off"]["next"] == "mooring enable off"
    revision = state.journal.rev
    servers[2] = connected("bad", state="failed", error="exit 1", retry_in=3.1)
    state.set_servers(servers, {"bad": {"restarts": 2}}, 101.0)
    assert state.journal.rev == revision, "the same attempt, a second later, is no change"
    state.set_servers(servers[:1], {}, 102.0)
    assert [row["id"] for row in state.journal.rows("servers")] == ["good"]


def test_text_of_servers_is_one_line_without_control_characters() -> None:
    state = made()
    evil = "a\nb\x1b[31m\u202eevil\x00"
    state.add_event(StateChanged(server="s", old="pending", new="failed", reason=evil), 1.0)
    state.add_event(started(1, tool=evil), 1.0)
    text, tool = state.journal.rows("log")[0]["text"], state.journal.rows("calls")[0]["tool"]
    for shown in (text, tool):
        assert not any(letter in shown for letter in "\n\x1b\x00\u202e"), repr(shown)


def test_the_id_of_a_gateway_session_is_not_shown_whole() -> None:
    credential = "3f9a1c2b7d8e4f60a1b2c3d4e5f60718"
    assert shown_session(credential) == credential[:8]
    assert shown_session("chat-42") == "chat-42"
