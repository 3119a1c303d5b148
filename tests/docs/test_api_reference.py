"""The Python reference has every exported name, and its examples run."""

from __future__ import annotations

import asyncio
import inspect
import re
import runpy
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import Host, HostConfig, ServerConfig, errors
from mooring.cli.app import COMMANDS
from mooring.config.reference import references_of
from mooring.core import events
from mooring.testing import FakeServer

ROOT = Path(__file__).parents[2]
API = runpy.run_path(str(ROOT / "scripts/write_api.py"))
EXAMPLES = [
    pytest.param(path, function, id=f"{path.stem}.{function.__name__}")
    for path in sorted((ROOT / "docs/examples").glob("*.py"))
    for function in runpy.run_path(str(path)).values()
    if inspect.isfunction(function) and function.__globals__.get("__file__") == str(path)
]


@pytest.fixture
async def shop() -> AsyncIterator[FakeServer]:
    server = FakeServer("shop")

    @server.tool
    def price(item: str) -> float:
        """What an item costs."""
        return 9.5

    @server.tool
    def order(item: str, count: int = 1) -> str:
        """Order something."""
        return f"{count} x {item}"

    async with server:
        yield server


@pytest.fixture
async def library() -> AsyncIterator[FakeServer]:
    server = FakeServer("library")

    @server.prompt
    def greet(name: str) -> str:
        """Greet a customer."""
        return f"Greet {name}."

    server.resource("memo://opening", "9 to 17")
    server.skill("refunds", "Check the order first.", description="How to refund")
    async with server:
        yield server


@pytest.fixture
async def app() -> AsyncIterator[FakeServer]:
    server = FakeServer("app")
    server.define(
        {
            "name": "cart",
            "inputSchema": {"type": "object"},
            "_meta": {"ui": {"resourceUri": "ui://cart"}},
        },
        "empty",
    )
    server.resource("ui://cart", "<h1>Cart</h1>", mime_type="text/html;profile=mcp-app")
    async with server:
        yield server


@pytest.mark.parametrize(("path", "example"), EXAMPLES)
async def test_an_example_of_the_reference_prints_what_it_says(
    path: Path,
    example: Callable[..., Any],
    shop: FakeServer,
    library: FakeServer,
    app: FakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    wanted = inspect.signature(example).parameters
    given: dict[str, Any] = {"shop": shop, "library": library, "app": app, "folder": tmp_path}

    async def run() -> None:
        arguments = {name: given[name] for name in wanted}
        if inspect.iscoroutinefunction(example):
            await example(**arguments)
        else:
            await anyio.to_thread.run_sync(lambda: example(**arguments))

    async with AsyncExitStack() as stack:
        for name, server in (("host", shop), ("reader", library)):
            if name in wanted:
                given[name] = await stack.enter_async_context(Host([server.http()], lock=False))
                await given[name].ready()
        async with asyncio.timeout(30):
            await run()
    expected = re.findall(r"# prints: (.*)", inspect.getsource(example))
    assert capsys.readouterr().out.splitlines() == expected


def test_every_exported_name_has_an_entry_with_an_example_in_the_reference() -> None:
    assert API["documented"]() == API["exported"]()


def test_the_pages_of_the_reference_are_those_of_the_code() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "docs/reference/api").glob("*.md")}
    assert written == {path.name: text for path, text in API["pages"]().items()}, "run `make format`"


def test_every_example_belongs_to_a_name_of_its_page() -> None:
    for file, page in API["PAGES"].items():
        if page.names:
            assert set(API["examples_of"](file)) == {name.rpartition(".")[2] for name in page.names}, file


def test_every_command_setting_event_and_error_is_in_the_reference() -> None:
    commands = (ROOT / "docs/cli.md").read_text()
    assert [name for name in COMMANDS if f"\n## mooring {name}\n" not in commands] == []

    settings = (ROOT / "docs/reference/configuration.md").read_text()
    described = [*references_of(ServerConfig), *references_of(HostConfig)]
    assert len(described) > 100
    rows = set(re.findall(r"^\| `([\w-]+)\*?` \|", settings, re.MULTILINE))
    assert {one.path.rpartition(".")[2] for one in described} - rows == set()

    documented = API["documented"]()
    for module in (events, errors):
        kinds = [
            one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__
        ]
        public = {one.__name__ for one in kinds if not one.__name__.startswith("_")}
        assert len(public) > 15
        assert {name for name in public if f"mooring.{name}" not in documented} == set()


def test_every_page_of_an_adapter_has_the_same_sections_and_is_in_the_table() -> None:
    adapters = runpy.run_path(str(ROOT / "scripts/write_adapters.py"))
    overview = (ROOT / "docs/adapters.md").read_text()
    assert overview == adapters["overview"](overview), "run `make format`"
    modules = {path.stem for path in (ROOT / "src/mooring/adapters").glob("[a-z]*.py")}
    assert {one.module for one in adapters["FRAMEWORKS"].values()} - {None} == modules
    for name, one in adapters["FRAMEWORKS"].items():
        text = (ROOT / f"docs/adapters/{name}.md").read_text()
        assert text == adapters["page"](name, one), "run `make format`"
        sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert sections == ["Install", "Shortest program", "Streaming", "Approvals", "Errors", "Tests"]


def test_the_site_has_every_page_in_its_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f"{page}\n" not in navigation and not page.endswith(".part.md")] == []
