"""Extensions behind the gateway: negotiation, pages of tools, skills, and methods of unknown extensions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import Host, ServerConfig
from mooring.config.sections import ProfileSettings
from mooring.testing import FakeServer
from tests.lab.caller import Caller, Reply
from tests.lab.libraries import library_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
UI, SKILLS, TASKS = (f"io.modelcontextprotocol/{name}" for name in ("ui", "skills", "tasks"))
PAGE = "text/html;profile=mcp-app"
SHOWS_PAGES = {"extensions": {UI: {"mimeTypes": [PAGE]}}}
SDK_SERVER = Path(__file__).parents[1] / "conformance" / "fixture.py"
MAPS = {"extensions": {"com.example/maps": {}}}


def app_server(name: str, era: Any = "both") -> FakeServer:
    """A server with a page, a tool for its page alone, and a skill; all addresses are those of its twins."""
    server = FakeServer(name, era=era)
    meta = {"ui": {"resourceUri": "ui://app/view"}, "ui/resourceUri": "ui://app/view"}
    link = {"type": "resource_link", "uri": "ui://app/view", "name": "view"}
    embedded = {"type": "resource", "resource": {"uri": "ui://app/view", "text": name}}
    answer = {"content": [{"type": "text", "text": name}, link, embedded], "_meta": meta}
    server.define({"name": "show", "inputSchema": {"type": "object"}, "_meta": meta}, answer)
    server.define(
        {"name": "tick", "inputSchema": {"type": "object"}, "_meta": {"ui": {"visibility": ["app"]}}}, name
    )
    server.resource("ui://app/view", f"<p>{name}</p>", mime_type=PAGE)
    server.skill("refunds", f"Instructions of {name}.", **{"more.md": f"More of {name}."})
    return server


async def ask(client: Caller, method: str, /, **params: Any) -> Reply:
    return await client.ask(method, params)


@ERAS
async def test_the_union_of_extensions_is_advertised_in_both_eras(serving: Any, modern: bool) -> None:
    one, two = FakeServer("one"), FakeServer("two")
    one.extension("com.example/maps", {"version": 1})
    two.extension("com.example/maps", {"version": 2})
    two.extension("com.example/chat", {"rooms": 3})
    async with one, two, serving(one.http(), two.child()) as here:
        client = await here.caller(modern=modern)
        method = "server/discover" if modern else "initialize"
        given = {} if modern else {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        found = (await ask(client, method, **given)).result["capabilities"]["extensions"]
        assert found == {"com.example/maps": {}, "com.example/chat": {"rooms": 3}, UI: {}, SKILLS: {}}


@ERAS
async def test_skills_of_a_child_process_are_served_though_its_handshake_declares_no_extensions(
    serving: Any, modern: bool
) -> None:
    """The SDK leaves extensions out of its reply to the handshake, sent to children of a gateway."""
    fixture = ServerConfig(name="lib", command=sys.executable, args=(str(SDK_SERVER), "stdio"))
    async with serving(fixture) as here:
        client = await here.caller(modern=modern)
        [status] = here.host.status()
        assert status.protocol == "2025-11-25"
        skills = (await client.ask("skills/list")).result["skills"]
        assert [one["frontmatter"]["name"] for one in skills] == ["code-review", "pdf-processing"]
        [content] = (await ask(client, "resources/read", uri=skills[0]["uri"])).result["contents"]
        assert "name: code-review" in content["text"]
        assert (await client.call("test_simple_text")).text  # for modern clients in a process of that era
        assert [dict(one.settings) for one in here.host.catalog.extensions] == [{"directoryRead": True}]


@ERAS
async def test_the_first_client_learns_the_extensions_of_a_server_that_is_still_starting(
    tmp_path: Path, modern: bool
) -> None:
    slow = FakeServer("slow")
    slow.extension("com.example/maps", {"version": 1})
    async with slow:
        config = slow.child()
        quoted = " ".join(shlex.quote(part) for part in (config.command or "", *config.args))
        entry = {
            "command": "sh",
            "args": ["-c", f"{'' if modern else 'sleep 1; '}exec {quoted}"],
            "env": dict(config.env),
        }
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"slow": entry}}))
        command = [sys.executable, "-m", "mooring", "--config", str(file), "--no-lock", "serve", "--stdio"]
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        ask = {"jsonrpc": "2.0", "id": 1, "method": "server/discover" if modern else "initialize"}
        body = json.dumps({**ask, "params": {"_meta": meta} if modern else params}).encode() + b"\n"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(body)
            async with asyncio.timeout(60):
                answer = json.loads(await process.stdout.readline())
            assert answer["result"]["capabilities"]["extensions"]["com.example/maps"] == {"version": 1}
        finally:
            process.kill()
            await process.wait()


async def test_each_server_gets_the_extensions_that_it_shares_with_the_caller(serving: Any) -> None:
    one, two = FakeServer("one"), FakeServer("two")
    for server in (one, two):
        server.define({"name": f"work_{server.name}", "inputSchema": {"type": "object"}}, "done")
    one.extension("com.example/maps")
    declared = {"com.example/maps": {"tiles": True}, "com.example/chat": {}, UI: {"mimeTypes": [PAGE]}}
    async with one, two, serving(one.http(), two.http()) as here:
        client = await here.caller(capabilities={"extensions": declared})
        for server in (one, two):
            await client.call(f"work_{server.name}", {})
        sent = [
            [
                request.params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
                for request in server.requests
                if request.method == "tools/call"
            ]
            for server in (one, two)
        ]
        shared = {UI: {"mimeTypes": [PAGE]}, TASKS: {}}
        assert sent == [[{"com.example/maps": {"tiles": True}, **shared}], [shared]]


@ERAS
async def test_a_method_of_an_unknown_extension_goes_to_the_server_that_declares_it(
    serving: Any, modern: bool
) -> None:
    one, two = FakeServer("one"), FakeServer("two")
    one.extension("com.example/maps", maps__route=lambda params: {"km": params["to"]})
    async with one, two, serving(one.http(), two.http()) as here:
        client = await here.caller(modern=modern, capabilities=MAPS)
        assert (await ask(client, "maps/route", to=3)).result["km"] == 3
        assert [request.method for request in two.requests].count("maps/route") == 0
        plain = await here.caller(modern=modern)
        error = (await ask(plain, "maps/route", to=3)).error
        assert error["code"] == -32601
        assert "com.example/maps" in error["message"]


async def test_with_several_owners_the_request_names_the_server(serving: Any) -> None:
    one, two = FakeServer("one"), FakeServer("two")
    for server in (one, two):
        server.extension("com.example/maps", maps__route={"by": server.name})
    async with one, two, serving(one.http(), two.http()) as here:
        client = await here.caller(capabilities=MAPS)
        error = (await client.ask("maps/route")).error
        assert error["code"] == -32602
        assert "one, two" in error["message"]
        for name in ("one", "two"):
            chosen = await ask(client, "maps/route", _meta={"mooring/server": name})
            assert chosen.result["by"] == name
        stranger = await ask(client, "maps/route", _meta={"mooring/server": "three"})
        assert "three" in stranger.error["message"]
        sent = [request.params["_meta"] for request in one.requests if request.method == "maps/route"]
        assert all("mooring/server" not in meta for meta in sent)


async def test_methods_of_the_protocol_are_never_taken_for_an_extension(serving: Any) -> None:
    one = FakeServer("one")
    one.extension("com.example/maps", tools__steal={"x": 1})
    async with one, serving(one.http()) as here:
        client = await here.caller(capabilities=MAPS)
        assert (await client.ask("tools/steal")).error["code"] == -32601


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_a_notification_of_an_extension_reaches_the_only_server_that_declares_it(
    serving: Any, wire: str
) -> None:
    one, two = FakeServer("one", era="handshake"), FakeServer("two", era="handshake")
    one.extension("com.example/maps", maps__route={"km": 3})
    moved = "notifications/maps/moved"

    def heard(server: FakeServer) -> list[Any]:
        return [dict(request.params) for request in server.requests if request.method == moved]

    async with contextlib.AsyncExitStack() as stack:
        for server in (one, two):
            await stack.enter_async_context(server)
        configs = [server.child() if wire == "stdio" else server.http() for server in (one, two)]
        here = await stack.enter_async_context(serving(*configs))
        client = await here.caller(modern=False, capabilities=MAPS)
        stranger = await here.caller(modern=False)
        assert await stranger.tell(moved, {"to": "nowhere"}) == 202
        assert await client.tell(moved, {"to": "Rome", "_meta": {"mooring/server": "one"}}) == 202
        assert await client.tell("notifications/tools/stolen") == 202
        assert await client.tell("notifications/message", {"data": "x"}) == 202
        assert (await client.ask("maps/route")).result["km"] == 3
        await until(lambda: heard(one))
        assert heard(one) == [{"to": "Rome"}]
        assert heard(two) == []
        assert not [one for one in one.requests if "stolen" in one.method or one.method.endswith("/message")]


async def test_a_notification_that_two_servers_could_get_reaches_none(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = FakeServer("one", era="handshake"), FakeServer("two", era="handshake")
    for server in (one, two):
        server.extension("com.example/maps")
    async with one, two, serving(one.http(), two.http()) as here:
        client = await here.caller(modern=False, capabilities=MAPS)
        with caplog.at_level("INFO", "mooring.gateway"):
            assert await client.tell("notifications/maps/moved") == 202
    assert "several servers declare extensions of this client" in caplog.text


@ERAS
async def test_a_notification_that_no_server_gets_is_logged(
    serving: Any, modern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one = FakeServer("one")
    one.extension("com.example/maps")
    async with one, serving(one.http()) as here:
        client = await here.caller(modern=modern, capabilities=MAPS)
        with caplog.at_level("INFO", "mooring.gateway"):
            assert await client.tell("notifications/maps/moved") == 202
    assert "not passed on: method=notifications/maps/moved" in caplog.text
    assert "notifications/initialized" not in caplog.text


@ERAS
async def test_app_only_tools_are_for_clients_that_show_pages(serving: Any, modern: bool) -> None:
    server = app_server("one")
    async with server, serving(server.http(), style="mcp") as here:
        plain = await here.caller(modern=modern)
        assert [tool["name"] for tool in (await plain.ask("tools/list")).result["tools"]] == ["mcp_one_show"]
        refused = (await plain.call("mcp_one_tick", {})).last
        assert "error" in refused or refused["result"]["isError"]
        assert (await plain.call("tick", {})).error
        assert server.calls("tick") == []
        shows = await here.caller(modern=modern, capabilities=SHOWS_PAGES)
        listed = {tool["name"]: tool for tool in (await shows.ask("tools/list")).result["tools"]}
        assert list(listed) == ["mcp_one_show", "mcp_one_tick"]
        assert listed["mcp_one_tick"]["_meta"]["ui"] == {"visibility": ["app"]}
        assert listed["mcp_one_tick"]["_meta"]["mooring/origin"] == {"server": "one", "tool": "tick"}
        for name in ("mcp_one_tick", "tick"):
            assert (await shows.call(name, {})).result["content"][0]["text"] == "one"


async def test_a_client_with_discovery_does_not_find_app_only_tools(serving: Any) -> None:
    server = app_server("one")
    whole = ProfileSettings(discovery="always")
    async with server, serving(server.http(), whole=whole, style="mcp") as here:
        client = await here.caller()
        listed = (await client.ask("tools/list")).result["tools"]
        found = (await client.call("tools_search", {"query": "tick show"})).result
        selected = (await client.call("tools_select", {"tools": ["mcp_one_tick"]})).result
        assert "mcp_one_tick" not in f"{listed} {found}"
        assert selected["isError"]


async def test_a_bare_name_that_two_servers_have_is_not_guessed(serving: Any) -> None:
    one, two = app_server("one"), app_server("two")
    async with one, two, serving(one.http(), two.http(), style="mcp") as here:
        client = await here.caller(capabilities=SHOWS_PAGES)
        error = (await client.call("tick", {})).error
        assert "mcp_one_tick, mcp_two_tick" in error["message"]
        assert one.calls("tick") == two.calls("tick") == []


@ERAS
async def test_addresses_of_pages_are_rewritten_once_in_every_place(serving: Any, modern: bool) -> None:
    server = app_server("my app")
    shown = "ui://my%20app/app/view"
    async with server, serving(server.http(), style="raw") as here:
        client = await here.caller(modern=modern, capabilities=SHOWS_PAGES)
        tools = {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}
        assert (
            tools["show"]["_meta"]["ui"]["resourceUri"] == tools["show"]["_meta"]["ui/resourceUri"] == shown
        )
        resources = (await client.ask("resources/list")).result["resources"]
        assert [resource["uri"] for resource in resources] == [shown]
        [content] = (await ask(client, "resources/read", uri=shown)).result["contents"]
        assert (content["uri"], content["text"]) == (shown, "<p>my app</p>")
        result = (await client.call("show", {})).result
        assert result["content"][1]["uri"] == result["content"][2]["resource"]["uri"] == shown
        assert result["_meta"]["ui"]["resourceUri"] == result["_meta"]["ui/resourceUri"] == shown
        for bad in (
            "ui://app/view",
            "ui://other/app/view",
            "ui://my%20app",
            "ui://my%20app/my%20app/app/view",
        ):
            assert "error" in (await ask(client, "resources/read", uri=bad)).last


async def test_an_updated_page_is_announced_under_the_address_that_the_client_uses(serving: Any) -> None:
    one, two = app_server("one"), app_server("two")
    async with one, two, serving(one.http(), two.http()) as here:
        await here.caller(modern=False)
        gateway = here.serving.gateway
        [client] = list(gateway.registry)
        client.subscribed |= {"ui://one/app/view": "one", "ui://two/app/view": "two"}
        gateway.subscriptions.updated("two", "ui://app/view", None)
        [notice] = client.missed(0)
        assert json.loads(notice)["params"] == {"uri": "ui://two/app/view"}


@ERAS
async def test_skills_of_all_servers_are_listed_page_by_page(serving: Any, modern: bool) -> None:
    one, two = FakeServer("one"), FakeServer("two")
    for number in range(60):
        one.skill(f"skill-{number:03}", "Do it.")
        two.skill(f"skill-{number:03}", "Do it.")
    async with one, two, serving(one.http(), two.child()) as here:
        client = await here.caller(modern=modern)
        pages: list[dict[str, Any]] = [(await client.ask("skills/list")).result]
        while "nextCursor" in pages[-1]:
            pages.append((await ask(client, "skills/list", cursor=pages[-1]["nextCursor"])).result)
        assert [len(page["skills"]) for page in pages] == [100, 20]
        found = [skill["uri"] for page in pages for skill in page["skills"]]
        assert len(set(found)) == 120
        assert found[0] == "skill://one/skill-000/SKILL.md"
        for bad in ("x", "W10=", 7, "WzEsMl0="):
            assert (await ask(client, "skills/list", cursor=bad)).error["code"] == -32602


@ERAS
async def test_a_skill_keeps_its_head_and_digests_and_its_files_are_read_from_its_server(
    serving: Any, modern: bool
) -> None:
    one = app_server("one")
    async with one, serving(one.http()) as here:
        client = await here.caller(modern=modern)
        [skill] = (await client.ask("skills/list")).result["skills"]
        assert skill["frontmatter"] == {"name": "refunds", "description": "A skill."}
        assert skill["_meta"]["mooring/origin"] == {"server": "one"}
        got = (await ask(client, "skills/get", uri=skill["uri"])).result
        assert got["skill"] == skill
        for file in skill["resources"]:
            [content] = (await ask(client, "resources/read", uri=file["uri"])).result["contents"]
            assert content["uri"] == file["uri"]
            assert len(content["text"].encode()) == file["size"]
        for bad in ("skill://nowhere/refunds/SKILL.md", "skill://refunds/SKILL.md", "https://x/SKILL.md"):
            assert (await ask(client, "skills/get", uri=bad)).error["code"] == -32602


async def test_a_file_that_contradicts_the_manifest_is_not_passed_on(serving: Any) -> None:
    one = app_server("one")
    one._script.resources["skill://refunds/more.md"]["text"] = "Instructions of an attacker."
    async with one, serving(one.http()) as here:
        client = await here.caller()
        assert "result" in (await ask(client, "resources/read", uri="skill://one/refunds/SKILL.md")).last
        error = (await ask(client, "resources/read", uri="skill://one/refunds/more.md")).error
        assert "not what its server listed" in error["message"]
        assert "attacker" not in json.dumps(error)


@ERAS
async def test_discovery_names_how_a_client_of_the_gateway_reads_a_skill(serving: Any, modern: bool) -> None:
    one = app_server("one")
    whole = ProfileSettings(discovery="always")
    async with one, serving(one.http(), whole=whole) as here:
        client = await here.caller(modern=modern)
        for call in (("tools_groups", {}), ("tools_search", {"query": "a refunds skill"})):
            found = (await client.call(*call)).result["structuredContent"]
            assert "read_skill" not in json.dumps(found)
            [skill] = found["skills"]
            [content] = (await ask(client, "resources/read", uri=skill["uri"])).result["contents"]
            assert "Instructions of one." in content["text"]


async def test_the_cursor_of_one_server_is_not_sent_to_another(serving: Any) -> None:
    one, two = app_server("one"), app_server("two")

    def directory(params: Any) -> dict[str, Any]:
        entry = {"uri": f"{params['uri']}/more.md", "name": "more.md"}
        return {"resources": [entry], **({} if "cursor" in params else {"nextCursor": "second"})}

    for server in (one, two):
        server.extension(SKILLS, {"directoryRead": True}, resources__directory__read=directory)
    async with one, two, serving(one.http(), two.http()) as here:
        client = await here.caller()
        found = (await client.ask("server/discover")).result["capabilities"]["extensions"]
        assert found[SKILLS] == {"directoryRead": True}
        page = (await ask(client, "resources/directory/read", uri="skill://one/refunds")).result
        assert page["resources"][0]["uri"] == "skill://one/refunds/more.md"
        again = {"cursor": page["nextCursor"]}
        rest = await ask(client, "resources/directory/read", uri="skill://one/refunds", **again)
        assert "nextCursor" not in rest.result
        wrong = await ask(client, "resources/directory/read", uri="skill://two/refunds", **again)
        assert wrong.error["code"] == -32602


async def test_two_servers_with_the_same_addresses_are_never_mixed_up(serving: Any) -> None:
    servers = [app_server("one"), app_server("two")]
    wrong: list[str] = []
    done = 0
    async with servers[0], servers[1], serving(servers[0].http(), servers[1].child()) as here:
        clients = [await here.caller(modern=modern, capabilities=SHOWS_PAGES) for modern in (True, False)]
        order = random.Random(18)

        async def read(number: int) -> None:
            nonlocal done
            name = order.choice(("one", "two"))
            uri = order.choice(("app/view", "refunds/more.md", "refunds/SKILL.md"))
            uri = f"{'ui' if uri == 'app/view' else 'skill'}://{name}/{uri}"
            [content] = (await ask(clients[number % 2], "resources/read", uri=uri)).result["contents"]
            done += 1
            if name not in content["text"] or content["uri"] != uri:
                wrong.append(uri)

        for start in range(0, 1000, 25):
            await asyncio.gather(*(read(number) for number in range(start, start + 25)))
    assert (done, wrong) == (1000, [])


async def test_a_page_behind_two_gateways_calls_the_tools_of_its_own_server(serving: Any) -> None:
    one, two = app_server("one"), app_server("two")
    async with one, two, serving(one.http(), two.http(), style="mcp") as inner:
        outer = ServerConfig(name="inner", url=f"{inner.base}/mcp")
        async with serving(outer, style="mcp") as here:
            config = ServerConfig(name="outer", url=f"{here.base}/mcp")
            async with Host([config], extensions=SHOWS_PAGES["extensions"], lock=False) as host:
                await host.ready(20)
                names = sorted(name for name in host.catalog.tools if name.endswith("show"))
                assert len(names) == 2
                view = await host.view(next(name for name in names if "two" in name))
                assert view.html == "<p>two</p>"
                sent: list[dict[str, Any]] = []
                bridge = view.bridge(sent.append)
                await bridge.receive({"jsonrpc": "2.0", "id": 0, "method": "ui/initialize"})
                for name in ("tick", "mcp_one_tick", "mcp_inner_mcp_one_tick"):
                    call = {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": {"name": name}}
                    await bridge.receive(call)
                await until(lambda: len(sent) == 4)
                answers = {one["id"]: one for one in sent[1:]}
                assert answers.pop("tick")["result"]["content"][0]["text"] == "two"
                assert all("error" in answer for answer in answers.values())
                assert (len(one.calls("tick")), len(two.calls("tick"))) == (0, 1)
                assert not any(name.endswith("tick") for name in host.catalog.tools)


def behind_two(name: str) -> str:
    """The address of the page of a server behind the gateways `inner` and the one that is asked."""
    return f"ui://inner/{name}/app/view"


@ERAS
async def test_behind_two_gateways_every_address_can_be_read_where_it_was_found(
    serving: Any, modern: bool
) -> None:
    one, two = app_server("one"), app_server("two")
    for server in (one, two):
        server.prompt(explain)
        link = {"type": "resource_link", "uri": "ui://app/view", "name": "view"}
        embedded = {"type": "resource", "resource": {"uri": "ui://app/view", "text": server.name}}
        said = {"messages": [{"role": "user", "content": block} for block in (link, embedded)]}
        server._script._prompt = lambda name, arguments, said=said: said
    async with one, two, serving(one.http(), two.child(), style="mcp") as inner:
        outer = ServerConfig(name="inner", url=f"{inner.base}/mcp")
        async with serving(outer, style="raw") as here:
            client = await here.caller(modern=modern, capabilities=SHOWS_PAGES)
            tools = {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}
            resources = (await client.ask("resources/list")).result["resources"]
            for name in ("one", "two"):
                uri = behind_two(name)
                tool = tools[f"mcp_{name}_show"]["_meta"]
                result = (await client.call(f"mcp_{name}_show", {})).result
                prompt = (await ask(client, "prompts/get", name=f"mcp_{name}_explain")).result["messages"]
                found = [
                    tool["ui"]["resourceUri"],
                    tool["ui/resourceUri"],
                    result["_meta"]["ui"]["resourceUri"],
                    result["_meta"]["ui/resourceUri"],
                    result["content"][1]["uri"],
                    result["content"][2]["resource"]["uri"],
                    prompt[0]["content"]["uri"],
                    prompt[1]["content"]["resource"]["uri"],
                    *(one["uri"] for one in resources if name in one["uri"]),
                ]
                assert found == [uri] * 9
                [content] = (await ask(client, "resources/read", uri=uri)).result["contents"]
                assert (content["uri"], content["text"]) == (uri, f"<p>{name}</p>")
            skills = (await client.ask("skills/list")).result["skills"]
            for skill in skills:
                got = (await ask(client, "skills/get", uri=skill["uri"])).result["skill"]
                assert got["uri"] == skill["uri"]
                for file in skill["resources"]:
                    [content] = (await ask(client, "resources/read", uri=file["uri"])).result["contents"]
                    assert len(content["text"].encode()) == file["size"]
            assert len({skill["uri"] for skill in skills}) == 2


def explain() -> str:
    return "explained"


@ERAS
@pytest.mark.parametrize("era", ["dual", "legacy"])
async def test_behind_two_gateways_templates_and_subscriptions_use_the_address_of_the_client(
    serving: Any, modern: bool, era: str
) -> None:
    script = {
        "era": era,
        "resources": {"ui://app/view": "old"},
        "templates": ["ui://app/{page}"],
        "any": True,
    }
    servers = [library_server(name, **script) for name in ("one", "two")]
    async with serving(*servers, style="mcp") as inner:
        outer = ServerConfig(name="inner", url=f"{inner.base}/mcp")
        async with serving(outer, style="raw") as here:
            client = await here.caller(modern=modern, capabilities=SHOWS_PAGES)
            listed = (await client.ask("resources/templates/list")).result["resourceTemplates"]
            assert {one["uriTemplate"] for one in listed} == {
                f"ui://inner/{name}/app/{{page}}" for name in ("one", "two")
            }
            for template in listed:
                uri = template["uriTemplate"].replace("{page}", "other")
                [content] = (await ask(client, "resources/read", uri=uri)).result["contents"]
                assert content["uri"] == uri
                ref = {"type": "ref/resource", "uri": template["uriTemplate"]}
                argument = {"name": "page", "value": "par"}
                done = (await ask(client, "completion/complete", ref=ref, argument=argument)).result
                assert done["completion"]["values"] == ["paris", "park"]
            uri = behind_two("two")
            if not modern:
                assert (await ask(client, "resources/subscribe", uri=uri)).result == {}
            open_stream = client.listening(resourceSubscriptions=[uri]) if modern else client.standing()
            async with open_stream as messages:
                for name in ("one", "two"):
                    touched = {"uri": "ui://app/view", "text": "new"}
                    assert "result" in (await client.call(f"mcp_{name}_touch", touched)).last
                async with asyncio.timeout(20):
                    while (notice := await anext(messages))["method"] != "notifications/resources/updated":
                        pass
                assert notice["params"]["uri"] == uri
                [content] = (await ask(client, "resources/read", uri=uri)).result["contents"]
                assert content["text"] == "new"


@pytest.mark.parametrize("gateways", [0, 1, 2])
async def test_a_page_uses_the_addresses_of_its_own_server_behind_any_number_of_gateways(
    serving: Any, gateways: int
) -> None:
    one, two = app_server("one"), app_server("app")  # the second is named like its own addresses
    for server in (one, two):
        server.resource("ui://app/other", f"<p>other of {server.name}</p>", mime_type=PAGE, listed=False)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(one)
        await stack.enter_async_context(two)
        configs = [one.http(), two.http()]
        for name in ("app", "outer")[:gateways]:  # the inner gateway has the name of a server behind it
            setting = await stack.enter_async_context(serving(*configs, style="mcp"))
            configs = [ServerConfig(name=name, url=f"{setting.base}/mcp")]
        host = Host(configs, extensions=SHOWS_PAGES["extensions"], lock=False)
        await stack.enter_async_context(host)
        await host.ready(20)
        for server in (one, two):
            shown = [t for t in host.catalog.tools.values() if t.name.endswith(f"{server.name}_show")]
            view = await host.view(min(shown, key=lambda tool: len(tool.name)).name)
            assert view.html == f"<p>{server.name}</p>"
            sent: list[dict[str, Any]] = []
            bridge = view.bridge(sent.append)

            async def do(method: str, bridge: Any = bridge, sent: Any = sent, **params: Any) -> Any:
                await bridge.receive({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
                await until(lambda: sent)
                return sent.pop()["result"]

            hello = await do("ui/initialize")
            result = await do("tools/call", name="show")
            tools = {tool["name"]: tool for tool in (await do("tools/list"))["tools"]}
            own = [
                hello["hostContext"]["toolInfo"]["tool"]["_meta"]["ui"]["resourceUri"],
                tools["show"]["_meta"]["ui/resourceUri"],
                result["content"][1]["uri"],
                result["content"][2]["resource"]["uri"],
                result["_meta"]["ui"]["resourceUri"],
            ]
            assert own == ["ui://app/view"] * 5
            for uri, text in (
                ("ui://app/view", view.html),
                ("ui://app/other", f"<p>other of {server.name}</p>"),
            ):
                [content] = (await do("resources/read", uri=uri))["contents"]
                assert (content["uri"], content["text"]) == (uri, text)


@ERAS
async def test_with_discovery_a_client_that_shows_pages_gets_what_the_page_of_a_selected_tool_needs(
    serving: Any, modern: bool
) -> None:
    one, two = app_server("one"), app_server("two")
    whole = ProfileSettings(discovery="always")
    async with one, two, serving(one.http(), two.http(), whole=whole, style="mcp") as here:
        shows = await here.caller(modern=modern, capabilities=SHOWS_PAGES)
        assert not [name for name in await shows.tools() if name.endswith("tick")]
        await shows.call("tools_select", {"tools": ["mcp_one_show"]})
        listed = {tool["name"]: tool for tool in (await shows.ask("tools/list")).result["tools"]}
        assert [name for name in listed if name.endswith("tick")] == ["mcp_one_tick"]
