"""For the tests of programs that use mooring: a server that does as it is told, time that passes when it
is told to, and real traffic recorded and played again."""

from mooring.testing.recording import Recorder, Replay
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
    "slow",
    "unauthorized",
]
