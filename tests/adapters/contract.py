"""The contract of every adapter, run through the framework's own agent loop with a scripted model."""

from __future__ import annotations

import base64
import inspect
import json
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import pytest

from examples.scripted import Script
from mooring import Host, HostConfig, SyncHost
from mooring.core.schema.compile import Dialect
from tests.lab.stdio import lab_server
from tests.lab.wait import until

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
PICTURE = {
    "content": [
        {"type": "text", "text": "a dot"},
        {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    ]
}
AWKWARD = {
    "config": "a",
    "run_manager": "b",
    "ctx": "c",
    "input": "d",
    "name": "e",
    "args": [1],
    "context": "f",
}
MIRROR = {
    "name": "mirror",
    "description": "Says what it was given",
    "inputSchema": {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in AWKWARD if name != "args"},
            "args": {"type": "array", "items": {"type": "integer"}},
            "sort-by": {"type": "string"},
            "filter": {"type": "object", "additionalProperties": True},
        },
        "required": ["config"],
    },
}
IMPOSSIBLE = {"name": "impossible", "inputSchema": {"allOf": [{"type": "object"}, {"type": "string"}]}}
NAMES = sorted(f"mcp_lab_{name}" for name in ("echo", "fail", "refuse", "raw", "grow", "drop", "mirror"))


def framework(name: str) -> Any:
    """The scripted model and the adapter of a framework."""
    return import_module(f"examples.scripted.{name}"), import_module(f"mooring.adapters.{name}")


def lab(discovery: Any = "never", **settings: Any) -> HostConfig:
    server = lab_server(
        tools=["echo", "fail", "refuse", "raw", "grow", "drop"], definitions=[MIRROR, IMPOSSIBLE]
    )
    return HostConfig(servers=(server,), discovery=discovery, **settings)


def installed(name: str) -> bool:
    """Whether a module can be imported."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # one of the packages that it is in
        return False


async def settled(answers: Any) -> Any:
    """With a host for threads the answers are there; with others they are awaited."""
    return await answers if inspect.isawaitable(answers) else answers


async def shown_later(discovery: Any, make: Any) -> Any:
    async with Host(lab(discovery)) as host:
        assert await host.ready(20)
        session = host.session("chat")
        await session.call("tools_select", {"tools": ["mcp_lab_echo"]})
        return make(session)


class Contract:
    """Subclasses run a script through their framework."""

    needs: ClassVar[str | None] = None
    """The package without which the tests are skipped."""
    dialect: ClassVar[Dialect] = "plain"
    marks_errors: ClassVar[bool] = True
    """Whether the framework has a mark for failed calls; otherwise the text says it."""
    images: ClassVar[bool] = True
    lives: ClassVar[bool] = True
    """Whether the framework asks for the tools again before each turn."""
    calls_unlisted: ClassVar[bool] = False
    """Whether the framework can call a tool that it does not list."""

    async def converse(self, source: Any, script: Script) -> None:
        """Let the framework's own agent follow the script with the tools of the source."""
        raise NotImplementedError

    async def play(self, source: Any, *calls: tuple[str, dict[str, Any]]) -> Script:
        script = Script([(f"mcp_lab_{name}", arguments) for name, arguments in calls])
        await self.converse(source, script)
        assert len(script.turns) == len(calls) + 1
        return script

    @pytest.fixture(autouse=True)
    def framework_is_there(self) -> None:
        if self.needs is not None:
            pytest.importorskip(self.needs, reason=f"{self.needs} is not installed; see make test-adapters")

    @pytest.fixture
    async def host(self) -> Any:
        async with Host(lab()) as host:
            assert await host.ready(20)
            yield host

    def open(self, value: Any) -> Any:
        """How a model gives a value without a schema in this dialect."""
        return json.dumps(value) if self.dialect in ("plain", "gemini", "openai-strict") else value

    def free(self, value: Any) -> Any:
        """How a model gives an object with any members."""
        return json.dumps(value) if self.dialect in ("gemini", "openai-strict") else value

    async def test_the_model_sees_every_tool_but_the_one_that_cannot_be_offered(self, host: Host) -> None:
        script = await self.play(host)
        assert sorted(script.turns[0]) == NAMES

    async def test_a_call_is_made_and_its_text_is_shown(self, host: Host) -> None:
        script = await self.play(host, ("echo", {"text": "hello"}))
        assert [shown.text.strip().rpartition("\n")[2] for shown in script.shown] == ["hello"]
        assert not script.shown[0].is_error

    @pytest.mark.parametrize(
        ("tool", "said"), [("fail", "it did not work"), ("refuse", "refused on purpose")]
    )
    async def test_a_failure_is_shown_and_the_run_goes_on(self, host: Host, tool: str, said: str) -> None:
        script = await self.play(host, (tool, {}), ("echo", {"text": "on we go"}))
        failed, fine = script.shown[0], script.shown[-1]
        assert said in failed.text
        assert failed.is_error if self.marks_errors else "Error" in failed.text
        assert "on we go" in fine.text

    async def test_images_are_shown_and_other_content_becomes_text(self, host: Host) -> None:
        script = await self.play(host, ("raw", {"result": self.open(PICTURE)}))
        shown = script.shown[-1]
        assert "a dot" in shown.text
        assert "audio/wav" in shown.text
        if self.images:
            assert shown.images == [PNG]
        else:
            assert "image/png" in shown.text

    async def test_arguments_come_back_as_the_server_wants_them(self, host: Host) -> None:
        dashed = "sort-by" if self.dialect.startswith(("openai", "anthropic")) else "sort_by"
        given = {**AWKWARD, dashed: "date", "filter": self.free({"deep": {"er": 1}})}
        script = await self.play(host, ("mirror", given))
        wanted = {**AWKWARD, "sort-by": "date", "filter": {"deep": {"er": 1}}}
        assert json.loads(script.shown[0].text[script.shown[0].text.index("{") :]) == wanted

    async def test_a_tool_that_comes_is_seen(self, host: Host) -> None:
        if not self.lives:
            await self.play(host, ("grow", {"name": "late"}))
            await host.refresh()
            assert "mcp_lab_late" in (await self.play(host)).turns[0]
            return

        async def settle() -> str:
            await until(lambda: "mcp_lab_late" in host.catalog.tools)
            return "settled"

        async with Host(lab(), local=[settle]) as host:
            assert await host.ready(20)
            script = Script([("mcp_lab_grow", {"name": "late"}), ("settle", {}), ("mcp_lab_late", {})])
            await self.converse(host, script)
        assert ["mcp_lab_late" in turn for turn in script.turns] == [False, False, True, True]
        assert "called late" in script.shown[2].text

    async def test_a_tool_that_is_selected_can_be_called(self) -> None:
        if not self.lives:
            pytest.skip("the framework takes its tools once")
        async with Host(lab("always")) as host:
            assert await host.ready(20)
            session = host.session("chat")
            script = Script(
                [("tools_select", {"tools": ["mcp_lab_echo"]}), ("mcp_lab_echo", {"text": "found"})]
            )
            await self.converse(session, script)
            more = [] if self.calls_unlisted else ["tools_call"]
            assert script.turns[0] == ["tools_groups", "tools_search", "tools_select", *more]
            assert "mcp_lab_echo" in script.turns[1]
            assert "found" in script.shown[1].text

    async def test_a_catalog_above_the_budget_is_called_by_name(self) -> None:
        async with Host(lab("auto", discovery_budget=100)) as host:
            assert await host.ready(20)
            session = host.session("chat")
            script = await self.play(session, ("echo", {"text": "by name"}), ("mirror", {"config": "too"}))
            assert "by name" in script.shown[0].text
            assert "too" in script.shown[1].text
            assert ("mcp_lab_echo" in script.turns[0]) is not self.calls_unlisted

    async def test_with_discovery_a_tool_that_is_not_shown_can_be_called(self) -> None:
        async with Host(lab("always")) as host:
            assert await host.ready(20)
            given = {
                "name": "mcp_lab_mirror",
                "arguments": self.free({"config": "reached", "sort-by": "date"}),
            }
            direct = ("mcp_lab_mirror", {"config": "reached"})
            script = Script([direct if self.calls_unlisted else ("tools_call", given)])
            await self.converse(host.session("chat"), script)
            assert "mcp_lab_mirror" not in script.turns[0]
            assert '"config": "reached"' in script.shown[0].text

    async def test_the_tools_of_a_host_for_threads_work_as_well(self) -> None:
        with SyncHost(lab()) as host:
            assert host.ready(20)
            script = await self.play(host, ("echo", {"text": "from another loop"}))
            assert "from another loop" in script.shown[0].text
