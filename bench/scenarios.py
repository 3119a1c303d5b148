"""What is measured. A scenario samples one contestant once; the run repeats that, contestants interleaved."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.entries import OURS, Entry
from bench.process import Failed, Process
from bench.stage import LARGE, TOOLS, Stage, Transport

ROOT = Path(__file__).resolve().parents[1]
ECHO = {"text": "x" * 100}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One column. `scale` turns what is measured (seconds, bytes) into `unit`."""

    label: str
    unit: str = ""
    scale: float = 1.0
    more_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Something to measure, `cycles` times."""

    id: str
    title: str
    cycles: int
    only: str | None = None

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What a sample holds."""
        return {"wall": Metric(label="wall", unit="s"), "cpu": Metric(label="CPU", unit="s")}

    def concerns(self, name: str) -> bool:
        """Whether contestant `name` takes part."""
        return self.only in (None, name)

    def prepare(self, stage: Stage, name: str) -> None:
        """Warm up, unmeasured."""

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        """One value for each metric.

        Raises:
            Failed: the contestant cannot.
        """
        raise NotImplementedError(type(self).__name__)


@dataclass(frozen=True, kw_only=True)
class Calls(Scenario):
    """Calls on one connected server."""

    transport: Transport
    calls: int
    in_flight: int = 1
    tool: str = "echo"

    @property
    def metrics(self) -> Mapping[str, Metric]:
        cpu = Metric(label="CPU per call", unit="µs", scale=1e6)
        if self.in_flight == 1:
            return {"p50": Metric(label="p50", unit="µs", scale=1e6), "cpu": cpu}
        return {"rate": Metric(label="calls/s", more_is_better=True), "cpu": cpu}

    def prepare(self, stage: Stage, name: str) -> None:
        for _ in range(2):
            self.sample(stage, name)

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        answer = stage.connected(name, self.transport).ask(
            "burst",
            key=self.transport,
            tool=self.tool,
            arguments=ECHO,
            calls=self.calls,
            in_flight=self.in_flight,
            expect=LARGE if self.tool == "payload" else len(ECHO["text"]),
        )
        sampled = {
            "p50": statistics.median(answer["times"]),
            "cpu": answer["cpu"] / self.calls,
            "rate": self.calls / answer["wall"],
        }
        return {key: sampled[key] for key in self.metrics}


@dataclass(frozen=True, kw_only=True)
class Connect(Scenario):
    """Connect to many servers at once and list their tools, in a process that has done it before."""

    transport: Transport
    servers: int
    delay: float = 0.0

    def prepare(self, stage: Stage, name: str) -> None:
        process = stage.process(name)
        process.ask("open", key="warm", servers=stage.servers(self.transport, 1))
        process.ask("close", key="warm")

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        process = stage.process(name)
        servers = stage.servers(self.transport, self.servers, delay=self.delay)
        answer = process.ask("open", key="many", servers=servers)
        process.ask("close", key="many")
        _expect(answer["tools"], self.servers * TOOLS)
        return {"wall": answer["wall"], "cpu": answer["cpu"]}


@dataclass(frozen=True, kw_only=True)
class Catalog(Scenario):
    """List big servers in a fresh process, whose libraries are loaded by listing a small one first."""

    servers: int
    tools: int

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {
            "wall": Metric(label="wall", unit="s"),
            "cpu": Metric(label="CPU", unit="s"),
            "memory": Metric(label="memory", unit="MB", scale=1e-6),
        }

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        with Process(stage.entry(name)) as process:
            process.ask("open", key="warm", servers=stage.servers("stdio", 1))
            process.ask("close", key="warm")
            servers = stage.servers("stdio", self.servers, tools=self.tools)
            answer = process.ask("open", key="many", servers=servers)
            process.ask("close", key="many")
        _expect(answer["tools"], self.servers * self.tools)
        return {key: answer[key] for key in self.metrics}


@dataclass(frozen=True, kw_only=True)
class ColdStart(Scenario):
    """From starting Python to the tools of one stdio server: imports, spawn, handshake, list."""

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        started = time.monotonic()  # the same clock in every process
        with Process(stage.entry(name)) as process:
            answer = process.ask("open", key="one", servers=stage.servers("stdio", 1))
        return {"wall": answer["at"] - started, "cpu": answer["cpu_since_start"]}


@dataclass(frozen=True, kw_only=True)
class Instant(Scenario):
    """From the first line of a program to all tools of slow servers, listed and (ours) searchable. Ours comes
    from a lock and starts nothing; the others connect, as they must."""

    servers: int
    delay: float

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"wall": Metric(label="wall", unit="s")}

    def concerns(self, name: str) -> bool:
        # Those that connect one server after the other would need a minute each time.
        return name not in ("mcp_use", "pydantic_ai", "strands")

    def prepare(self, stage: Stage, name: str) -> None:
        if name == OURS:
            given = json.dumps(stage.servers("stdio", self.servers, delay=self.delay))
            _ours(stage, "prepare", given)

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        if name == OURS:
            tools, found, seconds = _ours(stage, "open", "").split()
            _expect(int(tools), self.servers * TOOLS)
            if found != "True":
                raise Failed("the search found nothing")
            return {"wall": float(seconds)}
        started = time.monotonic()
        with Process(stage.entry(name)) as process:
            servers = stage.servers("stdio", self.servers, delay=self.delay)
            answer = process.ask("open", key="many", servers=servers)
        _expect(answer["tools"], self.servers * TOOLS)
        return {"wall": answer["at"] - started}


def _ours(stage: Stage, verb: str, given: str) -> str:
    command = [str(stage.entry(OURS).python), "-m", "bench.instant", verb, str(stage.folder)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    return done.stdout


@dataclass(frozen=True, kw_only=True)
class Start(Scenario):
    """Run `code` (else the contestant's own import) in a new interpreter; CPU is what exceeds a bare one."""

    code: str | None = None
    needs: str | None = None

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {
            "cpu": Metric(label="CPU over bare Python", unit="ms", scale=1e3),
            "times": Metric(label="CPU / bare Python"),
            "wall": Metric(label="wall", unit="ms", scale=1e3),
        }

    def concerns(self, name: str) -> bool:
        return super().concerns(name) and (self.needs is None or find_spec(self.needs) is not None)

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        entry = stage.entry(name)
        bare, _ = _run([str(entry.python), "-c", "pass"])
        cpu, wall = _run(self.command(stage, entry))
        return {"cpu": max(cpu - bare, 0.0), "times": cpu / bare, "wall": wall}

    def command(self, stage: Stage, entry: Entry) -> list[str]:
        return [str(entry.python), "-c", self.code or entry.statement]


@dataclass(frozen=True, kw_only=True)
class LockedTools(Start):
    """`mooring tools` in a project whose lock knows all servers: nothing is started for it."""

    servers: int

    def prepare(self, stage: Stage, name: str) -> None:
        _ours(stage, "prepare", json.dumps(stage.servers("stdio", self.servers)))

    def command(self, stage: Stage, entry: Entry) -> list[str]:
        return [str(entry.python), "-m", "mooring", "tools", "--config", f"{stage.folder}/mooring.json"]


@dataclass(frozen=True, kw_only=True)
class Search(Scenario):
    """Find tools among ten thousand, for contestants that can; the SDK has nothing to compare with."""

    queries: int

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {
            "p50": Metric(label="query p50", unit="ms", scale=1e3),
            "index": Metric(label="index", unit="s"),
        }

    def concerns(self, name: str) -> bool:
        return name in (OURS, "fastmcp")

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        with Process(stage.entry(name)) as process:
            answer = process.ask("search", queries=self.queries)
        return {"p50": statistics.median(answer["times"]), "index": answer["index"]}


@dataclass(frozen=True, kw_only=True)
class Idle(Scenario):
    """Hold connected servers and do nothing."""

    servers: int
    seconds: float

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"cpu": Metric(label="CPU", unit="ms", scale=1e3)}

    def sample(self, stage: Stage, name: str) -> dict[str, float]:
        with Process(stage.entry(name)) as process:
            process.ask("open", key="many", servers=stage.servers("stdio", self.servers))
            return {"cpu": process.ask("idle", seconds=self.seconds)["cpu"]}


def _expect(tools: int, wanted: int) -> None:
    if tools != wanted:
        raise Failed(f"listed {tools} tools instead of {wanted}")


def _run(command: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one command."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if process.returncode:
        raise Failed(f"{command[-1]!r} ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, wall


HELP = "import sys; sys.argv = ['mooring', '--help']; from mooring.cli import main; main()"

SCENARIOS: tuple[Scenario, ...] = (
    Calls(id="echo-stdio", title="One call after another, stdio", transport="stdio", calls=100, cycles=16),
    Calls(id="echo-http", title="One call after another, HTTP", transport="http", calls=50, cycles=16),
    Calls(
        id="flood-stdio", title="64 in flight, stdio", transport="stdio", calls=768, in_flight=64, cycles=12
    ),
    Calls(id="flood-http", title="64 in flight, HTTP", transport="http", calls=256, in_flight=64, cycles=12),
    Calls(
        id="large-stdio", title="1 MB result, stdio", transport="stdio", calls=5, tool="payload", cycles=16
    ),
    Calls(id="large-http", title="1 MB result, HTTP", transport="http", calls=5, tool="payload", cycles=16),
    Connect(
        id="connect-stdio",
        title="Connect 10 stdio servers that need 200 ms to start",
        transport="stdio",
        servers=10,
        delay=0.2,
        cycles=5,
    ),
    Connect(id="connect-http", title="Connect 30 HTTP servers", transport="http", servers=30, cycles=5),
    Catalog(id="catalog", title="List 10 × 1,000 tools", servers=10, tools=1000, cycles=7),
    ColdStart(id="cold-start", title="From nothing to the first tool list", cycles=3),
    Instant(
        id="instant", title="30 servers that need 2 s to start: all tools", servers=30, delay=2.0, cycles=7
    ),
    Search(id="search", title="Search 10,000 tools", queries=100, cycles=3),
    Start(id="import", title="Import what connecting needs", cycles=3),
    Start(id="import-mooring", title="import mooring", only=OURS, code="import mooring", cycles=5),
    Start(id="help", title="mooring --help", only=OURS, code=HELP, needs="mooring.cli", cycles=5),
    LockedTools(id="tools", title="mooring tools, 30 locked servers", only=OURS, servers=30, cycles=5),
    Idle(id="idle", title="10 connected servers idle for 10 s", servers=10, seconds=10.0, cycles=1),
)
LONG = ("idle",)
"""Only with `--full`."""
