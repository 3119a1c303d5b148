"""What a `FakeServer` can be told to do wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["hang", "crash", "garbage", "slow", "unauthorized", "rate-limited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong when a request arrives."""

    kind: FaultKind
    seconds: float = 0.0


hang = Fault(kind="hang")
"""No answer ever comes."""
crash = Fault(kind="crash")
"""The child dies with code 3; over HTTP, the connection breaks off."""
garbage = Fault(kind="garbage")
"""The answer is no JSON."""
unauthorized = Fault(kind="unauthorized")
"""HTTP 401; over stdio, an error of the protocol."""


def slow(seconds: float) -> Fault:
    """The answer comes, after so many seconds."""
    return Fault(kind="slow", seconds=seconds)


def rate_limited(retry_after: int = 1) -> Fault:
    """HTTP 429 with `Retry-After`; over stdio, an error of the protocol."""
    return Fault(kind="rate-limited", seconds=retry_after)
