"""Policies per tool, applied to calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import (
    ApprovalAsked,
    ApprovalRequest,
    CallDenied,
    CallStarted,
    Host,
    HostConfig,
    Policy,
    PolicyDenied,
    ServerConfig,
)
from mooring.core.transforms import CallContext
from mooring.host import runtime_of
from tests.lab.stdio import COMMAND, lab_server, methods

pytestmark = pytest.mark.anyio


def lab(log: Path, **settings: Any) -> ServerConfig:
    hints = {"readOnlyHint": True, "destructiveHint": False}
    return lab_server("lab", settings=settings, tools=["echo", "pid"], log=str(log), annotations=hints)


def calls(log: Path) -> int:
    return methods(log).count("tools/call")


async def test_a_call_that_needs_a_yes_is_made_after_one(hosting: Any, tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    async with hosting(lab(tmp_path / "log", approve=["echo"]), on_approval=approve) as host:
        events = host.events()
        result = await host.call("mcp_lab_echo", {"text": "planted-argument"})
        assert (result.text, result.is_error) == ("planted-argument", False)
        assert (await host.call("mcp_lab_pid")).is_error is False
    [request] = asked
    assert (request.server, request.tool, request.name) == ("lab", "echo", "mcp_lab_echo")
    assert request.arguments == {"text": "planted-argument"}
    assert request.reason == "`approve` of 'lab'"
    assert "planted-argument" not in repr(request)
    assert "text" in repr(request)
    kinds = [type(event) async for event in events]
    assert kinds.index(ApprovalAsked) < kinds.index(CallStarted)


@pytest.mark.parametrize(
    "answer",
    [lambda request: False, lambda request: None, lambda request: "yes", lambda request: 1 / 0, None],
)
async def test_without_a_clear_yes_nothing_is_sent_and_the_model_learns_it(
    hosting: Any, tmp_path: Path, answer: Callable[[ApprovalRequest], bool] | None
) -> None:
    log = tmp_path / "log"
    async with hosting(lab(log, approve=["*"]), on_approval=answer) as host:
        events = host.events()
        result = await host.call("mcp_lab_echo", {"text": "x"})
        assert result.is_error
        assert isinstance(result.error, PolicyDenied)
        assert "was not called" in result.text
        assert "Do not try again" in result.text
        with pytest.raises(PolicyDenied):
            await host.call("mcp_lab_echo", {"text": "x"}, check=True)
    assert calls(log) == 0
    denied = [event async for event in events if isinstance(event, CallDenied)]
    assert [(event.server, event.tool) for event in denied] == [("lab", "echo")] * 2


async def test_a_denied_tool_is_neither_listed_nor_called(hosting: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with hosting(lab(log, policy={"deny": ["pid"]})) as host:
        assert list(host.catalog.tools) == ["mcp_lab_echo"]
        assert "mcp_lab_pid" not in [tool.name for tool in host.session().tools()]
        result = await host.call("mcp_lab_pid")
        assert result.is_error
        # A catalog that was taken before the rule, and a rule that came meanwhile: the call is what counts.
        tool = host.catalog.tools["mcp_lab_echo"]
        await host.apply(HostConfig(servers=host.config.servers, policy=Policy(deny=["lab/echo"])))
        with pytest.raises(PolicyDenied, match=r"`deny: lab/echo` in the host's policy"):
            await runtime_of(host).permit(tool, {}, CallContext(session="s"), None)
        assert not host.catalog.tools
    assert calls(log) == 0


async def test_TH34_a_servers_own_hints_open_nothing(hosting: Any, tmp_path: Path) -> None:
    policy = {"otherwise": "ask", "allow": ["@read-only"]}
    async with hosting(lab(tmp_path / "a", policy=policy)) as host:
        assert isinstance((await host.call("mcp_lab_echo", {"text": "x"})).error, PolicyDenied)
    async with hosting(lab(tmp_path / "b", policy=policy, trust_hints=True)) as host:
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"


async def test_a_person_who_does_not_answer_is_waited_for_no_longer_than_the_call_may_take(
    hosting: Any, tmp_path: Path
) -> None:
    gone = threading.Event()

    def blocking(request: ApprovalRequest) -> bool:
        return gone.wait(20)

    async def never(request: ApprovalRequest) -> bool:
        await anyio.sleep_forever()
        return True

    for answer in (blocking, never):
        async with hosting(lab(tmp_path / "log", approve=["*"]), on_approval=answer) as host:
            result = await host.call("mcp_lab_echo", {"text": "x"}, timeout=0.1)
            assert isinstance(result.error, PolicyDenied)
            assert "was not approved" in result.text
    gone.set()
    assert calls(tmp_path / "log") == 0


async def test_cancelling_the_caller_withdraws_the_question(hosting: Any, tmp_path: Path) -> None:
    ended = anyio.Event()

    async def never(request: ApprovalRequest) -> bool:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return True

    async with hosting(lab(tmp_path / "log", approve=["*"]), on_approval=never) as host:
        with anyio.move_on_after(0.1):
            await host.call("mcp_lab_echo", {"text": "x"})
        with anyio.fail_after(5):
            await ended.wait()
    assert calls(tmp_path / "log") == 0


@pytest.mark.parametrize("timeout", [None, 0.2])
async def test_no_answer_in_time_denies_the_call(
    timeout: float | None, hosting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.policy.enforce.ANSWER_TIMEOUT", 0.1)

    async def never(request: ApprovalRequest) -> bool:
        await anyio.sleep_forever()
        return True

    async with hosting(lab(tmp_path / "log", approve=["*"]), on_approval=never) as host:
        with anyio.fail_after(20):
            result = await host.call("mcp_lab_echo", {"text": "x"}, timeout=timeout)
        assert isinstance(result.error, PolicyDenied)
    assert calls(tmp_path / "log") == 0


async def test_the_applications_own_functions_need_no_approval(hosting: Any) -> None:
    def double(x: int) -> int:
        return 2 * x

    async with hosting(local=[double]) as host:
        await host.apply(HostConfig(policy=Policy(otherwise="deny")))
        assert (await host.call("double", {"x": 2})).text == "4"


async def test_a_projects_policy_makes_the_users_stricter_and_never_milder(tmp_path: Path) -> None:
    user, project = tmp_path / "home" / ".config" / "mooring", tmp_path / "project"
    user.mkdir(parents=True)
    project.mkdir()
    (user / "config.json").write_text(json.dumps({"policy": {"ask": ["echo"]}}))
    policy = {"deny": ["pid"], "allow": ["*"]}
    entry = {"command": COMMAND[0], "args": list(COMMAND[1:])}
    (project / "mooring.json").write_text(json.dumps({"policy": policy, "servers": {"lab": entry}}))
    async with Host.from_config(cwd=project, trust=True) as host:
        await host.ready(20)
        assert (await host.call("mcp_lab_echo", {"text": "x"})).is_error
        assert "project's policy" in (await host.call("mcp_lab_pid")).text
        assert "mcp_lab_pid" not in host.catalog.tools


@pytest.mark.parametrize(
    "wrong",
    [{"deny": ["pid"], "aks": ["echo"]}, {"deny": ["pid"], "ask": 5}, ["deny"], "deny", {"otherwise": "no"}],
)
async def test_a_policy_that_cannot_be_read_denies_every_call(wrong: object, tmp_path: Path) -> None:
    script = json.dumps({"tools": ["echo", "pid"], "log": str(tmp_path / "log")})
    entry = {"command": COMMAND[0], "args": [*COMMAND[1:], script]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"lab": entry}, "policy": wrong}))
    async with Host.from_config(str(file)) as host:
        await host.ready(20)
        [warning] = host.config.warnings
        assert "Every tool is denied until the policy is correct" in str(warning)
        for name in ("mcp_lab_pid", "mcp_lab_echo"):
            assert (await host.call(name, {"text": "x"})).is_error
    assert calls(tmp_path / "log") == 0
