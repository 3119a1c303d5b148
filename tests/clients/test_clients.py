"""Real clients against the gateway: list, call, error, image, resource, prompt, cancel, change notice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mooring import demo
from tests.clients.figures import CANCELLED, UNDER_WAY, above, figure
from tests.conformance.run import gateway
from tests.lab.caller import HANDSHAKE, MODERN

pytestmark = [pytest.mark.reference, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".peers"
SDKS = ("@modelcontextprotocol/sdk@1", "@modelcontextprotocol/client@2")
INSPECTOR = ("@modelcontextprotocol/inspector",)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with gateway("stdio") as address:
        yield address


def node(name: str, *packages: str) -> Path:
    """Packages of npm, installed once."""
    folder = PEERS / name
    if not (folder / "node_modules" / ".bin" / "node").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "init", "-y"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", *packages, "node@22"], cwd=folder, check=True
        )
    return folder


def python(name: str, *requires: str) -> str:
    """An environment with these packages, made once."""
    binary = PEERS / name / "bin" / "python"
    if not binary.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS / name)], check=True)
        pip = [str(binary), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *requires], check=True)
    return str(binary)


def run(*command: str, **environment: str) -> Any:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**clean, **environment}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout[done.stdout.index("{") :])


def check(seen: dict[str, Any], protocol: str | None = HANDSHAKE) -> None:
    assert seen["protocol"] == protocol
    assert seen["tools"] > 20
    assert seen["text"] == "This is a simple text response for testing."
    assert seen["error"] is True
    assert seen["image"] == ["image", "image/png"]
    assert seen["resource"].startswith("This is the content")
    assert seen["prompt"] == "This is a simple prompt for testing."
    assert seen["cancelled"] is True
    assert seen["changed"] is True
    assert seen["grown"] == 1


@pytest.mark.parametrize(
    ("version", "era", "protocol"),
    [("v1", "legacy", None), ("v2", "legacy", HANDSHAKE), ("v2", "modern", MODERN)],
)
def test_the_typescript_sdk(url: str, version: str, era: str, protocol: str | None) -> None:
    folder = node("clients", *SDKS)
    binary = str(folder / "node_modules" / ".bin" / "node")
    check(run(binary, str(HERE / "typescript.mjs"), version, era, url, CLIENTS=str(folder)), protocol)


def test_an_older_python_sdk(url: str) -> None:
    check(run(python("mcp_client", "mcp==1.30.*"), str(HERE / "python_sdk.py"), url))


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", HANDSHAKE), ("auto", MODERN)])
def test_fastmcp(url: str, mode: str, protocol: str) -> None:
    peer = python("fastmcp", "fastmcp==4.1.2")
    check(run(peer, str(HERE / "fastmcp_client.py"), mode, url), protocol)


def inspector(url: str) -> list[str]:
    binaries = node("inspector", *INSPECTOR) / "node_modules" / ".bin"
    return [str(binaries / "node"), str(binaries / "mcp-inspector"), "--cli", url, "--transport", "http"]


def test_the_inspector(url: str) -> None:
    words = inspector(url)
    listed = run(*words, "--method", "tools/list")
    assert "test_simple_text" in [tool["name"] for tool in listed["tools"]]
    call = [*words, "--method", "tools/call", "--tool-name"]
    assert run(*call, "test_simple_text")["content"][0]["text"].startswith("This is a simple text")
    assert run(*call, "test_image_content")["content"][0]["mimeType"] == "image/png"
    assert run(*call, "test_error_handling")["isError"] is True


def test_an_inspector_that_is_interrupted_cancels_its_call(url: str) -> None:
    before = figure(url, CANCELLED)
    words = [*inspector(url), "--method", "tools/call", "--tool-name", "test_slow"]
    # It starts programs of its own: the group is ended, as a terminal would do it.
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        assert asyncio.run(above(url, UNDER_WAY, 0))
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(20)
    assert asyncio.run(above(url, CANCELLED, before))


def test_a_framework_that_needs_an_older_sdk_is_served_out_of_process(tmp_path: Path) -> None:
    command, *args = demo.command("notes")
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"notes": {"command": command, "args": args}}}))
    served = [sys.executable, "-m", "mooring", "serve", "--stdio", "--config", str(config)]
    peer = python("langchain_mcp_adapters", "langchain-mcp-adapters")
    seen = run(peer, str(HERE / "langchain_adapters.py"), *served)
    assert "mcp_notes_read_note" in seen["tools"]
    assert seen["text"] == "A mooring holds many boats."
    assert "no such note" in seen["error"]
