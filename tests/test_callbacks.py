"""Plain callbacks run in threads: while one waits for a person, the calls of other servers go on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from mooring import Answer, ApprovalRequest, Elicitation, Host, SyncHost, concurrency
from mooring.concurrency import MAX_QUEUED, OrderedCallback, call_back
from mooring.testing import FakeServer
from tests.lab.libraries import library_server
from tests.lab.oauth import AuthLab, browse
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


class Prompt:
    """A user who answers on request."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answered = threading.Event()
        self.threads: list[threading.Thread] = []

    def wait(self) -> None:
        self.threads.append(threading.current_thread())
        self.asked.set()
        assert self.answered.wait(30)

    async def while_open(self, host: Host) -> None:
        """Another server is called while the person thinks."""
        await until(self.asked.is_set)
        try:
            assert (await host.call("mcp_other_echo", {"text": "meanwhile"}, timeout=20)).text == "meanwhile"
        finally:
            self.answered.set()
        assert threading.main_thread() not in self.threads


@pytest.fixture
def other() -> Any:
    return lab_server("other")


async def test_a_plain_on_progress_blocks_no_other_call(hosting: Any, other: Any) -> None:
    prompt = Prompt()
    async with hosting(lab_server(tools=["sleep"], progress=True), other) as host:
        call = asyncio.create_task(
            host.call("mcp_lab_sleep", {"seconds": 0.1}, on_progress=lambda *_: prompt.wait())
        )
        await prompt.while_open(host)
        assert (await call).text == "slept"


async def test_a_plain_on_elicit_blocks_no_other_call(hosting: Any, other: Any) -> None:
    prompt = Prompt()

    def on_elicit(question: Elicitation) -> Answer:
        prompt.wait()
        return question.accept({"name": "Ana", "age": 40})

    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    params = {"message": "Who are you?", "requestedSchema": schema}
    async with hosting(library_server(), other, on_elicit=on_elicit) as host:
        call = asyncio.create_task(host.call("mcp_lib_ask", {"params": params}))
        await prompt.while_open(host)
        assert "Ana" in (await call).text


async def test_a_plain_on_approval_blocks_no_other_call(hosting: Any, other: Any) -> None:
    prompt = Prompt()

    def on_approval(request: ApprovalRequest) -> bool:
        prompt.wait()
        return True

    async with hosting(lab_server(settings={"approve": ["*"]}), other, on_approval=on_approval) as host:
        call = asyncio.create_task(host.call("mcp_lab_echo", {"text": "yes"}))
        await prompt.while_open(host)
        assert (await call).text == "yes"


async def test_a_plain_on_auth_blocks_no_other_call(hosting: Any, other: Any) -> None:
    prompt = Prompt()
    shown: list[str] = []

    def on_auth(login: Any) -> None:
        shown.append(login.url)
        prompt.wait()

    async with AuthLab() as auth, hosting(auth.config(), other, on_auth=on_auth) as host:
        call = asyncio.create_task(host.call("mcp_web_authenticate"))
        await prompt.while_open(host)
        assert (await browse(shown[0]))[0] == 200
        assert "Logged in" in (await call).text


async def test_a_plain_on_tools_changed_blocks_no_other_call(hosting: Any, other: Any) -> None:
    prompt = Prompt()
    async with hosting(lab_server(), other, on_tools_changed=prompt.wait) as host:
        await prompt.while_open(host)


async def test_a_plain_function_for_the_headers_of_a_session_blocks_no_other_call(
    hosting: Any, other: Any
) -> None:
    prompt = Prompt()
    server = FakeServer("mail")
    server.define({"name": "inbox", "inputSchema": {"type": "object"}}, "2 letters")

    def token() -> dict[str, str]:
        prompt.wait()
        return {"Authorization": "Bearer of-ana"}

    async with server, hosting(server.http(), other) as host, host.session("a", headers={"mail": token}) as a:
        call = asyncio.create_task(a.call("mcp_mail_inbox"))
        await prompt.while_open(host)
        assert (await call).text == "2 letters"


async def test_coroutine_functions_run_on_the_event_loop(hosting: Any) -> None:
    threads: list[threading.Thread] = []

    async def noted(*_: Any) -> None:
        threads.append(threading.current_thread())

    server = lab_server(tools=["sleep"], progress=True)
    async with hosting(server, on_tools_changed=noted) as host:
        await host.call("mcp_lab_sleep", {"seconds": 0.1}, on_progress=noted)
    assert len(threads) >= 2
    assert set(threads) == {threading.current_thread()}


async def test_progress_arrives_in_order_and_before_the_result(hosting: Any) -> None:
    steps: list[float] = []
    async with hosting(lab_server(tools=["sleep"], progress=True)) as host:
        await host.call("mcp_lab_sleep", {"seconds": 0.3}, on_progress=lambda step, *_: steps.append(step))
        seen = list(steps)
    assert len(seen) >= 2
    assert seen == sorted(seen)
    assert steps == seen


async def test_a_progress_callback_that_fails_costs_its_report_only(
    hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise StopIteration

    async with hosting(lab_server(tools=["sleep"], progress=True)) as host:
        assert (await host.call("mcp_lab_sleep", {"seconds": 0.1}, on_progress=fail)).text == "slept"
    assert "callback failed: on_progress" in caplog.text


async def test_a_progress_callback_that_never_returns_does_not_hold_a_call_beyond_its_timeout(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "DELIVERY_TIMEOUT", 60.0)
    prompt = Prompt()
    async with hosting(lab_server(tools=["sleep"], progress=True)) as host:
        try:
            async with asyncio.timeout(20):
                result = await host.call(
                    "mcp_lab_sleep", {"seconds": 0.1}, timeout=2, on_progress=lambda *_: prompt.wait()
                )
        finally:
            prompt.answered.set()
    assert result.text == "slept"
    assert prompt.asked.is_set()


async def test_an_on_auth_that_never_returns_does_not_hold_the_call_beyond_its_timeout(hosting: Any) -> None:
    prompt = Prompt()
    async with AuthLab() as auth, hosting(auth.config(), on_auth=lambda _: prompt.wait()) as host:
        try:
            async with asyncio.timeout(20):
                result = await host.call("mcp_web_authenticate", timeout=2)
        finally:
            prompt.answered.set()
        assert "not completed in time and is still open" in result.text
        assert prompt.asked.is_set()
        assert (await browse(result.error.url))[0] == 200
        await until(lambda: host.status()[0].state == "connected")


async def test_reports_beyond_the_bound_drop_the_oldest() -> None:
    prompt, seen = Prompt(), list[int]()

    def report(number: int) -> None:
        if not seen:
            prompt.wait()
        seen.append(number)

    reports = OrderedCallback(report, "report")
    first = asyncio.create_task(reports(-1))
    await until(prompt.asked.is_set)
    for number in range(MAX_QUEUED + 10):
        await reports(number)
    prompt.answered.set()
    await first
    assert seen == [-1, *range(10, MAX_QUEUED + 10)]


async def test_a_callback_that_leaves_the_program_ends_its_own_call_only() -> None:
    def leave() -> None:
        raise SystemExit

    with pytest.raises(RuntimeError, match="SystemExit"):
        await call_back(leave)


def test_a_sync_host_takes_plain_callbacks() -> None:
    steps: list[float] = []
    loop_threads: list[str] = []
    changed = threading.Event()

    def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)
        loop_threads.append(threading.current_thread().name)
        host.status()  # may use the host: it does not run on its loop

    server = lab_server(tools=["sleep", "echo"], progress=True)
    with SyncHost([server], on_tools_changed=changed.set) as host:
        host.call("mcp_lab_sleep", {"seconds": 0.1}, on_progress=on_progress)
        with host.session("chat") as chat:
            chat.call("mcp_lab_sleep", {"seconds": 0.1}, on_progress=on_progress)
        assert changed.wait(20)
    assert steps.count(1.0) == 2
    assert "mooring" not in loop_threads


async def test_on_auth_of_a_sync_host_gets_a_login_without_await() -> None:
    shown: list[Any] = []
    async with AuthLab() as auth:

        def on_auth(login: Any) -> None:
            shown.append((login.server, login.issuer, login.over))
            _, back = asyncio.run(browse(login.url, follow=False))
            login.complete(back)
            login.done(20)

        def use() -> str:
            with SyncHost([auth.config()], on_auth=on_auth) as host:
                host.ready(20)
                return host.call("mcp_web_authenticate").text

        assert "Logged in" in await asyncio.to_thread(use)
        assert shown == [("web", auth.issuer, False)]
