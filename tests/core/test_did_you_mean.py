"""The nearest names: similar first, deterministic, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.core.text import did_you_mean, nearest

NAMES = ["mcp_files_read_file", "mcp_files_write_file", "mcp_mail_send", "mcp_mail_search"]


def test_a_slip_finds_the_name_that_was_meant() -> None:
    assert nearest("mcp_files_raed_file", NAMES)[0] == "mcp_files_read_file"
    assert nearest("MCP__Mail__Send", NAMES)[0] == "mcp_mail_send"


def test_the_bare_name_of_a_tool_finds_it_behind_its_prefix() -> None:
    assert nearest("send", NAMES) == ("mcp_mail_send",)


def test_nothing_alike_gives_nothing() -> None:
    assert nearest("zzz", NAMES) == ()
    assert nearest("", NAMES) == ()


@given(st.text(), st.lists(st.text(), unique=True), st.randoms())
def test_the_answer_does_not_depend_on_the_order_of_the_names(name: str, names: list[str], random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    found = nearest(name, names)
    assert len(found) <= 3
    assert set(found) <= set(names)
    assert nearest(name, shuffled) == found


def test_a_name_of_a_megabyte_is_looked_at_in_part() -> None:
    assert nearest("mcp_mail_send" + "x" * 1_000_000, [*NAMES, "y" * 1_000_000]) == ()


def test_two_letters_are_not_the_end_of_a_name() -> None:
    assert nearest("end", NAMES) == ("mcp_mail_send",)
    assert nearest("nd", NAMES) == ()


def test_names_that_share_most_letters_are_compared_however_many_others_there_are() -> None:
    others = [f"zz_{number:03}" for number in range(100)]
    assert nearest("raed_file", [*others, "read_file"]) == ("read_file",)


def test_a_name_that_was_not_written_to_its_end_is_found() -> None:
    assert nearest("out", ["timeout", "output"], 1) == ("output",)
    assert nearest("mcp_mail", NAMES) == ("mcp_mail_search", "mcp_mail_send")


def test_swapped_letters_of_a_short_word_are_a_misspelling() -> None:
    assert did_you_mean("aks", ["ask", "allow", "deny"]) == "ask"
    assert did_you_mean("xyz", ["ask", "allow", "deny"]) is None
