"""The noise of the soak never answers a call, so that every reported breach is real."""

from __future__ import annotations

import random

from tests.lab.mutate import mutated
from tests.soak.mischief import FOREIGN, answers_a_call, noise_of


def test_noise_holds_no_answer_to_an_id_in_use() -> None:
    lines = [line for seed in range(500) for line in noise_of(random.Random(seed)).split(b"\n")]
    assert len(lines) > 5_000
    assert not [line for line in lines if answers_a_call(line)]
    assert any(str(FOREIGN).encode() in line for line in lines)


def test_damaged_messages_as_they_are_would_answer_calls() -> None:
    chance = random.Random(1)
    damaged = [mutated(chance).replace(b"@ID@", b"7") for _ in range(500)]
    assert any(answers_a_call(line) for line in damaged)
