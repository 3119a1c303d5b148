"""Random faults from a seed, until cancelled."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from typing import Any, cast

from mooring import Host
from mooring.transport.message import answer_id, decode
from tests.lab.mutate import mutated
from tests.lab.stdio import cue
from tests.soak.servers import Servers

WEB_FAULTS = ("forget", "cut", "restart", "429", "500", "502", "503", "page", "hang", "reset", "reset after",
              "half an answer")  # fmt: skip
STDIO_FAULTS = ("kill", "stop", "noise", "term")
LONGEST = 1.0
FOREIGN = 10**12
"""No soak makes so many calls that an id reaches this."""


class Mischief:
    """One fault every `pause` seconds, somewhere; some last for a while."""

    def __init__(self, host: Host, servers: Servers, seed: int, pause: float) -> None:
        self._host, self._servers, self._pause = host, servers, pause
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._edition = 0

    async def run(self) -> None:
        """Until cancelled; what is under way ends within `LONGEST` seconds."""
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._pause))
            if self._chance.random() < 0.2:
                self.change(self._chance.choice(self._servers.names))
            elif self._chance.random() < 0.6:
                await self._to_stdio(self._chance.choice(self._servers.stdio))
            else:
                self._to_web(self._chance.choice(self._servers.web))

    def change(self, name: str) -> None:
        """The server offers other tools."""
        self._edition += 1
        self.done["tools changed"] += 1
        self._servers.offer(name, self._edition)

    def _to_web(self, name: str) -> None:
        fault = self._chance.choice(WEB_FAULTS)
        self.done[f"http {fault}"] += 1
        self._servers.command(name, fault, self._chance.uniform(0.05, LONGEST))

    async def _to_stdio(self, name: str) -> None:
        fault = self._chance.choice(STDIO_FAULTS)
        self.done[f"stdio {fault}"] += 1
        if fault == "noise":
            noise = noise_of(self._chance)
            await self._host.call(f"mcp_{name}_say", cue(noise, then="silence"), timeout=0.2)
            return
        pid = self._host.provider(name).pid  # pyright: ignore[reportAttributeAccessIssue]
        if pid is None:
            return
        with suppress(ProcessLookupError):
            if fault == "stop":
                os.kill(pid, signal.SIGSTOP)
                asyncio.get_running_loop().call_later(self._chance.uniform(0.1, LONGEST), _go_on, pid)
            else:
                os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGTERM)


def noise_of(chance: random.Random) -> bytes:
    """Damaged messages, none of which can be taken for the answer to a call under way: those count from 1."""
    lines = b"\n".join(mutated(chance) for _ in range(20)).replace(b"@ID@", b"%d" % FOREIGN).split(b"\n")
    return b"\n".join(line for line in lines if not answers_a_call(line)) + b"\n"


def answers_a_call(line: bytes) -> bool:
    try:
        message: Any = decode(line.strip())
    except ValueError:
        return False
    if not isinstance(message, dict) or "method" in message:
        return False
    answered = answer_id(cast("dict[str, Any]", message).get("id"))
    return isinstance(answered, int) and 0 <= answered < FOREIGN


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
