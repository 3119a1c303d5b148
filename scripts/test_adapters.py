"""Runs the tests of the adapters against the newest frameworks, each set of them in its own environment.

    python scripts/test_adapters.py [SET …]

Environments are kept under .peers/adapters/<set>; delete one to have the newest releases again. Exits with 1
when a test fails or a set cannot be installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".peers" / "adapters"
TESTS = (
    "pytest>=9",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.8",
    "hypothesis>=6.140",
    "inline-snapshot>=0.30",
)


@dataclass(frozen=True)
class Set:
    """Frameworks in one environment."""

    requirements: tuple[str, ...]
    paths: tuple[str, ...] = ("tests/adapters", "tests/agents/test_extension.py")
    tests: str = ""
    """Which tests to run (`-k`); all when empty. Those of other frameworks skip themselves."""
    types: bool = False
    """Whether the adapters are also checked by pyright, which needs all frameworks."""


SETS = {
    # Every extra; strands holds the MCP SDK at 2.1, and google-adk holds google-genai at 2.
    "together": Set((".[all]", "openai", "google-genai"), types=True),
    # The newest of what the set above holds back.
    "openai_agents": Set((".[openai-agents]",), tests="OpenAIAgents or openai_agents"),
    "google_genai": Set((".", "google-genai>=3"), tests="GenerateContent or google_genai"),
    # `mooring.sdk` on the lowest and the newest release, and in a framework that takes a `ClientSession`.
    "sdk_lowest": Set((".", "mcp==2.1.*"), ("tests/test_sdk.py",)),
    "sdk_newest": Set(
        (".[sdk]", "llama-index-tools-mcp"), ("tests/test_sdk.py", "tests/adapters/test_client_session.py")
    ),
    # `asgi_app` in web frameworks and under ASGI servers.
    "asgi": Set(
        (
            ".[sdk]",
            "fastapi",
            "litestar",
            "starlette",
            "uvicorn",
            "hypercorn",
            "granian",
            "psutil",
            "trustme",
        ),
        ("tests/gateway/test_asgi.py",),
    ),
}


def uv() -> str:
    """The path of uv, which installs ten times as quickly as pip; fetched with pip when it is not there."""
    home = HOME / "uv"
    if not (home / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "uv"], check=True)
    return str(home / "bin" / "uv")


def prepare(name: str, wanted: Set) -> Path:
    """The interpreter of an environment with what the set wants, made on the first run."""
    home = HOME / name
    python = home / "bin" / "python"
    ready = home / ".ready"
    metadata = (ROOT / "pyproject.toml").stat().st_mtime
    if not ready.exists() or ready.stat().st_mtime < metadata:
        if not python.exists():
            subprocess.run([uv(), "venv", "--quiet", "--python", sys.executable, str(home)], check=True)
        install = [uv(), "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
        packages = [f"-e{part}" if part.startswith(".") else part for part in wanted.requirements]
        subprocess.run([*install, *packages, *TESTS], cwd=ROOT, check=True)
        ready.touch()
    return python


def run(name: str, wanted: Set) -> tuple[bool, str, float, float]:
    """Whether all went well, the last line of pytest, and the seconds for installing and testing."""
    started = time.monotonic()
    try:
        python = prepare(name, wanted)
    except subprocess.CalledProcessError as problem:
        return False, f"not installed: {problem}", time.monotonic() - started, 0.0
    installed = time.monotonic()
    chosen = ["-k", wanted.tests] if wanted.tests else []
    done = subprocess.run(
        [
            str(python),
            "-m",
            "pytest",
            *wanted.paths,
            "-q",
            "-n",
            "2",
            "--dist",
            "loadscope",
            *chosen,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OTEL_SDK_DISABLED": "true"},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = done.stdout.strip().splitlines() or ["no output"]
    if done.returncode:
        print(done.stdout)
    wrong = done.returncode or (wanted.types and check_types(python))
    return not wrong, lines[-1].strip("= "), installed - started, time.monotonic() - installed


def check_types(python: Path) -> int:
    """The exit code of pyright for the adapters, with the frameworks in place."""
    project = ["-p", str(ROOT / "scripts" / "adapters.pyright.json"), "--pythonpath", str(python)]
    return subprocess.run([str(Path(sys.executable).parent / "pyright"), *project], cwd=ROOT).returncode


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in SETS]:
        print(f"there is no set {unknown[0]!r}; there are: {', '.join(SETS)}", file=sys.stderr)
        return 2
    rows = [(name, *run(name, SETS[name])) for name in names or SETS]
    print(f"\n{'set':<15} {'install':>8} {'tests':>8}  outcome")
    for name, good, outcome, install, tests in rows:
        print(f"{name:<15} {install:>7.0f}s {tests:>7.0f}s  {'' if good else 'FAILED: '}{outcome}")
    return 0 if all(row[1] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
