"""Text in columns: the lines fit the terminal, whatever the cells contain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.cli.output import GAP, by_server, crop, table, width_of, wrap

words = st.text(st.characters(categories=["L", "N", "P"]), max_size=30)
texts = st.lists(words, max_size=8).map(" ".join)


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0)])
def test_wide_characters_take_two_columns_and_marks_take_none(text: str, width: int) -> None:
    assert width_of(text) == width


@given(texts, st.integers(1, 40))
def test_cropped_text_fits_and_keeps_what_it_can(text: str, width: int) -> None:
    cropped = crop(text, width)
    assert width_of(cropped) <= width
    assert cropped == text or text.startswith(cropped[:-1].rstrip())


@given(texts, st.integers(8, 80))
def test_wrapped_lines_fit_and_lose_nothing_but_blanks(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(width_of(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.lists(st.lists(words, min_size=4, max_size=4), min_size=1, max_size=6), st.integers(40, 100))
def test_a_table_fits_the_width_by_leaving_out_spare_columns(rows: list[list[str]], width: int) -> None:
    lines = [GAP.join(cells) for cells in table(rows, width=width, spare=[1, 2])]
    assert all(width_of(line) <= width for line in lines)


@given(st.lists(st.lists(words, min_size=3, max_size=3), min_size=1, max_size=6))
def test_a_table_without_a_width_cuts_nothing(rows: list[list[str]]) -> None:
    assert [[cell.strip() for cell in cells] for cells in table(rows, width=None)] == [
        [cell.strip() for cell in row] for row in rows
    ]


def test_a_description_that_was_cut_ends_with_an_ellipsis() -> None:
    text = "Read a file, or a part of it, and return its lines with their numbers, from the first"
    lines = by_server([("files", "mcp_files_read_the_lines", text)], 40, lambda text, _: text)
    assert len(lines) == 4
    assert lines[-1].endswith("…")
    assert all(width_of(line) <= 40 for line in lines)
    short = by_server([("files", "mcp_files_read_the_lines", "Read a file.")], 40, lambda text, _: text)
    assert short[-1] == "    Read a file."
