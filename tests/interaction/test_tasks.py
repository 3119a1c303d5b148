"""Calls whose result comes later: the caller sees one call, the server one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import Answer, CallTimeout, Elicitation, ServerError
from tests.lab.libraries import HttpLibrary, library_at, library_server
from tests.lab.stdio import methods, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

MODERN = ["stdio modern", "http modern"]
QUESTION = {
    "method": "elicitation/create",
    "params": {
        "message": "Go on?",
        "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}},
    },
}


@pytest.mark.parametrize("place", MODERN)
async def test_a_task_is_followed_to_its_result_and_its_steps_are_reported(place: str, hosting: Any) -> None:
    steps: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, message))

    async with library_at(place) as server, hosting(server) as host:
        result = await host.call("mcp_lib_work", {"polls": 3}, on_progress=on_progress)
        assert (result.text, result.is_error) == ("worked null", False)
        assert steps == [(1.0, "step 0"), (2.0, "step 1"), (3.0, "step 2")]


@pytest.mark.parametrize(("fate", "words"), [("failed", "the disk is full"), ("cancelled", "cancelled it")])
async def test_a_task_that_ends_badly_says_why(fate: str, words: str, hosting: Any) -> None:
    async with hosting(library_server(era="modern")) as host:
        result = await host.call("mcp_lib_work", {"fate": fate})
        assert isinstance(result.error, ServerError)
        assert words in result.text


@pytest.mark.parametrize("place", MODERN)
async def test_a_question_of_a_task_is_put_to_the_user_once(place: str, hosting: Any) -> None:
    asked: list[Elicitation] = []

    async def on_elicit(question: Elicitation) -> Answer:
        asked.append(question)
        return question.accept({"yes": True})

    async with library_at(place) as server, hosting(server, on_elicit=on_elicit) as host:
        result = await host.call("mcp_lib_work", {"question": QUESTION})
        assert result.text == 'worked {"action": "accept", "content": {"yes": true}}'
        assert len(asked) == 1


async def test_a_caller_that_stops_waiting_stops_the_task(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(library_server(era="modern", log=str(log))) as host:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.call, "mcp_lib_work", {"polls": 10_000})
            await until(lambda: "tasks/get" in methods(log))
            tasks.cancel_scope.cancel()
        await until(lambda: "tasks/cancel" in methods(log))
        late = await host.call("mcp_lib_work", {"polls": 10_000}, timeout=0.3)
        assert isinstance(late.error, CallTimeout)
        await until(lambda: methods(log).count("tasks/cancel") == 2)
        stopped = [e["params"]["taskId"] for e in wire_log(log) if e.get("method") == "tasks/cancel"]
        assert stopped == ["task-0", "task-1"]
        assert (await host.call("mcp_lib_echo")).text == "done"


async def test_a_finished_task_is_not_cancelled(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(library_server(era="modern", log=str(log))) as host:
        await host.call("mcp_lib_work")
        await host.call("mcp_lib_work", {"fate": "failed"})
        await host.call("mcp_lib_echo")
    assert "tasks/cancel" not in methods(log)


async def test_a_notice_ends_the_wait_long_before_the_next_poll(hosting: Any) -> None:
    async with HttpLibrary(era="modern") as lab, hosting(lab.config("lib")) as host:
        answers: list[str] = []

        async def call() -> None:
            answers.append((await host.call("mcp_lib_work", {"polls": 99, "wait": 60_000})).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: any("taskIds" in wanted for wanted in lab.library.listening.values()))
            lab.library.end_task("task-0")
        assert answers == ["worked null"]


async def test_the_servers_interval_is_kept(hosting: Any) -> None:
    async with HttpLibrary(era="modern") as lab, hosting(lab.config("lib")) as host:
        await host.call("mcp_lib_work", {"polls": 99, "wait": 60_000}, timeout=0.5)
        assert lab.methods().count("tasks/get") == 0
        headers = [headers for method, headers in lab.seen if method == "tools/call"]
        assert headers[0]["Mcp-Name"] == "work"
        await lab.until(lambda: "tasks/cancel" in lab.methods())
        (cancel,) = [headers for method, headers in lab.seen if method == "tasks/cancel"]
        assert cancel["Mcp-Name"] == "task-0"


@pytest.mark.parametrize("place", ["stdio legacy", "http legacy"])
async def test_a_tool_of_the_handshake_era_that_demands_a_task_is_called_as_one(
    place: str, hosting: Any
) -> None:
    async with library_at(place) as server, hosting(server) as host:
        assert "worked" in (await host.call("mcp_lib_long", {"polls": 2})).text
        refused = await host.call("mcp_lib_work")
        assert "this tool is a task" in refused.text


@pytest.mark.parametrize(
    "state",
    [{}, {"taskId": 5, "status": "working"}, {"taskId": "x", "status": "dreaming"}],
)
async def test_a_task_that_is_none_is_a_clear_error(state: dict[str, Any], hosting: Any) -> None:
    from tests.lab.stdio import lab_server

    raw = {"resultType": "task", **state}
    async with hosting(lab_server(era="modern", tools=["raw"])) as host:
        result = await host.call("mcp_lab_raw", {"result": raw})
        assert isinstance(result.error, ServerError)
        assert "task" in result.text


async def test_a_result_of_an_unknown_kind_is_not_taken_for_an_answer(hosting: Any) -> None:
    from tests.lab.stdio import lab_server

    async with hosting(lab_server(era="modern", tools=["raw"])) as host:
        raw = {"resultType": "riddle", "content": [{"type": "text", "text": "?"}]}
        assert "unknown resultType" in (await host.call("mcp_lab_raw", {"result": raw})).text
