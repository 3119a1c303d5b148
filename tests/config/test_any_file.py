"""Loading any file returns a configuration or raises a `ConfigError`, whose message contains no value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config import load
from mooring.config.formats import _ALIASES, _SPECIAL
from mooring.config.models import HostConfig, ServerConfig
from mooring.errors import ConfigError

SECRET = "hunter2-secret"
scalars = st.sampled_from(
    [None, True, 0, -1, 1.5, 700, 10**400, "", SECRET, f"${{{SECRET}", "x", "http", "30s", "https://x"]
)
values = (
    scalars
    | st.lists(scalars, max_size=3)
    | st.dictionaries(st.sampled_from(["A", "type", "ttl", "mode"]), scalars)
)
fields = st.sampled_from(sorted({*ServerConfig.field_names(), *_ALIASES, *_SPECIAL, "comand", "x_ms", ""}))
servers = st.dictionaries(
    st.sampled_from(["a", "b/", ""]), st.dictionaries(fields, values, max_size=4) | values
)
# Names of servers are shown, so none of them is a secret here.
names_of_settings = {*HostConfig.field_names(), "sampling", "call_timeout_ms", "stlye"} - {"enabled_servers"}
settings = st.sampled_from(sorted(names_of_settings))
shapes = st.sampled_from(["mcpServers", "servers", "mcp_servers", "context_servers"])
sections = st.dictionaries(st.just("servers"), servers | st.lists(servers | values) | values) | values
files = st.builds(
    lambda *parts: {key: value for part in parts for key, value in part.items()},
    st.dictionaries(settings, values, max_size=3),
    st.dictionaries(shapes, servers | values, max_size=2),
    st.dictionaries(st.sampled_from(["mcp", "config"]), sections, max_size=2),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@given(data=files, name=st.sampled_from(["mooring.json", "mcp.json", "mooring.yaml"]), strict=st.booleans())
def test_any_data_loads_or_is_refused_in_words(folder: Path, data: Any, name: str, strict: bool) -> None:
    path = folder / name
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        host = load([path], env={}, strict=strict)
    except ConfigError as error:
        said = str(error)
    else:
        said = " ".join(map(str, host.warnings))
        assert all(server.scope == "explicit" for server in host.servers)
    assert "hunter2" not in said


@given(
    text=st.text(alphabet=st.sampled_from("abc:-[]{}&*!|>'\"#%@`,?\n\t $=.0<")),
    kind=st.sampled_from(["json", "yaml", "toml"]),
)
def test_any_text_loads_or_is_refused_in_words(folder: Path, text: str, kind: str) -> None:
    path = folder / f"text.{kind}"
    path.write_text(text, encoding="utf-8")
    try:
        load([path], env={})
    except ConfigError as error:
        said = str(error)
        assert said.startswith(str(path))
