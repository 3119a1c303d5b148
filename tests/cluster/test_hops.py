"""The header of a forwarded request: for one request, to one start of one node, once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.cluster import hops
from mooring.cluster.hops import HopKeys, HopRefused
from mooring.gateway.nodes import Hop, NodeId

A, B, C = NodeId("a", "0" * 16), NodeId("b", "1" * 16), NodeId("c", "2" * 16)
KEY, OTHER = b"k" * 32, b"o" * 32
ABOUT = Hop(A, "203.0.113.1", "example.org", "/base", "cert:x", True)


def refused(keys: HopKeys, header: str, method: str = "POST", target: str = "/mcp?x=1") -> str:
    with pytest.raises(HopRefused) as caught:
        keys.check(header, method, target)
    return caught.value.reason


def test_a_header_says_what_the_sender_knows_of_the_client() -> None:
    header = HopKeys(A, [KEY]).make(B, "POST", "/mcp?x=1", ABOUT)
    assert HopKeys(B, [KEY]).check(header, "POST", "/mcp?x=1") == ABOUT


def test_a_header_is_of_no_use_for_another_request_node_start_or_key() -> None:
    sender = HopKeys(A, [KEY])
    header = sender.make(B, "POST", "/mcp?x=1", ABOUT)
    assert refused(HopKeys(B, [KEY]), header, method="DELETE") == "key"
    assert refused(HopKeys(B, [KEY]), header, target="/mcp") == "key"
    assert refused(HopKeys(B, [OTHER]), header) == "key"
    assert refused(HopKeys(C, [KEY]), header) == "incarnation"
    assert refused(HopKeys(NodeId("b", "9" * 16), [KEY]), header) == "incarnation"
    receiver = HopKeys(B, [KEY])
    receiver.check(header, "POST", "/mcp?x=1")
    assert refused(receiver, header) == "replay"


def test_the_first_key_signs_and_every_key_is_accepted() -> None:
    old, new = HopKeys(A, [KEY, OTHER]), HopKeys(B, [OTHER, KEY])
    new.check(old.make(B, "GET", "/", ABOUT), "GET", "/")
    old.check(new.make(A, "GET", "/", ABOUT), "GET", "/")


@given(st.text(max_size=200))
def test_no_text_of_a_stranger_is_accepted(text: str) -> None:
    assert refused(HopKeys(B, [KEY]), text) == "key"


@given(st.integers(), st.integers(1, 200))
def test_numbers_may_come_in_any_order_and_each_counts_once(seed: int, count: int) -> None:
    sender, receiver = HopKeys(A, [KEY]), HopKeys(B, [KEY])
    headers = [sender.make(B, "POST", "/", ABOUT) for _ in range(count)]
    order = [*headers, *headers]
    random.Random(seed).shuffle(order)
    accepted = list[str]()
    for header in order:
        try:
            receiver.check(header, "POST", "/")
            accepted.append(header)
        except HopRefused as problem:
            assert problem.reason == "replay"
    assert sorted(accepted) == sorted(headers)


def test_a_number_that_is_too_old_to_know_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hops, "WINDOW", 8)
    sender, receiver = HopKeys(A, [KEY]), HopKeys(B, [KEY])
    headers = [sender.make(B, "POST", "/", ABOUT) for _ in range(20)]
    receiver.check(headers[19], "POST", "/")
    receiver.check(headers[12], "POST", "/")
    assert refused(receiver, headers[11], target="/") == "replay"
    assert refused(receiver, headers[12], target="/") == "replay"
