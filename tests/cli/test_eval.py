"""Recall of a search on questions whose answers are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.cli.eval import LabelError, Question, catalog_of, ids_of, questions_of, recall

TOOLS = [
    {"id": "one", "server": "files", "name": "read", "description": "Read a file"},
    {"server": "mail", "name": "send", "server_description": "Letters"},
]


def test_a_file_that_brings_tools_makes_a_catalog_of_them() -> None:
    catalog = catalog_of({"tools": TOOLS})
    assert catalog is not None
    assert ids_of(catalog) == {
        "mcp_files_read": ("files/read", "mcp_files_read", "one"),
        "mcp_mail_send": ("mail/send", "mcp_mail_send", "mcp_mail_send"),
    }
    assert [group.description for group in catalog.groups][1] == "Letters"


@pytest.mark.parametrize("document", [[], {}, {"queries": []}, 7, None])
def test_a_file_without_tools_makes_none(document: object) -> None:
    assert catalog_of(document) is None


def test_tools_are_each_needed_and_any_of_a_list_of_gold_will_do() -> None:
    assert questions_of([{"text": "x", "tools": ["a", "b"]}]) == {
        "queries": [Question(text="x", gold=(("a",), ("b",)))]
    }
    assert questions_of({"tasks": [{"text": "x", "gold": [["a", "b"]]}]}) == {
        "tasks": [Question(text="x", gold=(("a", "b"),))]
    }


def test_recall_is_the_share_of_needed_tools_among_the_first_so_many() -> None:
    question = Question(text="x", gold=(("s/a", "s/z"), ("b",)))
    ids = {"a": ("s/a", "a"), "b": ("s/b", "b"), "c": ("s/c", "c")}
    [(asked, shares, names)] = recall([question], lambda text, limit: ["c", "a", "b"][:limit], ids, [1, 2, 3])
    assert asked is question
    assert shares == {1: 0.0, 2: 0.5, 3: 1.0}
    assert names == ["c", "a", "b"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["queries", "tasks", "tools", "text", "gold", "name", "server"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(json_values)
def test_whatever_a_file_holds_is_read_or_refused_in_words(document: object) -> None:
    for read in (questions_of, catalog_of):
        try:
            read(document)
        except LabelError as problem:
            assert str(problem)
