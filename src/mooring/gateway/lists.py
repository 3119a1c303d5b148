"""The lists that clients get: tools, resources, templates and prompts of a profile, encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.core.types import Era, Prompt, Resource, ResourceTemplate, Tool
from mooring.core.value import replace
from mooring.gateway.extensions import paged_servers, shown_resource, shown_tool
from mooring.gateway.profiles import ProfileCatalog
from mooring.gateway.protocol import stamped
from mooring.transport.message import encode

HINTS: Mapping[str, Any] = {"ttlMs": 0, "cacheScope": "private"}
"""Cache hints of the 2026 era: no caching, because changes are announced."""


def tool_entry(name: str, tool: Tool, era: Era) -> dict[str, Any]:
    """Return a tool as its server defined it, under the name that the client uses."""
    entry: dict[str, Any] = {**tool.extra, "name": name}
    if tool.title:
        entry["title"] = tool.title
    if tool.description:
        entry["description"] = tool.description
    entry["inputSchema"] = tool.input_schema
    output = tool.output_schema
    # Before 2026 outputs were objects; clients reject a whole list for one that is not.
    if output is not None and (era == "modern" or output.get("type") == "object"):
        entry["outputSchema"] = output
    if tool.annotations:
        entry["annotations"] = tool.annotations
    if tool.meta:
        entry["_meta"] = tool.meta
    return entry


def resource_entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {**resource.extra, "uri": resource.uri, "name": resource.name}
    return entry | _texts(resource) | ({} if resource.size is None else {"size": resource.size})


def template_entry(template: ResourceTemplate) -> dict[str, Any]:
    entry: dict[str, Any] = {**template.extra, "uriTemplate": template.uri_template, "name": template.name}
    return entry | _texts(template)


def _texts(item: Resource | ResourceTemplate) -> dict[str, Any]:
    texts = {"title": item.title, "description": item.description, "mimeType": item.mime_type}
    return {key: text for key, text in texts.items() if text}


def prompt_entry(name: str, prompt: Prompt) -> dict[str, Any]:
    entry: dict[str, Any] = {**prompt.extra, "name": name}
    if prompt.title:
        entry["title"] = prompt.title
    if prompt.description:
        entry["description"] = prompt.description
    if prompt.arguments:
        entry["arguments"] = list(prompt.arguments)
    return entry


def tools_page(tools: Iterable[Tool], era: Era) -> bytes:
    """The result of `tools/list`."""
    return _page("tools", [tool_entry(tool.name, tool, era) for tool in tools], era)


def _page(key: str, entries: list[dict[str, Any]], era: Era) -> bytes:
    page: dict[str, Any] = {key: entries}
    return encode(stamped(page, **HINTS) if era == "modern" else page)


class Lists:
    """The encoded lists of one profile, each built on first use."""

    def __init__(self, contents: ProfileCatalog) -> None:
        self.contents = contents
        self._pages: dict[tuple[str, Era, bool], bytes] = {}
        self._paged = paged_servers(contents.catalog)

    def page(self, method: str, era: Era, *, pages: bool = False) -> bytes:
        """Return the result of a list method; `pages`: for a client that shows pages of tools."""
        page = self._pages.get((method, era, pages))
        if page is None:
            page = self._pages[method, era, pages] = self._make(method, era, pages)
        return page

    def tools(self, pages: bool) -> Iterable[Tool]:
        """Return the tools in order of name, with those of pages only for clients that show pages."""
        catalog = self.contents.catalog
        if not pages:
            return catalog.tools.values()
        return sorted((*catalog.tools.values(), *catalog.app_tools.values()), key=lambda tool: tool.name)

    def shown(self, tools: Iterable[Tool], pages: bool) -> list[Tool]:
        """Return tools with the addresses that clients use."""
        return [shown_tool(tool, origin=pages and tool.server in self._paged) for tool in tools]

    def reserved(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return the tools that only pages of the servers of these tools may call."""
        servers = {tool.server for tool in tools}
        return tuple(one for one in self.contents.catalog.app_tools.values() if one.server in servers)

    def _make(self, method: str, era: Era, pages: bool) -> bytes:
        contents = self.contents
        match method:
            case "tools/list":
                return tools_page(self.shown(self.tools(pages), pages), era)
            case "resources/list":
                shown = [
                    shown_resource(uri, item, origin=pages and item.server in self._paged)
                    for uri, item in contents.resources.items()
                ]
                return _page("resources", [resource_entry(item) for item in shown], era)
            case "resources/templates/list":
                templates = [replace(item, uri_template=uri) for uri, item in contents.templates.items()]
                return _page("resourceTemplates", [template_entry(item) for item in templates], era)
            case "prompts/list":
                return _page(
                    "prompts", [prompt_entry(name, item) for name, item in contents.prompts.items()], era
                )
            case _:
                raise KeyError(method)
