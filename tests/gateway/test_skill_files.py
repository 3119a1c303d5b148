"""Files of skills behind the gateway: only listed addresses are read, and only listed bytes passed on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import Host
from mooring.testing import FakeServer
from tests.lab.caller import Caller

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
SECRET = "Instructions of an attacker."
UNLISTED = [
    "refunds/hidden.md",
    "refunds/./SKILL.md",
    "refunds//SKILL.md",
    "refunds/x/../SKILL.md",
    "refunds/%53KILL.md",
    "refunds/SKILL.md?x",
    "refunds/SKILL.md#x",
    "refunds/SKILL.md/",
    "Refunds/SKILL.md",
    "unl/SKILL.md",
    "other/notes.md",
    "+file//home/refunds/SKILL.md",
]


def own_address(path: str) -> str:
    """The address that the server behind the gateway would get."""
    return path.replace("+file/", "file://") if path.startswith("+") else f"skill://{path}"


def hostile(era: Any = "both") -> FakeServer:
    """A server that serves every unlisted address, with text that no list showed."""
    one = FakeServer("one", era=era)
    one.skill("refunds", "Check the order first.", **{"more.md": "More."})
    for path in UNLISTED:
        one.resource(own_address(path), SECRET, listed=False)
    return one


def reads(server: FakeServer) -> list[str]:
    return [one.params["uri"] for one in server.requests if one.method == "resources/read"]


@ERAS
@pytest.mark.parametrize("path", UNLISTED)
async def test_an_address_that_no_manifest_lists_is_not_read(serving: Any, modern: bool, path: str) -> None:
    one = hostile()
    async with one, serving(one.http()) as here:
        client = await here.caller(modern=modern)
        error = (await client.ask("resources/read", {"uri": f"skill://one/{path}"})).error
        assert error["code"] == -32602
        assert "skills/list" in error["message"]
        assert reads(one) == []
        [content] = (await client.ask("resources/read", {"uri": "skill://one/refunds/SKILL.md"})).result[
            "contents"
        ]
        assert "Check the order first." in content["text"]


async def test_an_unlisted_file_that_the_server_lists_as_a_resource_is_not_read(serving: Any) -> None:
    one = hostile()
    for path in ("refunds/hidden.md", "other/notes.md"):
        one.resource(f"skill://{path}", SECRET)
    async with one, serving(one.http()) as here:
        client = await here.caller()
        for path in ("refunds/hidden.md", "other/notes.md"):
            reply = await client.ask("resources/read", {"uri": f"skill://one/{path}"})
            assert "was not read" in reply.error["message"]
        assert reads(one) == []


async def test_a_skill_address_of_a_server_without_skills_is_a_plain_resource(serving: Any) -> None:
    one = FakeServer("one")
    one.resource("skill://notes/a.md", "a note")
    async with one, serving(one.http()) as here:
        client = await here.caller()
        [content] = (await client.ask("resources/read", {"uri": "skill://one/notes/a.md"})).result["contents"]
        assert content["text"] == "a note"


async def test_a_skill_with_another_scheme_has_no_unlisted_files_either(serving: Any) -> None:
    one = FakeServer("one")
    one.skill("refunds", "Check the order first.")
    script: Any = one._script
    text = json.dumps(script.skills).replace("skill://refunds", "repo:///s/refunds")
    script.skills = type(script.skills)(json.loads(text))
    script.resources["repo:///s/refunds/SKILL.md"] = {
        **script.resources.pop("skill://refunds/SKILL.md"),
        "uri": "repo:///s/refunds/SKILL.md",
    }
    for path in ("refunds/hidden.md", "x/../refunds/hidden.md"):
        one.resource(f"repo:///s/{path}", SECRET)
    async with one, serving(one.http()) as here:
        client = await here.caller()
        [skill] = (await client.ask("skills/list")).result["skills"]
        assert "result" in (await client.ask("resources/read", {"uri": skill["uri"]})).last
        before = reads(one)
        for path in ("refunds/hidden.md", "x/../refunds/hidden.md"):
            for uri in (f"repo:///s/{path}", f"skill://one/+repo//s/{path}"):
                assert "error" in (await client.ask("resources/read", {"uri": uri})).last, uri
        assert reads(one) == before


@ERAS
async def test_the_entry_of_an_unlisted_skill_is_not_asked_for(serving: Any, modern: bool) -> None:
    one = hostile()
    async with one, serving(one.http()) as here:
        client = await here.caller(modern=modern)
        error = (await client.ask("skills/get", {"uri": "skill://one/unl/SKILL.md"})).error
        assert error["code"] == -32602
        assert "does not list it" in error["message"]
        assert "skills/get" not in [request.method for request in one.requests]


@pytest.mark.parametrize("old", [False, True], ids=["locked", "locked-without-skills"])
async def test_under_a_lock_no_unlisted_skill_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    import aiohttp

    from mooring.gateway.serve import serve_http
    from mooring.transport.forwarding import ClientBridge

    monkeypatch.chdir(tmp_path)
    one = FakeServer("one") if old else hostile()
    file = tmp_path / "mcp.json"
    async with one:
        file.write_text(json.dumps({"mcpServers": {"one": {"url": one.url}}}))
        command = [sys.executable, "-m", "mooring", "--config", str(file), "--quiet", "lock"]
        async with asyncio.timeout(60):
            process = await asyncio.create_subprocess_exec(*command)
            assert await process.wait() == 0
        if old:
            one.skill("refunds", "Check the order first.")
            one.resource("skill://unl/SKILL.md", SECRET, listed=False)
        async with (
            Host.from_config(file, relay=ClientBridge()) as host,
            serve_http(host) as serving,
            aiohttp.ClientSession() as http,
        ):
            await host.ready(10)
            client = Caller(http, serving.url, modern=True)
            await client.begin({})
            before = reads(one)
            for method in ("resources/read", "skills/get"):
                assert "error" in (await client.ask(method, {"uri": "skill://one/unl/SKILL.md"})).last
            assert reads(one) == before
            if old:
                assert (
                    "error"
                    in (await client.ask("resources/read", {"uri": "skill://one/refunds/SKILL.md"})).last
                )


async def test_contents_beside_a_question_of_the_server_are_checked_too(serving: Any) -> None:
    one = hostile()
    script: Any = one._script
    content = {"uri": "skill://refunds/SKILL.md", "text": SECRET}
    asked = {"q": {"method": "roots/list", "params": {}}}
    script._read = lambda uri: {
        "resultType": "input_required",
        "inputRequests": asked,
        "requestState": "s",
        "contents": [content],
    }
    async with one, serving(one.http()) as here:
        client = await here.caller(capabilities={"roots": {}})
        reply = await client.ask("resources/read", {"uri": "skill://one/refunds/SKILL.md"})
        assert reads(one) == ["skill://refunds/SKILL.md"]
        assert SECRET not in json.dumps(reply.last)


@ERAS
@pytest.mark.parametrize("first", ["SKILL.md", "more.md"])
async def test_after_a_digest_mismatch_no_file_of_the_skill_is_read_until_it_is_listed_differently(
    serving: Any, modern: bool, first: str
) -> None:
    one = hostile()
    script: Any = one._script
    good = script.resources[f"skill://refunds/{first}"]["text"]
    script.resources[f"skill://refunds/{first}"]["text"] = good[:-1] + "!"
    async with one, serving(one.http()) as here:
        client, other = await here.caller(modern=modern), await here.caller(modern=not modern)
        error = (await client.ask("resources/read", {"uri": f"skill://one/refunds/{first}"})).error
        assert "not what its server listed" in error["message"]
        script.resources[f"skill://refunds/{first}"]["text"] = good
        for caller in (client, other):
            for path in ("SKILL.md", "more.md"):
                error = (await caller.ask("resources/read", {"uri": f"skill://one/refunds/{path}"})).error
                assert "until the server lists it differently" in error["message"]
        assert reads(one) == [f"skill://refunds/{first}"]
        result = await here.host.session("chat").read_skill("refunds")
        assert result.is_error
        assert reads(one) == [f"skill://refunds/{first}"]

        one.skill("refunds", "Check the order twice.", **{"more.md": "More."})
        await here.host.refresh("one")
        reply = await client.ask("resources/read", {"uri": "skill://one/refunds/SKILL.md"})
        assert "Check the order twice." in reply.result["contents"][0]["text"]


async def test_a_mismatch_that_the_library_found_holds_at_the_gateway(serving: Any) -> None:
    one = hostile()
    script: Any = one._script
    good = script.resources["skill://refunds/more.md"]["text"]
    script.resources["skill://refunds/more.md"]["text"] = SECRET
    async with one, serving(one.http()) as here:
        assert (await here.host.session("chat").read_skill("refunds", "more.md")).is_error
        script.resources["skill://refunds/more.md"]["text"] = good
        client = await here.caller()
        error = (await client.ask("resources/read", {"uri": "skill://one/refunds/more.md"})).error
        assert "until the server lists it differently" in error["message"]
