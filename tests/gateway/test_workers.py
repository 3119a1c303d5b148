"""`serve --workers`: one port for all processes, and features that need shared state are refused."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mooring import ConfigError
from tests.gateway.test_operation import command, configured, fetched, until_ready
from tests.lab.caller import Caller
from tests.lab.libraries import library_server
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("settings", "words", "named"),
    [
        ({"gateway": {"rate": 5}}, (), "gateway.rate"),
        ({"gateway": {"concurrency": 5}}, (), "gateway.concurrency"),
        ({"gateway": {"client_sessions": 5}}, (), "gateway.client_sessions"),
        ({"gateway": {"max_sessions": 5}}, (), "gateway.max_sessions"),
        ({"gateway": {"burst": 5}}, (), "gateway.burst"),
        ({"gateway": {"profiles": {"few": {"discovery": "auto"}}}}, (), "profile 'few'"),
        ({"isolation": "session"}, (), "server 'lab' has `isolation: session`"),
        ({"max_concurrency": 2}, (), "server 'lab' has `max_concurrency`"),
        ({}, ("--discovery",), "`--discovery`"),
        ({}, ("--sse",), "`--sse`"),
    ],
)
def test_workers_are_refused_what_they_cannot_keep(
    tmp_path: Path, settings: dict[str, Any], words: tuple[str, ...], named: str
) -> None:
    serve = ("serve", "--http", "127.0.0.1:0", "--workers", "2", *words)
    done = subprocess.run(
        command("--config", configured(tmp_path, **settings), *serve),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert "--workers" in done.stderr
    assert not (tmp_path / "wire").exists()  # no server was started


async def test_a_worker_keeps_its_configuration_when_the_new_one_needs_what_workers_cannot_keep(
    serving: Any,
) -> None:
    async with serving(lab_server(), options={"shared": True}) as here:
        changed = replace(here.host.config, servers=(replace(lab_server(), isolation="session"),))
        with pytest.raises(ConfigError, match="isolation: session"):
            await here.host.apply(changed)
        assert here.host.config.servers[0].isolation == "shared"


async def test_a_worker_offers_only_what_it_keeps(serving: Any) -> None:
    async with serving(library_server("books", era="legacy"), options={"shared": True}) as here:
        old = Caller(here.http, here.base + "/mcp", modern=False)
        hello = (await old.ask("initialize", {"protocolVersion": "2025-11-25"})).result
        # No `listChanged`, `subscribe` or `logging`: extensions are requests that any process answers.
        hello["capabilities"].pop("extensions", None)
        assert hello["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
        for method in ("resources/subscribe", "logging/setLevel"):
            assert (await old.ask(method, {"uri": "memo:///a", "level": "info"})).error["code"] == -32601
        new = await here.caller(capabilities={"elicitation": {}, "sampling": {}})
        asked = await new.call("ask", {"params": {"message": "Who?"}})
        assert "input_required" not in str(asked.last)
        status, said = await fetched(here, "/metrics")
        assert status == 501
        assert "--workers" in said


async def test_workers_share_one_free_port_and_one_document_says_where(tmp_path: Path) -> None:
    words = ("--json", "serve", "--http", "127.0.0.1:0", "--workers", "2")
    serve = command("--config", configured(tmp_path), *words)
    process = await asyncio.to_thread(
        subprocess.Popen, serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        reads = [await asyncio.to_thread(process.stdout.readline) for _ in range(3)]
        port = int(json.loads("".join(reads))["url"].split(":")[2].split("/")[0])
        async with aiohttp.ClientSession() as http:
            await until_ready(http, port, 2)
    finally:
        process.send_signal(signal.SIGTERM)
        rest, said = await asyncio.to_thread(process.communicate, timeout=30)
    assert (rest, said, process.returncode) == ("", "", 0)


def test_workers_are_not_started_on_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serve = ("--json", "serve", "--http", f"127.0.0.1:{taken.getsockname()[1]}", "--workers", "2")
        words = command("--config", configured(tmp_path), *serve)
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode not in (0, 2)
    assert "address" in json.loads(done.stdout)["error"]["message"]
    assert done.stderr.count("error:") == 1
