"""`mooring doctor --trace`: the messages between mooring and the servers, in a file, without secrets."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from mooring.cli.doctor import Trace
from mooring.transport import base

ECHO = r"""
import base64, json, os, sys
TOKEN, FLAG = os.environ["API_TOKEN"], sys.argv[2]
print("starting with", TOKEN, FLAG, file=sys.stderr, flush=True)
print("noise " + TOKEN, flush=True)
def say(**fields): print(json.dumps({"jsonrpc": "2.0", **fields}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked.get("method")
    if method == "initialize":
        info = {"name": "echo", "version": TOKEN}
        tools = {"tools": {}, TOKEN: {}}
        say(id=number, result={"protocolVersion": "2025-11-25", "capabilities": tools, "serverInfo": info})
    elif method == "tools/list":
        code = base64.b64encode(FLAG.encode()).decode()
        say(method="notifications/message", params={"level": "info", "data": "\x1b[2J " + FLAG})
        say(id="q-" + TOKEN, method="roots/list")
        tool = {"name": "t", "description": code + " " + "x" * 9000, "inputSchema": {"type": "object"}}
        say(id=number, result={"tools": [tool]})
    elif method == "server/discover":
        say(id=number, error={"code": -32601, "message": "no " + TOKEN})
"""
SECRETS = ("tok-1234567890", "flag-abcdefghij", "head-0987654321")


@pytest.fixture
def echo() -> dict[str, object]:
    """An entry whose server says its secrets back wherever it can."""
    args = ["-S", "-c", ECHO, "--secret", SECRETS[1]]
    return {"command": sys.executable, "args": args, "env": {"API_TOKEN": SECRETS[0]}}


class Refusing(BaseHTTPRequestHandler):
    """Prints its input and returns nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = f"go away with your {self.headers.get('X-Api-Key')}".encode()
        self.send_response(418)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it)
        pass


@pytest.fixture
def refusing() -> Iterator[dict[str, object]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        yield {"url": url, "headers": {"X-Api-Key": SECRETS[2]}}
        server.shutdown()


def heads(file: Path) -> list[str]:
    """The first line of each entry, without its time."""
    lines = file.read_text().splitlines()
    return [line.split(" s  ", 1)[1] for line in lines if re.match(r"\d+\.\d{3} s  ", line)]


def test_the_trace_holds_each_message_in_order(ran, config, tmp_path: Path) -> None:
    done = ran("doctor", "--trace", "t.log", "--config", config({"notes": "notes"}))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("✓ all messages were written to t.log\n✓ 1 server: 1 ok\n")
    file = tmp_path / "t.log"
    assert file.stat().st_mode & 0o777 == 0o600
    assert heads(file) == snapshot(
        [
            "notes  →  initialize (id 1)",
            "notes  ←  result of initialize (id 1)",
            "notes  →  notifications/initialized",
            "notes  →  tools/list (id 2)",
            "notes  ←  result of tools/list (id 2)",
        ]
    )


def test_notices_questions_and_what_a_server_prints_are_in_it_too(ran, config, echo, tmp_path: Path) -> None:
    ran("doctor", "--trace", "t.log", "--config", config({"echo": echo}))
    assert sorted(heads(tmp_path / "t.log")) == snapshot(
        [
            "echo  stderr  starting with *** ***",
            "echo  stdout  noise ***",
            "echo  ←  notifications/message",
            "echo  ←  result of initialize (id 1)",
            "echo  ←  result of tools/list (id 2)",
            "echo  ←  roots/list (id q-***)",
            "echo  →  initialize (id 1)",
            "echo  →  notifications/initialized",
            "echo  →  result of roots/list (id q-***)",
            "echo  →  tools/list (id 2)",
        ]
    )


def test_a_failed_request_is_traced_with_its_status(ran, config, refusing, tmp_path: Path) -> None:
    ran("doctor", "--trace", "t.log", "--config", config({"web": refusing}))
    assert heads(tmp_path / "t.log") == snapshot(
        [
            "web  →  server/discover (id 1)",
            "web  !  POST: HTTP 418 I'm a Teapot",
            "web  !  server/discover: HTTP 418: go away with your ***",
            "web  →  initialize (id 2)",
            "web  !  POST: HTTP 418 I'm a Teapot",
            "web  !  initialize: HTTP 418: go away with your ***",
            "web  !  the connection was closed",
        ]
    )


def test_no_secret_and_no_control_character_is_in_it(ran, config, echo, refusing, tmp_path: Path) -> None:
    done = ran("doctor", "--json", "--trace", "t.log", "--config", config({"echo": echo, "web": refusing}))
    text = (tmp_path / "t.log").read_text()
    assert "***" in text
    assert "flag-abcdefghij" not in json.dumps(json.loads(done.stdout))
    for secret in (*SECRETS, "ZmxhZy1hYmNkZWZnaGlq"):
        assert secret not in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_a_long_message_is_cut_with_a_note_of_how_much(ran, config, echo, tmp_path: Path) -> None:
    ran("doctor", "--trace", "t.log", "--config", config({"echo": echo}))
    text = (tmp_path / "t.log").read_text()
    assert re.search(r"^    … [45]\d{3} more characters$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) < 4_200


def test_a_storm_of_notices_does_not_fill_the_disk(ran, config, tmp_path: Path) -> None:
    storm = (
        "import json\nfor _ in range(5000):\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'method': 'notifications/x'}), flush=True)"
    )
    file = config({"storm": {"command": sys.executable, "args": ["-S", "-c", storm]}})
    ran("doctor", "--trace", "t.log", "--config", file)
    lines = heads(tmp_path / "t.log")
    assert len(lines) == 2_001
    assert lines[-1] == "storm  …  further messages of this server are left out"


def test_a_message_that_cannot_be_shown_does_not_end_the_trace(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with Trace(str(tmp_path / "t.log")) as written, written.of(str):
        base.passing("lab", "received", deep)
        base.passing("lab", "received", {"id": 10**5_000})
    assert heads(tmp_path / "t.log") == ["lab  ←  (message cannot be shown)"] * 2


def test_no_message_can_pass_itself_off_as_two(tmp_path: Path) -> None:
    with Trace(str(tmp_path / "t.log")) as written, written.of(str):
        base.passing("lab", "fault", "it broke\n0.001 s  lab  ←  result of nothing")
    assert heads(tmp_path / "t.log") == ["lab  !  it broke"]


def test_no_message_is_traced_after_the_trace_has_ended(ran, config) -> None:
    ran("doctor", "--trace", "t.log", "--config", config({"clock": "clock"}))
    assert base.taps == []


def test_an_older_file_is_replaced_and_closed_to_others(ran, config, tmp_path: Path) -> None:
    file = tmp_path / "t.log"
    file.write_text("old")
    file.chmod(0o644)
    ran("doctor", "--trace", "t.log", "--config", config({"clock": "clock"}))
    assert file.stat().st_mode & 0o777 == 0o600
    assert not file.read_text().startswith("old")


def test_a_file_that_cannot_be_written_is_exit_code_2_before_any_server_starts(ran, config, lab) -> None:
    done = ran("doctor", "--trace", "no/such/t.log", "--config", config({"lab": lab.entry}))
    assert (done.returncode, done.stdout, done.stderr) == snapshot(
        (2, "", "error: Cannot write the trace to 'no/such/t.log': No such file or directory.\n")
    )
    assert lab.starts == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_a_finding_and_the_servers_are_looked_at_all_the_same(ran, config) -> None:
    done = ran("doctor", "--trace", "/dev/full", "--config", config({"clock": "clock"}))
    assert done.returncode == 0
    assert "✓ clock: connected" in done.stdout
    assert "! not all messages were written to /dev/full: No space left on device [trace]\n" in done.stdout
