"""The table of the negotiation: complete, finite, and right for every kind of server. No sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.eras import (
    ERRORS,
    HANDSHAKE_VERSIONS,
    MODERN_CODES,
    MODERN_VERSIONS,
    TABLE,
    UNSUPPORTED_VERSION,
    Outcome,
    Request,
    State,
    discover_outcome,
    era_of,
    failure_outcome,
    initialize_outcome,
    start,
    supported,
    texts,
)
from mooring.core.types import PROTOCOLS, Era

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ENDS = {"modern", "legacy", "error"}
PENDING: dict[State, set[Request]] = {
    state: {"discover", "initialize"}
    if state.startswith("both")
    else {"discover" if state.startswith("discover") else "initialize"}
    for state in get_args(State)
    if state not in ENDS
}
"""The requests without a reply, by state."""
STARTS = [
    start(protocol, spoken, preferred)
    for protocol in ("auto", *PROTOCOLS)
    for spoken in (None, "modern", "legacy")
    for preferred in ("modern", "legacy")
]


def test_every_reply_to_a_pending_request_is_covered_and_no_other() -> None:
    expected = {
        (state, (request, outcome))
        for state, requests in PENDING.items()
        for request in requests
        for outcome in OUTCOMES
    }
    silence = {("discover", "silence"), ("initialize, first", "silence")}
    assert set(TABLE) == expected | silence


def test_every_state_can_be_reached() -> None:
    reached = {state for _, state in STARTS}
    while more := {after for (state, _), (_, after) in TABLE.items() if state in reached} - reached:
        reached |= more
    assert reached == set(get_args(State))


@pytest.mark.parametrize(("key", "action", "after"), [(key, *value) for key, value in TABLE.items()])
def test_each_row_is_consistent(key: Any, action: str, after: State) -> None:
    state, reply = key
    pending = set(PENDING[state])
    if reply != "silence":
        pending.remove(reply[0])
    if action.startswith("send"):
        request = action.removeprefix("send ")
        assert request not in pending  # never twice at once
        pending.add(request)  # type: ignore[arg-type]
    if action == "wait":
        assert pending
    if action == "use":
        assert reply[1] == "agreed"
        assert after == {"discover": "modern", "initialize": "legacy"}[reply[0]]
    elif action in ("raise", "raise discover", "incompatible"):
        assert after == "error"
        assert action != "raise" or reply[1] in ERRORS  # there is an error to raise
    else:
        assert PENDING[after] == pending


@given(st.sampled_from(STARTS), st.lists(st.sampled_from([*OUTCOMES, "silence"]), max_size=30), st.data())
def test_every_negotiation_ends_after_a_few_requests(
    began: tuple[Request, State], outcomes: list[Any], data: st.DataObject
) -> None:
    request, state = began
    sent, failed = [request], False
    for outcome in outcomes:
        if state in ENDS:
            break
        if outcome == "silence":
            reply: Any = outcome
            if (state, reply) not in TABLE:
                continue  # the negotiation goes on waiting
        else:
            reply = (data.draw(st.sampled_from(sorted(PENDING[state]))), outcome)
            failed |= reply[0] == "discover" and outcome in ERRORS
        action, state = TABLE[state, reply]
        if action.startswith("send"):
            sent.append(action.removeprefix("send "))  # type: ignore[arg-type]
        assert action != "raise discover" or failed
    assert len(sent) <= 4
    assert sent.count("initialize") <= 2
    assert sent.count("discover") <= 2


# --- servers as functions: a request and its version in, an outcome or silence out ------------------------

Server = Callable[[Request, str], Outcome | None]


def server(versions: list[str], *, silent: bool) -> Server:
    """A server that speaks these versions, and refuses or ignores requests of an era it does not know."""

    def reply(request: Request, version: str) -> Outcome | None:
        if request == "discover":
            if any(era_of(one) == "modern" for one in versions):
                return discover_outcome({"supportedVersions": versions}, version)
            return None if silent else failure_outcome("answer", None, -32601, None)
        old = [one for one in versions if era_of(one) == "legacy"]
        if not old:
            return None if silent else failure_outcome("answer", None, -32601, None)
        return initialize_outcome({"protocolVersion": version if version in old else old[-1]}, version)

    return reply


def negotiated(began: tuple[Request, State], protocol: str, server: Server) -> State | None:
    """The last state; None when the negotiation waits for ever."""
    version = {
        "discover": MODERN_VERSIONS[-1] if protocol == "auto" else protocol,
        "initialize": HANDSHAKE_VERSIONS[-1] if protocol == "auto" else protocol,
    }
    request, state = began
    replies: dict[Request, Outcome | None] = {request: server(request, version[request])}
    while state not in ENDS:
        arrived = next((one for one in sorted(replies) if replies[one] is not None), None)
        if arrived is None and (state, "silence") not in TABLE:
            return None
        reply: Any = "silence" if arrived is None else (arrived, replies.pop(arrived))
        action, state = TABLE[state, reply]
        if action.startswith("send"):
            request = action.removeprefix("send ")  # type: ignore[assignment]
            replies[request] = server(request, version[request])
    return state


VERSIONS = st.lists(st.sampled_from(PROTOCOLS), min_size=1, unique=True).map(sorted)


@given(VERSIONS, st.booleans(), st.sampled_from(["modern", "legacy"]))
def test_a_server_with_a_common_version_is_always_agreed_with(
    versions: list[str], silent: bool, preferred: Era
) -> None:
    eras = {era_of(version) for version in versions}
    end = negotiated(start("auto", None, preferred), "auto", server(versions, silent=silent))
    assert end == (preferred if preferred in eras else eras.pop())


@given(VERSIONS, st.booleans(), st.sampled_from(PROTOCOLS))
def test_a_set_protocol_is_spoken_in_its_era_or_not_at_all(
    versions: list[str], silent: bool, protocol: str
) -> None:
    end = negotiated(start(protocol, None, "modern"), protocol, server(versions, silent=silent))
    assert end in (era_of(protocol), "error", None)
    if protocol in versions:
        assert end == era_of(protocol)


@given(VERSIONS, st.sampled_from(["modern", "legacy"]))
def test_what_a_server_spoke_before_is_spoken_again(versions: list[str], preferred: Era) -> None:
    for spoken in {era_of(version) for version in versions}:
        end = negotiated(start("auto", spoken, preferred), "auto", server(versions, silent=False))
        assert end == spoken


# --- replies ----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(PROTOCOLS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from(PROTOCOLS))
def test_no_result_of_any_shape_is_an_exception(value: Any, version: str) -> None:
    assert discover_outcome({"supportedVersions": value}, version) in ("agreed", "other version")
    assert initialize_outcome({"protocolVersion": value}, version) in ("agreed", "other version")
    assert failure_outcome("answer", None, UNSUPPORTED_VERSION, {"supported": value}) in OUTCOMES
    assert failure_outcome("answer", None, UNSUPPORTED_VERSION, value) in OUTCOMES


@pytest.mark.parametrize(
    ("result", "newest", "outcome"),
    [
        ({"protocolVersion": "2025-06-18"}, "2025-11-25", "agreed"),
        ({"protocolVersion": "2025-11-25"}, "2025-11-25", "agreed"),
        ({"protocolVersion": "2025-11-25"}, "2025-06-18", "other version"),
        ({"protocolVersion": "2026-07-28"}, "2025-11-25", "other version"),
        ({"protocolVersion": "2019-01-01"}, "2025-11-25", "other version"),
        ({}, "2025-11-25", "other version"),
    ],
)
def test_a_handshake_agrees_on_a_known_version_that_is_not_newer(
    result: dict[str, Any], newest: str, outcome: Outcome
) -> None:
    assert initialize_outcome(result, newest) == outcome


@pytest.mark.parametrize(
    ("kind", "status", "code", "data", "outcome"),
    [
        ("closed", None, -32000, None, "failed"),
        ("refused", None, -32000, None, "failed"),
        ("auth", 401, -32603, None, "failed"),
        ("timeout", None, -32001, None, "failed"),
        ("too-large", None, -32603, None, "failed"),
        ("status", 403, -32603, None, "failed"),
        ("status", 429, -32603, None, "failed"),
        ("status", 500, -32603, None, "failed"),
        ("status", 502, -32603, None, "failed"),
        ("status", 499, -32603, None, "unclear"),
        ("status", 400, -32603, None, "rejected"),
        ("status", 404, -32603, None, "rejected"),
        ("status", 405, -32603, None, "rejected"),
        ("status", 406, -32603, None, "rejected"),
        ("status", 415, -32603, None, "rejected"),
        ("status", 410, -32603, None, "unclear"),
        ("session", 404, -32603, None, "rejected"),
        ("invalid", None, -32603, None, "rejected"),
        ("answer", None, -32601, None, "refused"),
        ("answer", 400, -32600, None, "refused"),
        ("answer", None, -32020, None, "modern error"),
        ("answer", None, -32021, None, "modern error"),
        ("answer", 400, -32022, {"supported": ["2026-07-28"]}, "common version"),
        ("answer", 400, -32022, {"supported": ["2025-11-25"]}, "wrong version"),
        ("answer", 400, -32022, {"supported": ["2030-01-01"]}, "unknown versions"),
        ("answer", 400, -32022, {"supported": ["2030-01-01", "2024-11-05"]}, "wrong version"),
        ("answer", 400, -32022, {"supported": []}, "wrong version"),
        ("answer", 400, -32022, None, "wrong version"),
        ("closed", None, -32022, {"supported": ["2026-07-28"]}, "failed"),
    ],
)
def test_the_outcome_of_a_failure(
    kind: str, status: int | None, code: int, data: Any, outcome: Outcome
) -> None:
    assert failure_outcome(kind, status, code, data) == outcome


def test_versions_and_codes() -> None:
    assert {*MODERN_VERSIONS, *HANDSHAKE_VERSIONS} == set(PROTOCOLS)
    assert sorted(PROTOCOLS) == list(PROTOCOLS)  # versions are compared as texts
    assert UNSUPPORTED_VERSION in MODERN_CODES
    assert (era_of(None), era_of("2026-07-28"), era_of("2025-11-25")) == (None, "modern", "legacy")
    assert supported({"supported": ["a", 1, None, "b"]}) == ["a", "b"]
    assert supported(["a"]) == texts("a") == []
