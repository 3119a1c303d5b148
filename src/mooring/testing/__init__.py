"""For the tests of programs that use mooring: a server that does as it is told, time that passes when it
is told to, and real traffic recorded and played again."""

from mooring.testing.clock import VirtualClock
from mooring.testing.faults import Fault, crash, garbage, hang, rate_limited, slow, unauthorized
from mooring.testing.script import Request
from mooring.testing.server import FakeServer
from mooring.testing.tape import Recorder, Replay

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
