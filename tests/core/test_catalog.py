"""The merged catalog: every tool has one stable name, whatever servers list."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.core.catalog import Catalog, Diff, Filter, diff, merge
from mooring.core.names import STYLES
from mooring.core.types import Group, Prompt, Resource, ResourceTemplate, ServerInfo, Snapshot, Tool
from mooring.errors import UnknownTool


def tool(name: str, server: str = "s", description: str = "") -> Tool:
    return Tool(name=name, server=server, remote_name=name, description=description)


def snapshot(server: str, *names: str, **more) -> Snapshot:
    return Snapshot(server=server, tools=tuple(tool(name, server) for name in names), **more)


FILES = snapshot("files", "read_file", "write_file", "list_dir")
MAIL = snapshot("mail", "send", "search")

quick = settings(max_examples=40)  # catalogs are large values to draw
texts = st.one_of(
    st.sampled_from(["", "a", "A", "a_b", "b_c", "c", "读", "\ud800", "\x00\u202e"]), st.text(max_size=70)
)
tools = st.builds(
    lambda name, description, schema: Tool(
        name=name, server="?", remote_name=name, description=description, input_schema=schema
    ),
    texts,
    texts,
    st.fixed_dictionaries({"type": st.just("object")}, optional={"title": texts}),
)
groups = st.builds(
    Group, id=texts, title=texts, description=texts, members=st.lists(texts, max_size=4).map(tuple)
)
snapshots = st.lists(
    st.builds(
        Snapshot,
        server=texts,
        tools=st.lists(tools, max_size=6).map(tuple),
        groups=st.lists(groups, max_size=2).map(tuple),
    ),
    max_size=5,
    unique_by=lambda s: s.server,
)


# --- names and routes


def test_a_tool_is_routed_by_its_local_name_and_keeps_the_remote_one() -> None:
    found = merge([FILES, MAIL]).route("mcp_mail_send")
    assert (found.name, found.server, found.remote_name) == ("mcp_mail_send", "mail", "send")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownTool, match="mcp_files_read_file") as caught:
        merge([FILES, MAIL]).route("mcp_files_readfile")
    assert caught.value.suggestions[0] == "mcp_files_read_file"


def test_a_schema_is_passed_on_as_the_very_same_object() -> None:
    [source] = snapshot("s", "t").tools
    assert merge([Snapshot(server="s", tools=(source,))]).route("mcp_s_t").input_schema is source.input_schema


def test_tools_are_in_order_of_local_name() -> None:
    catalog = merge([MAIL, FILES])
    assert list(catalog.tools) == sorted(catalog.tools)
    assert catalog.servers == ("files", "mail")


def test_the_mapping_of_tools_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        merge([FILES]).tools["x"] = tool("x")  # pyright: ignore[reportIndexIssue]


def test_a_name_offered_twice_by_one_server_counts_once_with_a_warning() -> None:
    first, second = tool("go", description="first"), tool("go", description="second")
    catalog = merge([Snapshot(server="s", tools=(first, second))])
    assert [found.description for found in catalog.tools.values()] == ["first"]
    assert catalog.warnings == ("Server 's', tool 'go': is listed more than once; the first one is used.",)


def test_in_raw_style_the_last_server_has_the_name_and_a_warning_says_so() -> None:
    catalog = merge([snapshot("a", "go"), snapshot("b", "go")], style="raw")
    assert catalog.route("go").server == "b"
    assert catalog.warnings == ("Server 'a', tool 'go': is hidden by a later server's tool of that name.",)
    assert merge([snapshot("b", "go"), snapshot("a", "go")], style="raw").route("go").server == "a"


def test_of_two_snapshots_of_one_server_the_last_counts() -> None:
    assert list(merge([snapshot("s", "old"), snapshot("s", "new")]).tools) == ["mcp_s_new"]


def test_a_tool_that_reads_like_one_of_another_server_is_reported() -> None:
    catalog = merge([snapshot("a", "b_go", "go"), snapshot("a_b", "stop")])
    assert catalog.warnings == ("Server 'a', tool 'b_go': has a name like a tool of server 'a_b'.",)


def test_a_model_gets_at_most_4096_characters_of_a_description() -> None:
    tool = Tool(name="t", server="s", remote_name="t", description="x" * 5_000)
    (merged,) = merge([Snapshot(server="s", tools=(tool,))]).tools.values()
    assert merged.description == "x" * 4_096 + " […cut: 5,000 characters]"


def test_descriptions_name_their_server_on_request() -> None:
    own = Snapshot(server="app", tools=(tool("own", description="Ours."),))
    source = Snapshot(server="s", tools=(tool("t", description="Does it."),))
    catalog = merge([source], static=[own], description_prefix=True)
    assert catalog.route("mcp_s_t").description == "[MCP: s] Does it."
    assert catalog.route("own").description == "Ours."


# --- filters


@pytest.mark.parametrize(
    ("given_filter", "left"),
    [
        (Filter(), ["list_dir", "read_file", "write_file"]),
        (Filter(allow=("*_file",)), ["read_file", "write_file"]),
        (Filter(deny=("write*",)), ["list_dir", "read_file"]),
        (Filter(allow=("*_file",), deny=("write*",)), ["read_file"]),
        (Filter(allow=("READ_FILE",)), []),
    ],
)
def test_filters_match_remote_names_and_deny_wins(given_filter: Filter, left: list[str]) -> None:
    catalog = merge([FILES], filters={"files": given_filter})
    assert sorted(found.remote_name for found in catalog.tools.values()) == left


def test_a_filtered_tool_leaves_no_trace() -> None:
    offered = snapshot("a", "b_c", "b.c", "b.c")
    catalog = merge([offered], filters={"a": Filter(deny=("b.c",))})
    assert list(catalog.tools) == ["mcp_a_b_c"]
    assert [group.id for group in catalog.groups] == ["mcp:a"]
    assert not [warning for warning in catalog.warnings if "more than once" in warning]


# --- the application's own tools


def test_a_static_tool_keeps_its_name_and_hides_a_servers_tool_of_that_name() -> None:
    own = snapshot("app", "mcp_mail_send", "Own Tool")
    catalog = merge([MAIL], static=[own])
    assert catalog.route("mcp_mail_send") is own.tools[0]
    assert catalog.route("Own Tool") is own.tools[1]
    assert catalog.warnings == ("Server 'mail', tool 'send': is hidden by a tool of the application.",)
    assert catalog.group("mcp:mail").members == ("mcp_mail_search",)


def test_of_two_static_tools_of_one_name_the_first_counts() -> None:
    catalog = merge([], static=[snapshot("one", "go"), snapshot("two", "go")])
    assert catalog.route("go").server == "one"
    assert catalog.warnings == ("Server 'two', tool 'go': is hidden by an earlier tool of the application.",)


# --- groups


def test_every_server_with_tools_has_a_group() -> None:
    plain, reported = merge(
        [
            MAIL,
            snapshot(
                "told", "t", info=ServerInfo(title="Told", description="Tells."), instructions="Ask first."
            ),
            Snapshot(server="idle", resources=(Resource(uri="x:1", server="idle", name="x"),)),
        ]
    ).groups
    assert plain.id == "mcp:mail"
    assert plain.title == "MCP server `mail`"
    assert plain.description
    assert plain.instructions is None
    assert plain.members == ("mcp_mail_search", "mcp_mail_send")
    assert (reported.title, reported.description, reported.instructions) == ("Told", "Tells.", "Ask first.")


def test_declared_groups_hold_visible_local_names_only() -> None:
    declared = Group(
        id="edit", title="Edit", description="Edits.", members=("write_file", "gone", "read_file")
    )
    own = snapshot("app", "mcp_files_read_file")
    catalog = merge([replace(FILES, groups=(declared,))], static=[own])
    assert catalog.group("edit").members == ("mcp_files_write_file",)
    assert catalog.group("gone") is None


def test_groups_without_a_visible_tool_are_left_out() -> None:
    stale = Group(id="stale", title="Stale", description="", members=("gone",))
    assert merge([snapshot("s", groups=(stale,))]).groups == ()


def test_groups_of_one_id_become_one() -> None:
    first = Group(id="io", title="", description="In.", members=("in",))
    second = Group(id="io", title="IO", description="Out.", instructions="Flush.", members=("out",))
    own = [snapshot("one", "in", groups=(first,)), snapshot("two", "out", groups=(second,))]
    [group] = merge([], static=own).groups
    assert group == Group(
        id="io", title="IO", description="In.", instructions="Flush.", members=("in", "out")
    )


@quick
@given(snapshots, snapshots)
def test_groups_are_distinct_sorted_and_hold_only_what_is_in_the_catalog(servers, own) -> None:
    catalog = merge(servers, static=own)
    ids = [group.id for group in catalog.groups]
    assert ids == sorted(set(ids))
    for group in catalog.groups:
        assert group.members
        assert list(group.members) == sorted(set(group.members))
        assert set(group.members) <= catalog.tools.keys()


# --- resources and prompts


def test_listings_are_sorted_by_server_and_name() -> None:
    def offering(server: str) -> Snapshot:
        return Snapshot(
            server=server,
            resources=tuple(Resource(uri=uri, server=server, name="r") for uri in ("x:2", "x:1")),
            templates=(ResourceTemplate(uri_template="x:{n}", server=server, name="t"),),
            prompts=tuple(Prompt(name=name, server=server) for name in ("q", "p")),
        )

    catalog = merge([offering("b"), offering("a")])
    assert [(r.server, r.uri) for r in catalog.resources] == [
        ("a", "x:1"),
        ("a", "x:2"),
        ("b", "x:1"),
        ("b", "x:2"),
    ]
    assert [t.server for t in catalog.templates] == ["a", "b"]
    assert [(p.server, p.name) for p in catalog.prompts] == [("a", "p"), ("a", "q"), ("b", "p"), ("b", "q")]


# --- merge as a whole


@quick
@given(snapshots, st.sampled_from([style for style in STYLES if style != "raw"]), st.randoms())
def test_the_order_of_arrival_does_not_matter(given_snapshots, style, random) -> None:
    shuffled = list(given_snapshots)
    random.shuffle(shuffled)
    one, other = merge(given_snapshots, style=style), merge(shuffled, style=style)
    assert one == other
    assert list(one.tools) == list(other.tools)
    assert one.revision == other.revision


@quick
@given(snapshots, st.sampled_from(STYLES))
def test_merging_again_on_top_of_the_last_catalog_gives_the_same_objects(given_snapshots, style) -> None:
    first = merge(given_snapshots, style=style)
    again = merge(given_snapshots, style=style, previous=first)
    assert again == first
    assert all(again.tools[name] is found for name, found in first.tools.items())
    assert not diff(first, again)


@quick
@given(snapshots, snapshots, st.booleans())
def test_a_previous_catalog_never_changes_the_answer(old, new, lead) -> None:
    previous = merge(old)
    assert merge(new, description_prefix=lead, previous=previous) == merge(new, description_prefix=lead)


@quick
@given(snapshots)
def test_every_distinct_tool_of_every_server_is_reachable(given_snapshots) -> None:
    found = {(t.server, t.remote_name) for t in merge(given_snapshots).tools.values()}
    assert found == {(s.server, t.name) for s in given_snapshots for t in s.tools}


def test_hostile_names_are_merged_like_any_other() -> None:
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    bad = Snapshot(
        server="bad",
        tools=(
            *(tool("again", "bad") for _ in range(10_000)),
            tool("x" * 1_000_000, "bad", "\x1b[2J\u202e\ud800"),
            replace(tool("deep", "bad"), input_schema=deep),
            replace(tool("odd", "bad"), input_schema={1: {2, 3}, "a": object()}),
        ),
    )
    catalog = merge([bad])
    assert len(catalog.tools) == 4
    assert len(catalog.warnings) == 1
    assert len(catalog.revision) == 16
    relisted = merge(
        [replace(bad, tools=(replace(bad.tools[-2], input_schema={"a": deep}),))], previous=catalog
    )
    assert len(relisted.tools) == 1


def test_warnings_are_bounded_however_much_is_wrong() -> None:
    names = [f"t{i:05}" for i in range(10_000)] * 2
    [warning] = merge([snapshot("s", *names)]).warnings
    assert warning.startswith("Server 's', tool 't00000', 't00001',")
    assert "and 9995 more" in warning


# --- revision and diff


def test_the_revision_follows_what_a_model_can_see() -> None:
    base = merge([FILES])
    reported = merge([replace(FILES, instructions="Read before you write.")])
    routed = merge([replace(FILES, tools=tuple(replace(t, meta={"x": 1}) for t in FILES.tools))])
    assert len(base.revision) == 16
    assert reported.revision != base.revision
    assert routed.revision == base.revision
    assert merge([]).revision == Catalog().revision


def test_the_revision_does_not_depend_on_the_order_of_keys() -> None:
    one = replace(tool("t"), input_schema=json.loads('{"type": "object", "title": "T"}'))
    other = replace(tool("t"), input_schema=json.loads('{"title": "T", "type": "object"}'))
    assert len({merge([Snapshot(server="s", tools=(t,))]).revision for t in (one, other)}) == 1


def test_only_tools_of_servers_that_changed_are_hashed_again_for_the_revision() -> None:
    first = merge([snapshot("a", "x", "y"), snapshot("b", "z")])
    assert len(first.revision) == 16
    changed = [snapshot("a", "x", "y"), Snapshot(server="b", tools=(tool("z", "b", description="new"),))]
    again = merge(changed, previous=first)
    assert again.revision == merge(changed).revision != first.revision
    kept = {name: part.hashes for name, part in again.parts.items()}
    assert {name: list(hashes) for name, hashes in kept.items()} == {
        "a": ["mcp_a_x", "mcp_a_y"],
        "b": ["mcp_b_z"],
    }
    part = again.only(["mcp_a_x"])
    assert part.revision not in (first.revision, again.revision)


def test_a_diff_shows_what_came_went_and_changed() -> None:
    old = merge([snapshot("s", "stays", "goes", "changes")])
    new = merge(
        [Snapshot(server="s", tools=(tool("stays"), tool("comes"), tool("changes", description="new")))]
    )
    assert diff(old, new) == Diff(added=("mcp_s_comes",), removed=("mcp_s_goes",), changed=("mcp_s_changes",))


@quick
@given(snapshots, snapshots)
def test_a_diff_applied_to_the_old_tools_gives_the_new_ones(before, after) -> None:
    old, new = merge(before), merge(after)
    delta = diff(old, new)
    patched = {name: t for name, t in old.tools.items() if name not in delta.removed}
    patched |= {name: new.tools[name] for name in delta.added + delta.changed}
    assert patched == dict(new.tools)
    assert bool(delta) == (dict(old.tools) != dict(new.tools))
    for names in (delta.added, delta.removed, delta.changed):
        assert list(names) == sorted(names)


def test_a_prompt_is_a_tool_unless_a_tool_has_its_name() -> None:
    prompts = tuple(Prompt(name=name, server="s") for name in ("greet", "send"))
    catalog = merge([snapshot("s", "get_prompt_send", prompts=prompts)])
    hidden = [warning for warning in catalog.warnings if "hides a prompt" in warning]
    assert len(hidden) == 1
    assert "send" in hidden[0]
    assert "greet" not in hidden[0]


def test_a_warning_shows_the_first_80_characters_of_a_name() -> None:
    whole, long = "w" * 80, "l" * 81
    (warning,) = merge([snapshot("s", whole, whole, long, long)]).warnings
    assert f"'{whole}'" in warning
    assert f"'{long[:79]}…'" in warning
