# ruff: noqa: E501 (files and output stand here as they are)
"""Files of other programs, written from their documentation, including their special cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mooring.config.programs.convert import Candidate, candidates, installed
from mooring.config.programs.model import Machine, Vault
from mooring.config.programs.table import ANY, PROGRAMS, program
from mooring.errors import ConfigError

SECRET = "hunter2-very-secret"


def machine(folder: Path, platform: str = "linux", **env: str) -> Machine:
    return Machine(home=folder / "home", cwd=folder / "repo", env=env, platform=platform)


def read(folder: Path, name: str, file: str, text: str) -> dict[str, Candidate]:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    one = program(name) if name != "file" else ANY
    return {found.name: found for found in candidates(one, path, machine(folder), Vault())}


FILES: dict[str, tuple[str, str, dict[str, dict[str, Any] | None], dict[str, str]]] = {
    "claude-code": (
        ".mcp.json",
        """{"mcpServers": {
          "github": {"type": "http", "url": "https://api.example.com/mcp",
                     "headers": {"Authorization": "Bearer ${GITHUB_TOKEN:-none}"}, "timeout": 600000},
          "files": {"command": "npx", "args": ["-y", "server-files"], "env": {"API_KEY": "hunter2-very-secret"},
                    "timeout": 500, "alwaysLoad": true},
          "old": {"type": "sse", "url": "https://old.example.com/sse"},
          "socket": {"type": "ws", "url": "wss://x.example.com"},
          "helped": {"type": "http", "url": "https://h.example.com", "headersHelper": "get-headers"}
        }}""",
        {
            "github": {
                "url": "https://api.example.com/mcp",
                "headers": {"Authorization": "Bearer ${GITHUB_TOKEN:-none}"},
                "call_timeout": 600,
            },
            "files": {
                "command": "npx",
                "args": ["-y", "server-files"],
                "env": {"API_KEY": "${API_KEY}"},
                "always": ["*"],
            },
            "old": {"transport": "sse", "url": "https://old.example.com/sse"},
            "socket": None,
            "helped": {"url": "https://h.example.com"},
        },
        {
            "files": "set API_KEY in the environment",
            "socket": "'url' must",
            "helped": "'headersHelper' is ignored",
        },
    ),
    "claude-desktop": (
        "claude_desktop_config.json",
        '{"mcpServers": {"fs": {"command": "npx", "args": ["fs"], "env": {"ROOT": "${ROOT}"}}}}',
        {"fs": {"command": "npx", "args": ["fs"], "env": {"ROOT": "${ROOT}"}}},
        {"fs": "takes ${…} literally"},
    ),
    "codex": (
        "config.toml",
        """
model = "o3"
[mcp_servers.docs]
command = "docs-mcp"
args = ["--port", "1"]
env_vars = ["LOCAL", {name = "REMOTE", source = "remote"}]
startup_timeout_sec = 20
tool_timeout_sec = 45.5
enabled = false
disabled_tools = ["rm"]
default_tools_approval_mode = "prompt"
[mcp_servers.docs.tools.search]
approval_mode = "approve"
[mcp_servers.web]
url = "https://web.example.com/mcp"
bearer_token_env_var = "WEB_TOKEN"
http_headers = { "X-Team" = "blue" }
env_http_headers = { "X-Key" = "WEB_KEY" }
[mcp_servers.inline]
url = "https://i.example.com/mcp"
bearer_token = "hunter2-very-secret"
""",
        {
            "docs": {
                "command": "docs-mcp",
                "args": ["--port", "1"],
                "inherit_env": ["LOCAL", "REMOTE"],
                "connect_timeout": 20,
                "call_timeout": 45.5,
                "disabled": True,
                "deny": ["rm"],
            },
            "web": {
                "url": "https://web.example.com/mcp",
                "headers": {
                    "Authorization": "Bearer ${WEB_TOKEN}",
                    "X-Team": "blue",
                    "X-Key": "${WEB_KEY}",
                },
            },
            "inline": {"url": "https://i.example.com/mcp"},
        },
        {
            "docs": "not carried over: default_tools_approval_mode, tools",
            "inline": "'bearer_token' is ignored",
        },
    ),
    "vscode": (
        ".vscode/mcp.json",
        """{ // VS Code allows comments
          "inputs": [{"type": "promptString", "id": "gh-token", "description": "GitHub token", "password": true}],
          "servers": {
            "gh": {"type": "http", "url": "https://gh.example.com/mcp",
                   "headers": {"Authorization": "Bearer ${input:gh-token}"}},
            "py": {"type": "stdio", "command": "python", "args": ["${workspaceFolder}/server.py"],
                   "env": {"K": "${env:MY_KEY}", "H": "${userHome}/x"}, "envFile": "${workspaceFolder}/.env",
                   "dev": {"watch": "src/**"}},
          },
        }""",
        {
            "gh": {"url": "https://gh.example.com/mcp", "headers": {"Authorization": "Bearer ${GH_TOKEN}"}},
            "py": {
                "command": "python",
                "args": ["FOLDER/server.py"],
                "env": {"K": "${MY_KEY}", "H": "${HOME}/x"},
            },
        },
        {"gh": "was asked for as 'gh-token' (GitHub token): set GH_TOKEN", "py": "'envFile' is ignored"},
    ),
    "copilot": (
        "mcp-config.json",
        """{"mcpServers": {
          "all": {"type": "local", "command": "a", "args": [], "tools": ["*"]},
          "some": {"type": "http", "url": "https://s.example.com", "tools": ["read"]},
          "none": {"type": "local", "command": "c", "tools": []},
          "absent": {"type": "local", "command": "d", "deferTools": "auto"}}}""",
        {
            "all": {"command": "a"},
            "some": {"url": "https://s.example.com", "allow": ["read"]},
            "none": {"command": "c", "disabled": True},
            "absent": {"command": "d", "disabled": True},
        },
        {"none": "imported disabled", "absent": "not carried over: deferTools"},
    ),
    "cursor": (
        ".cursor/mcp.json",
        """{"mcpServers": {
          "a": {"command": "${userHome}/bin/a", "args": ["${workspaceFolder}"], "env": {"T": "${env:T}"}},
          "b": {"url": "https://b.example.com/mcp", "auth": {"CLIENT_ID": "id", "CLIENT_SECRET": "hunter2-very-secret"}}
        }}""",
        {
            "a": {"command": "${HOME}/bin/a", "args": ["FOLDER"], "env": {"T": "${T}"}},
            "b": {
                "url": "https://b.example.com/mcp",
                "auth": {"client_id": "id", "client_secret": "${B_CLIENT_SECRET}"},
            },
        },
        {"b": "set B_CLIENT_SECRET"},
    ),
    "windsurf": (
        "mcp_config.json",
        """{"mcpServers": {"r": {"serverUrl": "https://r.example.com/mcp", "headers": {"X-Api-Key": "${env:R_KEY}"},
           "disabledTools": ["drop"], "disabled": true}}}""",
        {
            "r": {
                "url": "https://r.example.com/mcp",
                "headers": {"X-Api-Key": "${R_KEY}"},
                "deny": ["drop"],
                "disabled": True,
            }
        },
        {},
    ),
    "zed": (
        "settings.json",
        """{
          // Zed's settings hold much else
          "theme": "One Dark",
          "context_servers": {
            "new": {"source": "custom", "enabled": false, "command": "n", "args": ["1"], "env": {}},
            "old": {"command": {"path": "o", "args": ["2"], "env": {"A": "b"}}, "settings": {}},
            "ext": {"source": "extension", "enabled": true, "settings": {"x": 1}},
            "web": {"url": "https://z.example.com/mcp", "headers": {"Authorization": "Bearer hunter2-very-secret"}},
          }
        }""",
        {
            "new": {"command": "n", "args": ["1"], "disabled": True},
            "old": {"command": "o", "args": ["2"], "env": {"A": "b"}},
            "ext": None,
            "web": {"url": "https://z.example.com/mcp", "headers": {"Authorization": "Bearer ${WEB_TOKEN}"}},
        },
        {"ext": "extension of Zed", "web": "set WEB_TOKEN", "old": "not carried over: settings"},
    ),
    "gemini": (
        "settings.json",
        """{"mcpServers": {
          "sse": {"url": "https://g.example.com/sse", "headers": {"Authorization": "Bearer $G_TOKEN"}},
          "http": {"httpUrl": "https://g.example.com/mcp", "timeout": 30000, "trust": true},
          "run": {"command": "run", "cwd": "./x", "includeTools": ["a"], "excludeTools": ["b"]}}}""",
        {
            "sse": {
                "transport": "sse",
                "url": "https://g.example.com/sse",
                "headers": {"Authorization": "Bearer ${G_TOKEN}"},
            },
            "http": {"transport": "streamable-http", "url": "https://g.example.com/mcp", "call_timeout": 30},
            "run": {"command": "run", "cwd": "./x", "allow": ["a"], "deny": ["b"]},
        },
        {"http": "not carried over: trust"},
    ),
    "goose": (
        "config.yaml",
        """
GOOSE_MODEL: some
extensions:
  developer: {type: builtin, name: developer, enabled: true}
  fetch:
    type: stdio
    name: fetch
    cmd: uvx
    args: [mcp-server-fetch]
    envs: {LEVEL: debug}
    env_keys: [FETCH_TOKEN]
    timeout: 300
    enabled: true
    bundled: null
    available_tools: []
  web:
    type: streamable_http
    uri: https://w.example.com/mcp
    headers: {Authorization: Bearer $WEB_TOKEN}
    enabled: false
""",
        {
            "developer": None,
            "fetch": {
                "command": "uvx",
                "args": ["mcp-server-fetch"],
                "env": {"LEVEL": "debug"},
                "inherit_env": ["FETCH_TOKEN"],
                "call_timeout": 300,
            },
            "web": {
                "transport": "streamable-http",
                "url": "https://w.example.com/mcp",
                "headers": {"Authorization": "Bearer ${WEB_TOKEN}"},
                "disabled": True,
            },
        },
        {"developer": "is part of goose (type builtin)"},
    ),
    "opencode": (
        "opencode.jsonc",
        """{"$schema": "https://opencode.ai/config.json", "mcp": {
          "loc": {"type": "local", "command": ["bun", "x", "srv"], "environment": {"K": "{env:OC_KEY}"},
                  "timeout": 5000, "enabled": true},
          "rem": {"type": "remote", "url": "https://o.example.com/mcp", "oauth": false,
                  "headers": {"Authorization": "Bearer {file:./token}"}}}}""",
        {
            "loc": {
                "command": "bun",
                "args": ["x", "srv"],
                "env": {"K": "${OC_KEY}"},
                "connect_timeout": 5,
            },
            "rem": {
                "url": "https://o.example.com/mcp",
                "headers": {"Authorization": "Bearer ${file:./token}"},
            },
        },
        {},
    ),
    "librechat": (
        "librechat.yaml",
        """
version: 1.2.1
mcpSettings: {allowedDomains: [x]}
mcpServers:
  per-user:
    type: streamable-http
    url: https://l.example.com/mcp
    headers: {X-User: "{{LIBRECHAT_USER_ID}}", Authorization: "Bearer ${L_TOKEN}"}
    timeout: 60000
    initTimeout: 10000
    serverInstructions: true
  socket: {type: websocket, url: wss://x.example.com}
""",
        {
            "per-user": {
                "transport": "streamable-http",
                "url": "https://l.example.com/mcp",
                "headers": {"X-User": "{{LIBRECHAT_USER_ID}}", "Authorization": "Bearer ${L_TOKEN}"},
                "call_timeout": 60,
                "connect_timeout": 10,
            },
            "socket": None,
        },
        {"per-user": "for a value of each user"},
    ),
    "cline": (
        "cline_mcp_settings.json",
        """{"mcpServers": {"w": {"type": "streamableHttp", "url": "https://c.example.com", "timeout": 60,
            "autoApprove": ["x"], "disabled": false}}}""",
        {
            "w": {
                "transport": "streamable-http",
                "url": "https://c.example.com",
                "call_timeout": 60,
            }
        },
        {"w": "not carried over: autoApprove"},
    ),
    "roo": (
        ".roo/mcp.json",
        '{"mcpServers": {"w": {"command": "w", "alwaysAllow": ["x"], "timeout": 3600, "disabledTools": ["y"]}}}',
        {"w": {"command": "w", "call_timeout": 3600, "deny": ["y"]}},
        {"w": "not carried over: alwaysAllow"},
    ),
    "lmstudio": (
        "mcp.json",
        '{"mcpServers": {"hf": {"url": "https://hf.example.com/mcp", "headers": {"Authorization": "Bearer hf_abcdefghij"}}}}',
        {"hf": {"url": "https://hf.example.com/mcp", "headers": {"Authorization": "Bearer ${HF_TOKEN}"}}},
        {"hf": "set HF_TOKEN"},
    ),
    "fastmcp": (
        "mcp.json",
        """{"a": {"command": "a", "transport": "stdio", "keep_alive": true, "timeout": 5000},
            "b": {"url": "https://f.example.com", "transport": "http", "auth": "hunter2-very-secret"},
            "c": {"url": "https://g.example.com", "auth": "oauth"}}""",
        {
            "a": {"command": "a", "call_timeout": 5},
            "b": {"url": "https://f.example.com", "headers": {"Authorization": "Bearer ${B_TOKEN}"}},
            "c": {"url": "https://g.example.com", "auth": {"type": "oauth"}},
        },
        {"a": "not carried over: keep_alive", "b": "set B_TOKEN"},
    ),
    "mcp-agent": (
        "mcp_agent.config.yaml",
        """
mcp:
  servers:
    fetch: {command: uvx, args: [mcp-server-fetch], read_timeout_seconds: 90}
    web: {transport: streamable_http, url: "https://m.example.com", http_timeout_seconds: 7, allowed_tools: [x]}
""",
        {
            "fetch": {"command": "uvx", "args": ["mcp-server-fetch"], "call_timeout": 90},
            "web": {
                "transport": "streamable-http",
                "url": "https://m.example.com",
                "allow": ["x"],
                "connect_timeout": 7,
            },
        },
        {},
    ),
    "mcpproxy": (
        "mcp_config.json",
        """{"listen": ":8080", "mcpServers": [
          {"name": "a", "protocol": "stdio", "command": "a", "working_dir": "/w", "enabled": true,
           "env": {"T": "${keyring:a_token}"}},
          {"name": "q", "protocol": "http", "url": "https://q.example.com", "enabled": true, "quarantined": true},
          {"command": "nameless"}]}""",
        {
            "a": {"command": "a", "cwd": "/w", "env": {"T": "${keyring:a_token}"}},
            "q": {"url": "https://q.example.com", "disabled": True},
            "entry 3": None,
        },
        {"q": "quarantined", "entry 3": "has no name"},
    ),
    "mcphub": (
        "mcp_settings.json",
        """{"mcpServers": {"a": {"command": "a", "options": {"timeout": 9000}, "owner": "admin"},
            "api": {"type": "openapi", "openapi": {"url": "https://x"}}}, "users": []}""",
        {"a": {"command": "a", "call_timeout": 9}, "api": None},
        {"a": "not carried over: owner", "api": "web API"},
    ),
    "continue": (
        "config.yaml",
        """
name: mine
mcpServers:
  - name: gh
    type: streamable-http
    url: https://n.example.com/mcp
    requestOptions: {headers: {Authorization: "Bearer ${{ secrets.GH_TOKEN }}"}, verifySsl: false}
    connectionTimeout: 4000
""",
        {
            "gh": {
                "transport": "streamable-http",
                "url": "https://n.example.com/mcp",
                "headers": {"Authorization": "Bearer ${GH_TOKEN}"},
                "connect_timeout": 4,
            }
        },
        {"gh": "requestOptions.verifySsl"},
    ),
    "docker": (
        "registry.yaml",
        'registry:\n  duckduckgo:\n    ref: ""\n',
        {
            "duckduckgo": {
                "command": "docker",
                "args": ["mcp", "gateway", "run", "--servers", "duckduckgo"],
            }
        },
        {},
    ),
    "evva": (
        "settings.json",
        '{"mcpServers": {"a": {"type": "stdio", "command": "a", "timeout": 45, "disabled": true}}}',
        {"a": {"command": "a", "connect_timeout": 45, "disabled": True}},
        {},
    ),
    "assistant4": (
        "manifest.yaml",
        """
id: mcp
config:
  reconnect_interval: 120
  servers:
    - alias: search
      transport: streamable-http
      url: https://s.example.com/mcp
      headers: {Authorization: "Bearer ${SEARCH_TOKEN}"}
      cache_tools: true
      tool_filter: [find]
      require_approval: {always: [buy]}
""",
        {
            "search": {
                "transport": "streamable-http",
                "url": "https://s.example.com/mcp",
                "headers": {"Authorization": "Bearer ${SEARCH_TOKEN}"},
                "allow": ["find"],
                "approve": ["buy"],
            }
        },
        {"search": "not carried over: cache_tools"},
    ),
    "skill-agent": (
        "agent.yaml",
        "mcp:\n  enabled: true\n  tool_call_timeout_seconds: 30\n  servers:\n    fs: {command: npx, args: [fs], timeout_seconds: 15}\n",
        {"fs": {"command": "npx", "args": ["fs"], "connect_timeout": 15}},
        {},
    ),
    "nexo": (
        "config/mcp.yaml",
        """
mcp:
  servers:
    doc: {transport: {type: http, mode: auto, url: "https://n.example.com"}, connect_timeout_ms: 10000}
    code: {transport: streamable_http, url: "https://c.example.com", connect_timeout: 30s, log_level: debug,
           context_passthrough: true}
""",
        {
            "doc": {"url": "https://n.example.com", "connect_timeout": 10},
            "code": {
                "transport": "streamable-http",
                "url": "https://c.example.com",
                "connect_timeout": 30,
            },
        },
        {"code": "not carried over: context_passthrough"},
    ),
    "anda": (
        "config.yaml",
        "mcp:\n  servers:\n    fs: {command: fs-mcp}\n",
        {"fs": {"command": "fs-mcp"}},
        {},
    ),
    "strands": (
        "mcp.json",
        '{"a": {"command": "a", "prefix": "x", "tool_filters": {"allowed": ["r"], "rejected": ["w"]}, "env": {"K": "${env:K}"}}}',
        {"a": {"command": "a", "env": {"K": "${K}"}, "allow": ["r"], "deny": ["w"]}},
        {"a": "not carried over: prefix"},
    ),
    "mcp-proxy": (
        "named.json",
        '{"mcpServers": {"a": {"command": "a", "enabled": true, "timeout": 60, "transportType": "stdio"}}}',
        {"a": {"command": "a"}},
        {"a": "not carried over: timeout, transportType"},
    ),
    "metamcp": (
        "export.json",
        '{"mcpServers": {"a": {"type": "STREAMABLE_HTTP", "url": "https://a.example.com", "uuid": "1"}}}',
        {"a": {"transport": "streamable-http", "url": "https://a.example.com"}},
        {},
    ),
}


def test_there_is_a_file_of_every_program() -> None:
    assert FILES.keys() == PROGRAMS.keys()


@pytest.mark.parametrize("name", FILES)
def test_a_file_as_documented_is_read(tmp_path: Path, name: str) -> None:
    file, text, entries, said = FILES[name]
    found = read(tmp_path, name, file, text.replace("FOLDER", str(tmp_path)))
    expected = {
        server: entry and {key: _placed(value, tmp_path) for key, value in entry.items()}
        for server, entry in entries.items()
    }
    assert {server: one.entry and dict(one.entry) for server, one in found.items()} == expected
    for server, words in said.items():
        assert words in "\n".join([*found[server].notes, found[server].problem or ""])


def _placed(value: Any, folder: Path) -> Any:
    return [item.replace("FOLDER", str(folder)) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", FILES)
def test_no_secret_of_a_file_gets_out_of_it(tmp_path: Path, name: str) -> None:
    file, text, _, _ = FILES[name]
    assert "hunter2" not in repr(read(tmp_path, name, file, text))


@pytest.mark.parametrize("text", ['{"mcpServers": 7}', '{"mcpServers": [7]}', '{"mcpServers": {"a": 7}}'])
@pytest.mark.parametrize("name", ["cursor", "mcpproxy", "gemini", "copilot", "file"])
def test_a_malformed_file_gets_a_readable_message(tmp_path: Path, name: str, text: str) -> None:
    try:
        found = read(tmp_path, name, "x.json", text)
    except ConfigError as error:
        assert "servers" in str(error)
    else:
        assert all(one.entry is None and one.problem for one in found.values())


@pytest.mark.parametrize("name", ["gemini", "goose", "copilot", "continue", "librechat", "mcphub", "codex"])
def test_values_of_another_kind_set_one_server_aside(tmp_path: Path, name: str) -> None:
    root = ".".join(program(name).roots[0])
    keys = [
        "url",
        "tools",
        "headers",
        "timeout",
        "requestOptions",
        "options",
        "customUserVars",
        "type",
        "env",
    ]
    for key in keys:
        for value in ["[1]", '{"a": 1}', "7", "null", "true"]:
            odd = f'{{"command": "x", "{key}": {value}}}'
            text = f'{{"{root}": {{"odd": {odd}, "good": {{"command": "g", "tools": ["*"]}}}}}}'
            found = read(tmp_path, name, "x.json", text)
            assert found["good"].problem is None
            assert (found["odd"].entry is None) == bool(found["odd"].problem)


def test_servers_of_one_folder_are_read_from_the_users_file(tmp_path: Path) -> None:
    here = machine(tmp_path)
    here.cwd.mkdir(parents=True)
    text = f'{{"numStartups": 3, "mcpServers": {{"a": {{"command": "a"}}}}, "projects": {{"{here.cwd}": {{"mcpServers": {{"b": {{"command": "b"}}}}}}}}}}'
    assert list(read(tmp_path, "claude-code", "home/.claude.json", text)) == ["b", "a"]


@pytest.mark.parametrize(
    ("platform", "name", "expected"),
    [
        ("linux", "claude-desktop", "home/.config/Claude/claude_desktop_config.json"),
        ("darwin", "claude-desktop", "home/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "claude-desktop", "home/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("win32", "goose", "home/AppData/Roaming/Block/goose/config/config.yaml"),
        ("darwin", "goose", "home/.config/goose/config.yaml"),
        ("linux", "cursor", "home/.cursor/mcp.json"),
        ("linux", "cursor", "repo/.cursor/mcp.json"),
        ("darwin", "vscode", "home/Library/Application Support/Code/User/mcp.json"),
        ("linux", "lmstudio", "home/.lmstudio/mcp.json"),
        ("linux", "docker", "home/.docker/mcp/registry.yaml"),
    ],
)
def test_files_are_found_where_each_platform_has_them(
    tmp_path: Path, platform: str, name: str, expected: str
) -> None:
    path = tmp_path / expected
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    found = list(installed(list(PROGRAMS.values()), machine(tmp_path, platform)))
    assert [(one.program.name, one.file) for one in found] == [(name, path)]


def test_variables_move_the_places(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    found = installed([program("codex")], machine(tmp_path, CODEX_HOME=str(tmp_path)))
    assert [one.file for one in found] == [tmp_path / "config.toml"]


def test_two_secrets_of_one_name_get_two_variables(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "a", "env": {"TOKEN": "one-secret-1"}}, "b": {"command": "b", "env": {"TOKEN": "two-secret-2"}}, "c": {"command": "c", "env": {"TOKEN": "one-secret-1"}}}}'
    found = read(tmp_path, "cursor", "mcp.json", text)
    env = {name: one.entry and one.entry["env"]["TOKEN"] for name, one in found.items()}
    assert env == {"a": "${TOKEN}", "b": "${B_TOKEN}", "c": "${TOKEN}"}


def test_a_secret_among_arguments_or_in_an_address_is_replaced(tmp_path: Path) -> None:
    text = f'{{"mcpServers": {{"a": {{"command": "a", "args": ["--api-key", "{SECRET}", "--token={SECRET}x", "keep"]}}, "b": {{"url": "https://x.example.com/mcp?api_key={SECRET}&v=1"}}}}}}'
    found = read(tmp_path, "cursor", "mcp.json", text)
    assert found["a"].entry
    assert found["b"].entry
    assert found["a"].entry["args"] == ["--api-key", "${A_API_KEY}", "--token=${A_TOKEN}", "keep"]
    assert found["b"].entry["url"] == "https://x.example.com/mcp?api_key=${B_API_KEY}&v=1"


def test_nothing_comes_to_life_that_was_mere_text_elsewhere(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"url": "https://x.example.com", "headers": {"A": "${cmd:evil} ${file:~/.ssh/id}"}}}}'
    found = read(tmp_path, "cursor", "mcp.json", text)["a"]
    assert found.entry
    assert found.entry["headers"]["A"] == "$${cmd:evil} $${file:~/.ssh/id}"
    assert "${cmd:…} is plain text in Cursor, and here" in found.notes


def test_an_unknown_program_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cursor'"):
        program("curser")
