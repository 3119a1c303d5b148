"""The audit log of a host: who called what, and how it ended."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import Host, HostConfig, ServerConfig, UnknownPrompt, UnknownResource
from mooring.cli import main
from mooring.config import load
from mooring.config.trust import Approval
from mooring.host import runtime_of
from tests.lab.http import HttpLab
from tests.lab.libraries import library_server
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

PLANTED = "pl+nted/secret?4711="


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def config(file: Path, *servers: ServerConfig, **settings: Any) -> HostConfig:
    return HostConfig(servers=servers, audit={"path": str(file), **settings})


async def test_each_call_leaves_a_line_that_says_how_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    lab = lab_server(
        tools=["echo", "fail", "sleep", "crash", "pid", "big"],
        settings={"policy": {"ask": ["pid"], "deny": ["big"]}, "call_timeout": 30},
    )
    missing = ServerConfig(name="gone", url="http://127.0.0.1:1/mcp")
    answers = iter([True, False])
    async with Host(
        config(file, lab, missing), lock=False, on_approval=lambda request: next(answers)
    ) as host:
        await host.ready(20)
        session = host.session("talk", agent_id="bob")
        await session.call("mcp_lab_echo", {"text": "hi"})
        await session.call("mcp_lab_echo", {"text": "hi"})
        await session.call("mcp_lab_fail")
        await session.call("mcp_lab_pid")
        await session.call("mcp_lab_pid")
        await session.call("mcp_lab_big")
        await session.call("mcp_lab_nothing", {"a": 1})
        await session.call("mcp_lab_echo", {"text": float("nan")})
        await session.call("mcp_lab_sleep", {"seconds": 30}, timeout=0.05)
        call = asyncio.create_task(session.call("mcp_lab_sleep", {"seconds": 30}))
        await until(lambda: session._calls == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await session.call("mcp_lab_crash")
        await session.call("tools_search", {"query": "echo"})
    lines = read(file)
    logged = [(line.get("tool"), line["outcome"], line.get("error"), line.get("approval")) for line in lines]
    assert logged == [
        ("echo", "ok", None, None),
        ("echo", "ok", None, None),
        ("fail", "error", None, None),
        ("pid", "ok", None, "given"),
        ("pid", "refused", "PolicyDenied", "denied"),
        (None, "refused", "PolicyDenied", None),
        (None, "not sent", "UnknownTool", None),
        ("echo", "not sent", "CallError", None),
        ("sleep", "unknown", "CallTimeout", None),
        ("sleep", "cancelled", None, None),
        ("crash", "unknown", "ConnectionLost", None),
        ("tools_search", "ok", None, None),
    ]
    assert {(line["session"], line["agent"], line["verb"]) for line in lines} == {("talk", "bob", "call")}
    assert lines[0]["name"] == "mcp_lab_echo"
    assert lines[0]["server"] == "lab"
    assert lines[0]["arguments"] == lines[1]["arguments"] != lines[7]["arguments"]
    assert lines[0]["arguments"].startswith("hmac-sha256:")
    assert "hi" not in [part for line in lines for part in line.values()]
    assert "arguments" not in lines[2]
    assert lines[0]["time"][19] == "."
    assert lines[0]["time"].endswith("Z")


async def test_a_call_that_the_end_of_the_host_cuts_short_is_in_the_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with HttpLab() as lab, Host(config(file, lab.config()), lock=False) as host:
        await host.ready(20)
        call = asyncio.create_task(host.call("mcp_web_sleep", {"seconds": 30}))
        await until(lambda: lab.running == 1)
    assert [line["outcome"] for line in read(file)] == ["unknown"]
    assert (await call).is_error


async def test_what_is_read_is_noted_as_well(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    server = library_server("books", resources={"memo:///a": "text"})
    async with Host(config(file, server), lock=False) as host:
        await host.ready(20)
        await host.read("memo:///a")
        with pytest.raises(UnknownResource):
            await host.read("memo:///b", "books")
        with pytest.raises(UnknownPrompt):
            await host.prompt("books", "nothing", {"a": "b"})
    logged = [(line["verb"], line["name"], line["outcome"], line.get("error")) for line in read(file)]
    assert logged == [
        ("read", "memo:///a", "ok", None),
        ("read", "memo:///b", "failed", "UnknownResource"),
        ("prompt", "nothing", "not sent", "UnknownPrompt"),
    ]


@pytest.mark.parametrize("mode", ["hash", "redact", "none"])
async def test_no_planted_secret_is_in_the_log_in_any_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("PLANTED", PLANTED)
    folder = tmp_path / "logs"
    async with HttpLab() as lab:
        server = lab.config(headers={"X-Key": "${PLANTED}"})
        async with Host(config(folder / "audit.jsonl", server, arguments=mode), lock=False) as host:
            await host.ready(20)
            await host.call("mcp_web_echo", {"text": f"say {PLANTED}", PLANTED: [PLANTED], "city": "Oslo"})
            await host.call(f"mcp_web_{PLANTED}", {"password": "unknown"})
            await host.session(f"s {PLANTED}", agent_id=PLANTED).call("mcp_web_echo", {"text": "x"})
            with pytest.raises(Exception, match="Method not found"):
                await host.read(f"https://example.org/?key={PLANTED}", "web")
    written = "".join(file.read_text() for file in folder.iterdir())
    for form in (PLANTED, json.dumps(PLANTED)[1:-1], "nted", 'unknown"}'):
        assert form not in written
    assert ("Oslo" in written) == (mode == "redact")
    assert ("hmac-sha256" in written) == (mode == "hash")
    lines = read(folder / "audit.jsonl")
    assert len(lines) == 4
    assert any("arguments" in line for line in lines) == (mode != "none")


async def test_a_log_that_cannot_be_written_costs_no_call_is_reported_once_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mooring.audit

    monkeypatch.setattr(mooring.audit, "AGAIN", 0.05)
    monkeypatch.setattr(mooring.audit, "MOST_WAITING", 4)
    file = tmp_path / "audit.jsonl"
    file.mkdir()
    async with Host(config(file, lab_server()), lock=False) as host:
        await host.ready(20)
        for number in range(6):
            assert (await host.call("mcp_lab_echo", {"text": str(number)})).text == str(number)
        await until(lambda: "cannot be written" in caplog.text)
        file.rmdir()
        await until(lambda: file.exists() and len(read(file)) >= 5)
    logged = [record for record in caplog.records if record.name == "mooring.audit"]
    assert [record.levelno for record in logged] == [logging.ERROR, logging.WARNING]
    lines = read(file)
    assert lines[0]["lost"] + len(lines[1:]) == 6


async def test_what_could_not_be_written_at_the_end_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "audit.jsonl"
    file.mkdir()
    async with Host(config(file, lab_server()), lock=False) as host:
        await host.ready(20)
        await host.call("mcp_lab_echo", {"text": "x"})
    assert "lost_lines=1" in caplog.text


FULL = """
import asyncio, resource, signal, sys
sys.path.insert(0, ".")
from mooring import Host, HostConfig
from tests.lab.stdio import lab_server

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    config = HostConfig(servers=(lab_server(),), audit=sys.argv[1])
    async with Host(config, lock=False) as host:
        await host.ready(20)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
        for _ in range(20):
            print((await host.call("mcp_lab_echo", {"text": "x"})).text, end="")
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


def test_a_full_disk_costs_lines_and_no_call(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, timeout=30)
    assert done.stdout == "x" * 20
    assert done.stderr.count("cannot be written") == 1
    assert {line["outcome"] for line in read(file)} <= {"ok"}


async def test_another_configuration_moves_the_log_while_the_host_runs(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    lab = lab_server()
    async with Host(config(one, lab), lock=False) as host:
        await host.ready(20)
        await host.call("mcp_lab_echo", {"text": "x"})
        await host.apply(config(two, lab))
        await host.call("mcp_lab_echo", {"text": "x"})
        await host.apply(HostConfig(servers=(lab,)))
        await host.call("mcp_lab_echo", {"text": "x"})
        assert runtime_of(host).audit is None
    assert (len(read(one)), len(read(two))) == (1, 1)


def test_a_project_file_that_was_found_may_not_name_a_file_to_write_to_even_when_approved(
    tmp_path: Path,
) -> None:
    for text in ("audit: victim\n", "gateway: {audit: victim, burst: 7}\n", "artifacts: victim\n"):
        (tmp_path / "mooring.yaml").write_text(text)
        for approval in (Approval(), Approval(everything=True)):
            found = load(cwd=tmp_path, approval=lambda file, approval=approval: approval)
            assert (found.audit, found.gateway.audit, found.artifacts) == (None, None, None)
            assert text.partition(":")[0] in str(found.warnings[0])
        named = load([tmp_path / "mooring.yaml"])
        if named.artifacts is None:
            path = named.audit or named.gateway.audit
            assert path is not None
            assert path.path == str(tmp_path / "victim")


def test_doctor_names_a_log_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").mkdir()
    file = tmp_path / "mooring.yaml"
    file.write_text(f"audit: {tmp_path / 'taken'}\nservers: {{}}\n")
    assert main(["--config", str(file), "doctor"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"the audit log {tmp_path / 'taken'} cannot be written" in said
