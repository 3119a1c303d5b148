"""For the tests of programs that use mooring: a server that does as it is told, time that passes when it
is told to, and real traffic recorded and played again."""

from mooring.testing.clock import VirtualClock

__all__ = ["VirtualClock"]
