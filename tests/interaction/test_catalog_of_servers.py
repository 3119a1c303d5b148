"""The lists of servers become one catalog: paged, limited, and refreshed on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mooring import CatalogChanged, ConfigError, Host, HostConfig, MooringError, ServerRemoved, UnknownServer
from mooring.host import runtime_of
from mooring.servers.catalog import CatalogBuilder
from tests.lab.stdio import lab_server, starts

pytestmark = pytest.mark.anyio


def _text(result: Any) -> str:
    assert not result.is_error, result.text
    return result.text


async def test_all_pages_are_read(hosting: Any) -> None:
    names = [f"tool_{n:03}" for n in range(95)]
    async with hosting(lab_server(tools=names, page_size=10)) as host:
        assert list(host.catalog.tools) == [f"mcp_lab_{name}" for name in names]


async def test_FA36_a_list_that_repeats_itself_ends_and_what_was_read_is_kept(hosting: Any) -> None:
    async with hosting(lab_server(tools=["echo"], repeat_cursor=True)) as host:
        assert list(host.catalog.tools) == ["mcp_lab_echo"]
        (status,) = host.status()
        assert any("repeats itself" in warning for warning in status.warnings)


async def test_FA36_a_list_without_end_is_cut_at_64_pages(hosting: Any) -> None:
    async with hosting(lab_server(endless_pages=True)) as host:
        assert len(host.catalog.tools) == 64
        (status,) = host.status()
        assert any("64 pages" in warning for warning in status.warnings)


async def test_FA36_more_than_10000_tools_of_one_server_are_cut(hosting: Any) -> None:
    async with hosting(lab_server(tools=[f"t{n}" for n in range(10_050)])) as host:
        assert len(host.catalog.tools) == 10_000


async def test_FA31_one_malformed_tool_costs_no_other(hosting: Any) -> None:
    bad = [{"name": "bad", "inputSchema": 3}, {"description": "nameless"}]
    async with hosting(lab_server(tools=["echo"], definitions=bad)) as host:
        assert list(host.catalog.tools) == ["mcp_lab_echo"]
        (status,) = host.status()
        assert any("'bad'" in warning for warning in status.warnings)


async def test_resources_templates_and_prompts_are_listed_where_offered(hosting: Any) -> None:
    server = lab_server(
        era="legacy",
        capabilities={"tools": {}, "resources": {}, "prompts": {}},
        resources=[{"uri": "lab://a", "name": "a"}, {"name": "no uri"}],
        templates=[{"uriTemplate": "lab://{id}", "name": "t"}],
        prompts=[{"name": "p", "arguments": [{"name": "who"}]}],
    )
    async with hosting(server) as host:
        catalog = host.catalog
        assert [r.uri for r in catalog.resources] == ["lab://a"]
        assert [t.uri_template for t in catalog.templates] == ["lab://{id}"]
        assert [p.name for p in catalog.prompts] == ["p"]
        (status,) = host.status()
        assert (status.resources, status.prompts) == (1, 1)


async def test_a_servers_self_description_becomes_its_group(hosting: Any) -> None:
    async with hosting(lab_server()) as host:
        (group,) = host.catalog.groups
        assert (group.id, group.title, group.instructions) == ("mcp:lab", "The laboratory", "Be careful.")
        assert group.members == ("mcp_lab_echo", "mcp_lab_pid")


@pytest.mark.parametrize(
    ("style", "name"),
    [("mcp", "mcp_lab_echo"), ("double", "mcp__lab__echo"), ("server", "lab_echo"), ("raw", "echo")],
)
async def test_each_naming_style_routes_to_the_same_tool(style: Any, name: str, hosting: Any) -> None:
    async with hosting(lab_server(tools=["echo"]), style=style) as host:
        assert list(host.catalog.tools) == [name]
        assert _text(await host.call(name, {"text": "hi"})) == "hi"


async def test_allow_and_deny_are_applied_before_naming(hosting: Any) -> None:
    settings = {"allow": ["e*", "pid"], "deny": ["pi?"]}
    async with hosting(lab_server(tools=["echo", "pid", "fail"], settings=settings)) as host:
        assert list(host.catalog.tools) == ["mcp_lab_echo"]
        assert (await host.call("mcp_lab_pid")).is_error


async def test_FA33_names_are_the_same_in_whatever_order_servers_arrive(hosting: Any) -> None:
    first = [lab_server("a", tools=["b_c"]), lab_server("a_b", tools=["c"], start_delay=0.2)]
    second = [lab_server("a", tools=["b_c"], start_delay=0.2), lab_server("a_b", tools=["c"])]
    async with hosting(*first) as one, hosting(*second) as two:
        assert len(one.catalog.tools) == 2
        assert list(one.catalog.tools) == list(two.catalog.tools)
        assert one.catalog.revision == two.catalog.revision


async def test_a_refresh_sees_what_a_server_changed_and_reports_per_server(hosting: Any) -> None:
    async with hosting(lab_server("up", tools=["grow"]), lab_server("down", crash_at_start=1)) as host:
        await host.call("mcp_up_grow", {"name": "extra"})
        report = await host.refresh()
        assert report["up"].ok
        assert report["up"].tools == 2
        assert not report["down"].ok
        assert "code 1" in (report["down"].error or "")
        assert "mcp_up_extra" in host.catalog.tools


async def test_a_refresh_of_an_unknown_server_names_the_nearest(hosting: Any) -> None:
    async with hosting(lab_server("files")) as host:
        with pytest.raises(UnknownServer, match="'files'"):
            await host.refresh("fles")


async def test_a_catalog_in_hand_never_changes(hosting: Any) -> None:
    async with hosting(lab_server(tools=["grow"])) as host:
        held = host.catalog
        await host.call("mcp_lab_grow", {"name": "extra"})
        await host.refresh()
        assert list(held.tools) == ["mcp_lab_grow"]
        assert list(host.catalog.tools) == ["mcp_lab_extra", "mcp_lab_grow"]


async def test_a_change_of_the_catalog_is_reported_with_what_came_and_went(hosting: Any) -> None:
    seen: list[str] = []
    async with hosting(lab_server(tools=["grow", "drop"]), on_tools_changed=lambda: seen.append("x")) as host:
        assert len(host.catalog.tools) == 2
        events = host.events()
        await host.call("mcp_lab_grow", {"name": "extra"})
        await host.refresh()
        await host.call("mcp_lab_drop", {"name": "drop"})
        await host.refresh()
        assert "mcp_lab_drop" not in host.catalog.tools
        events.end()
        changes = [event async for event in events if isinstance(event, CatalogChanged)]
        assert [(c.added, c.removed) for c in changes] == [
            (("mcp_lab_extra",), ()),
            ((), ("mcp_lab_drop",)),
        ]
        assert changes[-1].revision == host.catalog.revision
    assert len(seen) >= 3


async def test_a_server_added_at_run_time_is_there_when_add_returns(hosting: Any) -> None:
    async with hosting(lab_server("one")) as host:
        status = await host.add(lab_server("two"))
        assert status.state == "connected"
        assert _text(await host.call("mcp_two_echo", {"text": "hi"})) == "hi"


async def test_a_server_that_cannot_be_added_leaves_nothing(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server("one")) as host:
        before = host.catalog.revision
        with pytest.raises(MooringError, match="code 4"):
            await host.add(lab_server("two", crash_at_start=4, log=str(log)))
        assert [status.name for status in host.status()] == ["one"]
        assert host.catalog.revision == before
        spawned = len(starts(log))
        await host.refresh()
        assert len(starts(log)) == spawned


async def test_a_name_that_is_taken_cannot_be_added(hosting: Any) -> None:
    async with hosting(lab_server("one")) as host:
        with pytest.raises(ConfigError, match="'one'"):
            await host.add(lab_server("one"))


async def test_a_removed_server_is_gone_with_its_tools_and_its_process(hosting: Any) -> None:
    async with hosting(lab_server("one", tools=["pid"]), lab_server("two")) as host:
        pid = int(_text(await host.call("mcp_one_pid")))
        events = host.events()
        await host.remove("one")
        assert [status.name for status in host.status()] == ["two"]
        assert "mcp_one_pid" not in host.catalog.tools
        assert not Path(f"/proc/{pid}").exists()
        events.end()
        assert ServerRemoved(server="one") in [event async for event in events]
        with pytest.raises(UnknownServer):
            await host.remove("one")


async def test_only_enabled_servers_run_and_the_others_are_shown_as_disabled() -> None:
    config = HostConfig(servers=(lab_server("one"), lab_server("two")), enabled_servers=("two",))
    async with Host(config) as host:
        await host.ready(10)
        assert {s.name: s.state for s in host.status()} == {"one": "disabled", "two": "connected"}


async def test_a_slow_listener_loses_the_oldest_events_and_gets_their_number(hosting: Any) -> None:
    from mooring import EventsDropped, ServerLost

    async with hosting() as host:
        events = host.events()
        for n in range(1030):
            runtime_of(host).emit(ServerLost(server=str(n), reason=""))
        events.end()
        heard = [event async for event in events]
        assert heard[0] == EventsDropped(count=6)
        assert heard[1] == ServerLost(server="6", reason="")
        assert len(heard) == 1025


async def test_a_refresh_publishes_each_server_once(hosting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[str] = []
    publish = CatalogBuilder.publish

    def counted(builder: CatalogBuilder, snapshot: Any) -> Any:
        published.append(snapshot.server)
        return publish(builder, snapshot)

    monkeypatch.setattr(CatalogBuilder, "publish", counted)
    async with hosting(lab_server("one"), lab_server("two")) as host:
        published.clear()
        assert all(report.ok for report in (await host.refresh()).values())
    assert sorted(name for name in published if name in ("one", "two")) == ["one", "two"]


async def test_a_clash_of_names_is_logged_once(hosting: Any, caplog: pytest.LogCaptureFixture) -> None:
    twice = {"name": "echo", "description": "again", "inputSchema": {"type": "object"}}
    servers = [lab_server("one", definitions=[twice]), lab_server("two")]
    async with hosting(*servers, style="raw") as host:
        warnings = host.catalog.warnings
        await host.refresh()
        assert host.catalog.tools
        logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [logged.count(warning) for warning in warnings] == [1, 1]
    assert "listed more than once; the first one is used" in warnings[0]
    assert "hidden by a later server's tool" in warnings[1]
