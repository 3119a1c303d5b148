"""What is logged as a warning: once per cause, with what to do, and nothing else."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mooring import Host, ServerConfig
from mooring.testing import VirtualClock
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, "mooring")
    return lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"command": "no-such-program-here"}, ("'no-such-program-here' was not found", "Install")),
        ({"command": "x", "env": {"KEY": "${NO_SUCH_VARIABLE}"}}, ("NO_SUCH_VARIABLE", "export")),
        ({"url": "refused"}, ("cannot be reached", "Nothing listens there")),
    ],
    ids=["no command", "no secret", "refused"],
)
async def test_a_server_that_does_not_start_is_one_warning_with_its_remedy(
    settings: dict[str, Any], expected: tuple[str, str], warnings: Any
) -> None:
    if "url" in settings:
        settings = {"url": f"http://127.0.0.1:{_closed_port()}/mcp"}
    async with Host([ServerConfig(name="bad", **settings)]) as host:
        await host.ready(20)
        for _ in range(3):
            await host.refresh("bad")  # retries that fail in the same way
    (warning,) = warnings()
    assert "'bad'" in warning
    for text in expected:
        assert text in warning


async def test_a_missing_login_is_one_warning_with_its_remedy(warnings: Any) -> None:
    async def locked(request: web.Request, message: Any) -> web.Response:
        return web.Response(status=401)

    async with HttpLab() as lab:
        lab.faults["server/discover"] = lab.faults["initialize"] = locked
        async with Host([lab.config()]) as host:
            await host.ready(20)
            await host.refresh("web")
    (warning,) = warnings()
    assert "'web' is not available" in warning
    assert "What to do:" in warning


async def test_a_crash_loop_is_one_warning_per_cause(tmp_path: Path, warnings: Any) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(crash_at_start=5, stderr="no licence\n", log=str(log))]) as host:
        clock = VirtualClock()
        for number in range(1, 6):
            await until(lambda number=number: len(starts(log)) == number)
            await until(lambda: host.status()[0].retry_in is not None)
            await clock.advance((host.status()[0].retry_in or 0) + 0.01)
    (warning,) = warnings()
    assert "exited with code 5" in warning
    assert "no licence" in warning


async def test_a_server_that_works_again_and_fails_later_is_another_warning(
    tmp_path: Path, warnings: Any
) -> None:
    async with Host([lab_server(tools=["crash"])]) as host:
        await host.ready(20)
        clock = VirtualClock()
        for number in (1, 2):
            await clock.advance(11)
            await host.call("mcp_lab_crash")
            await until(lambda number=number: len(warnings()) == number)
            await until(lambda: host.status()[0].state == "connected")
    assert ["was lost" in warning for warning in warnings()] == [True, True]


async def test_a_server_of_a_file_that_is_not_approved_is_a_warning(tmp_path: Path, warnings: Any) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"found": {"command": "x"}}}')
    async with Host.from_config(cwd=tmp_path) as host:
        await host.ready(20)
    (warning,) = warnings()
    assert "'found'" in warning
    assert "`mooring trust`" in warning


async def test_without_a_lock_new_and_missing_tools_are_no_warnings(tmp_path: Path, warnings: Any) -> None:
    offered = tmp_path / "tools"
    for tools in ("echo", "echo pid", "pid"):
        offered.write_text(tools)
        async with Host([lab_server(tools_file=str(offered))]) as host:
            await host.ready(20)
    assert warnings() == []


async def test_disabled_servers_are_no_warning(warnings: Any) -> None:
    async with Host([lab_server(settings={"disabled": True})]) as host:
        await host.ready(20)
    assert warnings() == []
