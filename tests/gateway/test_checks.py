"""The pure checks of requests: hosts, origins, rate limits and headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.gateway.auth import Denied, check_host, check_origin, check_parameters, is_loopback
from mooring.gateway.protocol import Refusal
from mooring.gateway.routes import ClientLimits, RateLimited


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "[::1]", "localhost:80", "[::1]:8080", "127.8.8.8:1"]
)
def test_loopback_hosts_are_always_allowed(host: str) -> None:
    check_host(host, local=True, allowed=())
    check_host(host, local=False, allowed=())


@pytest.mark.parametrize(
    "host",
    [
        *("evil.com", "localhost.evil.com", "127.0.0.1.nip.io", "", None, "127.0.0.1@evil.com", "a/b"),
        *("192.168.1.5", "[::2]", "localhost:80:90", "LOCALHOST.", "0.0.0.0"),
    ],
)
def test_other_hosts_are_rejected_on_loopback(host: str | None) -> None:
    with pytest.raises(Denied):
        check_host(host, local=True, allowed=())


def test_beyond_loopback_addresses_and_listed_names_are_served() -> None:
    check_host("192.168.1.5:80", local=False, allowed=())
    check_host("mcp.example.com", local=False, allowed=("mcp.example.com",))
    with pytest.raises(Denied):
        check_host("mcp.example.com", local=False, allowed=())


@given(st.text(max_size=30))
def test_any_host_is_either_taken_or_denied(host: str) -> None:
    for local in (True, False):
        try:
            check_host(host, local=local, allowed=())
        except Denied as denied:
            assert denied.status == 403


@given(st.text(max_size=30))
def test_an_origin_is_taken_only_when_it_is_local_or_listed(origin: str) -> None:
    try:
        check_origin(origin, local=True, allowed=("https://app.example",))
    except Denied:
        return
    host = origin.partition("://")[2].partition("/")[0].rpartition("@")[2]
    assert origin == "https://app.example" or is_loopback(host.partition(":")[0]) or host.startswith("[")


@given(
    st.dictionaries(
        st.sampled_from(["a", "b"]), st.text("aÄ €", max_size=4) | st.integers(-9, 9) | st.booleans()
    )
)
def test_arguments_that_stand_in_headers_must_stand_there_and_be_the_same(given_: dict[str, object]) -> None:
    from base64 import b64encode

    wanted = {("a",): "A", ("b",): "B"}

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    headers = {
        f"Mcp-Param-{key.upper()}": f"=?base64?{b64encode(text(value).encode()).decode()}?="
        for key, value in given_.items()
    }
    check_parameters(headers, wanted, given_)
    for name in headers:
        with pytest.raises(Refusal):
            check_parameters({**headers, name: "=?base64?bm8gc3VjaA==?="}, wanted, given_)
        with pytest.raises(Refusal):
            check_parameters({key: value for key, value in headers.items() if key != name}, wanted, given_)
    with pytest.raises(Refusal):
        check_parameters({**headers, "Mcp-Param-A": "x"}, wanted, {})


@pytest.mark.parametrize("value", ["=?base64?aGk=", "=?base64?", "=?base64?=", "aGk=?=", "=?BASE64?aGk=?="])
def test_a_header_without_both_marks_of_an_encoding_is_literal(value: str) -> None:
    check_parameters({"Mcp-Param-A": value}, {("a",): "A"}, {"a": value})
    with pytest.raises(Refusal):
        check_parameters({"Mcp-Param-A": value}, {("a",): "A"}, {"a": "hi"})


@pytest.mark.parametrize("value", ["=?base64?%%%?=", "=?base64?a?=", "=?base64?/w==?="])
def test_an_encoding_that_cannot_be_read_is_refused(value: str) -> None:
    for given_ in (value, ""):
        with pytest.raises(Refusal):
            check_parameters({"Mcp-Param-A": value}, {("a",): "A"}, {"a": given_})


@given(st.lists(st.floats(0, 3), max_size=40), st.integers(1, 5))
def test_no_client_exceeds_rate_and_burst(waits: list[float], burst: int) -> None:
    limits = ClientLimits(rate=2.0, burst=burst, concurrency=1000)
    now, taken = 0.0, 0
    for wait in waits:
        now += wait
        try:
            limits.enter("one", now)
            taken += 1
        except RateLimited as refused:
            assert refused.retry_after > 0
    assert taken <= burst + 2.0 * now + 1e-6


def test_a_finished_request_frees_its_place() -> None:
    limits = ClientLimits(rate=None, burst=1, concurrency=1)
    limits.enter("one", 0)
    with pytest.raises(RateLimited):
        limits.enter("one", 0)
    limits.enter("other", 0)
    limits.leave("one")
    limits.enter("one", 0)
