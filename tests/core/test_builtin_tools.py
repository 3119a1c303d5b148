"""Tools of mooring itself: the login, prompts as tools, and reading parts of a stored result."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.builtin_tools import (
    MOST_ARGUMENTS,
    ReadRequest,
    Unreadable,
    chosen,
    cut,
    fitting,
    found,
    is_login,
    login_tool,
    prompt_result,
    prompt_tools,
    request,
)
from mooring.core.types import Block, Message, Prompt

PROMPT = Prompt(
    name="review",
    server="s",
    description="Reviews.",
    arguments=(
        {"name": "path", "required": True, "description": "Where"},
        {"name": "depth", "required": "yes", "description": ""},
        {"name": "tone", "required": False, "description": 7},
    ),
)


def test_the_login_tool_says_whether_a_browser_helps() -> None:
    assert login_tool("s").description.startswith("Log in to 's', which requires a login")
    assert login_tool("s", possible=False).description.startswith("Explain why 's' refuses access")
    assert login_tool("s").input_schema["additionalProperties"] is False
    assert is_login(login_tool("s"))
    assert not is_login(prompt_tools([PROMPT])["get_prompt_review"])


def test_a_prompt_becomes_a_read_only_tool_with_its_arguments_as_texts() -> None:
    tool = prompt_tools([PROMPT, Prompt(name="review", server="s", description="Another")])[
        "get_prompt_review"
    ]
    assert tool.description == "Get the prompt 'review'. Reviews."
    assert tool.annotations == {"readOnlyHint": True}
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where"},
            "depth": {"type": "string"},
            "tone": {"type": "string"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert "required" not in prompt_tools([Prompt(name="p", server="s")])["get_prompt_p"].input_schema


def test_arguments_of_a_prompt_become_texts() -> None:
    assert fitting(PROMPT, {"path": "a", "depth": 2, "tone": True}) == {
        "path": "a", "depth": "2", "tone": "true",
    }  # fmt: skip
    assert fitting(PROMPT, {"path": "a"}) == {"path": "a"}


@pytest.mark.parametrize(
    ("prompt", "arguments", "problem"),
    [
        (PROMPT, {}, "it needs 'path'"),
        (PROMPT, {"path": "a", "x": 1}, "it has no argument 'x'; it takes 'path', 'depth', 'tone'"),
        (Prompt(name="p", server="s"), {"x": 1}, "it has no argument 'x'; it takes none"),
        (PROMPT, {"path": ["a"]}, "its argument 'path' must be text, not list"),
    ],
)
def test_arguments_that_a_prompt_does_not_take_are_refused(
    prompt: Prompt, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match="^" + problem.replace("(", r"\(") + "$"):
        fitting(prompt, arguments)


def test_arguments_beyond_the_limit_do_not_exist() -> None:
    names = [f"a{number}" for number in range(MOST_ARGUMENTS + 1)]
    prompt = Prompt(name="p", server="s", arguments=tuple({"name": name} for name in names))
    assert len(prompt_tools([prompt])["get_prompt_p"].input_schema["properties"]) == MOST_ARGUMENTS
    assert fitting(prompt, {names[MOST_ARGUMENTS - 1]: "x"})
    with pytest.raises(ValueError, match="no argument"):
        fitting(prompt, {names[MOST_ARGUMENTS]: "x"})


def test_texts_of_a_prompt_are_marked_and_other_blocks_stay() -> None:
    image = Block({"type": "image", "data": "AA==", "mimeType": "image/png"})
    messages = [
        Message(role="user", block=Block({"type": "text", "text": "Hello"})),
        Message(role="assistant", block=image),
    ]
    blocks = prompt_result(PROMPT, messages, 0.0).blocks
    assert blocks[0].text == '<untrusted from="s" role="user">\nHello\n</untrusted>'
    assert blocks[1] is image


# --- result_read


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "needs the 'handle'"),
        ({"handle": None}, "needs the 'handle'"),
        ({"handle": 1}, "'handle' of result_read must be text"),
        ({"handle": "h", "offset": -1}, "'offset' of result_read must be a whole number from 0 on"),
        ({"handle": "h", "offset": True}, "'offset'"),
        ({"handle": "h", "limit": 0}, "'limit' of result_read must be a whole number from 1 on"),
        ({"handle": "h", "ignore_case": 1}, "true or false"),
        ({"handle": "h", "more": 1}, "takes no 'more'; it takes handle, offset"),
        ({"handle": "h", "grep": ""}, "1 to 500 characters"),
        ({"handle": "h", "grep": "x" * 501}, "1 to 500 characters"),
        ({"handle": "h", "grep": "x", "json_path": "a"}, "not both"),
    ],
)
def test_a_request_that_is_invalid_says_what_is_possible(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(Unreadable, match=problem):
        request(arguments)


def test_a_request_at_the_limits_is_valid() -> None:
    assert request({"handle": "h", "offset": 0, "limit": 1}) == ReadRequest(handle="h", offset=0, limit=1)
    assert request({"handle": "h", "grep": "x" * 500, "json_path": None}).grep == "x" * 500
    assert request({"handle": "h"}).ignore_case is False


def test_a_piece_ends_at_a_line_if_the_text_goes_on() -> None:
    text = "aaaa\nbbbb\ncc"
    assert cut(text, 0, 100, None, 0).text == "aaaa\nbbbb\n"
    assert cut(text, 0, 100, None, 0).next_offset == 10
    assert cut(text, 0, len(text), None, 0).text == text
    assert cut(text, 0, len(text), None, 0).next_offset is None
    assert cut(text, 88, 100, None, 0).next_offset is None
    assert cut("\n" + "a" * 9, 0, 100, None, 0).text == "\n" + "a" * 9
    assert cut(text, 5, 100, 3, 0) == cut(text[:3], 5, 100, 3, 0)
    assert (cut(text, 5, 100, 3, 0).text, cut(text, 5, 100, 3, 0).next_offset) == ("aaa", 8)


def test_a_piece_is_never_empty_however_small_the_budget_is() -> None:
    assert len(cut("word " * 50, 0, 250, None, 1).text) >= 1
    small = cut("word " * 5000, 0, 25_000, None, 100)
    assert 0 < len(small.text) < 2_000
    assert small.next_offset == len(small.text)


def test_lines_are_found_with_their_offsets() -> None:
    text = "one two\nTWO three\nfour"
    assert found(text, ReadRequest(handle="h", grep="two"), 0).text == "0: one two"
    assert found(text, ReadRequest(handle="h", grep="TWO", ignore_case=True), 0).text == (
        "0: one two\n8: TWO three"
    )
    later = found(text, ReadRequest(handle="h", grep="two", ignore_case=True, offset=8), 0)
    assert later.text == "8: TWO three"
    assert found(text, ReadRequest(handle="h", grep="none"), 0).text == ""


def test_a_search_that_is_not_finished_says_where_to_go_on() -> None:
    text = "a x\nb x\nc x"
    part = found(text, ReadRequest(handle="h", grep="x", limit=2), 0)
    assert (part.text, part.next_offset) == ("0: a x\n4: b x", 8)
    part = found(text, ReadRequest(handle="h", grep="x", limit=3), 0)
    assert part.next_offset is None
    part = found("line x\n" * 100, ReadRequest(handle="h", grep="x"), 50)
    assert part.next_offset == 7 * len(part.text.split("\n"))
    assert found("x " * 500, ReadRequest(handle="h", grep="x"), 1).text != ""


def test_a_long_line_is_cut_around_the_match() -> None:
    text = "-" * 500 + "x" + "-" * 500
    part = found(text, ReadRequest(handle="h", grep="x"), 0)
    assert part.text == "300: " + "-" * 200 + "x" + "-" * 200


def test_offsets_stay_right_where_lower_case_is_longer() -> None:
    assert found("\u0130\nABC", ReadRequest(handle="h", grep="abc", ignore_case=True), 0).text == "2: ABC"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("", '{"items": [{"name": "a b", "first name": 1}, [1, 2]], "n": null}'),
        ("items[0].name", "a b"),
        ("$.items[0]['first name']", "1"),
        ('items[0]["first name"]', "1"),
        ("items[-1][1]", "2"),
        ("items[-2].name", "a b"),
        ("n", "null"),
    ],
)
def test_a_path_leads_to_a_part_of_a_json_text(path: str, value: str) -> None:
    text = '{"items": [{"name": "a b", "first name": 1}, [1, 2]], "n": null}'
    got = chosen(text, path)
    assert got.replace(" ", "") == value.replace(" ", "")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("items[2]", r"there is no \[2\] at \$\['items'\]: it has 2 items"),
        ("items[-3]", "it has 2 items"),
        ("itemz", "there is no 'itemz' at \\$; there is items"),
        ("items.name", r"\$\['items'\] is a list: 'name' does not exist there"),
        ("items[0][0]", r"\$\['items'\]\[0\] is a single value: 0 does not exist there"),
        ("[0]", r"\$ is an object: 0 does not exist"),
        ("none.x", "there is no 'x' at .*; there is nothing"),
        ("items[", "chain of names and numbers"),
        (".".join(["a"] * 65), "chain of names and numbers"),
        ("a" * 501, "chain of names and numbers"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_there_is(path: str, problem: str) -> None:
    with pytest.raises(Unreadable, match=problem):
        chosen('{"items": [1, 2], "none": {}}', path)


def test_the_longest_path_is_followed() -> None:
    deep = "".join('{"a":' for _ in range(64)) + "1" + "}" * 64
    assert chosen(deep, ".".join(["a"] * 64)) == "1"
    assert chosen('{"' + "a" * 500 + '": 1}', "a" * 500) == "1"
    with pytest.raises(Unreadable, match="not JSON"):
        chosen("text", "a")
