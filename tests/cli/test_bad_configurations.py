"""Common mistakes in configurations: one readable message that names the place, exit code 2, no secret."""

import json
from pathlib import Path

import pytest
from dirty_equals import IsStr

SECRET = "hunter2-do-not-show"

# Name of the file, what stands in it, and what the message must name.
BROKEN = {
    "a missing brace": (
        "mcp.json",
        '{"mcpServers": {"a": {"command": "x", "env": {"KEY": "SECRET"}}',
        ["line 1"],
    ),
    "a missing comma": (
        "mcp.json",
        '{"mcpServers": {\n"a": {"command": "x"}\n"b": {"command": "y"}}}',
        ["line 3"],
    ),
    "no object at all": ("mcp.json", '["SECRET"]', ["mcp.json"]),
    "an empty file": ("mcp.json", "", ["mcp.json"]),
    "a comment that never ends": ("mcp.json", '{"mcpServers": {} /* SECRET', ["mcp.json"]),
    "not text": ("mcp.json", b"\xff\xfe\x00\x01\x80", ["mcp.json"]),
    "servers that are a number": ("mcp.json", '{"mcpServers": 7}', ["mcpServers"]),
    "an entry that is text": ("mcp.json", '{"mcpServers": {"a": "SECRET"}}', ["'a'"]),
    "a command that is a number": ("mcp.json", '{"mcpServers": {"a": {"command": 7}}}', ["'a'", "command"]),
    "a command that is a shell line": (
        "mcp.json",
        '{"mcpServers": {"a": {"command": "npx -y thing"}}}',
        ["'a'", "args"],
    ),
    "args that are a mapping": (
        "mcp.json",
        '{"mcpServers": {"a": {"command": "x", "args": {"token": "SECRET"}}}}',
        ["'a'", "args"],
    ),
    "both command and url": (
        "mcp.json",
        '{"mcpServers": {"a": {"command": "x", "url": "https://example.org/mcp?key=SECRET"}}}',
        ["'a'", "command", "url"],
    ),
    "a password in the url": (
        "mcp.json",
        '{"mcpServers": {"a": {"url": "https://me:SECRET@example.org/mcp"}}}',
        ["'a'", "url"],
    ),
    "neither command nor url": (
        "mcp.json",
        '{"mcpServers": {"a": {"env": {"KEY": "SECRET"}}}}',
        ["'a'", "command"],
    ),
    "an unknown transport": (
        "mcp.json",
        '{"mcpServers": {"a": {"transport": "pigeon", "url": "https://example.org"}}}',
        ["'a'", "transport"],
    ),
    "a url without a scheme": (
        "mcp.json",
        '{"mcpServers": {"a": {"url": "example.org/mcp"}}}',
        ["'a'", "url"],
    ),
    "a header with a line break": (
        "mcp.json",
        '{"mcpServers": {"a": {"url": "https://example.org", "headers": {"X-Key": "SECRET\\r\\nEvil: 1"}}}}',
        ["'a'", "headers"],
    ),
    "a reserved header": (
        "mcp.json",
        '{"mcpServers": {"a": {"url": "https://example.org", "headers": {"Mcp-Session-Id": "SECRET"}}}}',
        ["'a'", "headers"],
    ),
    "a duration that is none": (
        "mcp.json",
        '{"mcpServers": {"a": {"command": "x", "connect_timeout": "SECRET"}}}',
        ["'a'", "connect_timeout"],
    ),
    "tabs in YAML": ("mooring.yaml", "servers:\n\ta:\n\t\tcommand: x\n", ["line 2", "tab"]),
    "an open quote in YAML": (
        "mooring.yaml",
        'servers:\n  a:\n    command: "x\n    token: SECRET\n',
        ["mooring.yaml"],
    ),
    "TOML without quotes": ("mooring.toml", "[servers.a]\ncommand = x\n", ["line 2"]),
    "an env value that is a list": (
        "mooring.yaml",
        "servers:\n  a:\n    command: x\n    env:\n      KEY: [SECRET]\n",
        ["'a'", "env"],
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_configuration_is_one_readable_message(ran, tmp_path: Path, kind: str) -> None:
    name, content, places = BROKEN[kind]
    data = content if isinstance(content, bytes) else content.replace("SECRET", SECRET).encode()
    (tmp_path / name).write_bytes(data)
    done = ran("--config", name, "list", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["exit_code"], error["kind"]) == (2, 2, IsStr(regex=".*Error"))
    assert SECRET not in done.stdout
    assert done.stderr.startswith("error: ")
    assert [place for place in [name, *places] if place not in done.stderr] == []
    assert done.stderr.count("\n") <= 2
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr


def test_a_bad_entry_beside_a_good_one_is_a_warning(ran, config) -> None:
    done = ran("tools", "--config", config({"clock": "clock", "bad": {"command": 7}}))
    assert done.returncode == 0
    assert "mcp_clock_now" in done.stdout
    assert done.stderr.startswith("warning: ")
    assert "'bad'" in done.stderr


def test_a_server_twice_is_a_warning_and_the_first_entry_answers(ran, config, tmp_path: Path) -> None:
    first = json.loads(Path(config({"clock": "clock"})).read_text())["mcpServers"]["clock"]
    entries = f'"clock": {json.dumps(first)},\n"clock": {{"command": "no-such-program"}}'
    (tmp_path / "twice.json").write_text(f'{{"mcpServers": {{\n{entries}}}}}')
    done = ran("--config", "twice.json", "tools")
    assert done.returncode == 0
    assert "mcp_clock_now" in done.stdout
    assert "server 'clock': is defined twice, on line 2 and on line 3; the first is used" in done.stderr


def test_a_wrong_gateway_setting_is_named_in_full_with_what_is_expected(ran, tmp_path: Path) -> None:
    file = tmp_path / "mooring.yaml"
    profiles = "{web: {sevrers: [a]}, app: {style: loud}}"
    file.write_text(f"servers: {{a: {{command: 'true'}}}}\ngateway: {{rate: 5/s, profiles: {profiles}}}\n")
    done = ran("--config", str(file), "export", "cursor", "--to", str(tmp_path / "out.json"), "--dry-run")
    assert "'gateway.rate': must be a number of requests per second, such as 5 or 0.5" in done.stderr
    assert "'gateway.profiles.web.sevrers': is not a known field; did you mean 'servers'?" in done.stderr
    assert "duration" not in done.stderr
