"""Handwritten bad configurations: each gives one readable message with the place and the next step, and no
secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mooring.config import load
from mooring.config.trust import Approval
from mooring.errors import ConfigError

S = "hunter2-secret"


def entry(fields: str) -> str:
    return f'{{"mcpServers": {{"db": {{{fields}}}}}}}'


CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # what is wrong: (file name, content, what the message says)
    "args is a mapping": (
        "mcp.json",
        entry(f'"command": "x", "args": {{"token": "{S}"}}'),
        ("server 'db', field 'args'", "must be a list", "not a mapping"),
    ),
    "args is a shell string": (
        "mcp.json",
        entry(f'"command": "x", "args": "--token {S}"'),
        ("server 'db', field 'args'", "must be a list", "never a shell string"),
    ),
    "command is a shell string": (
        "mcp.json",
        entry(f'"command": "npx -y server --token {S}"'),
        ("server 'db'", "'command' looks like a shell line", "each argument as one item of 'args'"),
    ),
    "unknown transport": (
        "mcp.json",
        entry(f'"transport": "carrier-pigeon", "url": "https://x/mcp?key={S}"'),
        ("server 'db', field 'transport'", "must be one of 'stdio', 'http', 'streamable-http' or 'sse'"),
    ),
    "both url and command": (
        "mcp.json",
        entry(f'"command": "x", "url": "https://x/mcp?key={S}"'),
        ("server 'db'", "has both 'command' and 'url'", "keep the one"),
    ),
    "neither url nor command": (
        "mcp.json",
        entry(f'"env": {{"TOKEN": "{S}"}}'),
        ("server 'db'", "has neither 'command'", "nor 'url'"),
    ),
    "a server name twice in JSON": (
        "mcp.json",
        f'{{"mcpServers": {{\n"db": {{"command": "x", "env": {{"T": "{S}"}}}},\n"db": {{"command": "y"}}}}}}',
        ("server 'db'", "is defined twice, on line 2 and on line 3; the first is used"),
    ),
    "a server name twice in YAML": (
        "mooring.yaml",
        f"servers:\n  db:\n    command: x\n    env: {{T: {S}}}\n  db:\n    command: y\n",
        ("server 'db'", "is defined twice, on line 2 and on line 5; the first is used"),
    ),
    "a server name twice in TOML": (
        "mooring.toml",
        f'[servers.db]\ncommand = "x"\nenv = {{ T = "{S}" }}\n\n[servers.db]\ncommand = "y"\n',
        ("server 'db'", "is defined twice, on line 1 and on line 5; the first is used"),
    ),
    "a key twice in a TOML table": (
        "mooring.toml",
        f'[servers.a]\ncommand = "x"\n[servers.db]\ncommand = "{S}"\ncommand = "y"\nargs = []\n',
        ("server 'db', field 'command'", "is defined twice, on line 4 and on line 5; keep one"),
    ),
    "a host-wide setting twice": (
        "mooring.yaml",
        f"policy: {{deny: ['*']}}\nservers: {{db: {{command: {S}}}}}\npolicy: {{}}\n",
        ("line 3", "'policy' is defined twice, on line 1 and on line 3", "keep one"),
    ),
    "a host-wide setting twice in TOML": (
        "mooring.toml",
        f'[gateway]\nkey = "a"\n[servers.db]\ncommand = "{S}"\n[gateway]\nkey = "b"\n',
        ("line 5", "'gateway' is defined twice, on line 1 and on line 5", "keep one"),
    ),
    "tabs in YAML": (
        "mooring.yaml",
        f"servers:\n\tdb:\n\t\tcommand: {S}\n",
        ("line 2, column 1", "is not valid YAML", "indent with spaces, never with tabs"),
    ),
    "a missing brace in JSON": (
        "mcp.json",
        f'{{"mcpServers": {{\n  "db": {{"command": "x", "env": {{"T": "{S}"}}}}\n',
        ("line 3, column 1", 'ends inside the "{" of line 1', 'add the missing "}"'),
    ),
    "garbage after JSON": (
        "mcp.json",
        entry('"command": "x"') + f"\n{S}",
        ("line 2, column 1", "more after the end of the document; remove it"),
    ),
    "an unquoted reference in a YAML list": (
        "mooring.yaml",
        f"servers:\n  db:\n    env: {{T: {S}}}\n    command: x\n    args: [${{A}}]\n",
        ("line 5", 'in double quotes, as in ["${NAME}"]'),
    ),
    "broken TOML": (
        "mooring.toml",
        f"[servers.db]\ncommand = {S}\n",
        ("line 2", "is not valid TOML", "put texts in quotes"),
    ),
    "a token before the host": (
        "mcp.json",
        entry(f'"url": "https://{S}@example.com/mcp"'),
        ("server 'db', field 'url'", 'headers: {Authorization: "Bearer ${VAR}"}'),
    ),
    "a value where a header name belongs": (
        "mcp.json",
        entry(f'"url": "https://x/mcp", "headers": {{"Bearer {S}": "Authorization"}}'),
        ("server 'db', field 'headers'", "an invalid header name", "such as 'Authorization'"),
    ),
    "a header with a line break": (
        "mcp.json",
        entry(f'"url": "https://x/mcp", "headers": {{"X-Key": "{S}\\r\\nX-Other: 1"}}'),
        ("server 'db', field 'headers'", "'X-Key'", "only visible ASCII, on one line"),
    ),
    "a header of the protocol": (
        "mcp.json",
        entry(f'"url": "https://x/mcp", "headers": {{"Mcp-Session-Id": "{S}"}}'),
        ("server 'db', field 'headers'", "'Mcp-Session-Id', which belongs to the protocol; remove it"),
    ),
    "a duration that is none": (
        "mooring.yaml",
        f"servers: {{db: {{command: x, call_timeout: soon, env: {{T: {S}}}}}}}",
        ("server 'db', field 'call_timeout'", "is not a duration", "'30s'"),
    ),
    "a timeout between seconds and milliseconds": (
        "mcp.json",
        entry(f'"command": "x", "timeout": 700, "env": {{"T": "{S}"}}'),
        ("server 'db', field 'timeout'", "is ambiguous", "'connect_timeout' or 'call_timeout' with a unit"),
    ),
    "a negative timeout": (
        "mcp.json",
        entry(f'"command": "x", "connect_timeout_ms": -5, "env": {{"T": "{S}"}}'),
        ("server 'db', field 'connect_timeout_ms'", "not negative"),
    ),
    "a connect timeout that is too long": (
        "mcp.json",
        entry('"command": "x", "startup_timeout_sec": 601'),
        ("server 'db', field 'startup_timeout_sec'", "must be at most 600"),
    ),
    "a misspelt field": (
        "mcp.json",
        entry(f'"comand": "x", "env": {{"T": "{S}"}}'),
        ("server 'db', field 'comand'", "is not a known field; did you mean 'command'?"),
    ),
    "an empty file": ("mooring.yaml", " \n", ("the file is empty", "'servers: {}'")),
    "a list at the top": ("mooring.yaml", f"- {S}\n", ("must be a mapping at the top", "mcpServers")),
    "a text at the top": ("mooring.yaml", f"{S}\n", ("must be a mapping at the top", "mcpServers")),
    "an env value that is a mapping": (
        "mcp.json",
        entry(f'"command": "x", "env": {{"T": {{"value": "{S}"}}}}'),
        ("server 'db', field 'env'", "'T' must be text, not a mapping"),
    ),
    "an unsupported scheme": (
        "mcp.json",
        entry(f'"url": "ftp://x/mcp?key={S}"'),
        ("server 'db', field 'url'", "must start with http:// or https://"),
    ),
    "a name with a slash": (
        "mcp.json",
        f'{{"mcpServers": {{"a/b": {{"command": "x", "env": {{"T": "{S}"}}}}}}}}',
        ("server 'a/b', field 'name'", "without slashes and control characters", "such as 'github'"),
    ),
    "a name with a control character": (
        "mcp.json",
        '{"mcpServers": {"a\\u001b[31m": {"command": "x"}}}',
        (r"server 'a\x1b[31m', field 'name'", "without slashes and control characters"),
    ),
    "an empty name": (
        "mcp.json",
        '{"mcpServers": {"": {"command": "x"}}}',
        ("server '', field 'name'", "must not be empty"),
    ),
    "a cwd that is a number": (
        "mcp.json",
        entry(f'"command": "x", "cwd": 5, "env": {{"T": "{S}"}}'),
        ("server 'db', field 'cwd'", "must be text, not a number"),
    ),
    "servers that are texts": (
        "mcp.json",
        f'{{"mcpServers": ["{S}", "other"]}}',
        ("field 'mcpServers'", "a mapping of names to servers, or a list of servers each with a 'name'"),
    ),
    "servers that are a text": (
        "mcp.json",
        f'{{"mcpServers": "{S}"}}',
        ("field 'mcpServers'", "a mapping of names to servers", "it is text"),
    ),
    "a server that is a text": (
        "mcp.json",
        f'{{"mcpServers": {{"db": "npx {S}"}}}}',
        ("server 'db'", "must be a mapping with 'command' or 'url', not text"),
    ),
    "a list entry without a name": (
        "manifest.yaml",
        f"config: {{servers: [{{command: x, env: {{T: {S}}}}}]}}",
        ("field 'config.servers'", "entry 1 has no alias; add 'alias: …'"),
    ),
    "a misspelt setting": (
        "mooring.json",
        f'{{"servres": {{"db": {{"command": "{S}"}}}}}}',
        ("'servres' is not a known setting; did you mean 'servers'?",),
    ),
    "an unknown format": ("mooring.ini", f"[db]\ncommand = {S}\n", ("name it .yaml, .toml or .json",)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_file_gives_one_message_with_place_and_remedy(case: str, tmp_path: Path) -> None:
    name, content, words = CASES[case]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load([path], env={}, strict=True)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert caught.value.file == str(path)
    for word in words:
        assert word in message
    assert len(message.splitlines()) == 1
    assert "hunter2" not in message
    for jargon in ("Traceback", "pydantic", "validation error", "input_value", "yaml.", "tomllib"):
        assert jargon not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mooring.yaml"
    path.write_bytes(b"servers:\n  db: {command: x, env: {T: hunter2-secret\xff}}\n")
    with pytest.raises(ConfigError, match="line 2: is not UTF-8 text; save it as UTF-8") as caught:
        load([path], env={})
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mooring.json"
    path.write_bytes(b" " * (4 * 2**20) + b"{}")
    with pytest.raises(ConfigError, match="larger than 4 MiB"):
        load([path], env={})


@pytest.mark.parametrize("suffix", ["json", "yaml", "toml"])
def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"mooring.{suffix}"
    nested = "[" * 500 + "]" * 500
    path.write_text({"json": f'{{"a": {nested}}}', "yaml": f"a: {nested}", "toml": f"a = {nested}"}[suffix])
    with pytest.raises(ConfigError, match="nested too deeply"):
        load([path], env={})


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mooring.yaml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load([tmp_path / "mooring.yaml"], env={})


@pytest.mark.parametrize("case", [case for case in CASES if "server 'db'" in CASES[case][2][0]])
def test_without_strict_the_same_becomes_a_warning(case: str, tmp_path: Path) -> None:
    name, content, words = CASES[case]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    [warning] = load([path], env={}).warnings
    assert all(word in str(warning) for word in words)
    assert "hunter2" not in f"{warning!r} {warning}"


@pytest.mark.parametrize(
    ("settings", "closed"),
    [
        ({"strict_root_paths": "ture"}, lambda found: found.strict_root_paths),
        ({"resource_uri_allowlist": 5}, lambda found: found.resource_uri_allowlist == ("-",)),
        ({"enabled_servers": 5}, lambda found: found.active == ()),
        ({"enabled": "fales"}, lambda found: found.active == ()),
        ({"isolation": "sesion"}, lambda found: found.servers[0].isolation == "session"),
    ],
)
@pytest.mark.parametrize("scope", ["explicit", "project"])
def test_a_restriction_that_cannot_be_read_has_its_strictest_value(
    tmp_path: Path, settings: dict[str, Any], closed: Any, scope: str
) -> None:
    theirs = not {"enabled", "isolation"} & settings.keys()  # other programs may have these names
    file = tmp_path / (".mcp.json" if theirs else "mooring.json")
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}, **settings}))
    if scope == "explicit":
        found = load([file])
    else:
        found = load(cwd=tmp_path, env={}, user_dir=tmp_path / "none", approval=approved)
    assert closed(found)
    assert "until it is correct" in str(found.warnings[0])


def approved(file: str) -> Approval:
    return Approval(everything=True)
