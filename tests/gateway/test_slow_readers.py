"""FA85: a client that does not read its stream is dropped, and the sender never waits for it."""

from __future__ import annotations

from mooring.gateway.clients import MAX_QUEUED, Outbox


async def test_FA85_a_reader_that_is_too_far_behind_is_dropped_once() -> None:
    dropped: list[bool] = []
    slow = Outbox(on_lost=lambda: dropped.append(True))
    for number in range(MAX_QUEUED):
        slow.put(b"%d" % number)
    assert not slow.closed
    slow.put(b"one too many")
    slow.put(b"ignored")
    assert slow.lost
    assert slow.closed
    assert dropped == [True]


async def test_FA85_a_reader_that_keeps_up_gets_everything_in_order() -> None:
    box = Outbox()
    for number in range(MAX_QUEUED):
        box.put(b"%d" % number)
    box.close()
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        written.append(data)

    await box.write_all(write, frame=lambda data: data)
    assert written == [b"%d" % number for number in range(MAX_QUEUED)]
    assert not box.lost
