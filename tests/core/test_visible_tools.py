"""The tools that a session shows: the whole catalog or the discovery tools, and a list that only grows at the
end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.core.catalog import Catalog, merge
from mooring.core.discovery import DISCOVERY, ShownSchemas, plan_exposure
from mooring.core.types import Snapshot, Tool


def catalog(*names: str, server: str = "s") -> Catalog:
    tools = tuple(Tool(name=name, server=server, remote_name=name, description="x" * 400) for name in names)
    return merge([Snapshot(server=server, tools=tools)])


def test_a_small_catalog_is_shown_whole() -> None:
    plan = plan_exposure(catalog("b", "a"))
    assert not plan.discovery
    assert plan.names == ("mcp_s_a", "mcp_s_b")


def test_a_catalog_over_the_budget_is_hidden_behind_the_discovery_tools() -> None:
    plan = plan_exposure(catalog("a", "b", "c"), budget=250, always=("*_b", "nothing"))
    assert plan.discovery
    assert plan.names == ("mcp_s_b",)


def test_the_mode_overrides_the_budget() -> None:
    assert plan_exposure(catalog("a"), "always").discovery
    assert not plan_exposure(catalog("a", "b", "c"), "never", budget=0).discovery


def test_tools_come_after_the_discovery_tools_in_the_order_they_were_revealed() -> None:
    whole = catalog("a", "b", "c")
    reveal = ShownSchemas().plus(["mcp_s_c"]).plus(["mcp_s_a", "mcp_s_c"])
    shown = [tool.name for tool in reveal.tools(whole, discovery=True)]
    assert shown == ["tools_groups", "tools_search", "tools_select", "mcp_s_c", "mcp_s_a"]
    assert [tool.name for tool in reveal.tools(whole, discovery=False)] == ["mcp_s_c", "mcp_s_a"]


def test_a_tool_that_leaves_and_comes_back_has_its_old_place() -> None:
    reveal = ShownSchemas().plus(["mcp_s_b", "mcp_s_a"])
    assert reveal.tools(catalog("a"), discovery=False) == (catalog("a").tools["mcp_s_a"],)
    assert [tool.name for tool in reveal.tools(catalog("a", "b"), discovery=False)] == ["mcp_s_b", "mcp_s_a"]


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=4), max_size=6))
def test_a_reveal_only_ever_grows_at_the_end(steps: list[list[str]]) -> None:
    whole = catalog(*"abcdef")
    reveal = ShownSchemas()
    for step in steps:
        names = [f"mcp_s_{name}" for name in step]
        later = reveal.plus(names)
        assert later.names[: len(reveal.names)] == reveal.names
        assert set(later.names) == {*reveal.names, *names}
        before, after = (r.tools(whole, discovery=True) for r in (reveal, later))
        assert after[: len(before)] == before
        assert before[:3] == DISCOVERY
        reveal = later
