"""Run the official conformance suite: servers through the gateway, and our own client.

    python -m tests.conformance.run server [--upstream stdio|http|sse|direct] [--spec VERSION] [SCENARIO …]
    python -m tests.conformance.run client [--spec VERSION] [SCENARIO …]
    python -m tests.conformance.run all

Every scenario runs by itself and its exit code counts. `EXPECTED` names what cannot pass, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from bench.listening import free_port, listening

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = ROOT / ".peers" / "conformance"
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
SPECS = ("2025-11-25", "2026-07-28")
TIMEOUT = 90
JOBS = 2


def install() -> None:
    """The suite and the Node that it needs, from npm, once."""
    if not (PEERS / "node_modules" / ".bin" / "conformance").exists():
        PEERS.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "init", "-y"], cwd=PEERS, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", SUITE, "node@22"], cwd=PEERS, check=True)


def required(leg: str, spec: str) -> list[str]:
    """The scenarios that a revision requires."""
    file = PEERS / "node_modules" / "@modelcontextprotocol" / "conformance" / "requirements" / f"{spec}.yaml"
    section = re.search(rf"^{leg}:\n((?:  - .*\n|\s*#.*\n|\n)*)", file.read_text(), re.MULTILINE)
    assert section is not None
    return re.findall(r"^  - (\S+)", section[1], re.MULTILINE)


def conformance(*words: str, cwd: str, env: dict[str, str] | None = None) -> tuple[bool, str]:
    """Whether the suite is content, by its exit code and by its words."""
    command = [str(PEERS / "node_modules" / ".bin" / name) for name in ("node", "conformance")]
    try:
        done = subprocess.run(
            [*command, *words],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, "the suite did not end in time"
    said = done.stdout + done.stderr
    return done.returncode == 0 and "FAILURE" not in said, said


def running(command: list[str], port: int, path: str) -> AbstractContextManager[None]:
    """A process that listens, until the block ends."""
    environment = {"PYTHONPATH": str(ROOT / "src")}
    return listening(command, lambda: _answers(port, path), environment, quiet=False)


def _answers(port: int, path: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as response:
            return response.status == 200
    except URLError as problem:
        return getattr(problem, "code", None) not in (None, 503)
    except OSError:
        return False


@contextmanager
def gateway(upstream: str) -> Iterator[str]:
    """The URL of a gateway in front of the fixture; `direct` is the fixture itself."""
    fixture = [sys.executable, str(HERE / "fixture.py")]
    port, behind = free_port(), free_port()
    if upstream == "direct":
        with running([*fixture, "http", str(port)], port, "/nothing"):
            yield f"http://127.0.0.1:{port}/mcp"
        return
    with tempfile.TemporaryDirectory() as folder:
        if upstream == "stdio":
            entry: dict[str, Any] = {"command": fixture[0], "args": [fixture[1], "stdio"]}
        else:
            path = "mcp" if upstream == "http" else "sse"
            entry = {"url": f"http://127.0.0.1:{behind}/{path}"}
            entry["type"] = "sse" if upstream == "sse" else "http"
        config = Path(folder, "mcp.json")
        config.write_text(json.dumps({"mcpServers": {"fixture": entry}}))
        serve = [sys.executable, "-m", "mooring", "--config", str(config), "--no-lock", "serve"]
        serve += ["--http", f"127.0.0.1:{port}", "--style", "raw"]
        if upstream == "stdio":
            with running(serve, port, "/ready"):
                yield f"http://127.0.0.1:{port}/mcp"
        else:
            with (
                running([*fixture, upstream, str(behind)], behind, "/nothing"),
                running(serve, port, "/ready"),
            ):
                yield f"http://127.0.0.1:{port}/mcp"


def servers(upstream: str, spec: str, only: list[str], verbose: bool) -> dict[str, bool]:
    """Each scenario that a server must pass, through the gateway."""
    scenarios = only or required("server", spec)
    with gateway(upstream) as url, tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:

        def one(scenario: str) -> bool:
            words = ["server", "--url", url, "--scenario", scenario, "--spec-version", spec]
            good, said = conformance(*words, cwd=folder)
            if not good or verbose:
                print(said)
            return good

        return dict(zip(scenarios, pool.map(one, scenarios), strict=True))


def clients(spec: str, only: list[str], verbose: bool) -> dict[str, bool]:
    """Each scenario that a client must pass, by the driver in this folder."""
    command = f"{sys.executable} {HERE / 'driver.py'}"
    scenarios = only or required("client", spec)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:

        def one(scenario: str) -> bool:
            words = ["client", "--command", command, "--scenario", scenario, "--spec-version", spec]
            good, said = conformance(*words, cwd=folder, env={"PYTHONPATH": str(ROOT / "src")})
            if not good or verbose:
                print(said)
            return good

        return dict(zip(scenarios, pool.map(one, scenarios), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("leg", choices=("server", "client", "all"))
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--spec", choices=SPECS, action="append")
    parser.add_argument("--upstream", choices=("direct", "stdio", "http", "sse"), action="append")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--results", type=Path, default=PEERS / "results.json")
    args = parser.parse_args()
    install()
    results: dict[str, dict[str, bool]] = {}
    for spec in args.spec or SPECS:
        if args.leg != "client":
            for upstream in args.upstream or ("stdio", "http", "sse"):
                found = servers(upstream, spec, args.scenarios, args.verbose)
                results[f"server {spec} through the gateway, upstream {upstream}"] = found
        if args.leg != "server":
            results[f"client {spec}"] = clients(spec, args.scenarios, args.verbose)
    for title, outcome in results.items():
        failed = sorted(name for name, good in outcome.items() if not good)
        print(f"{title}: {len(outcome) - len(failed)} of {len(outcome)}", *failed)
    args.results.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(all(found.values()) for found in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
