"""Local names: distinct, valid, at most 64 characters, and independent of the other connected servers."""

from __future__ import annotations

import keyword
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.names import RESERVED, STYLES, Style, assign, may_belong, parse_tool_name, prefix

ALPHABET: dict[Style, str] = {
    "mcp": r"[a-z][a-z0-9_]{0,63}",
    "double": r"mcp__[a-zA-Z0-9_-]{1,59}",
    "server": r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}",
    "raw": r"[a-zA-Z0-9_-]{1,64}",
}
PREFIXED: tuple[Style, ...] = ("mcp", "double", "server")

awkward = st.sampled_from(
    [
        "",
        "_",
        "-",
        "a",
        "A",
        "b",
        "a_b",
        "a-b",
        "a.b",
        "b_c",
        "c",
        "İ",
        "读取",
        "写入",
        "🦊",
        "\ud800",
        "\x00",
        "class",
    ]
)
segments = st.one_of(awkward, st.text(max_size=90), st.text(alphabet="ab_-.", max_size=6))
pairs = st.lists(st.tuples(segments, segments), max_size=12)
styles = st.sampled_from(STYLES)
prefixed = st.sampled_from(PREFIXED)


@pytest.mark.parametrize(
    ("style", "name"),
    [
        ("mcp", "mcp_my_server_get_item"),
        ("double", "mcp__My-Server__Get_Item"),
        ("server", "My-Server_Get_Item"),
        ("raw", "Get_Item"),
    ],
)
def test_each_style_spells_server_and_tool_in_its_own_way(style: Style, name: str) -> None:
    pair = ("My-Server", "Get.Item")
    assert assign([pair], style) == {pair: name}


@given(pairs, styles)
def test_every_name_is_valid_for_its_style(given_pairs: list[tuple[str, str]], style: Style) -> None:
    for name in assign(given_pairs, style).values():
        assert re.fullmatch(ALPHABET[style], name)
        assert len(name) <= 64
        assert not keyword.iskeyword(name)
        assert name not in RESERVED


@given(pairs, prefixed)
def test_every_pair_has_a_name_of_its_own(given_pairs: list[tuple[str, str]], style: Style) -> None:
    names = assign(given_pairs, style)
    assert names.keys() == set(given_pairs)
    assert len(set(names.values())) == len(names)


@given(pairs, prefixed, st.randoms())
def test_names_do_not_depend_on_the_order_of_the_pairs(given_pairs, style: Style, random) -> None:
    shuffled = list(given_pairs)
    random.shuffle(shuffled)
    assert assign(shuffled, style) == assign(given_pairs, style)


@given(pairs, pairs, prefixed)
def test_a_name_stays_the_same_when_others_come_unless_one_of_them_could_own_it(
    mine, others, style: Style
) -> None:
    before, after = assign(mine, style), assign(mine + others, style)
    claimed = {name for pair in others for name in assign([pair], style).values()}
    theirs = tuple(prefix(server, style)[:24] for server, _ in others)
    for pair, name in before.items():
        assert after[pair] == name or name in claimed or name.startswith(theirs)


@given(pairs, prefixed)
def test_a_name_alone_is_kept_or_marked_by_a_suffix(given_pairs, style: Style) -> None:
    for pair, name in assign(given_pairs, style).items():
        alone = assign([pair], style)[pair]
        assert name == alone or re.search(r"(^|_)([0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{32})$", name)


@pytest.mark.parametrize("style", PREFIXED)
def test_a_thousand_foreign_names_are_neither_lost_nor_confused(style: Style) -> None:
    tools = [chr(0x4E00 + i % 100) * (1 + i // 100) for i in range(1000)]
    assert len(set(assign([("s", tool) for tool in tools], style).values())) == 1000


def test_a_clash_across_servers_marks_both_and_neither_depends_on_the_other() -> None:
    one, two, other = ("a", "b_c"), ("a_b", "c"), ("a.b", "c")
    names = assign([one, two], "mcp")
    assert all(re.fullmatch(r"mcp_a_b_c_[0-9a-f]{8}", name) for name in names.values())
    assert assign([one, other], "mcp")[one] == names[one]


nested = st.sampled_from(
    ["a", "A", "a_b", "a-b", "a.b", "a_b_c", "a__b", "a_", "_a", "_", "b", "a" * 30, "a" * 30 + "_b"]
)
confusing = st.one_of(
    st.sampled_from(["b_c", "c", "b-c", "_b", "__b", "b__c", "_c", "b", "a_b_c", "authenticate", "x" * 60]),
    st.text(alphabet="abc_-.", max_size=8),
)


@given(st.sets(nested, min_size=2), st.data(), prefixed)
def test_a_name_never_passes_to_another_server_whichever_of_the_configured_ones_are_connected(
    configured: set[str], data, style: Style
) -> None:
    everyone = frozenset(configured)
    pairs = st.lists(st.tuples(st.sampled_from(sorted(configured)), confusing), max_size=8)
    seen: dict[str, str] = {}
    for _ in range(3):
        offered = data.draw(pairs)
        # A hostile server also offers names that it saw on others.
        for name in list(seen)[:4]:
            server = data.draw(st.sampled_from(sorted(configured)))
            offered.append((server, name.removeprefix(prefix(server, style))))
        for (server, _), name in assign(offered, style, everyone).items():
            assert seen.setdefault(name, server) == server


@pytest.mark.parametrize(
    ("style", "hostile", "tool", "down"),
    [
        ("mcp", "a", "b_c", "a_b"),
        ("mcp", "a", "b.c", "A-B"),
        ("server", "a", "b_c", "a_b"),
        ("double", "a", "b__c", "a__b"),
        ("double", "a", "_c", "a_"),
        ("mcp", "a-b", "c", "a_b"),
        ("mcp", "github", "search", "GitHub"),
    ],
)
def test_a_name_that_a_server_which_is_down_could_own_is_not_handed_out(
    style: Style, hostile: str, tool: str, down: str
) -> None:
    alone = assign([(hostile, tool)], style)
    [name] = assign([(hostile, tool)], style, frozenset({hostile, down})).values()
    assert re.fullmatch(r".+_[0-9a-f]{8}", name)
    assert name.startswith(*alone.values())


def test_names_of_servers_that_cannot_be_confused_are_plain_in_every_configuration() -> None:
    everyone = frozenset({"git", "github", "git_hub", "files", "time"})
    pairs = [("git", "status"), ("git_hub", "search"), ("github", "search"), ("time", "report_20240101")]
    assert assign(pairs, "mcp", everyone) == assign(pairs, "mcp")
    assert list(assign(pairs, "mcp").values())[1] == "mcp_git_hub_search"


def test_a_plain_name_that_spells_anothers_hashed_name_gives_way() -> None:
    victim, rival = ("s", "a.b"), ("s", "a_b")
    hashed = assign([victim, rival], "mcp")[victim]
    squatter = ("s", hashed.removeprefix("mcp_s_"))
    names = assign([victim, rival, squatter], "mcp")
    assert names[victim] == hashed
    assert names[squatter] != hashed


def test_a_long_name_keeps_head_and_tail_so_that_siblings_stay_readable() -> None:
    pairs = [("warehouse", "x" * 80 + end) for end in ("_create_order", "_delete_order")]
    for (_, tool), name in assign(pairs, "mcp").items():
        assert len(name) == 64
        assert name.startswith("mcp_warehouse_xxx")
        assert tool[-13:] in name


def test_a_tool_name_of_a_megabyte_still_has_a_name() -> None:
    one, two = ("s", "x" * 1_000_000), ("s", "x" * 1_000_001)
    names = assign([one, two], "double")
    assert names[one] != names[two]
    assert all(len(name) <= 64 for name in names.values())


def test_raw_names_go_to_the_last_pair_and_the_losers_have_none() -> None:
    assert assign([("a", "go"), ("b", "go")], "raw") == {("b", "go"): "go"}
    assert assign([("b", "go"), ("a", "go")], "raw") == {("a", "go"): "go"}


def test_raw_names_that_meet_inside_one_server_are_both_kept() -> None:
    names = assign([("a", "x.y"), ("a", "x_y")], "raw")
    assert len(names) == len(set(names.values())) == 2


@pytest.mark.parametrize("name", ["class", "None", "tools_search", "read_mcp_resource"])
def test_raw_names_avoid_keywords_and_the_names_of_our_own_tools(name: str) -> None:
    [local] = assign([("s", name)], "raw").values()
    assert re.fullmatch(rf"{name}_[0-9a-f]{{8}}", local)


def test_server_names_avoid_the_names_of_our_own_tools() -> None:
    [local] = assign([("tools", "search")], "server").values()
    assert re.fullmatch(r"tools_search_[0-9a-f]{8}", local)


@given(pairs, styles)
def test_a_name_may_belong_to_its_own_server(given_pairs: list[tuple[str, str]], style: Style) -> None:
    for (server, _), name in assign(given_pairs, style).items():
        assert may_belong(name, server, style)


def test_a_name_with_another_prefix_does_not_belong() -> None:
    assert not may_belong("mcp_files_read", "mail", "mcp")
    assert may_belong("read", "mail", "raw")


plain = st.from_regex(r"[a-z0-9]{1,10}(_[a-z0-9]{1,10})?", fullmatch=True)


@given(plain, plain)
def test_parse_tool_name_undoes_assign(server: str, tool: str) -> None:
    pair = (server, tool)
    name = assign([pair], "double")[pair]
    if name not in RESERVED and not re.search(r"_[0-9a-f]{8}$", name):
        assert parse_tool_name(name) == pair


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mcp__github__create_issue", ("github", "create_issue")),
        ("mcp__a__b__c", ("a", "b__c")),
        ("mcp__github", None),
        ("mcp__github__", None),
        ("mcp_github_create_issue", None),
        ("create_issue", None),
    ],
)
def test_double_names_split_at_the_first_double_underscore(name: str, found: tuple[str, str] | None) -> None:
    assert parse_tool_name(name) == found


# --- for applications


def test_a_tool_name_is_built_and_parsed() -> None:
    import mooring

    assert mooring.build_tool_name("github", "create_issue") == "mcp__github__create_issue"
    assert mooring.build_tool_name("GitHub", "Create-Issue") == "mcp__GitHub__Create-Issue"
    assert mooring.build_tool_name("my server", "a.b") == "mcp__my_server__a_b"
    assert mooring.build_tool_name("github", "create_issue", "mcp") == "mcp_github_create_issue"
    assert mooring.build_tool_name("github", "create_issue", style="server") == "github_create_issue"
    assert mooring.build_tool_name("github", "create_issue", style="raw") == "create_issue"
    assert mooring.build_tool_name("web", "authenticate") == "mcp__web__authenticate"
    assert mooring.parse_tool_name("mcp__github__create_issue") == ("github", "create_issue")
    for other in ("create_issue", "mcp_github_create_issue", "mcp__github", "mcp____x", ""):
        assert mooring.parse_tool_name(other) is None
    assert mooring.tool_name_prefix("my server") == "mcp__my_server__"
    assert mooring.tool_name_prefix("github", "mcp") == "mcp_github_"


plain_names = st.from_regex(r"[a-zA-Z0-9](_?[a-zA-Z0-9-]){0,12}", fullmatch=True)


@given(plain_names, plain_names.filter(lambda tool: tool.lower() != "authenticate"))
def test_parsing_is_the_inverse_of_building(server: str, tool: str) -> None:
    import mooring

    name = mooring.build_tool_name(server, tool)
    assert mooring.parse_tool_name(name) == (server, tool)
    assert name.startswith(mooring.tool_name_prefix(server))


@given(st.text(), st.text(), st.sampled_from(STYLES))
def test_a_built_name_is_the_name_in_the_catalog(server: str, tool: str, style: Style) -> None:
    import mooring

    name = mooring.build_tool_name(server, tool, style)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    if tool != "authenticate":
        assert assign([(server, tool)], style) == {(server, tool): name}


@given(st.text(max_size=200))
def test_a_normalized_name_is_one_that_providers_accept(name: str) -> None:
    import mooring

    normal = mooring.normalize_name(name)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", normal)
    assert mooring.normalize_name(normal) == normal


@pytest.mark.parametrize(("server", "start"), [("files", "files_"), ("_files", "_files_"), ("1st", "_1st_")])
def test_a_plain_prefix_begins_with_a_letter_or_an_underscore(server: str, start: str) -> None:
    assert prefix(server, "plain") == start


@pytest.mark.parametrize(
    "tool", ["authenticate", "Authenticate", "_authenticate", "AUTHENTICATE: ", "authent\u0456cate"]
)
def test_a_tool_that_looks_like_the_login_does_not_get_its_plain_name(tool: str) -> None:
    assert assign([("files", tool)], "mcp")["files", tool] != "mcp_files_authenticate"
