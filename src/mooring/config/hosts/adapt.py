"""Entries that mean something else than they look like, one function per program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mooring.config.hosts.program import Carried, UnfitError
from mooring.core.durations import number

__all__ = [
    "claude_code",
    "continue_dev",
    "copilot",
    "docker",
    "fastmcp",
    "gemini",
    "goose",
    "librechat",
    "mcp_agent",
    "mcphub",
    "mcpproxy",
    "milliseconds",
    "zed",
]


def milliseconds(value: object) -> str | None:
    """A number of milliseconds as a duration with its unit; None when it is none."""
    plain = number(value)
    return None if plain is None or plain <= 0 else f"{plain:g}ms"


def claude_code(carried: Carried) -> None:
    timeout = number(carried.raw.get("timeout"))
    if timeout is not None and timeout < 1000:
        del carried.raw["timeout"]
        carried.notes.append("'timeout' below 1000 ms is ignored by Claude Code, and here")


def copilot(carried: Carried) -> None:
    tools = carried.raw.get("tools")
    if not tools:
        carried.raw.pop("tools", None)
        carried.raw["disabled"] = True
        carried.notes.append("names no 'tools', so Copilot CLI shows none of them: imported disabled")
    elif "*" in tools:
        del carried.raw["tools"]


def gemini(carried: Carried) -> None:
    raw = carried.raw
    if "httpUrl" in raw:
        raw.pop("url", None)
        raw["type"] = "streamable-http"
    elif "url" in raw:
        raw.setdefault("type", "sse")
    if raw.get("trust"):
        carried.notes.append("'trust' skips every question there; here `approve` decides")


def goose(carried: Carried) -> None:
    raw = carried.raw
    kind = raw.get("type")
    if kind in ("builtin", "platform", "frontend", "inline_python"):
        raise UnfitError(f"is part of goose (type {kind}), not a server")
    if not raw.get("available_tools"):
        raw.pop("available_tools", None)  # none named means all
    raw.pop("name", None)


def zed(carried: Carried) -> None:
    raw = carried.raw
    if "command" not in raw and "url" not in raw:
        raise UnfitError("is run by an extension of Zed, which knows the command")
    if raw.get("command") is None:
        raw.pop("command", None)


def librechat(carried: Carried) -> None:
    raw = carried.raw
    if "initTimeout" in raw:
        raw["connect_timeout"] = milliseconds(raw.pop("initTimeout"))
    if raw.get("customUserVars"):
        names = ", ".join(cast("Mapping[str, Any]", raw["customUserVars"]))
        carried.notes.append(f"each user gave {names}; write them as references")


def fastmcp(carried: Carried) -> None:
    raw = carried.raw
    if isinstance(raw.get("auth"), str) and raw["auth"] != "oauth":
        token = raw.pop("auth")
        raw["headers"] = {**raw.get("headers", {}), "Authorization": f"Bearer {token}"}


def mcp_agent(carried: Carried) -> None:
    raw = carried.raw
    if "read_timeout_seconds" in raw:
        raw["call_timeout"] = raw.pop("read_timeout_seconds")
    if "http_timeout_seconds" in raw:
        raw["connect_timeout"] = raw.pop("http_timeout_seconds")
    if not raw.get("allowed_tools"):
        raw.pop("allowed_tools", None)


def mcpproxy(carried: Carried) -> None:
    if carried.raw.pop("quarantined", None):
        carried.raw.pop("enabled", None)
        carried.raw["disabled"] = True
        carried.notes.append("is quarantined in mcpproxy: imported disabled")


def mcphub(carried: Carried) -> None:
    raw = carried.raw
    if raw.get("type") == "openapi":
        raise UnfitError("describes a web API (type openapi), not a server")
    options = raw.pop("options", None)
    if isinstance(options, Mapping) and "timeout" in options:
        raw["call_timeout"] = milliseconds(cast("Mapping[str, Any]", options)["timeout"])


def continue_dev(carried: Carried) -> None:
    raw = carried.raw
    options = raw.pop("requestOptions", None)
    if isinstance(options, Mapping):
        given = cast("Mapping[str, Any]", options)
        raw["headers"] = {**given.get("headers", {}), **raw.get("headers", {})}
        if rest := sorted(given.keys() - {"headers"}):
            carried.notes.append(f"not carried over: requestOptions.{', requestOptions.'.join(rest)}")
    if "connectionTimeout" in raw:
        raw["connect_timeout"] = milliseconds(raw.pop("connectionTimeout"))


def docker(carried: Carried) -> None:
    # The registry names images of a catalog; Docker's own gateway knows how to run them.
    args = ["mcp", "gateway", "run", "--servers", carried.name]
    carried.raw = {"command": "docker", "args": args}
