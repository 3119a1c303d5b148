"""TH03: names of servers that a person could take for one another are reported; both servers are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import HostConfig, ServerConfig
from mooring.config import load
from mooring.core.names import look_alikes, skeleton

PAIRS = [
    ("github", "gіthub"),  # a Cyrillic letter
    ("github", "ｇｉｔｈｕｂ"),
    ("paypal", "paypa1"),
    ("google", "g00gle"),
    ("modern", "modem"),
    ("café", "cafe"),
    ("oracle", "οracle"),  # a Greek letter
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_TH03_names_that_look_alike_are_a_warning_and_both_are_kept(one: str, other: str) -> None:
    config = HostConfig.of(ServerConfig(name=name, command="x") for name in (one, other))
    assert [server.name for server in config.servers] == [one, other]
    [warning] = config.warnings
    assert (warning.server, "looks like" in warning.message) == (other, True)


@pytest.mark.parametrize(("one", "other"), [("github", "GitHub"), ("my-server", "my_server"), ("a.b", "a b")])
def test_names_that_differ_in_case_or_punctuation_are_legitimate(one: str, other: str) -> None:
    config = HostConfig.of(ServerConfig(name=name, command="x") for name in (one, other))
    assert [server.name for server in config.servers] == [one, other]
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("one", "other"), [("a", "b"), ("s1", "s2"), ("git", "github"), ("日本", "中国"), ("!", "?")]
)
def test_names_that_differ_to_the_eye_are_fine(one: str, other: str) -> None:
    assert list(look_alikes([one, other])) == []


@given(st.text(max_size=20))
def test_a_name_looks_like_itself_in_any_case(name: str) -> None:
    assert skeleton(name) == skeleton(name)
    assert list(look_alikes([name, name])) == []


def test_TH03_in_a_file_both_are_kept_and_the_later_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"github": {"command": "a"}, "gіthub": {"command": "b"}}}))
    config = load([file], strict=True)
    assert [server.name for server in config.servers] == ["github", "gіthub"]
    assert "looks like 'github'" in str(config.warnings[0])
    assert config.warnings[0].file == str(file)
