"""One line of the audit log, for any call with any arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import errors
from mooring.config.audit import LONGEST_LINE, AuditSettings, digest, fingerprint, line, outcome_of, sketch
from mooring.config.validate import InvalidEntryError
from mooring.core.redact import Redactor

SECRET = "pl+nted/secret?4711="

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object())
values = st.recursive(
    leaves | st.text(min_size=500, max_size=3000),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.booleans(), inner),
    max_leaves=60,
)


@given(values, st.text(), st.text())
def test_any_arguments_make_one_line_of_valid_json_within_its_bound(
    arguments: Any, name: str, server: str
) -> None:
    redact = Redactor()
    said = {"time": "now", "name": name, "server": server, "ms": 1.5}
    for shown in (sketch(arguments, redact), f"hmac-sha256:{digest(b'k' * 64, fingerprint(arguments))}"):
        written = line({**said, "arguments": shown}, redact)
        assert written.endswith(b"\n")
        assert written.count(b"\n") == 1
        assert len(written) <= LONGEST_LINE
        assert written.isascii()
        read = json.loads(written)
        assert read["ms"] == 1.5


@given(values, st.text(max_size=300), st.text(max_size=300), st.integers(0, 3))
def test_no_secret_stands_in_a_line_wherever_it_was_put(
    other: Any, before: str, after: str, deep: int
) -> None:
    redact = Redactor([SECRET])
    arguments: Any = {f"{before}{SECRET}{after}": f"{before}{SECRET}{after}", "other": other}
    for _ in range(deep):
        arguments = {"in": [arguments]}
    said = {"name": f"{before}{SECRET}{after}", "server": SECRET, "session": SECRET, "agent": SECRET}
    written = line({**said, "arguments": sketch(arguments, redact)}, redact).decode()
    assert SECRET not in written
    assert json.dumps(SECRET)[1:-1] not in written


def test_half_a_secret_at_the_end_of_what_is_shown_is_none_either() -> None:
    redact = Redactor([SECRET])
    for room in range(150, 210):
        shown = sketch({"text": "x" * room + SECRET}, redact)
        assert "nted" not in str(shown)
    many = (SECRET + " ") * 10_000
    assert "nted" not in str(sketch({"text": many}, redact))


def test_what_a_name_calls_a_secret_is_not_shown_even_if_no_one_knows_it() -> None:
    shown = sketch({"password": "unknown to all", "api_key": ["one"], "path": "/tmp"}, Redactor())
    assert shown == {"password": "***", "api_key": "***", "path": "/tmp"}


def test_equal_arguments_have_one_digest_within_a_log_and_another_one_in_the_next() -> None:
    one, two = fingerprint({"a": 1, "b": [2]}), fingerprint({"b": (2,), "a": 1})
    assert digest(b"key", one) == digest(b"key", two)
    assert digest(b"key", one) != digest(b"other", one)
    assert digest(b"key", one) != digest(b"key", fingerprint({"a": 1, "b": [3]}))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "ok"),
        (errors.CallTimeout("x", server="s", tool="t", outcome="unknown"), "unknown"),
        (errors.ServerError("x", server="s", tool="t", code=1), "failed"),
        (errors.CircuitOpen("x", server="s", tool="t", retry_after=1.0), "not sent"),
        (errors.PolicyDenied("x", server="s", tool="t", reason="r"), "refused"),
        (errors.ToolChanged("x", server="s", tool="t", reason="r"), "refused"),
        (errors.NotTrusted("x", server="s"), "refused"),
        (errors.AuthNeeded("x", server="s"), "not sent"),
        (errors.UnknownTool("x"), "not sent"),
        (RuntimeError("a bug"), "unknown"),
    ],
)
def test_the_outcome_follows_from_the_error(error: Exception | None, outcome: str) -> None:
    assert outcome_of(error) == outcome


def test_a_tool_that_answers_with_an_error_is_distinguished_from_one_that_did_not_answer() -> None:
    assert outcome_of(None, failed=True) == "error"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"path": 5},
        {"path": "a", "arguments": "full"},
        {"path": "a", "keep": 0},
        {"path": "a", "max_bytes": 9},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidEntryError):
        AuditSettings.from_fields(wrong)
