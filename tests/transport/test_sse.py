from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.transport.endpoint import SseEvent, SseParser, TooLarge


def _parse(*chunks: bytes, limit: int = 10_000) -> list[SseEvent]:
    parser = SseParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_an_event_carries_its_data_name_id_and_retry() -> None:
    (event,) = _parse(b"event: endpoint\nid: 7\nretry: 1500\ndata: a\ndata: b\n\n")
    assert event == SseEvent(data=b"a\nb", event="endpoint", id="7", retry=1.5)


def test_comments_and_unknown_fields_are_passed_over() -> None:
    assert _parse(b": ping\n\nfoo: bar\n\ndata: x\n\n") == [SseEvent(data=b"x")]


def test_a_priming_event_without_data_still_carries_its_id() -> None:
    assert _parse(b"id: 3\n\n") == [SseEvent(data=b"", id="3")]


def test_an_unfinished_event_is_not_reported() -> None:
    assert _parse(b"data: half\n") == []


def test_an_event_beyond_the_cap_is_refused_while_it_arrives() -> None:
    with pytest.raises(TooLarge):
        _parse(b"data: " + b"x" * 50, b"x" * 60, limit=100)


def test_many_data_lines_count_together() -> None:
    with pytest.raises(TooLarge):
        _parse(b"data: " + b"x" * 60 + b"\n", b"data: " + b"x" * 60 + b"\n", limit=100)


@given(
    texts=st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8")), min_size=1),
    newline=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(1, 9), max_size=60),
)
def test_events_do_not_depend_on_where_the_bytes_were_cut(
    texts: list[str], newline: bytes, cuts: list[int]
) -> None:
    stream = b"".join(b"data: " + text.encode() + newline + newline for text in texts)
    pieces: list[bytes] = []
    for cut in cuts:
        pieces.append(stream[:cut])
        stream = stream[cut:]
    events = _parse(*pieces, stream)
    assert [event.data.decode() for event in events] == texts


def test_a_line_in_tiny_chunks_takes_no_more_memory_than_its_bytes() -> None:
    parser = SseParser(2**20)
    tracemalloc.start()
    try:
        for _ in range(2**17):
            assert list(parser.feed(bytes(bytearray(b"xx")))) == []  # not one object
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
