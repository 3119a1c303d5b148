"""Run the test suite on other Python versions: `make test-pythons` (PYTHONS="3.12 3.13").

    python scripts/test_pythons.py VERSION... [-- PYTEST-ARGUMENTS]

Each version gets an environment under .peers/python-VERSION. Interpreters are found on PATH, in pyenv, or
by uv.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def interpreter(version: str) -> str:
    """The path of a Python of this version; ends the program when there is none."""
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    if uv := shutil.which("uv"):
        found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True)
        candidates.append(found.stdout.strip() or None)
    for path in candidates:
        if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    sys.exit(f"Python {version} was not found on PATH, in ~/.pyenv or by uv.")


def prepare(version: str) -> Path:
    """The Python of an environment with the development tools and this package."""
    home = ROOT / ".peers" / f"python-{version}"
    python = home / "bin/python"
    if not python.exists():
        subprocess.run([interpreter(version), "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(ROOT / "requirements/dev.txt")], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    return python


def main() -> int:
    """Run the suite on each version; 1 when it fails on one."""
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    failed = False
    for version in words[:split]:
        print(f"Python {version}", flush=True)
        command = [str(prepare(version)), "-m", "pytest", "--inline-snapshot=disable", *words[split + 1 :]]
        failed |= subprocess.run(command, cwd=ROOT).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
