"""What a modern HTTP request says of itself in its headers. The rules are the SDK's; it is asked (and
imported) only where a name or a schema needs more than plain text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mooring.core.types import Snapshot, Tool

_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    ("tasks/get", "tasks/update", "tasks/cancel"), "taskId"
)

HeaderMap = dict[tuple[str, ...], str]


def request_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """`Mcp-Method`, and `Mcp-Name` for methods that name a thing."""
    headers = {"Mcp-Method": method}
    name = params.get(_NAMED.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = _value(name)
    return headers


def parameter_headers(header_map: HeaderMap, arguments: Mapping[str, Any]) -> dict[str, str]:
    """`Mcp-Param-…` for the arguments that the tool's schema wants in headers."""
    from mcp.shared.inbound import mcp_param_headers

    return mcp_param_headers(header_map, arguments)


def mirrored(snapshot: Snapshot) -> tuple[Snapshot, dict[str, HeaderMap]]:
    """The snapshot without tools whose header annotations break the rules (they must not be used), and
    for each remaining tool that has any, which arguments go into headers."""
    kept: list[Tool] = []
    maps: dict[str, HeaderMap] = {}
    warnings: list[str] = []
    for tool in snapshot.tools:
        if "x-mcp-header" in repr(tool.input_schema):
            from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

            if problem := find_invalid_x_mcp_header(tool.input_schema):
                warnings.append(f"{tool.server}: set aside tool {tool.name!r}: {problem}")
                continue
            if found := x_mcp_header_map(tool.input_schema):
                maps[tool.name] = found
        kept.append(tool)
    if not warnings:
        return snapshot, maps
    return (
        Snapshot(
            server=snapshot.server,
            info=snapshot.info,
            instructions=snapshot.instructions,
            tools=tuple(kept),
            resources=snapshot.resources,
            templates=snapshot.templates,
            prompts=snapshot.prompts,
            warnings=(*snapshot.warnings, *warnings),
        ),
        maps,
    )


def _value(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text.startswith("=?"):
        return text
    from mcp.shared.inbound import encode_header_value

    return encode_header_value(text)
