"""Test helpers for programs that use mooring: a scripted server, a virtual clock, and recorded traffic."""

from mooring.testing.recording import Recorder, Replay, replay_script
from mooring.testing.script import Fault, Request, crash, garbage, hang, rate_limited, slow, unauthorized
from mooring.testing.server import FakeServer, VirtualClock

__all__ = [
    "FakeServer",
    "Fault",
    "Recorder",
    "Replay",
    "Request",
    "VirtualClock",
    "crash",
    "garbage",
    "hang",
    "rate_limited",
    "replay_script",
    "slow",
    "unauthorized",
]
