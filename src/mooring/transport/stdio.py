"""The stdio transport: one JSON message per line through a child's pipes."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from time import perf_counter

import anyio

from mooring.errors import Outcome
from mooring.transport import base
from mooring.transport.base import DuplexTransport, Waiter, log
from mooring.transport.limits import LINE, Slice, cost
from mooring.transport.message import decode
from mooring.transport.process import STDERR_LINES, Child

KEPT_NOISE = 3
SHOWN = 200
BACKLOG = 4
"""Buffered input of a child that does not read, in largest messages; above it, the transport is closed."""
BATCH = 16
"""Messages per write: with more, server and client would wait for each other."""
LINES_PER_LOOK = 32
"""Lines that are handled before the time is checked."""
EXIT_WAIT = 0.25
"""Seconds to wait for the exit code after the last output, for the error message."""

UNSTARTED_GRACE = 0.5
"""Seconds that a child that was not listed yet gets to exit, if `shutdown_grace` is longer."""


class StdioTransport(DuplexTransport):
    """A child's stdin and stdout."""

    kind = "stdio"

    def __init__(self, child: Child, *, max_message: int) -> None:
        super().__init__(child.server, max_message)
        self.child = child
        self.pid = child.pid
        self.noise: deque[str] = deque(maxlen=KEPT_NOISE)
        """First lines on stdout that are not messages: they often explain a failure."""
        self._max = max_message
        self._parts: list[bytes] = []
        self._size = 0
        self._later: deque[bytes] = deque()
        """Input that waits while the event loop serves other tasks. Reading is paused meanwhile."""
        self._ends = False
        self._turn = Slice()
        self._outbox: list[bytes] = []
        self._sent = 0
        self._unread = 0
        child.listen(self._read, self._stdout_ended)

    async def close(self, grace: float) -> None:
        for key in self.waiting:
            self.cancel_on_wire(key)
        self._flush()
        self.mark_closed("the connection was closed")
        # A server that has not finished its start needs no grace.
        await self.child.end(grace if self.listed else min(grace, UNSTARTED_GRACE))

    # --- out ----------------------------------------------------------------------------------

    def send(self, body: bytes, waiter: Waiter | None) -> None:
        if self.closed_reason is not None:
            return
        if waiter is not None:
            waiter.place = self._sent
        self._sent += len(body) + 1
        if len(self.waiting) <= 1 and not self._outbox:
            self._put(body + b"\n")  # no other request is pending that could share the write
            return
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(body)
        if len(self._outbox) >= BATCH:
            self._flush()

    def outcome(self, waiter: Waiter) -> Outcome:
        # A request of which the child never read a byte was not acted on: it may be sent again.
        return "not sent" if waiter.place >= self.child.written - self._unread else "unknown"

    def _flush(self) -> None:
        """Messages of one turn of the loop are sent in one write."""
        if self.closed_reason is None and self._outbox:
            lines, self._outbox = self._outbox, []
            self._put(b"\n".join(lines) + b"\n")

    def _put(self, data: bytes) -> None:
        if self.child.kill_pending:
            self.mark_closed("the server is being killed")
        elif self.child.write(data) > BACKLOG * self._max:
            self.mark_closed("the server does not read its input")

    # --- in -----------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        if self._later:
            self._later.append(data)
        elif rest := self._cut_lines(data):
            self._later.append(rest)
            self.child.pause()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle waiting input for one more time slice."""
        while self._later and self.closed_reason is None:
            if rest := self._cut_lines(self._later.popleft()):
                self._later.appendleft(rest)
                asyncio.get_running_loop().call_soon(self._go_on)
                return
        self._later.clear()
        self.child.resume()
        if self._ends:
            self._stdout_ended()

    def _cut_lines(self, data: bytes) -> bytes:
        """Split input into lines for one time slice; return the rest. Each byte is scanned once and copied at
        most twice, except for input that waits."""
        start = lines = 0
        while (end := data.find(b"\n", start)) >= 0 and self.closed_reason is None:
            line = data[start:end]
            if self._parts:
                self._parts.append(line)
                line = b"".join(self._parts)
                self._parts.clear()
                self._size = 0
            start = end + 1
            if len(line) > self._max:
                self._too_large()
            else:
                self._read_line(line)
            lines += 1
            if lines == LINES_PER_LOOK:
                self._turn.begin()
            elif self.full or (lines % LINES_PER_LOOK == 0 and self._turn.over()):
                return data[start:]
        rest = data[start:] if start else data
        if rest and self.closed_reason is None:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self._max:
                self._too_large()
        return b""

    def _too_large(self) -> None:
        self._parts.clear()
        self.mark_closed(
            f"a message of more than {self._max} bytes arrived; "
            f"raise `max_message` of server {self.server!r} if it is meant to be that large"
        )

    def _read_line(self, line: bytes) -> None:
        size = len(line) + 1
        line = line.strip()
        if not line:
            self.charge(size, LINE)
            return
        message: object = None
        began = perf_counter()
        with suppress(ValueError):
            message = decode(line) if line.startswith(b"{") else None
        if not self.take(message, size, began):
            self.dropped += 1
            self.charge(size, cost(began))
            if base.taps:
                base.passing(self.server, "stdout", line.decode("utf-8", "replace"))
            if len(self.noise) < KEPT_NOISE:
                self.noise.append(self.child.redact(line.decode("utf-8", "replace"))[:SHOWN])
                log.debug("%s wrote text to stdout that is not a message: %r", self.server, self.noise[-1])

    # --- the end ------------------------------------------------------------------------------

    def _stdout_ended(self) -> None:
        if self._later:
            self._ends = True  # earlier output is handled first
            return
        self._unread = self.child.unread if self.waiting else 0
        self.mark_closed("the server closed its output")

    async def failure_reason(self) -> str:
        if self.closed_reason is not None and (self.flooded or "max_message" in self.closed_reason):
            return self.closed_reason
        with anyio.move_on_after(EXIT_WAIT):
            await self.child.exited.wait()
            await self.child.silent.wait()
        code = self.child.returncode
        reason = self.closed_reason or "the server does not answer" if code is None else _exit_text(code)
        return "\n".join([reason, *self.last_output()])

    def last_output(self) -> list[str]:
        lines: list[str] = []
        # Errors of the start do not explain why a server that has worked fails later.
        if not self.answered and (first := self.child.first_errors.before(STDERR_LINES)):
            lines += ["its first errors on stderr:", *first]
        if tail := [line for line in self.child.stderr_tail if line.strip()]:
            lines += ["its last lines on stderr:", *tail]
        if self.noise:
            lines += ["on stdout, where only messages belong, it wrote:", *self.noise]
        return lines


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"the server exited with code {code}"
    return f"the server was ended by signal {-code}"
