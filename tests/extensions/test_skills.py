"""Skills: listing without reading, the checks of what is read, and who may read it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import Host
from mooring.config.documents import parse_yaml
from mooring.core.extensions import original, qualified, qualified_file
from mooring.core.skills import (
    InvalidSkillError,
    altered,
    changed_field,
    file_of,
    frontmatter,
    read_skill_entry,
)
from mooring.core.types import Extension, ServerInfo, SkillFile, Snapshot
from mooring.core.value import replace
from mooring.lock.compare import merged
from mooring.testing import FakeServer
from tests.lab.libraries import library_server

SKILLS = "io.modelcontextprotocol/skills"


def digest(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def entry(name: str = "refunds", **changes: Any) -> dict[str, Any]:
    uri = f"skill://acme/{name}/SKILL.md"
    files = [{"uri": uri, "digest": digest("x"), "size": 1}]
    head = {"name": name, "description": "How to refund"}
    return {"uri": uri, "frontmatter": head, "resources": files, **changes}


# --- entries


def test_an_entry_keeps_its_head_and_unknown_fields() -> None:
    skill = read_skill_entry("s", entry(extra={"a": 1}))
    assert (skill.name, skill.description, skill.extra) == ("refunds", "How to refund", {"extra": {"a": 1}})


FILE = "skill://acme/refunds/a.md"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"uri": "skill://acme/other/SKILL.md"}, "must end with"),
        ({"uri": "skill://acme/refunds/skill.md"}, "must end with"),
        ({"frontmatter": {"name": "Refunds", "description": "x"}}, "lower-case"),
        ({"frontmatter": {"name": "a--b", "description": "x"}}, "lower-case"),
        ({"frontmatter": {"name": "refunds"}}, "description"),
        ({"frontmatter": None}, "frontmatter"),
        ({"resources": "static"}, "list of all files"),
        ({"resources": []}, "SKILL.md is missing"),
        ({"resources": [{"uri": FILE, "digest": digest("x").upper(), "size": 1}]}, "digest"),
        ({"resources": [{"uri": FILE, "digest": digest("x"), "size": -1}]}, "size"),
        ({"resources": [{"uri": FILE, "digest": digest("x"), "size": True}]}, "size"),
        ({"resources": [{"uri": "skill://acme/refunds2/a", "digest": digest("x"), "size": 1}]}, "inside"),
        ({"resources": [{"uri": "skill://acme/refunds/../b", "digest": digest("x"), "size": 1}]}, "inside"),
        ({"resources": [{"uri": "skill://acme/refunds/%252e%252e/b", "digest": "", "size": 1}]}, "inside"),
        ({"resources": [{"uri": FILE, "digest": digest("x"), "size": 1}] * 2}, "twice"),
        ({"resources": [{"uri": FILE, "digest": digest("x"), "size": 2**30}] + entry()["resources"]}, "MiB"),
        ({"resources": [{"uri": f"{FILE}{n}", "digest": digest("x"), "size": 1} for n in range(513)]}, "512"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSkillError, match=problem):
        read_skill_entry("s", entry(**changes))


def test_only_files_of_the_manifest_are_read() -> None:
    skill = read_skill_entry("s", entry())
    assert file_of(skill, None)[0] == skill.uri
    for path in ("a.md", "../other/SKILL.md", "/etc/passwd", "%2e%2e/x", ""):
        with pytest.raises(InvalidSkillError):
            file_of(skill, path)
    dynamic = read_skill_entry("s", entry(resources="dynamic"))
    assert file_of(dynamic, "a/b.md") == ("skill://acme/refunds/a/b.md", None)
    for path in ("../other/SKILL.md", "a/../../x", "%2e%2e/x", "", "a?x=1"):
        with pytest.raises(InvalidSkillError):
            file_of(dynamic, path)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_only_the_listed_bytes_pass(listed: bytes, sent: bytes) -> None:
    file = SkillFile(uri="x", digest=f"sha256:{sha256(listed).hexdigest()}", size=len(listed))
    assert (altered(file, sent) is None) == (listed == sent)


@pytest.mark.parametrize(
    ("head", "listed", "changed"),
    [
        ("name: a\nversion: 1.10", {"name": "a", "version": "1.10"}, None),
        ("name: a\nversion: 1.5", {"name": "a", "version": 1.5}, None),
        ("name: a\nfast: yes\nnote:", {"name": "a", "fast": True, "note": None}, None),
        ("name: a\ntags: [x, y]\nmeta: {k: v}", {"name": "a", "tags": ["x", "y"], "meta": {"k": "v"}}, None),
        ("name: b", {"name": "a"}, "name"),
        ("name: a\nallowed-tools: Bash", {"name": "a"}, "allowed-tools"),
        ("name: a", {"name": "a", "license": "MIT"}, "license"),
        ("name: a\ntags: [x]", {"name": "a", "tags": ["x", "y"]}, "tags"),
        ("name: a\nmeta: {k: w}", {"name": "a", "meta": {"k": "v"}}, "meta"),
        ("- name", {"name": "a"}, "the frontmatter"),
    ],
)
def test_the_head_is_compared_field_by_field(head: str, listed: dict[str, Any], changed: str | None) -> None:
    found = frontmatter(f"---\n{head}\n---\ntext")
    assert found == head
    assert changed_field(listed, parse_yaml(found)) == changed


def test_a_text_without_a_head_has_none() -> None:
    assert frontmatter("name: a\n---\n") is None


# --- addresses behind a gateway

names = st.text(min_size=1, max_size=12).filter(lambda name: "/" not in name and "\\" not in name)
paths = st.text(alphabet="abc/+.%-", min_size=1, max_size=20)


@given(names, st.sampled_from(["ui", "skill"]), paths)
def test_an_address_of_a_server_comes_back_from_the_one_that_clients_use(
    server: str, scheme: str, path: str
) -> None:
    uri = f"{scheme}://{path}"
    assert original(qualified(uri, server)) == (server, uri)


@given(names, st.sampled_from(["skill://", "github://", "https://", "urn:", "x+y:"]), paths)
def test_a_file_of_a_skill_comes_back_whatever_its_scheme(server: str, scheme: str, path: str) -> None:
    shown = qualified_file(f"{scheme}{path}", server)
    assert shown.startswith("skill://")
    if scheme.endswith("://") or not path.startswith("//"):
        assert original(shown) == (server, f"{scheme}{path}")


@given(names, names, paths)
def test_two_servers_never_share_an_address(one: str, two: str, path: str) -> None:
    assert (qualified(f"ui://{path}", one) == qualified(f"ui://{path}", two)) == (one == two)


@pytest.mark.parametrize("uri", ["file:///x", "https://a/b", "x", "", "ui:x", "skill:/x"])
def test_other_addresses_stay_as_they_are(uri: str) -> None:
    assert qualified(uri, "s") == uri
    assert original(uri) is None


# --- with real servers


@pytest.mark.anyio
async def test_nothing_is_read_before_a_skill_is_used(hosting: Any) -> None:
    server = FakeServer("shop")
    server.skill("refunds", "Instructions.", description="How to refund", **{"more.md": "More."})
    async with server, hosting(server.http(), lock=False, discovery="always") as host:
        session = host.session("chat")
        assert [skill.name for skill in host.skills()] == ["shop/refunds"]
        assert "read_skill" in [tool.name for tool in session.tools()]
        groups = (await session.call("tools_groups")).structured
        found = (await session.call("tools_search", {"query": "refund a customer"})).structured
        assert groups["skills"] == found["skills"]
        assert groups["skills"] == [{"name": "shop/refunds", "description": "How to refund"}]
        assert "skills" not in (await session.call("tools_search", {"query": "weather"})).structured
        assert (await session.call("read_skill")).structured == {"skills": groups["skills"]}
        await host.refresh()
        assert not [one for one in server.requests if one.method == "resources/read"]
        text = (await session.read_skill("refunds")).text
        assert text.startswith('<untrusted from="shop" skill="shop/refunds"')
        assert "More." in (await session.read_skill("shop/refunds", "more.md")).text
        read = [one.params["uri"] for one in server.requests if one.method == "resources/read"]
        assert read == ["skill://refunds/SKILL.md", "skill://refunds/more.md"]


@pytest.mark.anyio
@pytest.mark.parametrize("change", ["digest", "size", "frontmatter", "several"])
async def test_a_skill_that_was_altered_is_not_used_and_its_other_files_are_not_read(
    hosting: Any, change: str
) -> None:
    server = FakeServer("shop")
    uri = server.skill("refunds", "Do it.", **{"more.md": "More."})
    listed, sent = server._script.skills[uri], server._script.resources[uri]
    if change == "digest":
        sent["text"] = sent["text"].replace("Do it.", "Do bad")
    elif change == "size":
        sent["text"] += "more"
    elif change == "frontmatter":
        listed["frontmatter"]["description"] = "Something else"
    else:
        parts = [{"uri": uri, "text": text} for text in ("a", "b")]
        server._script._read = lambda uri: {"contents": parts}
    async with server, hosting(server.http(), lock=False) as host:
        session = host.session("chat")
        result = await session.read_skill("refunds")
        assert result.is_error
        assert "Do" not in result.text.replace("Refresh", "")
        assert (await session.read_skill("refunds", "more.md")).is_error
        read = [one.params["uri"] for one in server.requests if one.method == "resources/read"]
        assert read == [uri]


@pytest.mark.anyio
async def test_names_of_two_servers_do_not_shadow_each_other(hosting: Any) -> None:
    one, two = FakeServer("one"), FakeServer("two")
    for server in (one, two):
        server.skill("refunds", f"Instructions of {server.name}.")
    async with one, two, hosting(one.http(), two.http(), lock=False) as host:
        session = host.session("chat")
        assert [skill.name for skill in host.skills()] == ["one/refunds", "two/refunds"]
        for name in ("one", "two"):
            assert f"of {name}." in (await session.read_skill(f"{name}/refunds")).text
        ambiguous = await session.read_skill("refunds")
        assert ambiguous.is_error
        assert "one/refunds, two/refunds" in ambiguous.text
        assert "did you mean" in (await session.read_skill("one/refund")).text


def twin(server: FakeServer, name: str, folder: str, text: str) -> str:
    """Add a skill in a folder: servers may have several of one name."""
    script = server._script
    before = set(script.skills)
    kept = {uri: (script.skills[uri], script.resources[uri]) for uri in before}
    uri = server.skill(name, text)
    listed, content = script.skills.pop(uri), script.resources.pop(uri)
    new = f"skill://{folder}/{name}/SKILL.md"
    listed["uri"] = new
    for file in listed["resources"]:
        file["uri"] = new
    script.skills[new], script.resources[new] = listed, {**content, "uri": new}
    for old, (entry_, content_) in kept.items():
        script.skills[old], script.resources[old] = entry_, content_
    return new


@pytest.mark.anyio
@pytest.mark.parametrize("order", [1, -1])
async def test_skills_of_one_server_with_one_name_are_both_listed_and_never_guessed(
    hosting: Any, order: int
) -> None:
    server = FakeServer("shop")
    server.skill("other", "Instructions of other.")
    for folder in ("acme", "b%20c")[::order]:
        twin(server, "refunds", folder, f"Instructions of {folder}.")
    async with server, hosting(server.http(), lock=False) as host:
        session = host.session("chat")
        names = [skill.name for skill in host.skills()]
        assert names == ["shop/other", "shop/skill://acme/refunds", "shop/skill://b%2520c/refunds"]
        assert "of acme." in (await session.read_skill(names[1])).text
        assert "of b%20c." in (await session.read_skill(names[2])).text
        for short in ("refunds", "shop/refunds"):
            ambiguous = await session.read_skill(short)
            assert ambiguous.is_error
            assert all(name in ambiguous.text for name in names[1:])
        assert any("2 skills are named 'refunds'" in warning for warning in host.catalog.warnings)


@pytest.mark.anyio
async def test_a_supporting_file_that_was_altered_ends_the_use_of_its_skill(hosting: Any) -> None:
    server = FakeServer("shop")
    uri = server.skill("refunds", "Do it.", **{"more.md": "More.", "good.md": "Good."})
    server._script.resources[uri.replace("SKILL.md", "more.md")]["text"] = "Evil."
    async with server, hosting(server.http(), lock=False) as host:
        session = host.session("chat")
        assert "Do it." in (await session.read_skill("refunds")).text
        assert (await session.read_skill("refunds", "more.md")).is_error
        count = len(server.requests)
        for file in (None, "good.md", "more.md"):
            refused = await session.read_skill("refunds", file)
            assert refused.is_error
            assert "lists it differently" in refused.text
        assert len(server.requests) == count
        server.skill("refunds", "Do it well.", **{"more.md": "More.", "good.md": "Good."})
        await host.refresh()
        assert "Do it well." in (await session.read_skill("refunds")).text


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["one/refunds", "refunds"])
@pytest.mark.parametrize("other", ["lazy", "background"])
async def test_a_skill_of_a_lazy_server_is_found_by_connecting_it(
    hosting: Any, name: str, other: str
) -> None:
    one, two = FakeServer("one"), FakeServer("two")
    one.skill("refunds", "Instructions of one.")
    two.skill("returns", "Instructions of two.")
    async with one, two, hosting(one.http(start="lazy"), two.http(start=other), lock=False) as host:
        session = host.session("chat")
        assert "of one." in (await session.read_skill(name)).text
        missing = await session.read_skill("one/nothing")
        assert "there is no such skill" in missing.text
        if (name, other) == ("one/refunds", "background"):
            assert host.status()[1].state == "connected"


@pytest.mark.anyio
async def test_a_bad_entry_costs_no_other_skill(hosting: Any) -> None:
    server = FakeServer("shop")
    server.skill("good", "Do it.")
    server._script.skills["bad"] = entry(resources="static")
    async with server, hosting(server.child(), lock=False) as host:
        assert [skill.name for skill in host.skills()] == ["shop/good"]
        assert "list of all files" in host.status()[0].warnings[0]


@pytest.mark.anyio
async def test_a_generated_skill_is_marked_as_not_verified(hosting: Any) -> None:
    server = FakeServer("shop")
    uri = server.skill("refunds", "Do it.")
    server._script.skills[uri]["resources"] = "dynamic"
    async with server, hosting(server.http(), lock=False) as host:
        assert host.skills()[0].files is None
        assert 'verified="no"' in (await host.session("x").read_skill("refunds")).text


@pytest.mark.anyio
async def test_a_skill_is_not_listed_for_a_server_that_does_not_declare_the_extension(hosting: Any) -> None:
    server = FakeServer("shop")
    server.skill("refunds", "Do it.")
    del server._script.extensions[SKILLS]
    async with server, hosting(server.http(), lock=False) as host:
        assert host.skills() == ()
        assert "read_skill" not in host.catalog.tools


@pytest.mark.anyio
async def test_status_and_snapshot_have_the_extensions_of_a_server() -> None:
    server = FakeServer("shop")
    server.extension("com.example/maps", {"tiles": 3})
    server.extension("no-prefix", {})
    async with server, Host([server.http()], lock=False) as host:
        await host.ready(10)
        assert host.status()[0].extensions == ("com.example/maps",)
        [found] = host.provider("shop").snapshot.extensions
        assert (found.name, found.settings) == ("com.example/maps", {"tiles": 3})


async def test_pages_and_files_of_skills_have_no_second_reading_path_for_models() -> None:
    made = FakeServer("shop")
    made.define({"name": "show", "inputSchema": {"type": "object"}}, "shown")
    made.resource("ui://shop/view", "<p>page</p>", mime_type="text/html;profile=mcp-app")
    made.resource("memo://a", "a memo")
    made.skill("refunds", "Do it.", **{"more.md": "More."})
    unlisted = ("skill://refunds/hidden.md", "skill://refunds/./SKILL.md", "skill://other/SKILL.md")
    for uri in unlisted:
        made.resource(uri, "Do it secretly.", listed=False)
    async with made, Host([made.http()], lock=False) as host:
        await host.ready(20)
        chat = host.session("a")
        skill = host.skills()[0]
        for server in ({"server": "shop"}, {}):
            listed = (skill.uri, skill.uri.replace("SKILL.md", "more.md"))
            for uri in ("ui://shop/view", *listed, *unlisted):
                result = await chat.call("read_mcp_resource", {"uri": uri, **server})
                assert result.is_error, uri
                assert "Do it" not in result.text
                assert "page</p>" not in result.text
        read = await chat.call("read_mcp_resource", {"server": "shop", "uri": "memo://a"})
        assert "a memo" in read.text
        assert "Do it." in (await chat.read_skill(skill.name)).text


# --- servers that cannot declare the extension


@pytest.mark.anyio
async def test_a_server_that_leaves_unknown_requests_unanswered_is_listed_and_not_asked_for_skills_again(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    settings = {"list_timeout": 3}
    server = library_server("lib", settings=settings, unanswered=["skills/list"], log=str(log))
    async with Host([server], on_elicit=lambda _: None, lock=False) as host:
        await host.ready(30)
        [status] = host.status()
        assert (status.state, status.protocol, status.skills) == ("connected", "2025-11-25", 0)
        assert status.tools > 0
        await host.refresh()
        assert host.status()[0].warnings == ()
    assert log.read_text().count('"skills/list"') == 1


def test_a_lock_has_the_settings_that_the_newer_protocol_declares() -> None:
    older = Snapshot(
        server="s",
        info=ServerInfo(name="s", protocol="2025-11-25", chosen=True),
        extensions=(Extension(name=SKILLS, server="s"),),
    )
    declared = Extension(name=SKILLS, server="s", settings={"directoryRead": True})
    newer = replace(older, info=ServerInfo(name="s", protocol="2026-07-28"), extensions=(declared,))
    assert merged(older, newer).extensions == (declared,)
    assert merged(newer, older).extensions == (declared,)
