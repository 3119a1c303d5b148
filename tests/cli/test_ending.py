"""How the program ends: on Ctrl-C, on a signal, on a closed pipe; and that no process outlives it."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import read_all
from tests.lab.stdio import COMMAND, methods, wire_log
from tests.lab.wait import until_true


@pytest.fixture
def started(tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.Popen[str]]:
    """Starts `mooring` in a session of its own and returns while it runs."""

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "mooring", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def servers_of(process: subprocess.Popen[str]) -> set[psutil.Process]:
    """The servers that run at this moment; the host's own helpers are no Python programs."""
    try:
        found = psutil.Process(process.pid).children(recursive=True)
        return {child for child in found if child.exe() == os.path.realpath(sys.executable)}
    except psutil.NoSuchProcess:
        return set()


def started_servers(process: subprocess.Popen[str], count: int) -> set[psutil.Process]:
    """The servers, as soon as there are so many."""
    until_true(lambda: process.poll() is not None or len(servers_of(process)) >= count, 20)
    assert process.poll() is None
    return servers_of(process)


def alive(servers: set[psutil.Process]) -> list[psutil.Process]:
    return [server for server in servers if server.is_running() and server.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_servers_too(started, config, number: int, code: int) -> None:
    stubborn = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    entry = {"command": sys.executable, "args": ["-S", "-c", stubborn], "shutdown_grace": "0.2s"}
    file = config({"silent": "silent", "clock": "clock", "stubborn": entry})
    with started("list", "--config", file) as process:
        servers = started_servers(process, 3)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == code
    assert out == ""
    assert alive(servers) == []
    if number == signal.SIGINT:
        assert err == "Interrupted. All servers that were started have been stopped.\n"


def test_a_closed_pipe_ends_the_program_quietly(mixed_config, environment, tmp_path) -> None:
    done = subprocess.run(
        f'"{sys.executable}" -m mooring tools --quiet --config "{mixed_config}" | head -1',
        shell=True,
        executable="/bin/bash",
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_pipe_that_was_closed_before_is_no_error(mixed_config, environment, tmp_path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "mooring", "tools", "--quiet", "--config", mixed_config],
        env=environment,
        cwd=tmp_path,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_demo_leaves_no_process_behind(started) -> None:
    seen: set[psutil.Process] = set()
    with started("demo") as process:
        while process.poll() is None:
            seen |= servers_of(process)
            time.sleep(0.02)  # to look again
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
    assert "answered by a new process" in out
    assert len(seen) >= 5, "four servers and the one that came back"
    assert alive(seen) == []


def test_a_wait_has_an_end(ran, config) -> None:
    done = ran("list", "--timeout", "0.3", "--config", config({"silent": "silent"}))
    assert done.returncode == 0
    assert "pending" in done.stdout


def test_ctrl_c_during_a_call_cancels_it_at_the_server_and_says_so(started, config, tmp_path) -> None:
    log = tmp_path / "lab.log"
    script = json.dumps({"tools": ["sleep"], "log": str(log)})
    file = config({"lab": {"command": COMMAND[0], "args": [*COMMAND[1:], script]}})
    with started("call", "mcp_lab_sleep", "--args", '{"seconds": 60}', "--config", file) as process:
        until_true(lambda: "tools/call" in methods(log), 20)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "mcp_lab_sleep was cancelled, and a cancellation was sent to server 'lab'." in err
    (call,) = [entry for entry in wire_log(log) if entry.get("method") == "tools/call"]
    cancelled = [entry for entry in wire_log(log) if entry.get("method") == "notifications/cancelled"]
    assert call["id"] in [notice["params"]["requestId"] for notice in cancelled]


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}


def spoken(*messages: dict) -> bytes:
    """The lines of a client; the handshake comes first."""
    begun = [{"id": 0, "method": "initialize", "params": HELLO}, {"method": "notifications/initialized"}]
    return b"".join(
        json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in (*begun, *messages)
    )


def called(number: int, tool: str, **arguments: object) -> dict:
    return {"id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.fixture
def lab(config, tmp_path) -> tuple[str, Path]:
    """A configuration with a server that ignores SIGTERM and the end of its input, and its log."""
    log = tmp_path / "lab.log"
    script = {
        "tools": ["sleep", "big", "shout"],
        "log": str(log),
        "ignore_sigterm": True,
        "ignore_eof": True,
        "spawn_grandchild": "daemon",
    }
    entry = {"command": COMMAND[0], "args": [*COMMAND[1:], json.dumps(script)], "shutdown_grace": "0.2s"}
    return config({"lab": entry}), log


def left_behind(log: Path) -> list[int]:
    """The server and its grandchild, as long as they run."""
    pids = [entry[key] for entry in wire_log(log) for key in ("started", "grandchild") if key in entry]
    return [
        pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.parametrize("end", ["input", "SIGTERM", "SIGINT"])
def test_a_gateway_ends_although_nothing_reads_its_output_or_its_stderr(lab, environment, end: str) -> None:
    file, log = lab
    words = [sys.executable, "-m", "mooring", "--config", file, "--no-lock", "--verbose", "serve", "--stdio"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    loud = [called(n, "mcp_lab_shout", size=8_000) for n in range(1, 81)]
    calls = [*loud, *(called(n, "mcp_lab_big", size=100_000) for n in range(81, 90))]
    with subprocess.Popen(words, env=environment, **pipes) as gateway:
        assert gateway.stdin is not None
        gateway.stdin.write(spoken(*calls, called(90, "mcp_lab_sleep", seconds=90)))
        gateway.stdin.flush()
        until_true(lambda: methods(log).count("tools/call") == 90, 50)
        if end == "input":
            gateway.stdin.close()
        else:
            gateway.send_signal(getattr(signal, end))
        gateway.wait(30)
    until_true(lambda: not left_behind(log))


@pytest.mark.parametrize("moment", ["started", "initialize", "tools/call"])
def test_a_gateway_ends_when_its_client_is_killed(lab, environment, moment: str) -> None:
    file, log = lab
    words = [sys.executable, "-m", "mooring", "--config", file, "--no-lock", "serve", "--stdio"]
    client = (
        "import subprocess, sys, time\n"
        f"gateway = subprocess.Popen({words!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        f"gateway.stdin.write({spoken(called(1, 'mcp_lab_sleep', seconds=90))!r})\n"
        "gateway.stdin.flush()\n"
        "print(gateway.pid, flush=True)\n"
        "time.sleep(90)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", client],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        gateway = psutil.Process(int(process.stdout.readline()))
        until_true(lambda: any(moment in (*entry, entry.get("method")) for entry in wire_log(log)), 60)
        process.kill()
    until_true(lambda: alive({gateway}) == [], 30)
    until_true(lambda: not left_behind(log))


def test_lines_that_nothing_reads_are_dropped_and_counted() -> None:
    script = (
        "import sys\n"
        "from mooring.cli.output import MAX_UNREAD, never_block_on_stderr\n"
        "never_block_on_stderr()\n"
        "for n in range(MAX_UNREAD // 50):\n"
        "    sys.stderr.write(f'{n:<99}\\n')\n"
        "print('written', flush=True)\n"
        "sys.stdin.read()\n"
        "print('last', file=sys.stderr)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "written\n"
        first = [process.stderr.readline() for _ in range(1000)]
        assert first == [f"{n:<99}\n" for n in range(1000)]
        assert process.stdin is not None
        process.stdin.close()
        rest = process.stderr.read()
    *lines, last = rest.splitlines()
    assert last == "last"
    (said,) = [line for line in lines if line.startswith("warning: ")]
    dropped = int(said.split()[1])
    assert said == f"warning: {dropped} lines dropped: stderr was not read."
    assert 1000 + len(lines) - 1 + dropped == 2**20 // 50


def interrupted_at_import(module: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `mooring list`, with Ctrl-C when it imports this module."""
    script = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from mooring.cli import main\n"
        "sys.exit(main(['list']))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=30
    )


def test_ctrl_c_while_the_program_is_imported_is_no_traceback(environment) -> None:
    done = interrupted_at_import("argparse", environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_before_the_event_loop_runs_prints_no_python_warning(environment) -> None:
    done = interrupted_at_import("asyncio", environment)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "Interrupted.\n"  # no server was started


def interrupted_on_a_terminal(
    words: Sequence[str], tmp_path: Path, environment: dict[str, str], awaited: str = ""
) -> tuple[int, str]:
    """Press Ctrl-C after the first output, or the awaited one; return the exit code and the output."""
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    pipes = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(
        [sys.executable, "-m", "mooring", *words],
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        preexec_fn=take_terminal,
        **pipes,
    ) as process:
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
        while awaited not in shown:
            shown += os.read(ours, 65536).decode()
        os.write(ours, b"\x03")
        shown += read_all(ours)
    os.close(ours)
    return process.returncode, shown


def test_ctrl_c_on_the_terminal_of_the_demo_prints_no_traceback(tmp_path, environment) -> None:
    code, shown = interrupted_on_a_terminal(["demo"], tmp_path, environment)  # its weather server runs
    assert (code, "Traceback" in shown) == (130, False), shown


@pytest.mark.parametrize(
    "words", ["run -", "call mcp_notes_read_note --args -", "call mcp_notes_read_note title=@-"]
)
def test_ctrl_c_ends_a_command_that_reads_from_the_terminal(
    config, tmp_path, environment, words: str
) -> None:
    file = config({"notes": "notes"})
    code, shown = interrupted_on_a_terminal(
        ["--config", file, *words.split()], tmp_path, environment, awaited="end with Ctrl-D"
    )
    assert (code, "Traceback" in shown) == (130, False), shown


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-"])
@pytest.mark.parametrize("words", ["list", "call mcp_notes_list_notes", "trust", "help"])
def test_a_standard_stream_may_be_closed(
    config, environment, tmp_path: Path, words: str, stream: str
) -> None:
    command = f'exec "$0" -m mooring --config "$1" {words} {stream}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, config({"notes": "notes"})],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == (3 if words == "trust" else 0), done.stderr
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_that_cannot_be_written_is_reported_in_one_sentence(
    config, environment, tmp_path: Path, more: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mooring", "list", "--config", config({"notes": "notes"}), *more],
            cwd=tmp_path,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == "error: The output was not written completely: No space left on device.\n"
