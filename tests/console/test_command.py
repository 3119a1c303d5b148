"""`mooring console` and `mooring serve --console` as programs."""

from __future__ import annotations

import http.client
import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.lab.stdio import COMMAND
from tests.lab.wait import until_true


@contextmanager
def started(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "mooring", *words]
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


class Browser:
    """Cookies and the CSRF header, without a page."""

    def __init__(self, url: str) -> None:
        self.base = url.partition("?")[0]
        jar = http.cookiejar.CookieJar()
        self._open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open
        with self._open(url, timeout=20) as answer:
            assert answer.status == 200
        self.csrf = self.get("session")["csrf"]

    def get(self, name: str) -> Any:
        with self._open(f"{self.base}api/{name}", timeout=20) as answer:
            return json.load(answer)

    def post(self, verb: str, **body: Any) -> Any:
        headers = {"Content-Type": "application/json", "X-Mooring-CSRF": self.csrf}
        request = urllib.request.Request(f"{self.base}api/{verb}", json.dumps(body).encode(), headers)
        with self._open(request, timeout=20) as answer:
            return json.load(answer)


def config(tmp_path: Path) -> Path:
    file = tmp_path / "mcp.json"
    entry = {"command": COMMAND[0], "args": list(COMMAND[1:])}
    file.write_text(json.dumps({"mcpServers": {"lab": entry}}))
    return file


def test_the_first_line_is_the_address_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with started(
        "--config", str(config(tmp_path)), "--json", "console", "--no-browser", cwd=tmp_path
    ) as child:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
        assert list(first) == ["url"]
        browser = Browser(first["url"])
        until_true(lambda: browser.get("state")["values"]["totals"].get("connected") == 1)
        child.send_signal(signal.SIGINT)
        rest, problems = child.communicate(timeout=30)
        assert (child.returncode, rest, problems) == (0, "", "")
    with pytest.raises(OSError, match="refused"):
        http.client.HTTPConnection(urlsplit(first["url"]).netloc, timeout=5).request("GET", "/")


def test_a_console_ends_while_pages_are_open(tmp_path: Path) -> None:
    with started(
        "--config", str(config(tmp_path)), "--json", "console", "--no-browser", cwd=tmp_path
    ) as child:
        assert child.stdout is not None
        browser = Browser(json.loads(child.stdout.readline())["url"])
        stream = browser._open(f"{browser.base}api/events", timeout=20)
        assert stream.readline()
        child.send_signal(signal.SIGTERM)
        _, problems = child.communicate(timeout=30)
        assert (child.returncode, problems) == (0, "")
        stream.close()


def test_without_any_file_the_page_adds_the_demo_servers(tmp_path: Path) -> None:
    with started("--json", "console", "--no-browser", cwd=tmp_path) as child:
        assert child.stdout is not None
        browser = Browser(json.loads(child.stdout.readline())["url"])
        assert browser.get("state")["values"]["first_run"] is True
        edits = [{"op": "demo"}]
        seen = browser.post("edit", edits=edits)
        assert seen["files"][0]["new"] is True
        browser.post("edit", edits=edits, write=True, revision=seen["revision"])
        until_true(lambda: browser.get("state")["values"]["totals"].get("connected") == 2)
        state = browser.get("state")
        assert state["values"]["first_run"] is False
        assert [one["scope"] for one in state["values"]["about"]["files"]] == ["user"]
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0


def test_a_gateway_serves_the_console_beside_its_clients(tmp_path: Path) -> None:
    words = ("--config", str(config(tmp_path)), "--json", "serve", "--http", "127.0.0.1:0", "--console")
    with started(*words, cwd=tmp_path) as child:
        assert child.stderr is not None
        found = None
        while found is None:
            line = child.stderr.readline()
            assert line, "the address was not printed"
            found = re.search(r"Console at (http://\S+)", line)
        browser = Browser(found[1])
        until_true(lambda: browser.get("state")["values"]["totals"].get("connected") == 1)
        assert browser.get("state")["values"]["about"]["kind"] == "gateway"
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=30)
        assert (child.returncode, list(json.loads(output))) == (0, ["url"])


@pytest.mark.parametrize(
    "words", [("serve", "--console"), ("serve", "--http", "127.0.0.1:0", "--console", "--workers", "2")]
)
def test_a_console_needs_http_and_one_process(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mooring", "--config", str(config(tmp_path)), *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, "--console needs --http and one process" in done.stderr) == (2, True)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "mooring", "--config", str(config(tmp_path)), "console", "--port", port],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "choose another --port" in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import mooring, sys; mooring.Host",
        "import sys; from mooring.cli.app import main; main(['--help'])",
        "import sys, mooring.gateway.serve, mooring.cli.serve",
    ],
)
def test_who_does_not_use_the_console_does_not_load_it(code: str) -> None:
    check = "; assert not [name for name in sys.modules if name.startswith('mooring.console')]"
    subprocess.run([sys.executable, "-c", code + check], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_the_files_of_the_page_are_small() -> None:
    import mooring.console

    folder = Path(os.path.dirname(mooring.console.__file__))
    files = [file for file in folder.rglob("*") if file.suffix != ".pyc" and file.is_file()]
    assert sum(len(zlib.compress(file.read_bytes())) for file in files) < 400_000  # as in a wheel
    assert sum(file.stat().st_size for file in files if "static" in file.parts) < 400_000
