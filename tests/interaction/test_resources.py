"""Resources of real servers, over every transport and in both eras: read, cached, subscribed to, listed,
refused."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import (
    AmbiguousResource,
    ContextProvider,
    Host,
    HostConfig,
    PolicyDenied,
    ResourceUpdated,
    ServerConfig,
    UnknownResource,
    UnknownServer,
    UnknownTool,
)
from mooring.testing import VirtualClock
from tests.lab.libraries import PLACES, HttpLibrary, library_at, library_server
from tests.lab.stdio import lab_server, methods, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

MEMOS = {f"memo:///{n}": f"text {n}" for n in range(10)}


async def reads(host: Host) -> int:
    """How many requests the server has had for a resource."""
    return int((await host.call("mcp_lib_reads")).text)


async def update_of(events: Any, uri: str) -> ResourceUpdated:
    with anyio.fail_after(10):
        async for event in events:
            if isinstance(event, ResourceUpdated) and event.uri == uri:
                return event
    raise AssertionError("the events ended")


@pytest.mark.parametrize("place", PLACES)
async def test_a_thousand_reads_of_ten_resources_cost_ten_requests_and_one_more_after_a_change(
    place: str, hosting: Any
) -> None:
    async with library_at(place, resources=MEMOS) as server, hosting(server) as host:
        for _ in range(100):
            for uri, text in MEMOS.items():
                assert (await host.read(uri)).text == text
        assert await reads(host) == 10
        await host.subscribe("memo:///3")
        events = host.events()
        await host.call("mcp_lib_touch", {"uri": "memo:///3", "text": "other"})
        await update_of(events, "memo:///3")
        for _ in range(10):
            texts = [(await host.read(uri)).text for uri in MEMOS]
        assert texts == [*(f"text {n}" for n in range(3)), "other", *(f"text {n}" for n in range(4, 10))]
        assert await reads(host) == 11


@pytest.mark.parametrize("place", PLACES)
async def test_a_changed_list_of_resources_makes_all_readings_of_that_server_old(
    place: str, hosting: Any
) -> None:
    async with library_at(place, resources=MEMOS) as server, hosting(server) as host:
        await host.read("memo:///1")
        await host.call("mcp_lib_add", {"uri": "memo:///new", "text": "fresh"})
        await until(lambda: any(entry.uri == "memo:///new" for entry in host.catalog.resources))
        assert (await host.read("memo:///new")).text == "fresh"
        await host.read("memo:///1")
        assert await reads(host) == 3


async def test_a_hundred_readers_at_once_cost_one_request(hosting: Any) -> None:
    async with hosting(library_server(resources=MEMOS)) as host:
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(host.read, "memo:///1")
        assert await reads(host) == 1


async def test_a_reader_that_gives_up_leaves_the_others_their_answer(hosting: Any) -> None:
    async with HttpLibrary(resources=MEMOS) as lab, hosting(lab.config("lib")) as host:
        held, asked = anyio.Event(), anyio.Event()

        async def slow(request: Any, message: dict[str, Any]) -> None:
            asked.set()
            await held.wait()

        lab.faults["resources/read"] = slow
        answers: list[str] = []

        async def follow() -> None:
            answers.append((await host.read("memo:///1")).text)

        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as first:
                tasks.start_soon(_until_set, asked, first)
                await host.read("memo:///1")
            for _ in range(3):
                tasks.start_soon(follow)
            await lab.until(lambda: lab.methods().count("resources/read") == 2)
            held.set()
        assert answers == ["text 1"] * 3


async def _until_set(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def test_a_change_during_a_reading_keeps_that_reading_out_of_the_cache(hosting: Any) -> None:
    async with HttpLibrary(resources=MEMOS) as lab, hosting(lab.config("lib")) as host:

        async def overtaken(request: Any, message: dict[str, Any]) -> None:
            host._resources._cache.forget("lib", "memo:///1")

        lab.faults["resources/read"] = overtaken
        await host.read("memo:///1")
        del lab.faults["resources/read"]
        await host.read("memo:///1")
        assert lab.library.reads == 2


@pytest.mark.parametrize(("ttl", "requests"), [(0, 3), (60_000, 1), (-5, 3)])
async def test_a_servers_own_hint_says_how_long_a_reading_is_kept(
    ttl: int, requests: int, hosting: Any
) -> None:
    async with hosting(library_server(era="modern", resources=MEMOS, ttl=ttl)) as host:
        for _ in range(3):
            await host.read("memo:///1")
        assert await reads(host) == requests


async def test_a_reading_is_kept_by_the_clock_of_the_loop(hosting: Any) -> None:
    clock = VirtualClock()
    async with hosting(library_server(era="modern", resources=MEMOS, ttl=10_000)) as host:
        for seconds in (8, 8):
            await host.read("memo:///1")
            await clock.advance(seconds)
        await host.read("memo:///1")
        assert await reads(host) == 2


async def test_a_reading_is_kept_no_longer_than_the_limit_whatever_the_server_says(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.resources.MAX_CACHED_TIME", 10.0)
    clock = VirtualClock()
    async with hosting(library_server(era="modern", resources=MEMOS, ttl=10**12)) as host:
        await host.read("memo:///1")
        await clock.advance(8)
        await host.read("memo:///1")
        await clock.advance(8)
        await host.read("memo:///1")
        assert await reads(host) == 2


async def test_a_cache_that_is_off_asks_every_time() -> None:
    config = HostConfig(servers=(library_server(resources=MEMOS),), resource_cache={"enabled": False})
    async with Host(config) as host:
        for _ in range(3):
            await host.read("memo:///1")
        assert await reads(host) == 3


async def test_the_reading_used_longest_ago_makes_room() -> None:
    config = HostConfig(servers=(library_server(resources=MEMOS),), resource_cache={"max_entries": 2})
    async with Host(config) as host:
        for n in (1, 2, 1, 3, 1, 2):
            await host.read(f"memo:///{n}")
        assert await reads(host) == 4


# --- watching -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
async def test_only_what_was_subscribed_to_is_reported(place: str, hosting: Any) -> None:
    async with library_at(place, resources=MEMOS, always_tell=True) as server, hosting(server) as host:
        await host.subscribe("memo:///1")
        await host.subscribe("memo:///2")
        await host.unsubscribe("memo:///1")
        events = host.events()
        for n in (1, 5, 2):
            await host.call("mcp_lib_touch", {"uri": f"memo:///{n}", "text": "x"})
        reported = await update_of(events, "memo:///2")
        assert reported == ResourceUpdated(server="lib", uri="memo:///2")
        assert [e for e in events._events if isinstance(e, ResourceUpdated)] == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_after_a_reconnect_it_is_watched_again_and_said_to_have_been_missed(
    era: str, hosting: Any
) -> None:
    async with hosting(library_server(era=era, resources=MEMOS)) as host:
        await host.subscribe("memo:///1")
        events = host.events()
        await host.call("mcp_lib_crash")
        assert (await update_of(events, "memo:///1")).missed
        await host.call("mcp_lib_touch", {"uri": "memo:///1", "text": "new"})
        assert not (await update_of(events, "memo:///1")).missed
        assert (await host.read("memo:///1")).text == "new"


async def test_a_cut_subscription_is_taken_up_again(hosting: Any) -> None:
    async with HttpLibrary(era="modern", resources=MEMOS) as lab, hosting(lab.config("lib")) as host:
        await host.read("memo:///1")
        await host.subscribe("memo:///1")
        events = host.events()
        lab.cut_subscriptions()
        assert (await update_of(events, "memo:///1")).missed
        lab.library.touch("memo:///1", "new")
        assert not (await update_of(events, "memo:///1")).missed
        assert (await host.read("memo:///1")).text == "new"


async def test_a_server_that_announces_no_changes_is_a_clear_error(hosting: Any) -> None:
    from mooring import ServerError

    async with hosting(library_server(era="legacy", resources=MEMOS, no_subscriptions=True)) as host:
        with pytest.raises(ServerError, match="resources/subscribe"):
            await host.subscribe("memo:///1")


# --- whose it is ----------------------------------------------------------------------------------


async def test_a_uri_finds_its_server_by_list_then_by_template(hosting: Any) -> None:
    one = library_server("one", resources={"memo:///a": "of one"})
    two = library_server("two", resources={"memo:///b": "of two"}, templates=["memo:///{name}"], any=True)
    async with hosting(one, two) as host:
        assert (await host.read("memo:///a")).server == "one"
        assert (await host.read("memo:///b")).text == "of two"
        made = await host.read("memo:///else")
        assert (made.server, made.text) == ("two", "made of a template")


async def test_a_server_that_listed_a_uri_comes_before_one_with_a_template_also_before_it_runs() -> None:
    lazy = {"start": "lazy"}
    one = library_server("one", resources={"memo:///a": "of one"}, settings=lazy)
    two = library_server("two", resources={}, templates=["memo:///{name}"], any=True, settings=lazy)
    for _ in range(2):  # the second host knows the lists from the cache
        async with Host([one, two]) as host:
            assert (await host.read("memo:///a")).text == "of one"
            assert (await host.read("memo:///else")).server == "two"


async def test_a_removed_server_that_listed_a_uri_does_not_keep_others_from_having_it() -> None:
    lazy = {"start": "lazy"}
    one = library_server("one", resources={"memo:///a": "of one"}, settings=lazy)
    two = library_server("two", resources={"memo:///a": "of two"}, settings=lazy)
    async with Host([one]) as host:
        await host.read("memo:///a")
    async with Host([one, two]) as host:
        await host.remove("one")
        assert (await host.read("memo:///a")).text == "of two"


async def test_a_uri_of_two_servers_or_of_none_names_what_to_do(hosting: Any) -> None:
    one, two = (library_server(name, resources=MEMOS) for name in ("one", "two"))
    async with hosting(one, two) as host:
        with pytest.raises(AmbiguousResource, match="'one' or 'two'") as both:
            await host.read("memo:///1")
        assert both.value.suggestions == ("one", "two")
        assert (await host.read("memo:///1", server="two")).server == "two"
        with pytest.raises(UnknownResource, match="memo:///1") as none:
            await host.read("memo:///11")
        assert "memo:///1" in none.value.suggestions
        with pytest.raises(UnknownServer, match="Did you mean 'one'"):
            await host.read("memo:///1", server="onee")


@pytest.mark.parametrize("place", PLACES)
async def test_what_the_server_does_not_have_is_unknown_in_either_era(place: str, hosting: Any) -> None:
    async with library_at(place, resources=MEMOS) as server, hosting(server) as host:
        with pytest.raises(UnknownResource, match="Did you mean"):
            await host.read("memo:///12", server="lib")


async def test_the_list_is_of_all_servers_with_an_error_for_each_that_failed(hosting: Any) -> None:
    pages = library_server("pages", resources=MEMOS, page_size=3, templates=["memo:///{name}"])
    broken = lab_server("broken", crash_at_start=3)
    sleeper = library_server("sleeper", resources={"memo:///z": "z"}, settings={"start": "lazy"})
    async with hosting(pages, broken, sleeper) as host:
        found = await host.resources()
        assert len(found.resources) == 11
        assert [entry.uri_template for entry in found.templates] == ["memo:///{name}"]
        assert list(found.errors) == ["broken"]
        assert "code 3" in found.errors["broken"]
        assert [entry.uri for entry in (await host.resources("sleeper")).resources] == ["memo:///z"]


async def test_endless_pages_of_resources_end_at_sixty_four(hosting: Any) -> None:
    many = {f"memo:///{n}": "x" for n in range(100)}
    async with hosting(library_server(resources=many, page_size=1)) as host:
        found = await host.resources()
        assert len(found.resources) == 64
        assert "64 pages" in found.errors["lib"]


async def test_a_lazy_server_is_started_by_the_first_reading(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = library_server(resources=MEMOS, log=str(log), settings={"start": "lazy"})
    async with Host([server]) as host:
        assert not log.exists()
        assert (await host.read("memo:///1")).text == "text 1"


async def test_binary_contents_come_as_bytes_and_bad_ones_are_an_error(hosting: Any) -> None:
    from mooring import ServerError

    data = bytes(range(256))
    resources = {
        "memo:///b": {"blob": base64.b64encode(data).decode(), "mimeType": "application/x"},
        "memo:///bad": {"blob": "not base64!"},
        "memo:///none": {"mimeType": "text/plain"},
    }
    async with hosting(library_server(resources=resources)) as host:
        contents = await host.read("memo:///b")
        assert (contents.is_binary, contents.data, contents.text) == (True, data, "")
        for uri in ("memo:///bad", "memo:///none"):
            with pytest.raises(ServerError, match="not valid"):
                await host.read(uri)


# --- for models -----------------------------------------------------------------------------------


async def test_the_tools_for_resources_appear_with_the_first_resource_and_go_with_the_last(
    hosting: Any,
) -> None:
    names = {"list_mcp_resources", "read_mcp_resource"}
    async with hosting(lab_server(tools=["echo"])) as host:
        assert not names & set(host.catalog.tools)
        await host.add(library_server(resources=MEMOS))
        assert names <= set(host.catalog.tools)
        assert host.status()[1].tools == 8
        await host.remove("lib")
        assert not names & set(host.catalog.tools)


async def test_no_server_can_take_the_names_of_these_tools() -> None:
    greedy = lab_server("greedy", tools=["list_mcp_resources", "read_mcp_resource", "pid"])
    config = HostConfig(servers=(greedy, library_server(resources=MEMOS)), style="raw")
    async with Host(config) as host:
        await host.ready(10)
        assert {host.catalog.tools[name].server for name in ("list_mcp_resources", "read_mcp_resource")} == {
            "mooring"
        }
        assert host.catalog.tools["pid"].server == "greedy"


@pytest.mark.parametrize("start", ["background", "lazy"])
async def test_the_first_call_of_these_tools_waits_for_the_servers_that_may_have_resources(
    start: str,
) -> None:
    settings = {"start": start}
    for _ in ("without a cache", "with a cache"):
        async with Host([library_server(resources=MEMOS, settings=settings), lab_server()]) as host:
            assert "text 1" in (await host.call("read_mcp_resource", {"uri": "memo:///1"})).text
            assert "memo:///9" in (await host.call("list_mcp_resources")).text


async def test_a_call_of_these_tools_names_the_server_that_may_have_resources_and_is_down() -> None:
    down = ServerConfig(name="down", command=sys.executable, args=("-c", "raise SystemExit(3)"))
    async with Host([down]) as host:
        error = (await host.call("read_mcp_resource", {"uri": "memo:///1"})).error
        assert isinstance(error, UnknownTool)
        assert (error.server, error.state) == ("down", "failed")


async def test_with_discovery_a_model_sees_these_tools_from_the_start_and_when_they_come_later() -> None:
    config = HostConfig(servers=(lab_server(tools=["echo"]),), discovery="always")
    async with Host(config) as host:
        await host.ready(10)
        chat = host.session("chat")
        before = [tool.name for tool in chat.tools()]
        assert before == ["tools_groups", "tools_search", "tools_select"]
        await host.add(library_server(resources=MEMOS))
        assert [tool.name for tool in chat.tools()] == [*before, "list_mcp_resources", "read_mcp_resource"]


async def test_a_model_lists_page_by_page_and_reads(hosting: Any) -> None:
    many = {f"memo:///{n:03}": f"text {n}" for n in range(150)}
    async with hosting(library_server(resources=many)) as host:
        first = await host.call("list_mcp_resources", {"server": "lib"})
        assert len(first.structured["resources"]) == 100
        second = await host.call("list_mcp_resources", {"cursor": first.structured["next_cursor"]})
        assert len(second.structured["resources"]) == 50
        assert second.structured["next_cursor"] is None
        uri = second.structured["resources"][-1]["uri"]
        assert "text 149" in (await host.call("read_mcp_resource", {"uri": uri})).text


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("read_mcp_resource", {}, "'uri'"),
        ("read_mcp_resource", {"uri": 5}, "must be text"),
        ("read_mcp_resource", {"url": "memo:///1"}, "no argument 'url'"),
        ("list_mcp_resources", {"cursor": "x"}, "earlier result"),
        ("list_mcp_resources", {"server": "nobody"}, "There is no server 'nobody'"),
        ("read_mcp_resource", {"uri": "memo:///nothing"}, "There is no resource"),
    ],
)
async def test_a_model_that_asks_wrongly_gets_the_right_form(
    tool: str, arguments: dict[str, Any], problem: str, hosting: Any
) -> None:
    async with hosting(library_server(resources=MEMOS)) as host:
        result = await host.call(tool, arguments)
        assert result.is_error
        assert problem in result.text


# --- context --------------------------------------------------------------------------------------


async def test_chosen_resources_are_handed_over_whole_within_the_budget_and_failures_are_noted(
    hosting: Any,
) -> None:
    resources = {"memo:///a": "alpha", "memo:///b": "beta " * 2000, "memo:///c": "gamma", "other:///d": "d"}
    async with hosting(library_server(resources=resources), lab_server("down", crash_at_start=1)) as host:
        provider = ContextProvider(host, ["memo:///*", "memo:///missing", "x:///*"], budget=200)
        turn = await provider.fetch()
        assert turn.included == ("memo:///a", "memo:///c")
        assert turn.left_out == ("memo:///b",)
        assert set(turn.failed) == {"memo:///missing", "x:///*", "down"}
        assert turn.text.count('<untrusted from="lib"') == 2
        assert "alpha" in turn.text
        assert "beta" not in turn.text


async def test_a_resource_that_is_named_and_matched_is_handed_over_once(hosting: Any) -> None:
    resources = {"memo:///a": "alpha", "memo:///b": "beta"}
    async with hosting(library_server(resources=resources)) as host:
        for wanted in (
            ["memo:///b", "memo:///*", "*:///b"],
            ["memo:///b", "memo:///a", "memo:///b"],
        ):
            turn = await ContextProvider(host, wanted).fetch()
            assert turn.included == ("memo:///b", "memo:///a")
            assert turn.text.count("beta") == 1


async def test_the_configuration_chooses_them_as_well_and_nothing_chosen_is_nothing() -> None:
    server = library_server(resources=MEMOS)
    async with Host(HostConfig(servers=(server,), context={"resources": ["memo:///4"]})) as host:
        assert "text 4" in (await ContextProvider(host).fetch()).text
        assert (await ContextProvider(host, []).fetch()).text == ""


# --- what may be read -----------------------------------------------------------------------------


async def test_a_scheme_that_is_not_allowed_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = library_server(resources=MEMOS, log=str(log))
    config = HostConfig(servers=(server,), resource_uri_allowlist=["file", "https://"])
    async with Host(config) as host:
        await host.ready(10)
        for verb in (host.read, host.subscribe):
            with pytest.raises(PolicyDenied, match="resource_uri_allowlist"):
                await verb("memo:///1")
        refused = await host.call("read_mcp_resource", {"uri": "memo:///1"})
        assert "resource_uri_allowlist" in refused.text
    assert "resources/read" not in methods(log)


async def test_strict_roots_let_pass_what_is_inside_and_only_that(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "inner").mkdir()
    log = tmp_path / "log"
    server = library_server(any=True, log=str(log), resources=MEMOS)
    config = HostConfig(servers=(server,), strict_root_paths=True, roots=[str(root)])
    good = [f"file://{root}/a.md", f"file://localhost{root}/inner/../a.md", f"file:{root}/a%20b", "memo:///1"]
    bad = [
        f"file://{outside}/a.md",
        f"file://{root}/../outside/a.md",
        f"file://{root}/link/a.md",
        f"file://{root}/inner/..%2f..%2foutside/a.md",
        f"file://{root}/%252e%252e/outside",
        f"file://{root}/..\\outside",
        f"file://evil{root}/a.md",
        "file:////server/share",
        "file:///C:/Windows/win.ini",
        f"file://{root}/a?x=/../../outside",
        f"file://{root}2/a",
        "a.md",
    ]
    async with Host(config) as host:
        for uri in good:
            await host.read(uri, server="lib")
        for uri in bad:
            with pytest.raises(PolicyDenied, match=r"roots|strict_root_paths"):
                await host.read(uri, server="lib")
    asked = [entry["params"]["uri"] for entry in wire_log(log) if entry.get("method") == "resources/read"]
    assert asked == good


async def test_strict_roots_without_any_root_let_no_file_pass() -> None:
    config = HostConfig(servers=(library_server(any=True, resources=MEMOS),), strict_root_paths=True)
    async with Host(config) as host:
        with pytest.raises(PolicyDenied, match="`roots`"):
            await host.read("file:///etc/hostname", server="lib")
