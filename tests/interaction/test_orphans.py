"""FA24, FA26: a process that leaves its group, parent, environment and limits still ends with its server."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.listening import free_port
from mooring import ConnectionLost, Host, ServerConfig
from mooring.transport import process, process_tree
from tests.lab.program import processes, program, running
from tests.lab.stdio import COMMAND, lab_server, wire_log
from tests.lab.wait import until, until_true

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is ended"),
]

QUICK = {"shutdown_grace": 0.1}
LEAVING = ["own session", "daemon", "daemon with its own limits"]


def _left(log: Path, servers: int = 1) -> list[int]:
    """Each server and the process that left it, once all run."""
    until_true(lambda: len(processes(log)) == 2 * servers)
    pids = processes(log)
    until_true(lambda: all(map(running, pids)))
    return pids


@pytest.mark.parametrize("leaving", LEAVING)
async def test_FA24_it_ends_when_the_host_closes(leaving: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(log=str(log), spawn_grandchild=leaving, settings=QUICK)]) as host:
        await host.ready(10)
        pids = _left(log)
    assert not any(map(running, pids))


async def test_FA24_it_ends_when_its_server_is_removed_and_that_of_another_server_goes_on(
    tmp_path: Path, hosting: Any
) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    servers = [
        lab_server(log.name, log=str(log), spawn_grandchild="daemon with its own limits", settings=QUICK)
        for log in logs
    ]
    async with hosting(*servers) as host:
        first, second = map(_left, logs)
        await host.remove("a")
        await until(lambda: not any(map(running, first)))
        assert all(map(running, second))


@pytest.mark.parametrize("leaving", ["own session", "same group", "daemon with its own limits"])
async def test_FA24_it_ends_when_its_server_crashes(leaving: str, tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    server = lab_server(tools=["crash", "echo"], log=str(log), spawn_grandchild=leaving, settings=QUICK)
    async with hosting(server) as host:
        pids = _left(log)
        # Some of them hold the pipes of the server open: its exit is noticed all the same.
        assert isinstance((await host.call("mcp_lab_crash", timeout=30)).error, ConnectionLost)
        await until(lambda: not any(map(running, pids)))
        assert (await host.call("mcp_lab_echo", {"text": "again"}, timeout=30)).text == "again"


async def test_an_answer_that_the_server_wrote_before_its_exit_arrives_whole(
    tmp_path: Path, hosting: Any
) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import json, os, subprocess, sys\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "hello = {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}},\n"
        "         'serverInfo': {'name': 's', 'version': '1'}}\n"
        "listing = {'tools': [{'name': 'last', 'inputSchema': {'type': 'object'}}]}\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    answers = {'initialize': hello, 'tools/list': listing}\n"
        "    last = {'content': [{'type': 'text', 'text': 'x' * 3_000_000}]}\n"
        "    if message['method'] == 'tools/call':\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': last}), flush=True)\n"
        "        os._exit(0)\n"
        "    elif message['method'] in answers:\n"
        "        answer = {'jsonrpc': '2.0', 'id': message['id'], 'result': answers[message['method']]}\n"
        "        print(json.dumps(answer), flush=True)\n"
        "    elif 'id' in message:\n"
        "        error = {'code': -32601, 'message': 'no'}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'error': error}), flush=True)\n"
    )
    async with hosting(ServerConfig(name="s", command=sys.executable, args=(str(script),))) as host:
        assert len((await host.call("mcp_s_last", timeout=30, budget=0)).text) == 3_000_000


@pytest.mark.parametrize("leaving", LEAVING)
@pytest.mark.parametrize(
    "body",
    ["sys.exit(0)", "1 / 0", "os._exit(3)", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 9)"],
    ids=["exit", "exception", "hard exit", "SIGTERM", "SIGKILL"],
)
def test_FA26_it_ends_however_the_host_ends(body: str, leaving: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = {"log": str(log), "spawn_grandchild": leaving, "settings": QUICK}
    process = program(f"sys.stdin.readline(); {body}", f"lab_server(**{script!r})", stdin=subprocess.PIPE)
    pids = _left(log)
    process.communicate("go\n", timeout=20)
    until_true(lambda: not any(map(running, pids)))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT"])
def test_FA26_it_ends_with_the_gateway(name: str, workers: int, tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "mcp.json"
    script = json.dumps({"log": str(log), "spawn_grandchild": "daemon with its own limits"})
    lab = {"command": COMMAND[0], "args": [*COMMAND[1:], script], "shutdown_grace": 0.1}
    config.write_text(json.dumps({"mcpServers": {"lab": lab}}))
    words = [sys.executable, "-m", "mooring", "--config", str(config), "--no-lock"]
    words += ["serve", "--http", f"127.0.0.1:{free_port()}", "--workers", str(workers)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as gateway:
        pids = _left(log, workers)
        gateway.send_signal(getattr(signal, name))
        gateway.wait(20)
    until_true(lambda: not any(map(running, pids)))


def _storm(log: Path) -> int:
    """The file on which every process of the storm holds a lock, once the storm is under way."""
    until_true(lambda: any("storm" in entry for entry in wire_log(log)))
    return os.open(f"{log}.held", os.O_RDONLY)


def _over(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.close(held)
    return True


@pytest.mark.parametrize(
    "body", ["sys.exit(0)", "return", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 9)"]
)
def test_FA26_processes_that_fork_for_ever_end_however_the_host_ends(body: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = {"log": str(log), "spawn_grandchild": "storm", "settings": QUICK}
    process = program(f"sys.stdin.readline(); {body}", f"lab_server(**{script!r})", stdin=subprocess.PIPE)
    held = _storm(log)
    assert not _over(held)
    process.communicate("go\n", timeout=20)
    until_true(lambda: _over(held))


async def test_FA24_processes_that_fork_for_ever_end_with_their_server(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(log=str(log), spawn_grandchild="storm", settings=QUICK)) as host:
        held = _storm(log)
        assert not _over(held)
        await host.remove("lab")
        await until(lambda: _over(held))


async def test_FA24_a_server_whose_supervisor_is_killed_ends_and_comes_back(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(log=str(log), spawn_grandchild="daemon", settings=QUICK)) as host:
        pids = _left(log)
        server = int((await host.call("mcp_lab_pid")).text)
        parent = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent != os.getpid()
        os.kill(parent, signal.SIGKILL)
        await until(lambda: not any(map(running, pids)))
        assert int((await host.call("mcp_lab_pid")).text) != server


@pytest.mark.parametrize("leaving", LEAVING)
def test_FA26_it_ends_when_its_supervisor_and_the_host_are_killed_together(
    leaving: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = {"log": str(log), "spawn_grandchild": leaving, "settings": QUICK}
    process = program("sys.stdin.readline()", f"lab_server(**{script!r})", stdin=subprocess.PIPE)
    pids = _left(log)
    os.kill(process.pid, signal.SIGSTOP)  # it does not notice the end of the supervisor
    parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}
    (supervisor,) = parents - {*pids, process.pid}
    os.kill(supervisor, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=20)
    until_true(lambda: not any(map(running, pids)))


async def test_a_host_that_cannot_run_a_supervisor_starts_and_ends_its_servers_itself(
    tmp_path: Path, hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    log = tmp_path / "log"
    async with hosting(lab_server(log=str(log), spawn_grandchild="daemon", settings=QUICK)) as host:
        pids = _left(log)
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"
    await until(lambda: not any(map(running, pids)))  # without a supervisor, SIGKILL is sent but not awaited


async def test_without_a_supervisor_a_process_that_leaves_at_once_ends_as_well(
    tmp_path: Path, hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    put_mark, limits = process_tree.put_mark, resource.getrlimit(process_tree.RLIMIT_LOCKS)

    def late(pid: int, mark: str) -> bool:  # the host gets no processor until the daemon runs
        _left(log)
        return put_mark(pid, mark)

    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(process, "put_mark", late)
    async with hosting(lab_server(log=str(log), spawn_grandchild="daemon", settings=QUICK)) as host:
        pids = processes(log)
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"
    await until(lambda: not any(map(running, pids)))
    assert resource.getrlimit(process_tree.RLIMIT_LOCKS) == limits


def test_FA26_it_ends_when_it_belongs_to_a_host_that_is_a_server_of_another_host(tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "mcp.json"
    script = json.dumps({"log": str(log), "spawn_grandchild": "daemon with its own limits"})
    config.write_text(
        json.dumps({"mcpServers": {"lab": {"command": COMMAND[0], "args": [*COMMAND[1:], script]}}})
    )
    args = ["-m", "mooring", "--config", str(config), "--no-lock", "serve", "--stdio"]
    outer = (
        f"ServerConfig(name='inner', command={sys.executable!r}, args={args!r}, inherit_env=['PYTHONPATH'])"
    )
    process = program("sys.stdin.readline()", outer, stdin=subprocess.PIPE)
    pids = _left(log)
    process.kill()
    process.communicate(timeout=20)
    until_true(lambda: not any(map(running, pids)))


def test_marks_of_one_host_share_their_first_digits_and_differ() -> None:
    marks = [process_tree.new_mark() for _ in range(20)]
    assert len(set(marks)) == 20
    assert all(mark.startswith(process_tree.host_mark()) for mark in marks)
    assert int(marks[0].ljust(process_tree.DIGITS, "0")) < 2**63


def test_only_processes_with_the_mark_are_killed() -> None:
    mine, other = process_tree.new_mark(), process_tree.new_mark()
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    try:
        assert process_tree.put_mark(sleepers[0].pid, mine)
        assert process_tree.put_mark(sleepers[1].pid, other)
        assert process_tree.kill_marked(mine)
        assert sleepers[0].wait(10) == -signal.SIGKILL
        assert not process_tree.kill_marked(mine)
        assert sleepers[1].poll() is None
        assert sleepers[2].poll() is None
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
