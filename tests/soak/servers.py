"""The servers of the soak: their list, their tools, and their records of calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from mooring import ServerConfig
from tests.lab.stdio import lab_server

STDIO = ("legacy", "modern") * 6
WEB: tuple[dict[str, Any], ...] = (
    {"era": "modern", "answers": "json"},
    {"era": "modern", "answers": "json"},
    {"era": "modern", "answers": "sse"},
    {"era": "legacy", "answers": "json"},
    {"era": "legacy", "answers": "json"},
    {"era": "legacy", "answers": "sse"},
    {"era": "legacy"},
    {"era": "legacy"},
)
OLD_SSE = (6, 7)
TOOLS = ("echo", "effect", "sleep")


class Servers:
    """Twenty servers in `folder`; the HTTP ones run from `__enter__` on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stdio = [f"s{n}" for n in range(len(STDIO))]
        self.web = [f"w{n}" for n in range(len(WEB))]
        self.names = [*self.stdio, *self.web]
        for name in self.names:
            self.offer(name, 0)
            (folder / f"{name}.effects").touch()

    def __enter__(self) -> Servers:
        plans = json.dumps([{"name": name, **plan} for name, plan in zip(self.web, WEB, strict=True)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.web", str(self.folder), plans],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._ports: list[int] = json.loads(self._process.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=10)

    def configs(self) -> list[ServerConfig]:
        settings = {"shutdown_grace": 0.5, "idempotent": ["echo"]}
        stdio = [
            lab_server(
                name,
                era=era,
                tools_file=str(self.folder / f"{name}.tools"),
                effects=str(self.folder / f"{name}.effects"),
                settings=settings,
            )
            for name, era in zip(self.stdio, STDIO, strict=True)
        ]
        web: list[ServerConfig] = []
        for n, (name, port) in enumerate(zip(self.web, self._ports, strict=True)):
            path = "sse" if n in OLD_SSE else "mcp"
            web.append(ServerConfig(name=name, url=f"http://127.0.0.1:{port}/{path}", **settings))
        return stdio + web

    def command(self, name: str, fault: str, seconds: float) -> None:
        """Tell an HTTP server to misbehave for a while."""
        assert self._process.stdin is not None
        line = {"server": self.web.index(name), "fault": fault, "for": seconds}
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def offer(self, name: str, edition: int) -> None:
        """Let the server offer another edition of its tools; it notices by itself."""
        file = self.folder / f"{name}.tools"
        draft = file.with_suffix(".draft")
        draft.write_text(" ".join([*TOOLS, "say", f"edition_{edition}"]))
        draft.replace(file)

    def offered(self) -> set[str]:
        """The local names of all tools that the servers offer now."""
        return {
            f"mcp_{name}_{tool}"
            for name in self.names
            for tool in (self.folder / f"{name}.tools").read_text().split()
        }

    def effects(self) -> Counter[int]:
        done: Counter[int] = Counter()
        for name in self.names:
            done.update(int(line) for line in (self.folder / f"{name}.effects").read_text().split())
        return done
