"""The lock: extensions, skills and pages are pinned, and a change must be approved."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import Host, ServerConfig, ToolChanged
from mooring.cli import main
from mooring.lock.cache import load_lock
from mooring.lock.text import parse, render
from mooring.testing import FakeServer, hang

PAGE = "text/html;profile=mcp-app"


def server() -> FakeServer:
    made = FakeServer("shop")
    meta = {"ui": {"resourceUri": "ui://shop/view"}}
    made.define({"name": "show", "inputSchema": {"type": "object"}, "_meta": meta}, "shown")
    made.resource("ui://shop/view", "<p>page</p>", mime_type=PAGE, listed=False)
    made.skill("refunds", "Do it.", **{"more.md": "More."})
    made.extension("com.example/maps", {"tiles": 1}, maps__route={"km": 3})
    return made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A running server and the file that names it, as a function that makes both."""
    monkeypatch.chdir(tmp_path)

    def configured(running: FakeServer) -> Path:
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"shop": {"url": running.url}}}))
        return file

    return configured


def changed(made: FakeServer, what: str) -> None:
    script = made._script
    if what == "page":
        made.resource("ui://shop/view", "<p>other</p>", mime_type=PAGE, listed=False)
    elif what == "csp":
        meta = {"ui": {"csp": {"connectDomains": ["https://evil.example"]}}}
        made.resource("ui://shop/view", "<p>page</p>", mime_type=PAGE, listed=False, meta=meta)
    elif what == "skill":
        made.skill("refunds", "Do something else.", **{"more.md": "More."})
    elif what == "new skill":
        made.skill("theft", "Do it.")
    elif what == "extension":
        made.extension("com.example/spy")
    elif what == "settings":
        script.extensions["com.example/maps"] = {"tiles": 2}


def check(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[str, str, str]]]:
    capsys.readouterr()
    code = main(["--config", str(file), "--json", "check"])
    [one] = json.loads(capsys.readouterr().out)["servers"]
    return code, [(change["subject"], change["name"], change["kind"]) for change in one["changes"]]


MAPS, SPY = "com.example/maps", "com.example/spy"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("page", ("page", "ui://shop/view", "breaking")),
        ("csp", ("page", "ui://shop/view", "breaking")),
        ("skill", ("skill", "skill://refunds/SKILL.md", "breaking")),
        ("new skill", ("skill", "skill://theft/SKILL.md", "added")),
        ("extension", ("extension", SPY, "added")),
        ("settings", ("extension", MAPS, "breaking")),
    ],
)
def test_a_change_is_found_by_check_and_accepted_by_approve(
    project: Any, capsys: pytest.CaptureFixture[str], what: str, expected: tuple[str, str, str]
) -> None:
    made = server()
    with made:
        file = project(made)
        assert main(["--config", str(file), "--quiet", "lock"]) == 0
        assert check(file, capsys) == (0, [])
        changed(made, what)
        assert check(file, capsys) == (10, [expected])
        assert main(["--config", str(file), "--quiet", "approve", "shop", "--yes"]) == 0
        assert check(file, capsys) == (0, [])


def test_a_lock_with_extensions_skills_and_pages_comes_back_from_its_text(project: Any) -> None:
    made = server()
    with made:
        assert main(["--config", str(project(made)), "--quiet", "lock"]) == 0
    text = Path("mooring.lock").read_text()
    lock = load_lock(Path("mooring.lock"))
    assert lock is not None
    assert parse(text) == lock
    assert load_lock(Path("mooring.lock")) == lock  # from its checked form in the cache
    assert render(lock) == text
    known = lock.servers["shop"].snapshot
    assert [page.uri for page in known.pages or ()] == ["ui://shop/view"]
    assert [len(skill.files or ()) for skill in known.skills] == [2]
    assert len(known.extensions) == 2
    with pytest.raises(Exception, match="was edited"):
        parse(text.replace("sha256:", "sha256:0", 1))


@pytest.mark.parametrize("what", ["page", "csp", "skill", "new skill", "extension"])
def test_what_was_not_approved_does_not_reach_a_model_or_a_page(project: Any, what: str) -> None:
    made = server()
    with made:
        file = project(made)
        assert main(["--config", str(file), "--quiet", "lock"]) == 0
        changed(made, what)

        async def use() -> None:
            async with Host.from_config(file) as host:
                await host.ready(10)
                session = host.session("chat")
                if what in ("page", "csp"):
                    with pytest.raises(ToolChanged, match="mooring approve shop"):
                        await host.view("mcp_shop_show")
                else:
                    assert (await host.view("mcp_shop_show")).html == "<p>page</p>"
                names = [skill.name for skill in host.skills()]
                assert names == ([] if what == "skill" else ["shop/refunds"])
                refused = await session.read_skill("refunds" if what == "skill" else "shop/theft")
                assert refused.is_error
                if what in ("skill", "new skill"):
                    assert "mooring approve shop" in refused.text
                    uri = f"skill://{'refunds' if what == 'skill' else 'theft'}/SKILL.md"
                    assert (await session.call("read_mcp_resource", {"uri": uri, "server": "shop"})).is_error
                declared = [one.name for one in host.catalog.extensions]
                assert SPY not in declared
                assert MAPS in declared

        anyio.run(use)


def test_an_older_lock_does_not_block_pages_and_blocks_unknown_skills(project: Any) -> None:
    made = server()
    with made:
        file = project(made)
        assert main(["--config", str(file), "--quiet", "lock"]) == 0
        path = Path("mooring.lock")
        document = json.loads(path.read_text())
        document["version"] = 2
        for one in document["servers"]:
            for key in ("extensions", "skills", "pages"):
                one.pop(key, None)
        path.write_text(json.dumps(document))

        async def use() -> None:
            async with Host.from_config(file) as host:
                await host.ready(10)
                assert (await host.view("mcp_shop_show")).html == "<p>page</p>"
                assert host.skills() == ()

        anyio.run(use)


def test_the_gateway_does_not_hand_out_a_page_that_was_not_approved(project: Any) -> None:
    import aiohttp

    from mooring.gateway.serve import serve_http
    from mooring.transport.forwarding import ClientBridge
    from tests.lab.caller import Caller

    made = server()
    with made:
        file = project(made)
        assert main(["--config", str(file), "--quiet", "lock"]) == 0

        async def use() -> None:
            async with (
                Host.from_config(file, relay=ClientBridge()) as host,
                serve_http(host) as serving,
                aiohttp.ClientSession() as http,
            ):
                await host.ready(10)
                client = Caller(http, serving.url, modern=True)
                await client.begin({})
                address = {"uri": "ui://shop/shop/view"}
                [content] = (await client.ask("resources/read", address)).result["contents"]
                assert content["text"] == "<p>page</p>"
                changed(made, "page")
                refused = (await client.ask("resources/read", address)).error
                assert "not what was approved" in refused["message"]

        anyio.run(use)


@pytest.mark.anyio
async def test_skills_are_known_from_the_cache_before_the_server_answers() -> None:
    made = server()
    async with made:
        config: ServerConfig = made.http()
        for _ in range(2):
            async with Host([config]) as host:
                await host.ready(10)
        made.fail("server/discover", hang, times=None)
        made.fail("initialize", hang, times=None)
        async with Host([config]) as host:
            assert [skill.name for skill in host.skills()] == ["shop/refunds"]


def test_hidden_names_a_skill_that_was_not_approved(project: Any) -> None:
    made = server()
    with made:
        file = project(made)
        assert main(["--config", str(file), "lock"]) == 0
        changed(made, "new skill")

        async def look() -> None:
            async with Host.from_config(file) as host:
                await host.ready(20)
                assert ("skill", "skill://theft/SKILL.md") in {(one.kind, one.name) for one in host.hidden()}

        anyio.run(look)


@pytest.mark.parametrize("start", ["lazy", "background"])
def test_with_pins_that_warn_a_changed_skill_is_read_as_the_server_lists_it_now(
    project: Any, start: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = server()
    with made:
        file = project(made)
        entry = {"url": made.url, "start": start, "pins": "warn"}
        file.write_text(json.dumps({"mcpServers": {"shop": entry}}))
        assert main(["--config", str(file), "--quiet", "lock"]) == 0
        changed(made, "skill")

        async def use() -> None:
            async with Host.from_config(file) as host:
                result = await host.session("chat").read_skill("refunds")
                assert "Do something else." in result.text

        anyio.run(use)
    assert "skill://refunds/SKILL.md" in caplog.text


@pytest.mark.parametrize("start", ["lazy", "background"])
@pytest.mark.parametrize("named", [False, True], ids=["all servers", "one server"])
def test_the_command_lists_a_skill_only_as_it_was_approved(
    project: Any, capsys: pytest.CaptureFixture[str], start: str, named: bool
) -> None:
    made = server()
    with made:
        file = project(made)
        file.write_text(json.dumps({"mcpServers": {"shop": {"url": made.url, "start": start}}}))
        assert main(["--config", str(file), "--quiet", "lock"]) == 0
        capsys.readouterr()
        command = ["--config", str(file), "--json", "skills", *(["--server", "shop"] if named else [])]
        assert main(command) == 0
        assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["shop/refunds"]
        changed(made, "skill")
        assert main(command) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out) == []
        assert "mooring approve" in shown.err


LARGE = "x" * 10_000


@pytest.mark.parametrize("locked", [False, True], ids=["cache", "lock"])
@pytest.mark.parametrize(
    "ui",
    [
        {"visibility": ["app"]},
        {"visibility": ["app"], "note": LARGE},
        {"visibility": ["app", LARGE]},
        {"visibility": "app", "resourceUri": "ui://shop/view"},
    ],
    ids=["plain", "large metadata", "large visibility", "with a page"],
)
def test_a_server_that_does_not_run_yet_has_its_tools_for_pages_and_its_pages(
    project: Any, locked: bool, ui: dict[str, Any]
) -> None:
    made = server()
    made.define({"name": "tick", "inputSchema": {"type": "object"}, "_meta": {"ui": ui}}, "ticked")
    with made:
        file = project(made)
        file.write_text(json.dumps({"mcpServers": {"shop": {"url": made.url, "start": "lazy"}}}))
        if locked:
            assert main(["--config", str(file), "--quiet", "lock"]) == 0

        async def list_once() -> None:
            async with Host.from_config(file) as host:
                await host.refresh("shop")

        anyio.run(list_once)

        async def use() -> None:
            async with Host.from_config(file) as host:
                assert host.status()[0].state == "pending"
                assert "mcp_shop_show" in host.catalog.tools
                assert "mcp_shop_tick" not in host.catalog.tools
                assert "mcp_shop_tick" in host.catalog.app_tools
                names = [tool.name for tool in host.session("chat").tools()]
                assert "mcp_shop_tick" not in names
                assert (await host.session("chat").call("mcp_shop_tick")).is_error
                assert (await host.view("mcp_shop_show")).html == "<p>page</p>"
                assert "mcp_shop_tick" not in host.catalog.tools

        anyio.run(use)
        assert made.calls("tick") == []


def test_a_tool_that_becomes_one_for_pages_stays_hidden_after_a_restart(project: Any) -> None:
    made = server()
    made.define({"name": "tick", "inputSchema": {"type": "object"}}, "ticked")
    with made:
        file = project(made)
        entry = {"url": made.url, "start": "lazy"}
        file.write_text(json.dumps({"mcpServers": {"shop": entry}}))

        async def shown(call: bool) -> list[str]:
            async with Host.from_config(file) as host:
                if call:
                    await host.refresh("shop")
                return [tool.name for tool in host.session("chat").tools()]

        assert "mcp_shop_tick" in anyio.run(shown, True)
        assert "mcp_shop_tick" in anyio.run(shown, False)
        meta = {"ui": {"visibility": ["app"]}}
        made.define({"name": "tick", "inputSchema": {"type": "object"}, "_meta": meta}, "ticked")
        assert "mcp_shop_tick" not in anyio.run(shown, True)
        assert "mcp_shop_tick" not in anyio.run(shown, False)


GATED = """
import json, sys
shows_pages = False
for text in sys.stdin:
    message = json.loads(text)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        shows_pages = "io.modelcontextprotocol/ui" in params["capabilities"].get("extensions", {})
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "gated", "version": "1"}}
    elif method == "tools/list":
        described = "Shows the cart" if shows_pages else "Returns the cart as text"
        given = {} if shows_pages else {"columns": {"type": "integer"}}
        schema = {"type": "object", "properties": given}
        answer = {"tools": [{"name": "show", "description": described, "inputSchema": schema}]}
    elif method == "tools/call":
        answer = {"content": [{"type": "text", "text": "shown"}]}
    else:
        answer = None
    body = {"error": {"code": -32601, "message": "unknown"}} if answer is None else {"result": answer}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
"""


def test_a_server_that_words_its_tools_for_pages_lists_what_was_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gated.py").write_text(GATED)
    file = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": [str(tmp_path / "gated.py")]}
    file.write_text(json.dumps({"mcpServers": {"gated": entry}}))
    assert main(["--config", str(file), "--quiet", "lock"]) == 0
    assert "volatile" not in (tmp_path / "mooring.lock").read_text()

    async def use() -> None:
        async with Host.from_config(file, trust=True) as host:
            await host.ready(20)
            await host.refresh("gated")  # until then, the lock has the definitions
            result = await host.call("mcp_gated_show")
            assert (result.is_error, result.text) == (False, "shown")
            assert host.hidden() == ()
            assert host.catalog.tools["mcp_gated_show"].description == "Shows the cart"

    anyio.run(use)
