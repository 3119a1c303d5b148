"""The examples in the documentation of other programs load unchanged."""

from __future__ import annotations

from pathlib import Path

import yaml
from jsonschema import Draft7Validator

from mooring.config import load
from mooring.config.documents import parse_document
from mooring.config.models import HostConfig
from mooring.config.reference import json_schema

# Their files may hold keys of their own beside ours.
SCHEMA = Draft7Validator(json_schema() | {"additionalProperties": True})


def loaded(folder: Path, name: str, text: str) -> HostConfig:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    host = load([path], env={}, strict=True)
    assert host.warnings == ()
    data = yaml.safe_load(text) if path.suffix == ".yaml" else parse_document(text, path)
    assert [error.message for error in SCHEMA.iter_errors(data)] == []
    return host


def test_nexo(tmp_path: Path) -> None:
    host = loaded(
        tmp_path,
        "mcp.yaml",
        """
mcp:
  enabled: true
  session_ttl: 30m
  idle_reap_interval: 60s
  connect_timeout_ms: 10000
  call_timeout_ms: 30000
  shutdown_grace_ms: 3000
  servers:
    gmail:
      transport:
        type: stdio
        command: ./mcp-gmail
        args: []
        env:
          GMAIL_TOKEN: ${file:./secrets/gmail_token.json}
    workflow:
      transport:
        type: http
        url: https://mcp.example.com/workflow
        mode: auto   # streamable_http | sse | auto
        headers:
          Authorization: Bearer ${WORKFLOW_TOKEN}
  resource_cache:
    enabled: true
    ttl: 30s
    max_entries: 256
  resource_uri_allowlist: []
  strict_root_paths: false
  context:
    passthrough: true
  sampling:
    enabled: false
  watch:
    enabled: false
    debounce_ms: 200
""",
    )
    gmail, workflow = host.servers
    assert (gmail.transport, gmail.command, gmail.args) == ("stdio", "./mcp-gmail", ())
    assert gmail.env == {"GMAIL_TOKEN": "${file:./secrets/gmail_token.json}"}
    assert (workflow.transport, workflow.url) == ("http", "https://mcp.example.com/workflow")
    assert workflow.headers == {"Authorization": "Bearer ${WORKFLOW_TOKEN}"}
    assert (workflow.connect_timeout, workflow.call_timeout, workflow.shutdown_grace) == (10, 30, 3)
    assert (host.session_ttl, host.idle_reap_interval, host.watch.debounce) == (1800, 60, 0.2)
    assert (host.resource_cache.ttl, host.resource_cache.max_entries) == (30, 256)
    assert host.context.passthrough


def test_the_skill_agent(tmp_path: Path) -> None:
    host = loaded(
        tmp_path,
        "agent.yaml",
        """
model: something
mcp:
  enabled: true
  tool_call_timeout_seconds: 60
  servers:
    filesystem:
      command: "npx"
      args: ["-y", "@modelcontextprotocol/server-filesystem", "/home/user/projects"]
      timeout_seconds: 15
    github:
      command: "uvx"
      args: ["mcp-server-github"]
      env:
        GITHUB_TOKEN: "${GITHUB_TOKEN}"
""",
    )
    filesystem, github = host.servers
    assert filesystem.args == ("-y", "@modelcontextprotocol/server-filesystem", "/home/user/projects")
    assert (filesystem.connect_timeout, filesystem.call_timeout) == (15, 60)
    assert (github.connect_timeout, github.env) == (30, {"GITHUB_TOKEN": "${GITHUB_TOKEN}"})


def test_switching_mcp_off_switches_everything_off(tmp_path: Path) -> None:
    host = loaded(tmp_path, "agent.yaml", "mcp: {enabled: false, servers: {a: {command: x}}}")
    assert host.active == ()


def test_an_extension_manifest(tmp_path: Path) -> None:
    host = loaded(
        tmp_path,
        "manifest.yaml",
        """
id: mcp
name: MCP Bridge
version: "1.0.0"
description: >
  Connects to MCP servers and exposes their tools to the agent.
entrypoint: main:McpBridgeExtension
depends_on: []
config:
  enabled_servers: [web_search, github]
  servers:
    - alias: web_search
      transport: streamable-http
      url: http://localhost:8000/mcp
    - alias: filesystem
      transport: stdio
      command: npx
      args: ["-y", "@modelcontextprotocol/server-filesystem", "/path/to/allowed/dir"]
    - alias: github
      transport: sse
      url: https://api.example.com/mcp
      headers:
        Authorization: "Bearer ${GITHUB_TOKEN}"  # resolved from secrets
      tool_filter: [list_*]
      require_approval: {always: [delete_*]}
enabled: true
""",
    )
    assert [(server.name, server.transport) for server in host.servers] == [
        ("web_search", "streamable-http"),
        ("filesystem", "stdio"),
        ("github", "sse"),
    ]
    assert (host.servers[2].allow, host.servers[2].approve) == (("list_*",), ("delete_*",))
    assert [server.name for server in host.active] == ["web_search", "github"]


def test_evva_settings(tmp_path: Path) -> None:
    host = loaded(
        tmp_path,
        "settings.json",
        """{
  "theme": "dark",
  "mcpServers": {
    "files": {"type": "stdio", "command": "files-mcp", "args": ["--root", "."],
              "env": {"A": "${A:-x}"}, "timeout": 45},
    "web": {"type": "http", "url": "https://example.com/mcp",
            "headers": {"X-Key": "${KEY}"}, "disabled": true}
  }
}""",
    )
    files, web = host.servers
    assert (files.connect_timeout, files.env) == (45, {"A": "${A:-x}"})
    assert (web.transport, web.disabled) == ("http", True)


def test_claude_code(tmp_path: Path) -> None:
    host = loaded(
        tmp_path,
        ".mcp.json",
        """{"mcpServers": {
  "api": {"type": "http", "url": "${API_BASE_URL:-https://api.example.com}/mcp",
          "headers": {"Authorization": "Bearer ${API_KEY}"}, "timeout": 120000},
  "local": {"command": "/path/to/server", "args": [], "env": {"CACHE_DIR": "/tmp"}}
}}""",
    )
    assert host.servers[0].call_timeout == 120
    assert host.servers[1].transport == "stdio"


def test_vs_code(tmp_path: Path) -> None:
    host = loaded(
        tmp_path,
        "mcp.json",
        """{
  // asked once and kept
  "inputs": [{"type": "promptString", "id": "key", "password": true}],
  "servers": {
    "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp"},
    "fetch": {"type": "stdio", "command": "uvx", "args": ["mcp-server-fetch"], "env": {"KEY": "${env:KEY}"},},
  },
}""",
    )
    assert [server.transport for server in host.servers] == ["http", "stdio"]


def test_codex(tmp_path: Path) -> None:
    host = loaded(
        tmp_path,
        "config.toml",
        """
model = "something"

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs-mcp"]
env_vars = ["HOME", { name = "TOKEN", source = "local" }]
startup_timeout_sec = 20
tool_timeout_sec = 45
enabled = false

[mcp_servers.docs.env]
MODE = "fast"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Key" = "FIGMA_KEY" }
enabled_tools = ["get_*"]
""",
    )
    docs, figma = host.servers
    assert (docs.env, docs.inherit_env, docs.disabled) == ({"MODE": "fast"}, ("HOME", "TOKEN"), True)
    assert (docs.connect_timeout, docs.call_timeout) == (20, 45)
    assert figma.headers == {
        "Authorization": "Bearer ${FIGMA_TOKEN}",
        "X-Region": "eu",
        "X-Key": "${FIGMA_KEY}",
    }
    assert figma.allow == ("get_*",)


def test_zed_and_mcpproxy(tmp_path: Path) -> None:
    zed = '{"context_servers": {"a": {"source": "custom", "command": {"path": "x", "args": ["y"]}}}}'
    assert loaded(tmp_path, "settings.json", zed).servers[0].args == ("y",)
    proxy = '{"mcpServers": [{"name": "b", "protocol": "http", "url": "https://x/mcp", "enabled": true}]}'
    assert loaded(tmp_path, "mcp_config.json", proxy).servers[0].name == "b"
