"""Pages of tools (MCP Apps): fetched, compared with the lock, and ready to be shown in a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from mooring.config.logs import logger
from mooring.core.apps import (
    MIME_TYPE,
    PageRules,
    for_pages,
    gateway_origin,
    own_name,
    page_address,
    page_digest,
    page_rules,
)
from mooring.core.extensions import address_behind, address_through
from mooring.core.text import line
from mooring.core.types import EMPTY, Contents, Json, Page, Resource, Result, Snapshot, Tool
from mooring.errors import CallError, MooringError, ServerError, UnknownResource
from mooring.extensions.bridge import ViewBridge
from mooring.resources import Resources
from mooring.servers.catalog import CatalogBuilder

__all__ = ["View", "Views", "pages_of", "read_page"]

log = logger("mooring.views")

MOST_PAGES = 256
"""Pages of one server that a lock holds."""
LARGEST_PAGE = 8 * 2**20
"""Bytes of a page."""


class CallTool(Protocol):
    """Calls a tool for a page; see `call_for_page`."""

    async def __call__(self, tool: Tool, arguments: Mapping[str, Any] | None) -> Result: ...


class Views:
    """Fetches the pages of the tools of a host."""

    def __init__(self, catalog: CatalogBuilder, resources: Resources) -> None:
        self._builder, self._resources = catalog, resources

    def tool(self, name: str) -> Tool:
        """Return the tool of this local name, also one that only pages may call.

        Raises:
            UnknownTool: There is none.
        """
        catalog = self._builder.catalog
        return catalog.app_tools.get(name) or catalog.route(name)

    async def open(self, name: str, call: CallTool, timeout: float | None) -> View:
        """Implement `Host.view`."""
        tool = self.tool(name)
        uri = page_address(tool)
        if uri is None:
            raise CallError(
                f"tool {name!r} of server {tool.server!r} has no page",
                server=tool.server,
                tool=tool.remote_name,
                outcome="not sent",
            )
        html, rules = await self.page(tool.server, uri, timeout)
        if rules.external:
            log.warning(
                "page may reach other domains: server=%s page=%s domains=%s",
                tool.server,
                line(uri, 200),
                ", ".join(rules.external),
            )
        return View(tool, uri, html, rules, self, call)

    async def page(self, server: str, uri: str, timeout: float | None = None) -> tuple[str, PageRules]:
        """Return a page of a server and its rules, after the comparison with the lock.

        Raises:
            ServerError: The server did not send a page.
            ToolChanged: The page differs from the approved one.
        """
        contents = await self._resources.read_fresh(uri, server, timeout=timeout)
        html, rules = read_page(contents, self._builder.catalog.resources)
        page = _state(server, uri, html, rules)
        if (problem := self._builder.pins.check_page(page)) is not None:
            raise problem
        return html, rules

    async def read(self, view: View, uri: str) -> Contents:
        """Return a resource of the server of a page. Behind a gateway, only those of the server that the
        gateway names.

        Raises:
            UnknownResource: The server has no such resource.
        """
        home = gateway_origin(view.tool.meta)
        if home is not None:
            shown = address_through(uri, home[0].split("/"))
            listed = (one for one in self._builder.catalog.resources if one.server == view.server)
            origins = {one.uri: gateway_origin(_mapping(one.extra.get("_meta"))) for one in listed}
            if shown == uri and (origins.get(uri) or ("",))[0] != home[0]:
                raise UnknownResource(line(uri, 200), (), hint="Pages read resources of their own server.")
            uri = shown
        return await self._resources.read(uri, view.server)

    def tools(self, view: View) -> dict[str, Tool]:
        """Return the tools that a page may call, by the names that it uses: those of its own server. Behind
        a gateway that is the server that the gateway names, not the gateway."""
        catalog = self._builder.catalog
        home = own_name(view.tool)[0]
        found: dict[str, Tool] = {}
        for tool in (*catalog.tools.values(), *catalog.app_tools.values()):
            server, name = own_name(tool)
            if tool.server == view.server and server == home and tool.verb == "call" and for_pages(tool):
                found.setdefault(name, tool)
        return found


def read_page(contents: Contents, resources: tuple[Resource, ...] = ()) -> tuple[str, PageRules]:
    """Return the page in contents that were read, and its rules from both places of metadata.

    Raises:
        ServerError: It is not a page.
    """
    server, uri = contents.server, contents.uri
    block = contents.blocks[0] if len(contents.blocks) == 1 else None
    problem = "it must be one content" if block is None else None
    if block is not None and (block.mime_type or "").replace(" ", "").lower() != MIME_TYPE:
        problem = f"its MIME type is {line(block.mime_type or 'missing', 80)!r}, not {MIME_TYPE!r}"
    elif block is not None and len(block.text or block.data or "") > LARGEST_PAGE:
        problem = f"it has more than {LARGEST_PAGE // 2**20} MiB"
    if block is None or problem is not None:
        raise ServerError(
            f"what {server!r} sent for the page {line(uri, 200)!r} is not valid: {problem}",
            server=server,
            tool=uri,
            code=0,
        )
    html = block.text if block.text is not None else contents.data.decode("utf-8", "replace")
    listed = next((one for one in resources if (one.server, one.uri) == (server, uri)), None)
    rules = page_rules(
        _mapping(block.raw["resource"].get("_meta")),
        EMPTY if listed is None else _mapping(listed.extra.get("_meta")),
    )
    for warning in rules.warnings:
        log.warning("page metadata ignored: server=%s page=%s %s", server, line(uri, 200), warning)
    return html, rules


async def pages_of(resources: Resources, snapshot: Snapshot) -> tuple[tuple[Page, ...], tuple[str, ...]]:
    """Return the current state of the pages of a server's tools, and why others could not be read."""
    addresses = dict.fromkeys(uri for tool in snapshot.tools if (uri := page_address(tool)) is not None)
    pages: list[Page] = []
    problems: list[str] = []
    for uri in sorted(addresses)[:MOST_PAGES]:
        try:
            contents = await resources.read_fresh(uri, snapshot.server)
            html, rules = read_page(contents, snapshot.resources)
            pages.append(_state(snapshot.server, uri, html, rules))
        except MooringError as problem:
            problems.append(f"{snapshot.server}: the page {line(uri, 200)!r} cannot be pinned: {problem}")
    if len(addresses) > MOST_PAGES:
        problems.append(f"{snapshot.server}: it has more than {MOST_PAGES} pages; the rest is not pinned")
    return tuple(pages), tuple(problems)


def _state(server: str, uri: str, html: str, rules: PageRules) -> Page:
    digest = page_digest(html)
    return Page(uri=uri, server=server, digest=digest, csp=rules.csp, permissions=rules.permissions)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else EMPTY


class View:
    """The page of a tool, made by `Host.view`. Show it in a sandboxed iframe on an origin of its own, with
    `csp` as its `Content-Security-Policy` and `allow` as the iframe's attribute."""

    def __init__(
        self, tool: Tool, uri: str, html: str, rules: PageRules, views: Views, call: CallTool
    ) -> None:
        self.tool = tool
        """The tool that the page belongs to."""
        self.server = tool.server
        """The server that supplied it, and whose tools it may call."""
        self.uri = uri
        """Its `ui://` address."""
        self.html = html
        """The document, as the server sent it. Untrusted."""
        self.rules = rules
        """Everything that its metadata asks for."""
        self._views, self._call = views, call

    def __repr__(self) -> str:
        return f"<View {self.uri!r} of {self.server!r}: {len(self.html)} characters>"

    @property
    def csp(self) -> str:
        """Content security policy: the declared domains that are valid, and no others."""
        return self.rules.csp

    @property
    def permissions(self) -> tuple[str, ...]:
        """Browser permissions that the page asks for, such as `camera`. Grant those that you want to."""
        return self.rules.permissions

    @property
    def allow(self) -> str:
        """Value of the `allow` attribute of an iframe that grants all of them."""
        return self.rules.allow

    def own_address(self, uri: str) -> str:
        """Return the address that the server itself uses for one that a gateway before it has changed."""
        home = gateway_origin(self.tool.meta)
        return uri if home is None else address_behind(uri, home[0].split("/"))

    def bridge(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None] | None],
        *,
        on_open_link: Callable[[str], Any] | None = None,
        on_message: Callable[[list[Mapping[str, Any]]], Any] | None = None,
        on_model_context: Callable[[Mapping[str, Any]], Any] | None = None,
        on_size: Callable[[float | None, float | None], Any] | None = None,
        on_close: Callable[[], Any] | None = None,
        context: Mapping[str, Json] = EMPTY,
    ) -> ViewBridge:
        """Return a bridge that answers the messages of the page.

        Args:
            send: Delivers one message to the page (`postMessage`).
            on_open_link: Called with an http(s) address that the page wants to open; False denies it.
                Default: denied.
            on_message: Called with content that the page wants to add to the conversation as the user; False
                denies it. Default: denied.
            on_model_context: Called with content for the next turn of the model; each replaces the last.
                Default: denied.
            on_size: Called with the width and height of the page in pixels.
            on_close: Called when the page asks to be closed.
            context: Fields of `hostContext`, such as `theme` and `locale`.
        """
        handlers = {
            "openLinks": on_open_link,
            "message": on_message,
            "updateModelContext": on_model_context,
            "size": on_size,
            "close": on_close,
        }
        return ViewBridge(self, self._views, self._call, send, handlers, context)
