"""Installs the reference servers from the registries, once, into `.peers/`."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[2] / ".peers"
NPM = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)
PYPI = ("mcp-server-time==2026.10.19",)


def installed(folder: str, wanted: tuple[str, ...], install: Callable[[Path], None]) -> Path:
    """The folder with these packages; installs them unless a note there says that it was done."""
    place = PEERS / folder
    note = place / ".installed"
    if not note.exists() or note.read_text() != "\n".join(wanted):
        place.mkdir(parents=True, exist_ok=True)
        install(place)
        note.write_text("\n".join(wanted))
    return place


def npm_install(place: Path) -> None:
    subprocess.run(["npm", "install", "--no-fund", "--no-audit", "--prefix", str(place), *NPM], check=True)


def pip_install(place: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    subprocess.run([str(place / "bin/python"), "-m", "pip", "install", "--quiet", *PYPI], check=True)


@pytest.fixture(scope="session")
def node_servers() -> Path:
    return installed("node", NPM, npm_install) / "node_modules/@modelcontextprotocol"


@pytest.fixture(scope="session")
def time_server() -> Path:
    return installed("time", PYPI, pip_install) / "bin/mcp-server-time"


@contextmanager
def listening(everything: Path, transport: str) -> Iterator[int]:
    """The everything server on a free port, from the moment it accepts connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = subprocess.Popen(
        ["node", str(everything / "dist/index.js"), transport],
        env=os.environ | {"PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 20
        while not accepts(port):
            assert child.poll() is None, "the everything server ended at once"
            assert time.monotonic() < deadline, "the everything server does not listen"
            time.sleep(0.05)  # no event tells that a port is open
        yield port
    finally:
        child.kill()
        child.wait()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def everything_url(node_servers: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a running everything server; parametrised with the transport."""
    path = {"streamableHttp": "mcp", "sse": "sse"}[request.param]
    with listening(node_servers / "server-everything", request.param) as port:
        yield f"http://127.0.0.1:{port}/{path}"
