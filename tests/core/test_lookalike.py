"""TH03: no two servers of a host have names that a person could take for one another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import ConfigError, Host, HostConfig, ServerConfig
from mooring.config import load
from mooring.core.lookalike import look_alikes, skeleton

PAIRS = [
    ("github", "GitHub"),
    ("github", "gіthub"),  # a Cyrillic letter
    ("github", "ｇｉｔｈｕｂ"),
    ("paypal", "paypa1"),
    ("google", "g00gle"),
    ("modern", "modem"),
    ("my-server", "my_server"),
    ("café", "cafe"),
    ("oracle", "οracle"),  # a Greek letter
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_TH03_names_that_look_alike_are_refused_for_one_host(one: str, other: str) -> None:
    servers = [ServerConfig(name=name, command="x") for name in (one, other)]
    with pytest.raises(ConfigError, match="look alike"):
        HostConfig(servers=servers)


@pytest.mark.parametrize(
    ("one", "other"), [("a", "b"), ("s1", "s2"), ("git", "github"), ("日本", "中国"), ("!", "?")]
)
def test_names_that_differ_to_the_eye_are_fine(one: str, other: str) -> None:
    assert list(look_alikes([one, other])) == []


@given(st.text(max_size=20))
def test_a_name_looks_like_itself_in_any_case(name: str) -> None:
    assert skeleton(name) == skeleton(name)
    assert list(look_alikes([name, name])) == []


def test_TH03_in_a_file_the_later_one_is_set_aside_and_named(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"github": {"command": "a"}, "gіthub": {"command": "b"}}}))
    config = load([file])
    assert [server.name for server in config.servers] == ["github"]
    assert "looks like 'github'" in str(config.warnings[0])
    with pytest.raises(ConfigError, match="looks like 'github'"):
        load([file], strict=True)


@pytest.mark.anyio
async def test_TH03_nor_is_one_added_to_a_running_host() -> None:
    async with Host([ServerConfig(name="github", command="x", disabled=True)]) as host:
        with pytest.raises(ConfigError, match="looks like 'github'"):
            await host.add(ServerConfig(name="GitHub", command="x"))
