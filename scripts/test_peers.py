"""Run the programs of docs/migrate and of examples/gateway with the packages that they need.

    python scripts/test_peers.py migrations|frameworks [NAME …]

Each program runs in an environment of its own, in .peers, with a copy of mcp.json; it must print what its
comments say. Delete an environment to have the newest releases again.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".peers"
ADAPTERS = runpy.run_path(str(ROOT / "scripts/test_adapters.py"))

PACKAGES = {
    "migrations": {
        "sdk": ("-e.[sdk]",),
        "fastmcp": ("-e.", "fastmcp"),
        "langchain": ("-e.[langchain]", "langchain-mcp-adapters"),
        "mcp-use": ("-e.[langchain]", "mcp-use"),
        "openai-agents": ("-e.[openai-agents]",),
    },
    "frameworks": {
        "crewai": ("-e.", "crewai", "crewai-tools[mcp]"),
        "ag2": ("-e.", "ag2[mcp]"),
        "semantic_kernel": ("-e.", "semantic-kernel[mcp]"),
    },
}
SILENT = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
    "OTEL_SDK_DISABLED": "true",
}


def programs(kind: str, name: str) -> list[tuple[str, str]]:
    """Titles and sources of the programs of one package."""
    if kind == "frameworks":
        return [("gateway", (ROOT / f"examples/gateway/{name}_agent.py").read_text())]
    page = (ROOT / f"docs/migrate/{name}.md").read_text()
    return re.findall(r"## (Before|After)\n\n```py\n(.*?)```", page, re.DOTALL)


def prepare(kind: str, name: str) -> Path:
    """The interpreter of an environment with the packages, made on the first run."""
    home = HOME / kind / name
    if not (home / ".ready").exists():
        uv = ADAPTERS["uv"]()
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(home / "bin/python")]
        subprocess.run([*install, *PACKAGES[kind][name]], cwd=ROOT, check=True)
        (home / ".ready").touch()
    return home / "bin" / "python"


def run(python: Path, source: str) -> str:
    """An empty text if the program printed what it says, else what went wrong."""
    expected = re.findall(r"# prints: (.*)", source) or ["A mooring holds many boats."]
    server = {"command": sys.executable, "args": ["-S", str(ROOT / "src/mooring/demo/servers/notes.py")]}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mcp.json").write_text(json.dumps({"mcpServers": {"notes": server}}))
        path = f"{python.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [str(python), "-c", source],
            cwd=folder,
            env={**os.environ, **SILENT, "PATH": path, "HOME": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    printed = done.stdout.splitlines()
    if done.returncode == 0 and printed[-len(expected) :] == expected:
        return ""
    return f"exit code {done.returncode}, printed {printed}\n{done.stderr[-2000:]}"


def main(kind: str = "", *names: str) -> int:
    if kind not in PACKAGES:
        print(f"usage: python scripts/test_peers.py {'|'.join(PACKAGES)} [NAME ...]", file=sys.stderr)
        return 2
    failed = 0
    for name in names or PACKAGES[kind]:
        python = prepare(kind, name)
        for title, source in programs(kind, name):
            started = time.monotonic()
            try:
                problem = run(python, source)
            except subprocess.TimeoutExpired as late:
                problem = f"did not end in {late.timeout:g} s"
            failed += bool(problem)
            print(f"{name:<16} {title:<8} {time.monotonic() - started:5.1f} s  {problem or 'ok'}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
