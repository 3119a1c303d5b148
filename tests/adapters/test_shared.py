"""Shared code of the adapters: results in parts, schemas compiled once, calls across loops and threads."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import Host, LocalTools, Result, Tool
from mooring.adapters import _common
from mooring.adapters._common import IMAGES, Bridge, content_parts, fields, marked_parts, text
from mooring.core.schema import compile as schemas
from mooring.core.types import Block
from tests.adapters.contract import lab

pytestmark = pytest.mark.anyio


def result(*blocks: dict[str, Any], **more: Any) -> Result:
    return Result(server="s", tool="t", blocks=tuple(Block(block) for block in blocks), **more)


def image(data: str, mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime_type}


def test_an_image_with_invalid_base64_becomes_text() -> None:
    (part,) = content_parts(result(image("@@not base64@@")))
    assert part.mime_type is None
    assert "image/png" in part.text


def test_an_image_of_an_unsupported_type_becomes_text() -> None:
    (part,) = content_parts(result(image(base64.b64encode(b"<svg/>").decode(), "image/svg+xml")))
    assert "image/svg+xml" in part.text
    assert "6 bytes" in part.text or "bytes" in part.text


def test_links_and_unknown_blocks_become_text() -> None:
    link = {"type": "resource_link", "uri": "file:///a.md", "name": "a", "mimeType": "text/markdown"}
    assert text(result(link, {"type": "hologram", "x": 1})) == (
        '[resource file:///a.md (a, text/markdown)]\n{"type": "hologram", "x": 1}'
    )


def test_a_structured_value_stands_for_text_that_is_missing() -> None:
    assert text(result(structured={"a": 1})) == '{"a": 1}'
    assert text(result({"type": "text", "text": ""}, structured=[1])) == "[1]"


def test_there_is_always_something_to_read() -> None:
    assert text(result()) == "Done; there is no output."
    assert text(result(is_error=True)) == "The tool failed and gave no reason."


def test_an_error_in_several_blocks_is_marked_once() -> None:
    why, hint = {"type": "text", "text": "it failed"}, {"type": "text", "text": "[mooring: try b]"}
    assert [part.text for part in marked_parts(result(why, hint, is_error=True))] == [
        "Error: it failed",
        "[mooring: try b]",
    ]
    dot = image(base64.b64encode(b"dot").decode())
    shown = marked_parts(result(dot, why, is_error=True))
    assert [part.text for part in shown] == ["Error:", "", "it failed"]
    assert marked_parts(result(why, hint)) == content_parts(result(why, hint))


def test_a_structured_value_is_not_said_twice() -> None:
    said = {"type": "text", "text": '{"a": 1}'}
    assert fields(result(said, structured={"a": 1})) == {"output": {"a": 1}}
    assert fields(result({"type": "text", "text": "one"}, structured={"a": 1})) == {
        "output": "one",
        "structured": {"a": 1},
    }
    assert fields(result({"type": "text", "text": "no"}, is_error=True)) == {"error": "no"}


blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text()),
    st.builds(image, st.text() | st.binary().map(lambda raw: base64.b64encode(raw).decode()), st.text()),
    st.builds(lambda blob: {"type": "resource", "resource": {"uri": "u", "blob": blob}}, st.text()),
    st.builds(lambda kind, value: {"type": kind, "value": value}, st.text(), st.integers()),
)


@given(st.lists(blocks, max_size=5), st.booleans(), st.none() | st.integers())
def test_every_result_has_pieces_that_hold_together(
    found: list[Any], is_error: bool, structured: Any
) -> None:
    shown = content_parts(result(*found, is_error=is_error, structured=structured))
    assert shown
    for part in shown:
        assert (part.mime_type in IMAGES and part.raw) or part.text


def offered(schema: dict[str, Any]) -> Any:
    """A source that shows one tool."""

    class OneTool:
        catalog: Any = None
        tool = Tool(name="t", server="s", remote_name="t", input_schema=schema)

        def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
            return (self.tool,)

        async def call(self, name: str, arguments: Any = None) -> Result:
            return result()

    return OneTool()


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    real = schemas.compile_schema
    monkeypatch.setattr(schemas, "compile_schema", lambda *given: compiled.append(given) or real(*given))
    source = offered({"type": "object", "properties": {"a": {"type": "string"}}})
    first, again = Bridge(source, "plain").tools(), Bridge(source, "plain").tools()
    assert len(compiled) == 1
    assert first[0].compiled is again[0].compiled


def test_the_cache_of_compiled_schemas_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_common, "MAX_CACHED", 3)
    monkeypatch.setattr(_common, "_cache", {})
    sources = [offered({"type": "object", "title": str(number)}) for number in range(10)]
    for source in sources:
        assert len(Bridge(source, "plain").tools()) == 1
    assert len(_common._cache) == 3


async def test_tools_that_are_asked_for_again_are_compiled_off_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[Any] = []
    real = schemas.compile_schema
    monkeypatch.setattr(
        schemas, "compile_schema", lambda *given: threads.append(threading.current_thread()) or real(*given)
    )
    assert await Bridge(offered({"type": "object"}), "plain").fresh_tools()
    assert threads
    assert threading.main_thread() not in threads


def test_a_framework_may_write_into_a_schema() -> None:
    source = offered({"type": "object", "properties": {"a": {"type": "string"}}})
    (offer,) = Bridge(source, "openai").tools()
    offer.schema["properties"]["a"]["type"] = "spoilt"
    assert offer.schema["properties"]["a"]["type"] == "string"


def test_a_tool_without_a_description_has_its_name() -> None:
    (offer,) = Bridge(offered({"type": "object"}), "plain").tools()
    assert offer.description() == "t"


async def test_a_host_is_called_from_another_loop() -> None:
    async with Host(lab()) as host:
        assert await host.ready(20)
        bridge = Bridge(host, "plain")

        def elsewhere() -> list[str]:
            assert next(offer.name for offer in bridge.tools()) == "mcp_lab_drop"

            async def both() -> list[str]:
                names = [offer.name for offer in await bridge.fresh_tools()]
                return [*names[:1], (await bridge.call("mcp_lab_echo", {"text": "far"})).text]

            return asyncio.run(both())

        assert await asyncio.to_thread(elsewhere) == ["mcp_lab_drop", "far"]


async def test_cancelling_in_another_loop_cancels_the_call() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with Host(local=[wait]) as host:
        bridge = Bridge(host, "plain")
        home = asyncio.get_running_loop()

        def elsewhere() -> None:
            async def give_up() -> None:
                call = asyncio.create_task(bridge.call("wait", {}))
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(started.wait(), home))
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call

            asyncio.run(give_up())

        await asyncio.to_thread(elsewhere)
        await asyncio.wait_for(ended.wait(), 10)


async def test_a_call_that_would_wait_for_itself_is_refused() -> None:
    async with Host(local=LocalTools()) as host:
        with pytest.raises(RuntimeError, match="SyncHost"):
            Bridge(host, "plain").call_now("anything", {})


def test_a_host_whose_loop_has_ended_raises_an_error() -> None:
    async def make() -> Bridge:
        async with Host() as host:
            return Bridge(host, "plain")

    bridge = asyncio.run(make())
    with pytest.raises(RuntimeError, match="has ended"):
        asyncio.run(bridge.call("anything", {}))
    with pytest.raises(RuntimeError, match="has ended"):
        bridge.call_now("anything", {})


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)


def test_the_package_needs_no_framework() -> None:
    done = run("import sys; sys.modules.update(openai=None, anthropic=None, google=None, mcp=None)\n"
               "from mooring.adapters import anthropic, google_genai, openai")  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("adapter", "package"),
    [
        ("openai_agents", "agents"),
        ("pydantic_ai", "pydantic_ai"),
        ("google_adk", "google"),
        ("langchain", "langchain"),
        ("llama_index", "llama_index"),
        ("agent_framework", "agent_framework"),
        ("strands", "strands"),
        ("smolagents", "smolagents"),
        ("llm", "llm"),
    ],
)
def test_a_missing_framework_names_the_extra(adapter: str, package: str) -> None:
    done = run(f"import sys; sys.modules[{package!r}] = None\nfrom mooring.adapters import {adapter}")
    assert done.stderr.strip().endswith(f'pip install "mooring[{adapter.replace("_", "-")}]"')


async def test_a_missing_sdk_raises_an_error_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from mooring.adapters import anthropic

    monkeypatch.setitem(sys.modules, "anthropic", None)
    async with Host() as host:
        with pytest.raises(ImportError, match=r"mooring\[anthropic\]"):
            anthropic.runner_tools(host)
