"""A team on one gateway: 50 clients, 4 principals, 3 profiles, while tokens rotate and servers are killed.

    python -m tests.soak.team --seconds 300 [--clients 50]

The gateway runs as a user runs it: `mooring serve`, in a process of its own, with access log, audit log and
metrics. Every call carries a canary. At the end no answer may have been wrong or another client's, no
principal may have got what its profile or token forbids, and the three counts of calls must agree exactly:
what the access log says, what the audit log says, and what the metrics say. Requests that were refused
before they were read must be the same in the access log, the metrics and for the clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from mooring.gateway.tokens import TokenFile
from tests.lab.caller import Caller, Reply
from tests.lab.stdio import COMMAND

PROFILES = ("red", "green", "blue")
PRINCIPALS = ("ana", "bob", "cem", "dia")
KILL_EVERY, RELOAD_EVERY, ROTATE_EVERY, REVOKE_EVERY = 2.0, 5.0, 3.0, 4.0
RATE = 150.0
"""Calls per second of all clients."""


class Team:
    def __init__(self, folder: Path, clients: int, seconds: float) -> None:
        self.folder, self.clients, self.seconds = folder, clients, seconds
        self.config, self.access, self.audit = (folder / name for name in ("mcp.json", "access", "audit"))
        self.tokens = TokenFile(folder / "home" / "gateway-tokens.json")
        self.current: dict[str, str] = {}
        """The newest token of each principal."""
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.url = ""
        self._stop = asyncio.Event()

    def write(self, turn: int) -> None:
        """A configuration in which one server differs from turn to turn."""
        script = json.dumps({"tools": ["echo", "sleep"]})
        servers = {
            name: {
                "command": COMMAND[0],
                "args": [*COMMAND[1:], script],
                "env": {"TURN": str(turn if n == turn % len(PROFILES) else 0)},
            }
            for n, name in enumerate(PROFILES)
        }
        gateway = {
            "profiles": {name: {"servers": [name]} for name in PROFILES},
            "access_log": {"path": str(self.access), "format": "json"},
            "audit": {"path": str(self.audit), "max_bytes": 2**30},
            "metrics": {"principals": True},
            "log": {"format": "json", "level": "warning"},
            "concurrency": 1000,
        }
        self.config.write_text(json.dumps({"mcpServers": servers, "gateway": gateway, "style": "server"}))

    async def run(self) -> bool:
        self.write(0)
        for name in PRINCIPALS:
            # Each principal may use all profiles but one.
            allowed = [profile for profile in PROFILES if profile != self.forbidden(name)]
            self.current[name], _ = self.tokens.create(name, profiles=allowed, lifetime=86_400)
        self.current["admin"], _ = self.tokens.create("admin", scopes=["admin"])
        words = ["--config", str(self.config), "--no-lock", "--json", "serve", "--http", "127.0.0.1:0"]
        with (self.folder / "stderr").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mooring", *words), stdout=asyncio.subprocess.PIPE, stderr=errors
            )
        try:
            assert process.stdout is not None
            self.url = json.loads(await process.stdout.readline())["url"]
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                metrics = await self._under(process, http)
        finally:
            process.send_signal(signal.SIGTERM)
            code = await process.wait()
        return self.report(metrics, code)

    @staticmethod
    def forbidden(name: str) -> str:
        return PROFILES[PRINCIPALS.index(name) % len(PROFILES)]

    async def _under(self, process: Any, http: aiohttp.ClientSession) -> dict[str, float]:
        while True:
            async with http.get(self.url.replace("/mcp", "/ready")) as answer:
                if answer.status == 200:
                    break
            await asyncio.sleep(0.1)
        trouble = [
            asyncio.create_task(work)
            for work in (self._kill(process), self._reload(process), self._rotate(), self._revoke(http))
        ]
        working = [asyncio.create_task(self._work(n, http)) for n in range(self.clients)]
        began = time.monotonic()
        while time.monotonic() - began < self.seconds:
            await asyncio.sleep(0.2)
            for task in (*trouble, *working):
                if task.done() and task.exception() is not None:
                    raise RuntimeError("a part of the soak test failed") from task.exception()
        self._stop.set()
        await asyncio.gather(*working)
        for task in trouble:
            task.cancel()
        await asyncio.gather(*trouble, return_exceptions=True)
        headers = {"Authorization": f"Bearer {self.current['admin']}"}
        async with http.get(self.url.replace("/mcp", "/metrics"), headers=headers) as answer:
            assert answer.status == 200
            return _samples(await answer.text())

    async def _work(self, number: int, http: aiohttp.ClientSession) -> None:
        chance = random.Random(number)
        name = PRINCIPALS[number % len(PRINCIPALS)]
        caller: Caller | None = None
        while not self._stop.is_set():
            await asyncio.sleep(2 * chance.random() * self.clients / RATE)
            wrong = chance.random() < 0.02
            allowed = [profile for profile in PROFILES if profile != self.forbidden(name)]
            profile = self.forbidden(name) if wrong else chance.choice(allowed)
            headers = {"Authorization": f"Bearer {self.current[name]}"}
            if caller is None or chance.random() < 0.1 or wrong:
                caller = Caller(http, f"{self.url}/{profile}", modern=number % 2 == 0, headers=headers)
                if not caller.modern and not await self._begun(caller):
                    caller = None
                    continue
            caller.headers = headers
            canary = f"{name}-{number}-{secrets.token_hex(8)}"
            tool = "sleep" if chance.random() < 0.1 else "echo"
            given = {"text": canary, **({"seconds": 0.2} if tool == "sleep" else {})}
            reply = await caller.call(f"{caller.url.rpartition('/')[2]}_{tool}", given)
            self._judge(reply, canary, forbidden=profile == self.forbidden(name) and wrong)
            if reply.status in (401, 403, 404) or wrong:
                caller = None

    async def _begun(self, caller: Caller) -> bool:
        reply = await caller.ask(
            "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        )
        self.statuses[reply.status] += 1
        caller.session = reply.headers.get("Mcp-Session-Id")
        return reply.status == 200

    def _judge(self, reply: Reply, canary: str, *, forbidden: bool) -> None:
        self.statuses[reply.status] += 1
        if not reply.messages:
            self.counts["WRONG"] += 1  # every request has an answer
            return
        last = reply.last
        if reply.status == 200 and "result" in last and not last["result"].get("isError"):
            good = last["result"]["content"][0]["text"] == canary and not forbidden
            self.counts["good" if good else "WRONG"] += 1
        elif forbidden and reply.status not in (401, 403):
            self.counts["WRONG"] += 1
        else:
            self.counts["failed" if reply.status == 200 else f"refused {reply.status}"] += 1

    async def _kill(self, process: Any) -> None:
        while True:
            await asyncio.sleep(KILL_EVERY)
            children = psutil.Process(process.pid).children(recursive=True)
            random.shuffle(children)
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    if "server.py" in " ".join(child.cmdline()):
                        child.kill()
                        self.counts["kills"] += 1
                        break

    async def _reload(self, process: Any) -> None:
        for turn in range(1, 10**9):
            await asyncio.sleep(RELOAD_EVERY)
            self.write(turn)
            process.send_signal(signal.SIGHUP)
            self.counts["reloads"] += 1

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_EVERY)
            name = random.choice(PRINCIPALS)
            grace = random.choice((0.0, 5.0))
            self.current[name], _ = await asyncio.to_thread(self.tokens.rotate, name, grace=grace)
            self.counts["rotations"] += 1

    async def _revoke(self, http: aiohttp.ClientSession) -> None:
        """A fifth person, whose token works, is revoked, and from then on never works again."""
        for number in range(10**9):
            await asyncio.sleep(REVOKE_EVERY)
            token, _ = await asyncio.to_thread(self.tokens.create, f"guest{number}", profiles=["red"])
            caller = Caller(
                http, f"{self.url}/red", modern=True, headers={"Authorization": f"Bearer {token}"}
            )
            canary = secrets.token_hex(8)
            reply = await caller.call("red_echo", {"text": canary})
            self._judge(reply, canary, forbidden=False)
            if reply.status == 401:
                self.counts["WRONG"] += 1  # it must be usable at once
            await asyncio.to_thread(self.tokens.revoke, f"guest{number}")
            await asyncio.sleep(1.0)
            for _ in range(3):
                reply = await caller.call("red_echo", {"text": canary})
                self.statuses[reply.status] += 1
                self.counts["revoked refused" if reply.status == 401 else "WRONG"] += 1

    def report(self, metrics: dict[str, float], code: int) -> bool:
        lines = [json.loads(line) for line in self.access.read_text().splitlines()]
        audit = [json.loads(line) for line in self.audit.read_text().splitlines()]
        calls = [line for line in lines if line.get("method") == "tools/call"]
        counted = {
            "access log": Counter(line["outcome"] for line in calls),
            "audit log": Counter(_plain(line["outcome"]) for line in audit if line.get("verb") == "call"),
            "metrics": Counter(
                {
                    outcome: int(value)
                    for (name, labels), value in metrics.items()
                    if name == "mooring_gateway_requests_total" and 'method="tools/call"' in labels
                    for outcome in re.findall(r'outcome="(\w+)"', labels)
                }
            ),
        }
        refused = {
            "access log": Counter(
                line["status"] for line in lines if line["outcome"] == "refused" and "method" not in line
            ),
            "metrics": Counter(
                {
                    int(re.findall(r'status="(\d+)"', labels)[0]): int(value)
                    for (name, labels), value in metrics.items()
                    if name == "mooring_gateway_refused_total"
                }
            ),
            "clients": Counter({s: n for s, n in self.statuses.items() if s in (401, 403, 404, 429, 503)}),
        }
        by_principal = Counter(line["principal"] for line in calls)
        crossings = sum(
            line["principal"].removeprefix("token:") in PRINCIPALS
            and line["profile"] == self.forbidden(line["principal"].removeprefix("token:"))
            for line in calls
        ) + sum(line.get("server", line["profile"]) != line["profile"] for line in calls)
        print(f"{self.clients} clients, 4 principals, {len(PROFILES)} profiles, {self.seconds:g} s")
        print(", ".join(f"{count} {what}" for what, count in sorted(self.counts.items())))
        print(f"crossings: {crossings}, by principal: {dict(by_principal.most_common(4))}")
        totals = {where: sum(found.values()) for where, found in counted.items()}
        for where, found in counted.items():
            print(f"calls in the {where}: {totals[where]} {dict(sorted(found.items()))}")
        for where, found in refused.items():
            print(f"refused, {where}: {dict(sorted(found.items()))}")
        lost = sum(line.get("lost", 0) for line in (*lines, *audit))
        secret = [t for t in self.current.values() if t in self.access.read_text() + self.audit.read_text()]
        print(f"lost lines: {lost}, secrets in logs: {len(secret)}, exit code: {code}")
        return (
            self.counts["WRONG"] == crossings == lost == code == 0
            and not secret
            and self.counts["good"] > 0
            and counted["access log"] == counted["audit log"] == counted["metrics"]
            and refused["access log"] == refused["metrics"] == refused["clients"]
        )


def _plain(outcome: str) -> str:
    """The audit log tells more about errors than the others do."""
    return outcome if outcome in ("ok", "cancelled", "refused") else "error"


def _samples(text: str) -> dict[tuple[str, str], float]:
    found = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
    return {(name, labels): float(value) for name, labels, value in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=50)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOORING_HOME"] = str(Path(folder, "home"))
        good = asyncio.run(Team(Path(folder), args.clients, args.seconds).run())
        if not good:
            print(Path(folder, "stderr").read_text()[-3000:])
    print("every promise held" if good else "A PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
