"""MCP Apps: who may see a tool, the address of its page, and what the page may do in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

from mooring.core.extensions import ORIGIN
from mooring.core.types import EMPTY, Json, Tool
from mooring.core.value import Value

__all__ = [
    "ALL_MIME_TYPES",
    "MIME_TYPE",
    "RESERVED",
    "PageRules",
    "apps_meta",
    "for_model",
    "for_pages",
    "gateway_origin",
    "own_name",
    "page_address",
    "page_digest",
    "page_rules",
    "readdressed",
    "readdressed_result",
    "reserved_names",
]

MIME_TYPE = "text/html;profile=mcp-app"
ALL_MIME_TYPES: Mapping[str, Json] = {"mimeTypes": [MIME_TYPE]}
"""Settings of a client that can show every page."""

_META = "ui"
_FLAT = "ui/resourceUri"
"""Deprecated key, which servers still send."""
MOST_GATEWAYS = 8
"""Gateways behind one another whose servers are distinguished."""
_LONGEST_ORIGIN = 2_000
MOST_DOMAINS = 64
"""Domains of one kind that a page may name."""
_ORIGIN = (
    r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::[0-9]{1,5})?"
)
_KINDS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS: Mapping[str, str] = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}


def _ui(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    value = meta.get(_META)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else EMPTY


def _audience(tool: Tool) -> tuple[str, ...]:
    """Return who may use a tool: `model`, `app`, or both, which is the default. An invalid value gives the
    model no access."""
    given = _ui(tool.meta).get("visibility")
    if given is None:
        return ("model", "app")
    if isinstance(given, str):
        return (given,)
    return tuple(cast("list[str]", given)) if isinstance(given, list | tuple) else ()


def for_model(tool: Tool) -> bool:
    """Whether a model may see and call a tool."""
    return not tool.meta or "model" in _audience(tool)


RESERVED = "its server keeps it for its own pages (MCP Apps); only `host.view` can call it"
"""Why a model cannot call a tool."""


def reserved_names(tools: Iterable[Tool]) -> frozenset[str]:
    """Return the server's own names of tools that only its pages may call."""
    return frozenset(tool.remote_name for tool in tools if not for_model(tool))


def for_pages(tool: Tool) -> bool:
    """Whether a page of the same server may call a tool."""
    return not tool.meta or "app" in _audience(tool)


def apps_meta(meta: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of `_meta` of a tool that decides who may use it and which page it has."""
    ui = {key: value for key, value in _ui(meta).items() if key in ("visibility", "resourceUri")}
    found: dict[str, Json] = {key: meta[key] for key in (_FLAT, ORIGIN) if key in meta}
    return {_META: ui, **found} if ui else found


def page_address(tool: Tool) -> str | None:
    """Return the `ui://` address of the page of a tool, or None."""
    if not tool.meta:
        return None
    for found in (_ui(tool.meta).get("resourceUri"), tool.meta.get(_FLAT)):
        if isinstance(found, str) and found.lower().startswith("ui://"):
            return found
    return None


def own_name(tool: Tool) -> tuple[str, str]:
    """Return the server that defines a tool and the server's own name of it. A gateway adds them to the
    metadata of what it lists; such a server is named `<gateway>/<server>`."""
    found = gateway_origin(tool.meta)
    if found is None or not found[1]:
        return tool.server, tool.remote_name
    return f"{tool.server}/{found[0]}", found[1]


def gateway_origin(meta: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the server behind a gateway and that server's own name of a tool, if a gateway names them.
    Behind two gateways, the server is `<inner gateway>/<server>`."""
    value = meta.get(ORIGIN)
    said = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else EMPTY
    server, name = said.get("server"), said.get("tool", "")
    if not isinstance(server, str) or not isinstance(name, str) or not server:
        return None
    return (server, name) if server.count("/") < MOST_GATEWAYS and len(server) <= _LONGEST_ORIGIN else None


# --- addresses in what servers send


def readdressed(meta: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return `_meta` of a tool or a result with the address of its page changed, in both places."""
    found = dict(meta)
    if isinstance(flat := found.get(_FLAT), str):
        found[_FLAT] = change(flat)
    if isinstance(found.get(_META), Mapping):
        inner = dict(_ui(found))
        if isinstance(inner.get("resourceUri"), str):
            inner["resourceUri"] = change(inner["resourceUri"])
        found[_META] = inner
    return found


def readdressed_result(raw: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return the result of a call or a prompt with its addresses changed: of pages in `_meta`, of links and
    of embedded resources."""
    found = dict(raw)
    if isinstance(raw.get("_meta"), Mapping):
        found["_meta"] = readdressed(raw["_meta"], change)
    if isinstance(raw.get("content"), list):
        found["content"] = [_block(block, change) for block in raw["content"]]
    if isinstance(raw.get("messages"), list):
        found["messages"] = [
            {**message, "content": _content(message["content"], change)}
            if isinstance(message, Mapping) and "content" in message
            else message
            for message in cast("list[Any]", raw["messages"])
        ]
    return found


def _content(content: Any, change: Callable[[str], str]) -> Any:
    if isinstance(content, list):
        return [_block(block, change) for block in cast("list[Any]", content)]
    return _block(content, change)


def _block(block: Any, change: Callable[[str], str]) -> Any:
    if not isinstance(block, Mapping):
        return block
    given = cast("Mapping[str, Any]", block)
    kind, uri, value = given.get("type"), given.get("uri"), given.get("resource")
    if kind == "resource_link" and isinstance(uri, str):
        return {**given, "uri": change(uri)}
    inner = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else EMPTY
    if kind == "resource" and isinstance(inner.get("uri"), str):
        return {**given, "resource": {**inner, "uri": change(inner["uri"])}}
    return given


class PageRules(Value):
    """What a page may do, from the metadata of its resource."""

    csp: str
    """Value of the `Content-Security-Policy` header."""
    domains: Mapping[str, tuple[str, ...]] = EMPTY
    """The valid domains by kind, as the protocol names them."""
    permissions: tuple[str, ...] = ()
    """Browser permissions that the page asks for, as `allow` of an iframe names them."""
    prefers_border: bool | None = None
    domain: str | None = None
    warnings: tuple[str, ...] = ()
    """Parts of the metadata that were ignored, each with the reason."""

    @property
    def allow(self) -> str:
        """Value of the `allow` attribute of an iframe that grants all permissions."""
        return "; ".join(self.permissions)

    @property
    def external(self) -> tuple[str, ...]:
        """All domains that the page may reach."""
        return tuple(sorted({one for group in self.domains.values() for one in group}))


def page_rules(item: Mapping[str, Any], listed: Mapping[str, Any] = EMPTY) -> PageRules:
    """Return the rules of a page.

    Args:
        item: `_meta` of the content that was read. Its values win.
        listed: `_meta` of the entry in the list of resources.
    """
    meta = {**_ui(listed), **_ui(item)}
    warnings: list[str] = []
    given = meta.get("csp")
    csp = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else None
    domains: dict[str, tuple[str, ...]] = {}
    for kind in _KINDS if csp is not None else ():
        if valid := _domains(kind, cast("Mapping[str, Any]", csp).get(kind), warnings):
            domains[kind] = valid
    asked = meta.get("permissions")
    wanted = cast("Mapping[str, Any]", asked) if isinstance(asked, Mapping) else EMPTY
    domain, border = meta.get("domain"), meta.get("prefersBorder")
    return PageRules(
        csp=_policy(None if csp is None else domains),
        domains=domains,
        permissions=tuple(
            allow for name, allow in _PERMISSIONS.items() if isinstance(wanted.get(name), Mapping)
        ),
        prefers_border=border if isinstance(border, bool) else None,
        domain=domain if isinstance(domain, str) else None,
        warnings=tuple(warnings),
    )


def _domains(kind: str, value: object, warnings: list[str]) -> tuple[str, ...]:
    """Return the valid origins of one kind. Anything else could add directives to the policy."""
    if value is None:
        return ()
    if not isinstance(value, list):
        warnings.append(f"csp.{kind} is not a list and is ignored")
        return ()
    found: list[str] = []
    for one in cast("list[object]", value)[:MOST_DOMAINS]:
        text = one.removesuffix("/") if isinstance(one, str) else ""
        if len(text) <= 300 and re.fullmatch(_ORIGIN, text):
            found.append(text)
        else:
            warnings.append(
                f"csp.{kind}: {str(one)[:80]!r} is not an origin such as 'https://example.com'; it is ignored"
            )
    if len(cast("list[object]", value)) > MOST_DOMAINS:
        warnings.append(f"csp.{kind} has more than {MOST_DOMAINS} domains; the rest is ignored")
    return tuple(dict.fromkeys(found))


def _policy(domains: Mapping[str, tuple[str, ...]] | None) -> str:
    """Return the policy for these domains; None for a page that declares none at all."""
    if domains is None:
        return (
            "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data:; media-src 'self' data:; connect-src 'none'; object-src 'none'"
        )

    scripts, images = "'self' 'unsafe-inline'", "'self' data:"
    frames, bases = domains.get("frameDomains", ()), domains.get("baseUriDomains", ())
    sources: dict[str, tuple[str, ...]] = {
        "default-src": ("'none'",),
        "script-src": (scripts, *domains.get("resourceDomains", ())),
        "style-src": (scripts, *domains.get("resourceDomains", ())),
        "img-src": (images, *domains.get("resourceDomains", ())),
        "media-src": (images, *domains.get("resourceDomains", ())),
        "font-src": ("'self'", *domains.get("resourceDomains", ())),
        "connect-src": ("'self'", *domains.get("connectDomains", ())),
        "frame-src": frames or ("'none'",),
        "object-src": ("'none'",),
        "base-uri": bases or ("'self'",),
    }
    return "; ".join(f"{directive} {' '.join(allowed)}" for directive, allowed in sources.items())


def page_digest(html: str) -> str:
    """Return the SHA-256 of a page."""
    return sha256(html.encode("utf-8", "surrogatepass")).hexdigest()
