"""The everything server beside its tools: resources, prompts, questions, tasks."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from mooring import Answer, Elicitation, Host, ResourceUpdated, ServerConfig

pytestmark = [pytest.mark.reference, pytest.mark.timeout(300)]


@pytest.fixture
def everything(node_servers: Path) -> ServerConfig:
    script = str(node_servers / "server-everything/dist/index.js")
    return ServerConfig(name="every", command="node", args=[script, "stdio"])


async def test_its_resources_are_listed_read_and_found_by_template(everything: ServerConfig) -> None:
    async with Host([everything]) as host:
        found = await host.resources()
        assert found.errors == {}
        assert (await host.read(found.resources[0].uri)).text
        assert "Resource 7" in (await host.read("demo://resource/dynamic/text/7")).text
        assert (await host.read("demo://resource/dynamic/blob/7")).data
        shown = await host.call("read_mcp_resource", {"uri": "demo://resource/dynamic/text/7"})
        assert '<untrusted from="every"' in shown.text


async def test_its_updates_of_a_resource_are_heard(everything: ServerConfig) -> None:
    uri = "demo://resource/dynamic/text/1"
    async with Host([everything]) as host:
        await host.subscribe(uri, server="every")
        events = host.events()
        await host.call("mcp_every_toggle_subscriber_updates")
        with anyio.fail_after(30):
            async for event in events:
                if isinstance(event, ResourceUpdated):
                    assert event.uri == uri
                    break


async def test_its_prompts_are_got_and_completed(everything: ServerConfig) -> None:
    async with Host([everything]) as host:
        (message,) = await host.prompt("every", "args-prompt", {"city": "Oslo"})
        assert "Oslo" in (message.text or "")
        proposed = await host.complete("every", prompt="completable-prompt", argument="department", value="E")
        assert proposed == ("Engineering",)
        shown = await host.call("mcp_every_get_prompt_simple_prompt")
        assert not shown.is_error


async def test_it_asks_the_user_and_gets_the_answer(everything: ServerConfig) -> None:
    async def on_elicit(question: Elicitation) -> Answer:
        return question.accept({"name": "Ana"})

    async with Host([everything], on_elicit=on_elicit) as host:
        result = await host.call("mcp_every_trigger_elicitation_request")
        assert "Name: Ana" in result.text


async def test_its_tool_that_demands_a_task_reports_its_steps_and_asks(everything: ServerConfig) -> None:
    steps: list[str | None] = []

    async def on_elicit(question: Elicitation) -> Answer:
        return question.accept({"interpretation": "historical"})

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    async with Host([everything], on_elicit=on_elicit) as host:
        name, given = "mcp_every_simulate_research_query", {"topic": "boats", "ambiguous": True}
        result = await host.call(name, given, on_progress=on_progress)
        assert "historical" in json.dumps(result.text)
        assert steps
