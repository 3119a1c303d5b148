"""The end of a process that serves: signals, and a bound that holds whatever hangs."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from mooring.config.logs import logger
from mooring.gateway.serve import Serving, reload_on_hangup
from mooring.host import Host
from mooring.transport.process import end_processes

__all__ = ["Shutdown", "collect_seldom", "shutdown_of", "wait_for_shutdown"]

log = logger("mooring.gateway")

LAST_WAIT = 2.0
SAME = 1.0
"""Seconds in which a further signal is the same request: a terminal or a service manager signals workers, and
so does the process that started them."""


class Shutdown:
    """The end of this process, at SIGTERM or SIGINT. A second signal, a second later, ends it at once.

    The signals do not need the event loop, which may be blocked.

    Args:
        stop: Called on the event loop when the shutdown begins.
        seconds: Returns after how many seconds the process ends, whatever its tasks and threads do.
        last: Called with the reason before that, at the same time, and given up after two seconds.
    """

    def __init__(
        self, stop: Callable[[], object], seconds: Callable[[], float], *last: Callable[[str], object]
    ) -> None:
        self._stop, self._seconds, self._last = stop, seconds, last
        self._loop = asyncio.get_running_loop()
        self._begun: float | None = None
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGINT):
                # The loop still handles a signal that has arrived. There is no moment without a handler.
                self._loop.add_signal_handler(number, self.begin)
                signal.signal(number, self._signalled)

    def _signalled(self, number: int, _: object) -> None:
        if self._begun is not None and time.monotonic() > self._begun + SAME:
            self._end(128 + number, "another signal")
        self.begin()

    def begin(self) -> None:
        """Begin the shutdown, unless it has begun."""
        if self._begun is None:
            self._begun = time.monotonic()
            threading.Thread(target=self._wait, name="mooring-shutdown", daemon=True).start()
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stop)

    def _wait(self) -> None:
        seconds = self._seconds()
        time.sleep(seconds)
        self._end(1, f"it took more than {seconds:g} s")

    def _end(self, code: int, reason: str) -> None:
        text = f"The shutdown is not complete: {reason}."
        steps = [threading.Thread(target=step, args=(text,), daemon=True) for step in self._last]
        for step in steps:
            step.start()
        end = time.monotonic() + LAST_WAIT
        for step in steps:
            step.join(max(end - time.monotonic(), 0))
        os._exit(code)


GC_THRESHOLD = 50_000
"""Allocations between two garbage collections. A call makes some hundreds, most of them short-lived."""


END_GRACE = 10.0
"""Seconds for everything at shutdown that does not wait for calls or servers."""


def shutdown_of(host: Host, stop: Callable[[], object], warn: Callable[[str], None]) -> Shutdown:
    """Return the end of the process that serves a host: it takes `gateway.drain`, the longest
    `shutdown_grace` of a server and 10 s at most, then `warn` is called and the processes of servers are
    killed."""

    def seconds() -> float:
        graces = [server.shutdown_grace for server in host.config.active]
        return host.config.gateway.drain + max(graces, default=0.0) + END_GRACE

    def kill(_: str) -> None:
        end_processes()

    return Shutdown(stop, seconds, kill, log.error, warn)


def collect_seldom() -> None:
    """Collect garbage seldom, and not what exists now: over a large catalog it takes a tenth of a second."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)


async def wait_for_shutdown(
    serving: Serving,
    warn: Callable[[str], None],
    note: Callable[[str], None],
    *,
    worker: bool = False,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Wait for SIGTERM or SIGINT, in a worker also for the end of the process that started it. SIGHUP reloads
    the configuration; clients stay connected. The process ends after that in any case: see `shutdown_of`.

    `note` is called with what a reload did, `warn` with the reason for each configuration that is rejected,
    `announce` with the URL as soon as signals are handled.
    """
    loop = asyncio.get_running_loop()
    collect_seldom()
    stop = asyncio.Event()
    shutdown = shutdown_of(serving.gateway.host, stop.set, warn)
    if worker:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end, shutdown)
    announce(serving.url)
    reloading = asyncio.create_task(reload_on_hangup(serving.gateway.host, warn, note, serving.service))
    try:
        await stop.wait()
    finally:
        reloading.cancel()


def _stop_at_end(shutdown: Shutdown) -> None:
    """Stop a worker when its standard input ends: the process that started it is gone."""
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        shutdown.begin()
