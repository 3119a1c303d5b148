"""The lists that clients read, as JSON: made once for each state of a view, not for each request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.core.types import Prompt, Resource, ResourceTemplate, Tool
from mooring.gateway.protocol import stamped
from mooring.gateway.views import Offer
from mooring.net.message import encode
from mooring.net.negotiate import Era

__all__ = ["HINTS", "Lists", "prompt_entry", "resource_entry", "template_entry", "tool_entry"]

HINTS: Mapping[str, Any] = {"ttlMs": 0, "cacheScope": "private"}
"""Of the 2026 era: changes are told, so nothing needs to be kept."""


def tool_entry(name: str, tool: Tool, era: Era) -> dict[str, Any]:
    """A tool as it was defined, under the name that the client uses."""
    entry: dict[str, Any] = {**tool.extra, "name": name}
    if tool.title:
        entry["title"] = tool.title
    if tool.description:
        entry["description"] = tool.description
    entry["inputSchema"] = tool.input_schema
    output = tool.output_schema
    # Before 2026 the output was an object, and clients set a whole list aside for one that is not.
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
    """All lists of one offer, each made when it is first asked for."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self._made: dict[tuple[str, Era], bytes] = {}

    def page(self, method: str, era: Era) -> bytes:
        made = self._made.get((method, era))
        if made is None:
            made = self._made[method, era] = self._make(method, era)
        return made

    def _make(self, method: str, era: Era) -> bytes:
        offer = self.offer
        match method:
            case "tools/list":
                return tools_page(offer.catalog.tools.values(), era)
            case "resources/list":
                return _page("resources", [resource_entry(item) for item in offer.resources.values()], era)
            case "resources/templates/list":
                entries = [template_entry(item) for item in offer.templates.values()]
                return _page("resourceTemplates", entries, era)
            case "prompts/list":
                return _page(
                    "prompts", [prompt_entry(name, item) for name, item in offer.prompts.items()], era
                )
            case _:
                raise KeyError(method)
