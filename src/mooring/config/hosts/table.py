"""All programs we know. Those that are only read from stand here."""

from __future__ import annotations

from mooring.config.hosts import adapt
from mooring.config.hosts.machine import project, user
from mooring.config.hosts.program import Program
from mooring.config.hosts.writable import WRITABLE
from mooring.core.near import nearest
from mooring.errors import ConfigError

__all__ = ["ANY", "PROGRAMS", "program"]

_READ_ONLY = (
    Program(
        name="fastmcp",
        title="FastMCP",
        sites=(project("fastmcp.json"), project("mcp.json")),
        bare=True,
        syntax="none",
        adapt=adapt.fastmcp,
        timeout=("call_timeout", "ms"),
        drops=frozenset({"keep_alive", "sse_read_timeout", "max_sse_event_size", "mode", "tools"}),
    ),
    Program(
        name="mcp-agent",
        title="mcp-agent",
        sites=(project("mcp_agent.config.yaml"),),
        roots=(("mcp", "servers"),),
        adapt=adapt.mcp_agent,
        drops=frozenset({"roots", "terminate_on_close"}),
    ),
    Program(
        name="mcpproxy",
        title="mcpproxy",
        sites=(user("{home}/.mcpproxy/mcp_config.json"),),
        looks_up=frozenset({"env", "keyring"}),
        adapt=adapt.mcpproxy,
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
        adapt=adapt.mcphub,
        drops=frozenset({"owner", "keepAliveInterval", "prompts", "tools", "enableKeepAlive", "proxy"}),
    ),
    Program(
        name="continue",
        title="Continue",
        sites=(user("{home}/.continue/config.yaml"), project(".continue/mcpServers/mcp.json")),
        adapt=adapt.continue_dev,
        drops=frozenset({"faviconUrl", "serverName", "sourceFile"}),
    ),
    Program(
        name="docker",
        title="Docker MCP",
        sites=(user("{home}/.docker/mcp/registry.yaml"),),
        roots=(("registry",),),
        adapt=adapt.docker,
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
"""A file of nobody in particular, in one of the shapes that many write."""


def program(name: str) -> Program:
    """The program that goes by `name`.

    Raises:
        ConfigError: there is none; with the nearest names.
    """
    if name in PROGRAMS:
        return PROGRAMS[name]
    near = nearest(name, list(PROGRAMS))
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known are: {', '.join(PROGRAMS)}."
    raise ConfigError(f"{name!r} is no program whose files mooring knows. {hint}")
