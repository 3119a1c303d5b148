"""Tools of mooring's own beside those of the servers: what a model needs to find and read resources."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from mooring.core.discovery import OWNER
from mooring.core.near import nearest
from mooring.core.types import (
    EMPTY,
    Block,
    Contents,
    Group,
    Resource,
    ResourceTemplate,
    Result,
    Snapshot,
    Tool,
)
from mooring.core.untrusted import clean, fence, line, quote
from mooring.errors import CallError, UnknownTool
from mooring.local import AtHand, Progress
from mooring.resources import Resources

__all__ = ["BUILTIN", "Builtin"]

PAGE = 100
"""Resources in one answer."""
_LINE = 200
_PAGE_TEXT = 40_000

_SERVER = {"type": "string", "description": "Name of the server; leave out for all"}


def _tool(name: str, description: str, properties: Mapping[str, Any], required: list[str]) -> Tool:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
    }
    return Tool(
        name=name,
        server=OWNER,
        remote_name=name,
        description=description,
        input_schema=schema,
        annotations={"readOnlyHint": True},
    )


TOOLS = (
    _tool(
        "list_mcp_resources",
        "List what the MCP servers offer to read: URIs, and templates of URIs to fill in.",
        {"server": _SERVER, "cursor": {"type": "string", "description": "From an earlier answer"}},
        [],
    ),
    _tool(
        "read_mcp_resource",
        "Read one resource of an MCP server by its URI.",
        {"server": _SERVER, "uri": {"type": "string", "description": "As `list_mcp_resources` shows it"}},
        ["uri"],
    ),
)
BUILTIN = frozenset(tool.name for tool in TOOLS)


class Builtin(AtHand):
    """The provider of these tools: a host shows them as soon as a server has resources."""

    name = OWNER

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.shown = False

    @property
    def snapshot(self) -> Snapshot:
        if not self.shown:
            return Snapshot(server=self.name)
        group = Group(
            id=self.name,
            title="Resources of MCP servers",
            description="Finds and reads the resources that the MCP servers offer.",
            members=tuple(tool.name for tool in TOOLS),
        )
        return Snapshot(server=self.name, tools=TOOLS, groups=(group,))

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        if tool not in BUILTIN:
            raise UnknownTool(tool, nearest(tool, BUILTIN))
        started = time.monotonic()
        server, given = self._text(tool, arguments, "server"), dict(arguments)
        known = next(entry for entry in TOOLS if entry.name == tool).input_schema["properties"]
        if unknown := sorted(given.keys() - known):
            raise self._unfit(tool, f"it has no argument {unknown[0]!r}; it takes {', '.join(known)}")
        if tool == "list_mcp_resources":
            blocks, structured = await self._listed(server, self._text(tool, arguments, "cursor"), timeout)
        else:
            uri = self._text(tool, arguments, "uri")
            if uri is None:
                raise self._unfit(tool, "it needs a 'uri'")
            blocks, structured = _read(await self._resources.read(uri, server, timeout=timeout)), None
        return Result(
            server=self.name,
            tool=tool,
            blocks=blocks,
            structured=structured,
            duration=time.monotonic() - started,
        )

    async def _listed(
        self, server: str | None, cursor: str | None, timeout: float | None
    ) -> tuple[tuple[Block, ...], dict[str, Any]]:
        found = await self._resources.list(server, timeout=timeout)
        entries = [*map(_resource, found.resources), *map(_template, found.templates)]
        if cursor is not None and not cursor.isdecimal():
            raise self._unfit("list_mcp_resources", "'cursor' must be one that an earlier answer gave")
        start = int((cursor or "0")[:9])
        page = entries[start : start + PAGE]
        following = str(start + PAGE) if start + PAGE < len(entries) else None
        errors = {name: line(why, 300) for name, why in found.errors.items()}
        lines = [*_by_server(page), *(f"{name} did not answer: {why}" for name, why in errors.items())]
        if following is not None:
            lines.append(f"There are {len(entries) - start - PAGE} more: give cursor {following!r}.")
        text = "\n".join(lines) or "No server offers resources."
        structured: dict[str, Any] = {
            "resources": [entry for entry in page if "uri" in entry],
            "templates": [entry for entry in page if "uri_template" in entry],
            "errors": errors,
            "next_cursor": following,
        }
        return (Block({"type": "text", "text": text}),), structured

    def _text(self, tool: str, arguments: Mapping[str, Any], name: str) -> str | None:
        value = arguments.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._unfit(tool, f"{name!r} must be text")

    def _unfit(self, tool: str, problem: str) -> CallError:
        return CallError(
            f"{tool!r} was not called: {problem}", server=self.name, tool=tool, outcome="not sent"
        )


def _resource(entry: Resource) -> dict[str, Any]:
    return {"uri": clean(entry.uri, 2_000), "mime_type": entry.mime_type, **_about(entry)}


def _template(entry: ResourceTemplate) -> dict[str, Any]:
    return {"uri_template": clean(entry.uri_template, 2_000), "mime_type": entry.mime_type, **_about(entry)}


def _about(entry: Resource | ResourceTemplate) -> dict[str, Any]:
    return {
        "server": entry.server,
        "name": line(entry.title or entry.name, _LINE),
        "description": line(entry.description, _LINE),
    }


def _by_server(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """One fence for each server, since each speaks for itself."""
    lines: dict[str, list[str]] = {}
    for entry in entries:
        place = entry.get("uri") or f"{entry['uri_template']} (template)"
        words = " - ".join(filter(None, (entry["name"], entry["description"])))
        lines.setdefault(entry["server"], []).append(f"{place}: {words}")
    return [fence("\n".join(own), server, _PAGE_TEXT) for server, own in lines.items()]


def _read(contents: Contents) -> tuple[Block, ...]:
    """What a model gets of a resource: texts marked as the server's, images as such, the rest as it came."""
    blocks: list[Block] = []
    for block in contents.blocks:
        kind = block.mime_type or ""
        if block.text is not None:
            text = quote(block.text, contents.server, uri=block.uri or contents.uri)
            blocks.append(Block({"type": "text", "text": text}))
        elif kind.startswith("image/"):
            blocks.append(Block({"type": "image", "data": block.data, "mimeType": kind}))
        else:
            blocks.append(block)
    return tuple(blocks) or (Block({"type": "text", "text": f"[{contents.uri} is empty.]"}),)
