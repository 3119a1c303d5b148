"""Search: the right tool first, the same answer always, and reasons for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.core.catalog import Catalog, merge
from mooring.core.search import Index, _parameters
from mooring.core.types import Group, ServerInfo, Snapshot, Tool


def tool(name: str, description: str = "", **parameters: str) -> Tool:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties}
    return Tool(name=name, server="?", remote_name=name, description=description, input_schema=schema)


def server(name: str, *tools: Tool, about: str | None = None) -> Snapshot:
    return Snapshot(server=name, info=ServerInfo(description=about), tools=tools)


OFFICE = server(
    "office",
    tool("create_document", "Create a new Word document with optional metadata."),
    tool("add_chart", "Add a chart to a worksheet.", kind="bar, line or pie"),
    tool("convert_to_pdf", "Convert a document to PDF.", source="path of the document"),
    about="Edit documents, spreadsheets and presentations.",
)
FILES = server(
    "files",
    tool("read_file", "Read the contents of a file.", path="where it is"),
    tool("write_file", "Write text to a file, replacing what is there.", path="where", text="what"),
    tool("remove_directory", "Remove a directory and everything in it.", path="which"),
)
WEATHER = server(
    "meteo",
    tool("forecast", "Daily values for the coming week.", city="name of a city"),
    tool("current", "Values of this hour.", city="name of a city"),
    about="Weather for any place on Earth.",
)
CITY = server("town", tool("current", "Current mayor of a city.", city="name"), about="Facts about towns.")
CHINESE = server("ditu", tool("cha_lu", "查询两地之间的驾车路线"), tool("tian_qi", "获取城市天气预报"))
EVERYTHING = [OFFICE, FILES, WEATHER, CITY, CHINESE]


def index(catalog: Catalog) -> Index:
    return Index.build(catalog.tools, catalog.groups)


def found(query: str, limit: int = 5, servers: Sequence[Snapshot] = EVERYTHING) -> list[str]:
    return [hit.name for hit in index(merge(servers)).search(query, limit)]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("read a file", "mcp_files_read_file"),
        ("open the file", "mcp_files_read_file"),
        ("delete a folder", "mcp_files_remove_directory"),
        ("make a word document", "mcp_office_create_document"),
        ("turn my document into pdf", "mcp_office_convert_to_pdf"),
        ("plot a bar graph", "mcp_office_add_chart"),
        ("convertToPdf", "mcp_office_convert_to_pdf"),
        ("查询路线", "mcp_ditu_cha_lu"),
        ("driving route", "mcp_ditu_cha_lu"),
    ],
)
def test_the_tool_that_was_meant_comes_first(query: str, name: str) -> None:
    assert found(query)[0] == name


def test_a_question_about_a_field_lifts_the_tools_of_its_server() -> None:
    assert found("current weather in a city", limit=1) == ["mcp_meteo_current"]


def test_nothing_in_common_finds_nothing() -> None:
    assert found("zzyzx") == []
    assert found("") == []
    assert found("the of and") == []


def test_the_limit_is_kept() -> None:
    assert len(found("document file weather", limit=2)) == 2
    assert found("document", limit=0) == []


def test_the_servers_own_name_of_a_tool_comes_first_too() -> None:
    assert found("read_file")[0] == "mcp_files_read_file"
    assert set(found("current", limit=2)) == {"mcp_meteo_current", "mcp_town_current"}


def test_a_hit_says_which_words_matched_where() -> None:
    [hit] = index(merge(EVERYTHING)).search("convert a document to pdf", 1)
    assert hit.score > 0
    assert "name: convert, pdf" in hit.why
    assert any(reason.startswith("description: ") and "PDF" in reason for reason in hit.why)
    assert any(reason.startswith("server description: ") for reason in hit.why)


def test_repeating_a_word_does_not_beat_a_tool_of_that_name() -> None:
    honest = tool("translate", "Translate a text.")
    stuffed = tool("helper", "translate " * 300)
    assert found("translate", servers=[server("s", stuffed, honest)])[0] == "mcp_s_translate"


def test_tools_of_a_declared_group_profit_from_its_description() -> None:
    bundle = Group(id="ledger", title="Ledger", description="Bookkeeping.", members=("post_entry",))
    own = Snapshot(server="app", tools=(tool("post_entry"), tool("post_card")), groups=(bundle,))
    catalog = merge([FILES], static=[own])
    assert next(hit.name for hit in index(catalog).search("post bookkeeping")) == "post_entry"


class Opinion:
    """A ranker that always names the same tools."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def rank(self, query: str, names: Sequence[str]) -> list[tuple[str, float]]:
        return [(name, 1.0) for name in self.names]


def test_a_ranker_adds_what_words_miss_and_agreement_wins() -> None:
    searched = index(merge(EVERYTHING))
    opinion = Opinion("mcp_meteo_forecast", "mcp_files_write_file", "not_there")
    names = [hit.name for hit in searched.search("write a file", 10, ranker=opinion)]
    assert names[0] == "mcp_files_write_file"
    assert "mcp_meteo_forecast" in names
    assert "not_there" not in names
    assert searched.search("read_file", ranker=opinion)[0].name == "mcp_files_read_file"


# --- the same answer always

quick = settings(max_examples=50)  # catalogs are large values to draw
words = st.sampled_from(
    ["get", "list", "user", "file", "issue", "email", "天气", "report", "Überblick", "x", ""]
)
names = st.lists(words, min_size=1, max_size=3).map("_".join)
tools = st.builds(tool, names, st.lists(words, max_size=6).map(" ".join))
snapshots = st.lists(
    st.builds(
        lambda name, about, tools: server(name, *tools, about=about),
        st.sampled_from("abcdef"),
        st.lists(words, max_size=4).map(" ".join),
        st.lists(tools, max_size=5),
    ),
    max_size=4,
    unique_by=lambda s: s.server,
)
queries = st.one_of(st.lists(words, max_size=5).map(" ".join), st.text(max_size=30))


@quick
@given(snapshots)
def test_the_local_name_of_a_tool_always_comes_first(given_snapshots: list[Snapshot]) -> None:
    catalog = merge(given_snapshots)
    searched = index(catalog)
    for name in catalog.tools:
        assert searched.search(name)[0].name == name


@quick
@given(snapshots, queries, st.randoms())
def test_the_order_of_arrival_does_not_matter(given_snapshots, query: str, random) -> None:
    shuffled = list(given_snapshots)
    random.shuffle(shuffled)
    assert index(merge(shuffled)).search(query) == index(merge(given_snapshots)).search(query)


@quick
@given(st.lists(snapshots, min_size=2, max_size=4), queries)
def test_an_updated_index_answers_like_a_new_one(history: list[list[Snapshot]], query: str) -> None:
    catalog = merge(history[0])
    searched = index(catalog)
    for later in history[1:]:
        catalog = merge(later, previous=catalog)
        searched = searched.updated(catalog)
        assert searched.search(query) == index(catalog).search(query)


def test_an_updated_index_does_not_read_unchanged_tools_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import mooring.core.search as module

    read: list[str] = []
    original = module.tool_texts
    catalog = merge([FILES, OFFICE])
    searched = index(catalog)
    monkeypatch.setattr(module, "tool_texts", lambda found: read.append(found.name) or original(found))
    searched.updated(merge([FILES, OFFICE, CITY], previous=catalog))
    assert read == ["mcp_town_current"]


def test_common_words_are_looked_up_for_what_rarer_ones_found() -> None:
    many = [tool(f"get_record_{i}", "Get a record of the archive.") for i in range(2_000)]
    rare = tool("get_ledger", "Get a record of the ledger.")
    assert found("get a record of the ledger", limit=1, servers=[server("s", *many, rare)]) == [
        "mcp_s_get_ledger"
    ]
    assert found("get record", limit=3, servers=[server("s", *many)]) == [
        "mcp_s_get_record_0",
        "mcp_s_get_record_1",
        "mcp_s_get_record_10",
    ]


def test_hostile_tools_and_queries_are_searched_like_any_other() -> None:
    nested: dict = {"properties": {}}
    for _ in range(500):
        nested = {"properties": {"p" * 1_000: nested, "q": {"items": [1], "enum": "no list"}}}
    bad = Tool(
        name="x" * 100_000,
        server="?",
        remote_name="x" * 100_000,
        description="\ud800\x00" + "word " * 100_000,
        input_schema=nested,
    )
    odd = Tool(name="odd", server="?", remote_name="odd", input_schema={"properties": ["a"], "type": 1})
    searched = index(merge([server("s", bad, odd)]))
    assert [hit.name for hit in searched.search("odd")] == ["mcp_s_odd"]
    assert len(searched.search("word " * 100_000)) == 1
    assert searched.search("\ud800\x00/\\..//" * 1_000) == []


# --- details of the order


def test_equal_hits_come_in_order_of_name_and_the_limit_cuts_the_last() -> None:
    one = server("s", *(tool(f"zebra_{letter}") for letter in "cabd"))
    assert found("zebra", 3, [one]) == ["mcp_s_zebra_a", "mcp_s_zebra_b", "mcp_s_zebra_c"]
    assert found("zebra", 0, [one]) == []
    assert found("zebra", 1, [one]) == ["mcp_s_zebra_a"]


def test_rankings_are_fused_by_place_and_each_counts_the_same() -> None:
    one = server("s", tool("zebra_a", "zebra"), tool("lion_b"), tool("lion_c"))
    opinion = Opinion("mcp_s_lion_c", "mcp_s_lion_b")
    hits = index(merge([one])).search("zebra", 10, ranker=opinion)
    assert [hit.name for hit in hits] == ["mcp_s_lion_c", "mcp_s_zebra_a", "mcp_s_lion_b"]
    assert hits[0].score == hits[1].score > hits[2].score
    assert len(index(merge([one])).search("zebra", 2, ranker=opinion)) == 2
    both = index(merge([one])).search("zebra", 10, ranker=Opinion("mcp_s_lion_b", "mcp_s_zebra_a"))
    assert both[0].name == "mcp_s_zebra_a"


def test_all_tools_with_the_remote_name_come_first_and_a_phrase_is_no_name() -> None:
    assert set(found("CURRENT", 2)) == {"mcp_meteo_current", "mcp_town_current"}
    searched = index(merge(EVERYTHING))
    assert searched.search("current")[0].score > 100
    assert searched.search("current values")[0].score < 100
    assert searched.search("mcp_meteo_current")[0].score > 100 > searched.search("mcp_meteo_current")[1].score


def test_the_tools_of_a_fitting_server_are_found_without_a_common_word() -> None:
    assert {"mcp_meteo_forecast", "mcp_meteo_current"} <= set(found("earth weather"))
    hits = index(merge(EVERYTHING)).search("earth")
    assert all(hit.group is not None and hit.group.id == "mcp:meteo" for hit in hits)
    assert any("server description: Earth" in hit.why for hit in hits)


def test_only_parameters_up_to_the_limit_are_read_at_any_depth() -> None:
    names, texts = _parameters(
        {"properties": {
            "outer": {"properties": {"inner": {"description": "deep", "enum": ["x", 1, "y"]}}},
            "list": {"items": {"properties": {"item": {}}}}, "odd": 1,
        }}
    )  # fmt: skip
    assert names == ["outer", "list", "odd", "inner", "item"]
    assert texts == ["deep", "x", "y"]
    many = {"properties": {f"p{number}": {} for number in range(100)}}
    assert len(_parameters(many)[0]) == 80
    assert _parameters({"properties": {"a": {"enum": "xyz"}, "b": {"enum": list("abcdefghij")}}})[1] == list(
        "abcdefgh"
    )


def test_the_start_of_a_description_counts_more_than_its_end() -> None:
    filler = " ".join(f"word{letter}{other}" for letter in "abcdefgh" for other in "xyz")
    early, late = tool("one", f"zebra {filler}"), tool("two", f"{filler} zebra")
    assert found("zebra", 2, [server("s", late, early)]) == ["mcp_s_one", "mcp_s_two"]
