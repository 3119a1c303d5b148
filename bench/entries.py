"""The contestants as the harness knows them, each with the Python that runs it."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import bench.contestants

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".peers"
OURS, REFERENCE = "mooring", "mcp_sdk"
INSTALL_TIMEOUT = 600.0


class Unavailable(Exception):
    """The environment of a contestant cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contestant; see `bench.contestants` for what its file says."""

    name: str
    label: str
    requires: tuple[str, ...]
    statement: str

    @property
    def python(self) -> Path:
        """The interpreter that has its library."""
        return ENVIRONMENTS / self.name / "bin" / "python" if self.requires else Path(sys.executable)


def entries() -> list[Entry]:
    """Everyone: mooring, the raw SDK, then the peers by name."""
    names = [module.name for module in pkgutil.iter_modules(bench.contestants.__path__)]
    names.sort(key=lambda name: (name != OURS, name != REFERENCE, name))
    return [_entry(name) for name in names]


def _entry(name: str) -> Entry:
    module = importlib.import_module(f"bench.contestants.{name}")
    return Entry(name=name, label=module.LABEL, requires=module.REQUIRES, statement=module.IMPORT)


def install(entry: Entry) -> None:
    """Make the environment of `entry`, unless it is there with the same pins.

    Raises:
        Unavailable: it cannot be made here, and why.
    """
    home = ENVIRONMENTS / entry.name
    stamp = home / ".requires"
    wanted = "\n".join([sys.version, *entry.requires])
    if not entry.requires or (stamp.is_file() and stamp.read_text("utf-8") == wanted):
        return
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(home)])
    pip = [str(entry.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *entry.requires])
    stamp.write_text(wanted, "utf-8")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unavailable(str(problem)) from problem
    if done.returncode:
        raise Unavailable((done.stderr.strip().splitlines() or ["pip failed without a word"])[-1])
