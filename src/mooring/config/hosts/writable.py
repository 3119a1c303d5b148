"""The programs that servers can be exported to, as data: their files, their words, their units."""

from __future__ import annotations

from mooring.config.hosts import adapt
from mooring.config.hosts.machine import managed, project, user
from mooring.config.hosts.program import Outbound, Program

__all__ = ["WRITABLE"]

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
        adapt=adapt.claude_code,
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
        adapt=adapt.copilot,
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
        adapt=adapt.zed,
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
        adapt=adapt.gemini,
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
        adapt=adapt.goose,
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
        adapt=adapt.librechat,
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
