"""Every program whose configuration mooring reads or writes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mooring.config.programs.model import ImportedEntry, Outbound, Program, UnfitError, managed, project, user
from mooring.config.validate import number
from mooring.core.text import nearest
from mooring.errors import ConfigError


def milliseconds(value: object) -> str | None:
    """Return a number of milliseconds as a duration with its unit; None if it is not a number."""
    plain = number(value)
    return None if plain is None or plain <= 0 else f"{plain:g}ms"


def claude_code(imported: ImportedEntry) -> None:
    timeout = number(imported.raw.get("timeout"))
    if timeout is not None and timeout < 1000:
        del imported.raw["timeout"]
        imported.notes.append("'timeout' below 1000 ms is ignored by Claude Code, and here")


def copilot(imported: ImportedEntry) -> None:
    tools = imported.raw.get("tools")
    if not tools:
        imported.raw.pop("tools", None)
        imported.raw["disabled"] = True
        imported.notes.append("names no 'tools', so Copilot CLI shows none of them: imported disabled")
    elif "*" in tools:
        del imported.raw["tools"]


def gemini(imported: ImportedEntry) -> None:
    raw = imported.raw
    if "httpUrl" in raw:
        raw.pop("url", None)
        raw["type"] = "streamable-http"
    elif "url" in raw:
        raw.setdefault("type", "sse")
    if raw.get("trust"):
        imported.notes.append("'trust' skips all approvals there; in mooring `approve` decides")


def goose(imported: ImportedEntry) -> None:
    raw = imported.raw
    kind = raw.get("type")
    if kind in ("builtin", "platform", "frontend", "inline_python"):
        raise UnfitError(f"is part of goose (type {kind}), not a server")
    if not raw.get("available_tools"):
        raw.pop("available_tools", None)  # an empty list means all
    raw.pop("name", None)


def zed(imported: ImportedEntry) -> None:
    raw = imported.raw
    if "command" not in raw and "url" not in raw:
        raise UnfitError("is run by an extension of Zed, which knows the command")
    if raw.get("command") is None:
        raw.pop("command", None)


def librechat(imported: ImportedEntry) -> None:
    raw = imported.raw
    if "initTimeout" in raw:
        raw["connect_timeout"] = milliseconds(raw.pop("initTimeout"))
    if raw.get("customUserVars"):
        names = ", ".join(cast("Mapping[str, Any]", raw["customUserVars"]))
        imported.notes.append(f"each user enters {names} there; write them as references")


def fastmcp(imported: ImportedEntry) -> None:
    raw = imported.raw
    if isinstance(raw.get("auth"), str) and raw["auth"] != "oauth":
        token = raw.pop("auth")
        raw["headers"] = {**raw.get("headers", {}), "Authorization": f"Bearer {token}"}


def mcp_agent(imported: ImportedEntry) -> None:
    raw = imported.raw
    if "read_timeout_seconds" in raw:
        raw["call_timeout"] = raw.pop("read_timeout_seconds")
    if "http_timeout_seconds" in raw:
        raw["connect_timeout"] = raw.pop("http_timeout_seconds")
    if not raw.get("allowed_tools"):
        raw.pop("allowed_tools", None)


def mcpproxy(imported: ImportedEntry) -> None:
    if imported.raw.pop("quarantined", None):
        imported.raw.pop("enabled", None)
        imported.raw["disabled"] = True
        imported.notes.append("is quarantined in mcpproxy: imported disabled")


def mcphub(imported: ImportedEntry) -> None:
    raw = imported.raw
    if raw.get("type") == "openapi":
        raise UnfitError("describes a web API (type openapi), not a server")
    options = raw.pop("options", None)
    if isinstance(options, Mapping) and "timeout" in options:
        raw["call_timeout"] = milliseconds(cast("Mapping[str, Any]", options)["timeout"])


def continue_dev(imported: ImportedEntry) -> None:
    raw = imported.raw
    options = raw.pop("requestOptions", None)
    if isinstance(options, Mapping):
        given = cast("Mapping[str, Any]", options)
        raw["headers"] = {**given.get("headers", {}), **raw.get("headers", {})}
        if rest := sorted(given.keys() - {"headers"}):
            imported.notes.append(f"not carried over: requestOptions.{', requestOptions.'.join(rest)}")
    if "connectionTimeout" in raw:
        raw["connect_timeout"] = milliseconds(raw.pop("connectionTimeout"))


def docker(imported: ImportedEntry) -> None:
    # The registry names images of a catalog, which only Docker's own gateway can run.
    args = ["mcp", "gateway", "run", "--servers", imported.name]
    imported.raw = {"command": "docker", "args": args}


_EDITOR_STORE = "{support}/Code/User/globalStorage"
_CLAUDE = user("{home}/.claude.json")
_DESKTOP = user("{support}/Claude/claude_desktop_config.json")
_CODEX = user("{codex}/config.toml")
_CODE = user("{support}/Code/User/mcp.json")
_COPILOT = user("{copilot}/mcp-config.json")
_CURSOR = user("{home}/.cursor/mcp.json")
_WINDSURF = user("{home}/.codeium/windsurf/mcp_config.json")
_ZED = user("{config}/zed/settings.json")
_GEMINI = user("{home}/.gemini/settings.json")
_GOOSE = user("{config}/goose/config.yaml", "linux", "darwin")
_OPENCODE = user("{config}/opencode/opencode.json")
_CLINE = user(f"{_EDITOR_STORE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json")
_ROO = user(f"{_EDITOR_STORE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json")
_LMSTUDIO = user("{home}/.lmstudio/mcp.json")
_LIBRECHAT = project("librechat.yaml")

_HTTP = {"type": "http"}
_SSE = {"type": "sse"}

WRITABLE = (
    Program(
        name="claude-code",
        title="Claude Code",
        sites=(
            managed("{shared}/claude-code/managed-mcp.json", "linux"),
            managed("{shared}/ClaudeCode/managed-mcp.json", "darwin", "win32"),
            project(".mcp.json"),
            _CLAUDE,
        ),
        per_folder=("projects", "mcpServers"),
        adapt=claude_code,
        timeout=("call_timeout", "ms"),
        out=Outbound(
            site={"user": _CLAUDE, "project": project(".mcp.json")},
            http=_HTTP,
            sse=_SSE,
            call_timeout=("timeout", "ms"),
        ),
    ),
    Program(
        name="claude-desktop",
        title="Claude Desktop",
        sites=(_DESKTOP,),
        syntax="none",
        out=Outbound(site={"user": _DESKTOP}, http=None),
    ),
    Program(
        name="codex",
        title="Codex",
        sites=(project(".codex/config.toml"), _CODEX),
        roots=(("mcp_servers",),),
        syntax="none",
        drops=frozenset(
            (
                *("default_tools_approval_mode", "scopes", "oauth_resource", "supports_parallel_tool_calls"),
                *("omit_tools_from", "experimental_environment", "tools"),
            )
        ),
        out=Outbound(
            site={"user": _CODEX, "project": project(".codex/config.toml")},
            root=("mcp_servers",),
            variable_headers=True,
            names={
                "cwd": "cwd",
                "headers": "http_headers",
                "allow": "enabled_tools",
                "deny": "disabled_tools",
                "inherit_env": "env_vars",
            },
            switch="enabled",
            call_timeout=("tool_timeout_sec", "s"),
            connect_timeout=("startup_timeout_sec", "s"),
        ),
    ),
    Program(
        name="vscode",
        title="VS Code",
        sites=(project(".vscode/mcp.json"), _CODE),
        roots=(("servers",), ("mcpServers",)),
        syntax="env",
        out=Outbound(
            site={"user": _CODE, "project": project(".vscode/mcp.json")},
            root=("servers",),
            stdio={"type": "stdio"},
            names={"cwd": "cwd"},
            http=_HTTP,
            sse=_SSE,
        ),
    ),
    Program(
        name="copilot",
        title="Copilot CLI",
        sites=(_COPILOT,),
        adapt=copilot,
        drops=frozenset({"deferTools"}),
        out=Outbound(
            site={"user": _COPILOT},
            stdio={"type": "local", "tools": ["*"]},
            http={**_HTTP, "tools": ["*"]},
            sse={**_SSE, "tools": ["*"]},
            names={"allow": "tools"},
        ),
    ),
    Program(
        name="cursor",
        title="Cursor",
        sites=(project(".cursor/mcp.json"), _CURSOR),
        syntax="env",
        out=Outbound(site={"user": _CURSOR, "project": project(".cursor/mcp.json")}, sse={}),
    ),
    Program(
        name="windsurf",
        title="Windsurf",
        sites=(_WINDSURF,),
        syntax="env",
        out=Outbound(
            site={"user": _WINDSURF},
            names={"url": "serverUrl", "deny": "disabledTools"},
            sse={},
            switch="disabled",
        ),
    ),
    Program(
        name="zed",
        title="Zed",
        sites=(project(".zed/settings.json"), _ZED),
        roots=(("context_servers",),),
        syntax="none",
        adapt=zed,
        drops=frozenset({"settings"}),
        out=Outbound(
            site={"user": _ZED, "project": project(".zed/settings.json")},
            root=("context_servers",),
            stdio={"source": "custom"},
            switch="enabled",
        ),
    ),
    Program(
        name="gemini",
        title="Gemini CLI",
        sites=(project(".gemini/settings.json"), _GEMINI),
        syntax="dollar",
        adapt=gemini,
        timeout=("call_timeout", "ms"),
        drops=frozenset({"authProviderType", "targetAudience", "targetServiceAccount"}),
        out=Outbound(
            site={"user": _GEMINI, "project": project(".gemini/settings.json")},
            names={
                "url": "httpUrl",
                "cwd": "cwd",
                "allow": "includeTools",
                "deny": "excludeTools",
                "description": "description",
            },
            sse={},
            sse_url="url",
            call_timeout=("timeout", "ms"),
        ),
    ),
    Program(
        name="goose",
        title="goose",
        sites=(_GOOSE, user("{config}/Block/goose/config/config.yaml", "win32")),
        roots=(("extensions",),),
        syntax="dollar",
        adapt=goose,
        timeout=("call_timeout", "s"),
        out=Outbound(
            site={"user": _GOOSE},
            root=("extensions",),
            stdio={"enabled": True, "type": "stdio"},
            http={"enabled": True, "type": "streamable_http"},
            expands=frozenset({"headers"}),
            named=True,
            names={
                "command": "cmd",
                "url": "uri",
                "env": "envs",
                "allow": "available_tools",
                "inherit_env": "env_keys",
                "description": "description",
            },
            switch="enabled",
            call_timeout=("timeout", "s"),
        ),
    ),
    Program(
        name="opencode",
        title="opencode",
        sites=(
            project("opencode.json"),
            project("opencode.jsonc"),
            project(".agents/mcp.json"),
            _OPENCODE,
            user("{config}/opencode/opencode.jsonc"),
            user("{home}/.agents/mcp.json"),
        ),
        roots=(("mcp",), ("mcpServers",)),
        bare=True,
        syntax="brace",
        timeout=("connect_timeout", "ms"),
        out=Outbound(
            site={"user": _OPENCODE, "project": project("opencode.json")},
            root=("mcp",),
            stdio={"type": "local"},
            http={"type": "remote"},
            joined=True,
            names={"env": "environment"},
            switch="enabled",
            connect_timeout=("timeout", "ms"),
        ),
    ),
    Program(
        name="librechat",
        title="LibreChat",
        sites=(_LIBRECHAT,),
        adapt=librechat,
        timeout=("call_timeout", "ms"),
        drops=frozenset(
            (
                *("serverInstructions", "requiresOAuth", "oauth_headers", "apiKey", "customUserVars", "obo"),
                *("proxy", "chatMenu", "stderr", "sseReadTimeout", "iconPath", "title"),
            )
        ),
        out=Outbound(
            site={"project": _LIBRECHAT},
            stdio={"type": "stdio"},
            http={"type": "streamable-http"},
            sse=_SSE,
            call_timeout=("timeout", "ms"),
            connect_timeout=("initTimeout", "ms"),
        ),
    ),
    Program(
        name="cline",
        title="Cline",
        sites=(_CLINE, user("{home}/.cline/data/settings/cline_mcp_settings.json")),
        syntax="none",
        timeout=("call_timeout", "s"),
        out=Outbound(
            site={"user": _CLINE},
            http={"type": "streamableHttp"},
            sse=_SSE,
            switch="disabled",
            call_timeout=("timeout", "s"),
        ),
    ),
    Program(
        name="roo",
        title="Roo Code",
        sites=(project(".roo/mcp.json"), _ROO),
        syntax="env",
        timeout=("call_timeout", "s"),
        drops=frozenset({"watchPaths"}),
        out=Outbound(
            site={"user": _ROO, "project": project(".roo/mcp.json")},
            http={"type": "streamable-http"},
            sse=_SSE,
            names={"deny": "disabledTools"},
            switch="disabled",
            call_timeout=("timeout", "s"),
        ),
    ),
    Program(
        name="lmstudio",
        title="LM Studio",
        sites=(_LMSTUDIO, user("{home}/.cache/lm-studio/mcp.json")),
        syntax="none",
        timeout=("call_timeout", "ms"),
        out=Outbound(site={"user": _LMSTUDIO}),
    ),
)


_READ_ONLY = (
    Program(
        name="fastmcp",
        title="FastMCP",
        sites=(project("fastmcp.json"), project("mcp.json")),
        bare=True,
        syntax="none",
        adapt=fastmcp,
        timeout=("call_timeout", "ms"),
        drops=frozenset({"keep_alive", "sse_read_timeout", "max_sse_event_size", "mode", "tools"}),
    ),
    Program(
        name="mcp-agent",
        title="mcp-agent",
        sites=(project("mcp_agent.config.yaml"),),
        roots=(("mcp", "servers"),),
        adapt=mcp_agent,
        drops=frozenset({"roots", "terminate_on_close"}),
    ),
    Program(
        name="mcpproxy",
        title="mcpproxy",
        sites=(user("{home}/.mcpproxy/mcp_config.json"),),
        looks_up=frozenset({"env", "keyring"}),
        adapt=mcpproxy,
        drops=frozenset(
            (
                *("isolation", "auto_approve_tool_changes", "reconnect_on_use", "created", "updated"),
                "skip_quarantine",
            )
        ),
    ),
    Program(
        name="mcphub",
        title="MCPHub",
        sites=(project("mcp_settings.json"),),
        adapt=mcphub,
        drops=frozenset({"owner", "keepAliveInterval", "prompts", "tools", "enableKeepAlive", "proxy"}),
    ),
    Program(
        name="continue",
        title="Continue",
        sites=(user("{home}/.continue/config.yaml"), project(".continue/mcpServers/mcp.json")),
        adapt=continue_dev,
        drops=frozenset({"faviconUrl", "serverName", "sourceFile"}),
    ),
    Program(
        name="docker",
        title="Docker MCP",
        sites=(user("{home}/.docker/mcp/registry.yaml"),),
        roots=(("registry",),),
        adapt=docker,
    ),
    Program(
        name="evva", title="evva", sites=(project(".evva/settings.json"), user("{home}/.evva/settings.json"))
    ),
    Program(
        name="assistant4",
        title="assistant4",
        sites=(project("sandbox/extensions/mcp/manifest.yaml"),),
        roots=(("config", "servers"),),
        drops=frozenset({"cache_tools", "prompts"}),
    ),
    Program(
        name="skill-agent",
        title="autonomous skill agent",
        sites=(project("agent.yaml"),),
        roots=(("mcp", "servers"),),
    ),
    Program(
        name="nexo",
        title="nexo",
        sites=(project("config/mcp.yaml"),),
        roots=(("mcp", "servers"),),
        looks_up=frozenset({"env", "file"}),
        drops=frozenset({"context_passthrough", "initialize_timeout", "sampling"}),
    ),
    Program(
        name="anda",
        title="anda",
        roots=(("mcp", "servers"), ("mcpServers",)),
    ),
    Program(
        name="strands",
        title="Strands Agents",
        bare=True,
        drops=frozenset({"continue_on_error", "prefix"}),
    ),
    Program(name="mcp-proxy", title="mcp-proxy", drops=frozenset({"timeout", "transportType"})),
    Program(name="metamcp", title="MetaMCP", bare=True, drops=frozenset({"uuid", "status", "created_at"})),
)

PROGRAMS = {one.name: one for one in (*WRITABLE, *_READ_ONLY)}

ANY = Program(name="file", title="a file", bare=True, looks_up=frozenset({"env", "file", "keyring"}))
"""A file of no specific program, in one of the common formats."""


def program(name: str) -> Program:
    """Return the program of this name.

    Raises:
    ConfigError: there is none; the message suggests similar names.
    """
    if name in PROGRAMS:
        return PROGRAMS[name]
    near = nearest(name, list(PROGRAMS))
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known are: {', '.join(PROGRAMS)}."
    raise ConfigError(f"{name!r} is not a program whose files mooring knows. {hint}")
