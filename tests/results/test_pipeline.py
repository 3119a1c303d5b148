"""The pipeline for results of every shape: never above the budget, and nothing lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.core.render import as_text, inlined
from mooring.core.text import dumps, estimate
from mooring.core.types import Result, Tool
from mooring.results import pipeline as module
from mooring.results.pipeline import ResultPipeline, home_at
from mooring.transport.wire import content
from tests.lab.wait import until

TOOL = Tool(name="t", server="s", remote_name="t")
TEXT = st.text(max_size=30) | st.builds(lambda seed, n: seed * n, st.text(max_size=8), st.integers(0, 300))
BLOCK = st.one_of(
    TEXT.map(lambda text: {"type": "text", "text": text}),
    TEXT.map(lambda text: {"type": "resource_link", "uri": text, "name": "n"}),
    TEXT.map(lambda text: {"type": "resource", "resource": {"uri": "a:b", "text": text}}),
    st.just({"type": "image", "data": "////", "mimeType": "image/png"}),
    st.builds(lambda kind, data: {"type": kind, "x": data}, st.text(min_size=1, max_size=5), st.integers()),
)


def made(home: Path | None = None, artifacts: Path | None = None) -> ResultPipeline:
    return ResultPipeline(lambda: home, lambda: artifacts, lambda text: text)


def arrived(raws: list[dict[str, Any]]) -> Result:
    """The result of a server that sends these blocks, of which the wire lets only the readable ones in."""
    blocks, _ = content(raws)
    return Result(server="s", tool="t", blocks=tuple(blocks))


def shown(pipeline: ResultPipeline, result: Result, budget: int) -> Result:
    return anyio.run(
        lambda: pipeline.keep(TOOL, result, session="a", budget=budget, conformance="off"), backend="asyncio"
    )


def read(pipeline: ResultPipeline, handle: str, budget: int) -> str:
    async def pieces() -> str:
        offset: int | None = 0
        parts: list[str] = []
        while offset is not None:
            arguments = {"handle": handle, "offset": offset}
            piece = await pipeline.read(arguments, session="a", budget=budget)
            assert not piece.is_error, piece.text
            assert estimate(piece.text) <= budget
            parts.append(piece.blocks[0].text or "")
            offset = piece.structured["next_offset"]
        return "".join(parts)

    return anyio.run(pieces)


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> list[ResultPipeline]:
    return [made(tmp_path_factory.mktemp("home")), made()]


@settings(max_examples=50)
@given(
    raws=st.lists(BLOCK, max_size=12)
    | st.lists(st.just({"type": "text", "text": "é"}), min_size=65, max_size=300),
    budget=st.integers(100, 600),
    disk=st.booleans(),
)
def test_what_is_shown_is_never_above_the_budget_and_all_of_it_can_be_read(
    pipelines: list[ResultPipeline], raws: list[dict[str, Any]], budget: int, disk: bool
) -> None:
    pipeline = pipelines[disk]
    result = arrived(raws)
    out = shown(pipeline, result, budget)
    beside = [block for block in out.blocks if block.type not in ("text", "image")]
    assert estimate(out.text) + estimate("".join(dumps(block.raw) for block in beside)) <= budget
    if out.handle is None:
        assert "left out here" not in out.text
        return
    kept = {id(block.raw) for block in beside}
    converted = [inlined(block) if block.type == "resource" else block for block in result.blocks]
    whole = [as_text(block) for block in converted if block.type != "image" and id(block.raw) not in kept]
    assert read(pipeline, out.handle, 5_000) == "\n".join(whole)


@settings(max_examples=50)
@given(
    raw=st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=9)),
    kind=st.text(min_size=1) | st.sampled_from(["text", "image", "audio", "resource", "resource_link"]),
)
def test_no_block_of_any_shape_is_an_exception(
    pipelines: list[ResultPipeline], raw: dict[str, Any], kind: str
) -> None:
    strange = [
        {**raw, "type": kind, "uri": raw, "mimeType": 7},
        {"type": "resource", "resource": {**raw, "text": "t", "blob": raw, "uri": 3, "mimeType": [raw]}},
        {"type": "resource", "resource": {"blob": "////", "uri": raw, "mimeType": raw}},
    ]
    out = shown(pipelines[1], arrived(strange), 0)
    assert [block.type for block in out.blocks][-2:] == ["text", "text"]


@pytest.mark.parametrize("none", [None, False])
def test_there_may_be_no_home(none: bool | None) -> None:
    assert home_at(none) is None
    assert home_at("/x") == Path("/x")


@pytest.mark.anyio
async def test_what_an_earlier_run_left_is_tidied_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosting: Callable[..., Any]
) -> None:
    monkeypatch.setattr(module, "SETTLED", 0.0)
    left = [tmp_path / "mcp-outputs" / f"{'0' * 32}.txt", tmp_path / "mcp-blobs" / f"{'0' * 32}.png"]
    for file in left:
        file.parent.mkdir()
        file.write_text("left behind")
        os.utime(file, (time.time() - 30 * 86_400,) * 2)
    async with hosting(home=tmp_path):
        await until(lambda: not any(file.exists() for file in left))
