from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mooring.transport import wire
from mooring.transport.message import answer_id, decode, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_one_malformed_tool_is_set_aside_and_named_and_the_others_stay() -> None:
    raw: dict[str, Any] = {
        "tools": [
            {"name": "good", "inputSchema": {"type": "object"}},
            {"name": "bad", "inputSchema": "not a schema"},
            {"inputSchema": {}},
            42,
            {"name": "also_good"},
        ]
    }
    tools, warnings = wire.entries(raw, "tools", wire.tool, "s")
    assert [tool.name for tool in tools] == ["good", "also_good"]
    assert len(warnings) == 3
    assert "'bad'" in warnings[0]
    assert "inputSchema" in warnings[0]


def test_the_input_schema_is_passed_on_as_it_is() -> None:
    schema = {"type": "object", "x-odd": [1], "properties": {"a": {"$ref": "#/x"}}}
    (tool,), _ = wire.entries({"tools": [{"name": "t", "inputSchema": schema}]}, "tools", wire.tool, "s")
    assert tool.input_schema is schema


def test_fields_that_mooring_does_not_know_are_kept() -> None:
    raw = {"name": "t", "inputSchema": {}, "icons": [{"src": "data:"}], "x-new": 1}
    assert wire.tool("s", raw).extra == {"icons": [{"src": "data:"}], "x-new": 1}


def test_a_result_without_content_is_an_error_that_says_so() -> None:
    result = wire.result("s", "t", {}, 0.1)
    assert result.is_error
    assert "not valid" in result.text


def test_structured_content_alone_is_a_good_result() -> None:
    result = wire.result("s", "t", {"structuredContent": {"a": 1}}, 0.1)
    assert not result.is_error
    assert result.structured == {"a": 1}


def test_good_blocks_beside_a_bad_one_are_kept() -> None:
    raw = {"content": [{"type": "text", "text": "kept"}, {"type": "image"}, "junk"]}
    result = wire.result("s", "t", raw, 0.1)
    assert result.is_error
    assert result.text.startswith("kept\n")


@given(st.dictionaries(st.sampled_from(["content", "structuredContent", "isError", "_meta"]), json_values))
def test_any_result_of_a_server_can_be_read(raw: dict[str, Any]) -> None:
    result = wire.result("s", "t", raw, 0.0)
    assert isinstance(result.text, str)
    for block in result.blocks:
        _ = (block.type, block.text, block.data, block.mime_type, block.uri)


@given(json_values)
def test_any_list_of_a_server_can_be_read(value: Any) -> None:
    for key, make in [("tools", wire.tool), ("resources", wire.resource), ("prompts", wire.prompt)]:
        good, warnings = wire.entries({key: value}, key, make, "s")
        expected = len(value) if isinstance(value, list) else 1
        assert len(good) + len(warnings) == expected


@given(st.dictionaries(st.text(), json_values))
def test_what_is_encoded_is_one_line_and_decodes_to_itself(message: dict[str, Any]) -> None:
    line = encode(message)
    assert b"\n" not in line
    assert decode(line) == message


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert decode(b'{"a":"\xff\xfeb"}') == {"a": "\ufffd\ufffdb"}


def test_lone_surrogates_become_replacement_characters() -> None:
    value = decode(b'{"a":"\\ud800x"}')["a"]
    assert value.encode()
    assert value.endswith("x")


def test_a_string_id_answers_the_number_it_spells() -> None:
    assert answer_id("7") == 7
    assert answer_id("listen-1") == "listen-1"
    assert answer_id(True) is None
    assert answer_id(None) is None
