"""Servers with every kind of problem: `list --json` shows the state of each, and the reason."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Guarded(BaseHTTPRequestHandler):
    """Wants a login for everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it)
        pass


@pytest.fixture
def guarded() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        server.shutdown()


def test_each_of_twelve_servers_has_a_state_and_a_reason(ran, config, guarded: str) -> None:
    # It ends by itself: within a time-out, a busy machine might not get as far as the welcome.
    garbage = "echo 'Welcome to my server!'; echo '{not json'; read question; exit 1"
    file = config(
        {
            **{f"good{number}": "clock" if number % 2 else "notes" for number in range(8)},
            "silent": {"bundled": "silent", "connect_timeout": "1s"},
            "broken": "broken",
            "garbage": {"command": "sh", "args": ["-c", garbage]},
            "guarded": {"url": guarded},
        }
    )
    done = ran("list", "--json", "--config", file)
    servers = {server["name"]: server for server in json.loads(done.stdout)["servers"]}
    assert done.returncode == 0
    assert {name: server["state"] for name, server in servers.items()} == {
        **{f"good{number}": "connected" for number in range(8)},
        "silent": "failed",
        "broken": "failed",
        "garbage": "failed",
        "guarded": "needs-auth",
    }
    assert "connect_timeout" in servers["silent"]["error"]
    assert "exited with code 1" in servers["broken"]["error"]
    assert "Welcome to my server!" in servers["garbage"]["error"]
    assert servers["guarded"]["error"]


def test_a_server_that_is_tried_again_while_others_start_is_listed_as_failed(
    ran, config, tmp_path: Path
) -> None:
    again = f"[ -e {tmp_path}/again ] && exec sleep 60; touch {tmp_path}/again; echo no licence >&2; exit 7"
    file = config(
        {
            "again": {"command": "sh", "args": ["-c", again]},
            "silent": {"bundled": "silent", "connect_timeout": "4s"},
        }
    )
    done = ran("list", "--json", "--config", file)
    servers = {server["name"]: server for server in json.loads(done.stdout)["servers"]}
    assert servers["again"]["state"] == "failed"
    assert "exited with code 7" in servers["again"]["error"]


def test_ping_of_a_server_that_wants_a_login_is_exit_code_3(ran, config, guarded: str) -> None:
    done = ran("ping", "--config", config({"guarded": {"url": guarded}, "clock": "clock"}))
    assert done.returncode == 3
    assert "✓ clock" in done.stdout


def test_doctor_says_how_to_log_in(ran, config, guarded: str) -> None:
    done = ran("doctor", "--json", "--config", config({"guarded": {"url": guarded}}))
    assert done.returncode == 1
    *_, finding, summary = json.loads(done.stdout)
    assert summary["finding"] == "1 server: 1 not logged in"
    assert finding["finding"].startswith("login: ")
    assert "export GUARDED_TOKEN=…" in finding["next"]


def test_ping_of_an_unknown_server_is_exit_code_2_and_names_the_nearest(ran, mixed_config) -> None:
    done = ran("ping", "clok", "--config", mixed_config)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: There is no server 'clok'. Did you mean 'clock'? See `mooring list`.\n"


def test_a_tool_of_a_server_that_wants_a_login_is_exit_code_3(ran, config, guarded: str) -> None:
    file = config({"guarded": {"url": guarded}, "clock": "clock"})
    done = ran("call", "--config", file, "mcp_guarded_search")
    assert done.returncode == 3
    assert "Server 'guarded' needs a login, and one in a browser does not help" in done.stderr
    assert ran("call", "--config", file, "mcp_clock_invented").returncode == 2


def test_a_resource_or_prompt_of_a_server_that_wants_a_login_is_exit_code_3(
    ran, config, guarded: str
) -> None:
    file = config({"guarded": {"url": guarded}, "clock": "clock"})
    for arguments in (["read", "ledger:///2026"], ["read", "ledger:///2026", "--server", "guarded"]):
        done = ran(*arguments, "--config", file)
        assert (done.returncode, done.stdout) == (3, "")
        assert "guarded" in done.stderr
    assert "Server 'guarded' needs a login" in ran("read", "ledger:///2026", "--config", file).stderr
    done = ran("prompt", "guarded", "summarise", "--config", file)
    assert (done.returncode, done.stdout) == (3, "")
    assert "guarded" in done.stderr
    done = ran("read", "ledger:///2026", "--config", config({"clock": "clock"}))
    assert done.returncode == 2
