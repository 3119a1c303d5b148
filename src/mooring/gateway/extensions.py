"""Extensions behind the gateway: what it advertises, addresses and names of pages, skills, and the server
that a method of an unknown extension is for."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, cast

from mooring.config.logs import logger
from mooring.core.apps import (
    MIME_TYPE,
    for_pages,
    gateway_origin,
    own_name,
    page_address,
    page_digest,
    readdressed,
    readdressed_result,
)
from mooring.core.catalog import Catalog
from mooring.core.extensions import (
    ORIGIN,
    OURS,
    SKILLS,
    TASKS,
    UI,
    common,
    declared_by_client,
    original,
    qualified,
    qualified_file,
)
from mooring.core.skills import DYNAMIC
from mooring.core.text import line
from mooring.core.types import Json, Page, Resource, Skill, SkillFile, Tool
from mooring.core.uris import scheme_of
from mooring.core.value import replace
from mooring.errors import CallError, MooringError, PolicyDenied, ServerError
from mooring.extensions.views import read_page
from mooring.gateway.clients import Client
from mooring.gateway.profiles import Profile
from mooring.gateway.protocol import (
    CHOSEN_SERVER,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Refusal,
    fields,
)
from mooring.host import runtime_of
from mooring.transport import wire
from mooring.transport.message import WireError

log = logger("mooring.gateway")

SKILLS_PAGE = 100
"""Skills in one reply."""
_CORE = frozenset(
    (
        *("initialize", "ping", "server", "tools", "resources", "prompts", "completion", "logging", "roots"),
        *("sampling", "elicitation", "tasks", "subscriptions", "notifications", "skills", "ui"),
    )
)
"""First parts of methods that belong to the protocol or to extensions that the gateway knows."""


# --- negotiation


def advertised(profile: Profile) -> dict[str, Json]:
    """Return the extensions that clients of a profile can use: those of its servers, and those that the
    gateway serves, because their servers may connect later. Tasks end at the gateway."""
    found = [one for one in profile.catalog.extensions if one.name not in (*OURS, TASKS)]
    skilled = [one for one in profile.catalog.extensions if one.name == SKILLS]
    reads = bool(skilled) and all(one.settings.get("directoryRead") is True for one in skilled)
    return {
        **{name: dict(settings) for name, settings in common(found).items()},
        UI: {},
        SKILLS: {"directoryRead": True} if reads else {},
    }


def shows_pages(client: Client) -> bool:
    """Whether the client declared that it shows pages of tools."""
    settings = declared_by_client(client.capabilities).get(UI)
    if settings is None:
        return False
    kinds = settings.get("mimeTypes", [MIME_TYPE])
    return isinstance(kinds, list) and MIME_TYPE in cast("list[object]", kinds)


def owner_of_method(client: Client, method: str, meta: Mapping[str, Any]) -> str:
    """Return the server that a method of an extension is for: the one that the request names, or the only one
    that declares an extension of this client.

    Raises:
        Refusal: There is none, or several.
    """
    unknown = f"unknown method {method[:80]!r}"
    if method.partition("/")[0] in _CORE:
        raise Refusal(METHOD_NOT_FOUND, unknown)
    mine = declared_by_client(client.capabilities).keys() - {*OURS, TASKS}
    declared = client.profile.catalog.extensions
    owners = sorted({one.server for one in declared if one.name in mine})
    chosen = meta.get(CHOSEN_SERVER)
    if chosen is not None:
        if chosen in owners:
            return cast("str", chosen)
        problem = f"server {str(chosen)[:80]!r} declares no extension that this client declares"
        raise Refusal(INVALID_PARAMS, f"{unknown} was not sent: {problem}")
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise Refusal(
            INVALID_PARAMS,
            f"{unknown}: several servers declare extensions of this client. Name the server in "
            f"{CHOSEN_SERVER!r} of _meta: {', '.join(owners)[:400]}",
        )
    others = sorted({one.name for one in declared if one.name not in (*OURS, TASKS)})
    hint = f"; declare one of these extensions to use it: {', '.join(others)[:400]}" if others else ""
    raise Refusal(METHOD_NOT_FOUND, f"{unknown}{hint}")


_ENDING_HERE = frozenset(
    f"notifications/{name}"
    for name in ("cancelled", "initialized", "message", "progress", "roots/list_changed")
)


async def notified(client: Client | None, message: Mapping[str, Any]) -> None:
    """Forward a notification of an extension to the connected server that declares it, as methods are; log
    one that no server gets. `client` is None for a client that has declared nothing."""
    method: object = message.get("method")
    if not isinstance(method, str) or method in _ENDING_HERE:
        return
    params = fields(message.get("params"))
    try:
        if client is None:
            raise Refusal(METHOD_NOT_FOUND, "the client has declared no extensions")
        server = owner_of_method(client, method.removeprefix("notifications/"), fields(params.get("_meta")))
        provider: Any = client.profile.provider(server, client.session)
        live = getattr(provider, "connection", provider).supervisor.live
        if live is None or (live.channel.kind == "http" and live.peer.era == "modern"):
            raise Refusal(METHOD_NOT_FOUND, f"{server!r} is not connected, or takes no notifications")
        await live.channel.notify(method, {key: value for key, value in params.items() if key != "_meta"})
    except (Refusal, MooringError, WireError) as problem:
        text = line(str(problem), 200)
        log.info("notification of a client is not passed on: method=%s reason=%s", line(method, 80), text)


# --- pages


def paged_servers(catalog: Catalog) -> frozenset[str]:
    """Return the servers that have pages."""
    every = (*catalog.tools.values(), *catalog.app_tools.values())
    return frozenset(tool.server for tool in every if page_address(tool) is not None)


def shown_tool(tool: Tool, *, origin: bool) -> Tool:
    """Return a tool with the address of its page that clients use, and with its origin for clients that show
    pages: a page calls tools by their server's own names."""
    if not tool.meta and not origin:
        return tool
    meta = readdressed(tool.meta, lambda uri: qualified(uri, tool.server))
    inner = gateway_origin(tool.meta)
    meta.pop(ORIGIN, None)
    if origin:
        server = tool.server if inner is None else f"{tool.server}/{inner[0]}"
        meta[ORIGIN] = {"server": server, "tool": (inner and inner[1]) or tool.remote_name}
    return replace(tool, meta=meta)


def shown_resource(uri: str, resource: Resource, *, origin: bool) -> Resource:
    """Return a resource under the address that clients use, with its origin for clients that show pages."""
    meta = dict(fields(resource.extra.get("_meta")))
    inner = gateway_origin(meta)
    meta.pop(ORIGIN, None)
    if origin:
        meta[ORIGIN] = {"server": resource.server if inner is None else f"{resource.server}/{inner[0]}"}
    extra = {key: value for key, value in resource.extra.items() if key != "_meta"}
    return replace(resource, uri=uri, extra={**extra, "_meta": meta} if meta else extra)


def page_tool(catalog: Catalog, name: str) -> Tool | None:
    """Return the tool that a page means: one that only pages may call, or the only one that pages may call
    with this name at its own server.

    Raises:
        Refusal: Several servers have such a tool.
    """
    if (tool := catalog.app_tools.get(name)) is not None:
        return tool if for_pages(tool) else None
    servers = paged_servers(catalog)
    every = (*catalog.tools.values(), *catalog.app_tools.values())
    found = [
        one
        for one in every
        if name in (one.remote_name, own_name(one)[1]) and one.server in servers and for_pages(one)
    ]
    if len(found) > 1:
        shown = ", ".join(sorted(one.name for one in found))
        raise Refusal(INVALID_PARAMS, f"several servers have a tool {name[:80]!r}; call one of {shown[:400]}")
    return found[0] if found else None


def shown_result(raw: dict[str, Any], server: str) -> dict[str, Any]:
    """Return the result of a call or a prompt with the addresses that clients use."""
    return readdressed_result(raw, lambda uri: qualified(uri, server))


def shown_contents(raw: dict[str, Any], server: str, own: str, asked: str) -> dict[str, Any]:
    """Return the contents of a resource with the addresses that clients use."""
    items = raw.get("contents")
    if not isinstance(items, list):
        return raw

    def shown(item: Any) -> Any:
        uri = fields(item).get("uri")
        if not isinstance(uri, str):
            return item
        return {**fields(item), "uri": asked if uri == own else qualified(uri, server)}

    return {**raw, "contents": [shown(item) for item in cast("list[Any]", items)]}


def check_page(profile: Profile, server: str, uri: str, raw: Mapping[str, Any]) -> None:
    """Raise ToolChanged if what was read is a page that differs from the approved one."""
    items = raw.get("contents")
    kinds = (
        [fields(item).get("mimeType") for item in cast("list[Any]", items)] if isinstance(items, list) else []
    )
    if not any(isinstance(kind, str) and "profile=mcp-app" in kind.lower() for kind in kinds):
        return
    page = Page(uri=uri, server=server, digest="not a valid page")
    try:
        html, rules = read_page(wire.contents(server, uri, raw), profile.host.catalog.resources)
        page = replace(page, digest=page_digest(html), csp=rules.csp, permissions=rules.permissions)
    except (ServerError, wire.Invalid):
        pass  # a client that follows the protocol does not show it
    problem: MooringError | None = runtime_of(profile.host).builder.pins.check_page(page)
    if problem is not None:
        raise problem


# --- skills


def check_skill_address(
    profile: Profile, server: str, own: str, asked: str
) -> tuple[tuple[Skill, SkillFile | None], ...]:
    """Return the entries of manifests for an address of a server: a file of a skill must be in one.

    Args:
        profile: The profile of the client.
        server: The server in the address.
        own: The server's own address.
        asked: The address that the client used.

    Raises:
        Refusal: It may not be read.
    """
    skills, of_skill = runtime_of(profile.host).skills, scheme_of(asked) == "skill"
    try:
        return skills.check_address(server, own, of_skill=of_skill)
    except (CallError, PolicyDenied) as problem:
        raise Refusal(INVALID_PARAMS, str(problem)) from None


def check_contents(profile: Profile, server: str, own: str, asked: str, raw: Mapping[str, Any]) -> None:
    """Check what was read: a page must be the approved one, a file of a skill the listed one.

    Raises:
        Refusal: It is not, or it is not valid.
    """
    # The read may have started the server: what it lists now counts, not what was known before.
    found = check_skill_address(profile, server, own, asked)
    try:
        check_page(profile, server, own, raw)
        if found:
            runtime_of(profile.host).skills.check_contents(found, own, wire.contents(server, own, raw))
    except wire.Invalid as problem:
        text = f"what {server!r} sent for {line(own, 200)!r} is not valid: {problem}"
        raise Refusal(INTERNAL_ERROR, text) from None
    except PolicyDenied as problem:
        raise Refusal(INVALID_PARAMS, str(problem)) from None


def skill_entry(skill: Skill) -> dict[str, Any]:
    """Return the entry of a skill under the addresses that clients use. Its head and digests stay."""
    server = skill.server
    meta = {**fields(skill.extra.get("_meta")), ORIGIN: {"server": server}}
    return {
        **skill.extra,
        "uri": qualified_file(skill.uri, server),
        "frontmatter": dict(skill.frontmatter),
        "resources": DYNAMIC
        if skill.files is None
        else [
            {"uri": qualified_file(file.uri, server), "digest": file.digest, "size": file.size}
            for file in skill.files
        ],
        "_meta": meta,
    }


def skills_page(catalog: Catalog, cursor: object) -> dict[str, Any]:
    """Return one page of the skills of all servers, in order of server and address.

    The cursor names the last skill of the page before, so that a changed list loses none.

    Raises:
        Refusal: The cursor is invalid.
    """
    every = sorted(catalog.skills, key=lambda skill: (skill.server, skill.uri))
    if cursor is not None:
        after = tuple(_opened(cursor))
        every = [skill for skill in every if (skill.server, skill.uri) > after]
    page = every[:SKILLS_PAGE]
    found: dict[str, Any] = {"skills": [skill_entry(skill) for skill in page]}
    if len(every) > SKILLS_PAGE:
        found["nextCursor"] = _sealed(page[-1].server, page[-1].uri)
    return found


def server_of_skill(profile: Profile, uri: str) -> tuple[str, str]:
    """Return the server in the address of a skill or of one of its directories, and its own address of it.

    Raises:
        Refusal: There is no such server, or it has no skills.
    """
    found = original(uri)
    owners = {one.server for one in profile.catalog.extensions if one.name == SKILLS}
    if found is None or found[0] not in owners or not profile.settings.resources:
        raise Refusal(INVALID_PARAMS, "unknown skill", {"uri": uri[:2_000]})
    return found


def server_cursor(server: str, cursor: object) -> dict[str, str]:
    """Return the cursor of a server inside one of the gateway, as parameters.

    Raises:
        Refusal: It is invalid, or belongs to another server.
    """
    if cursor is None:
        return {}
    owner, inner = _opened(cursor)
    if owner != server:
        raise Refusal(INVALID_PARAMS, "invalid cursor: it belongs to another server")
    return {"cursor": inner}


def shown_directory(raw: dict[str, Any], server: str) -> dict[str, Any]:
    """Return the entries of a directory with the addresses that clients use."""
    items = raw.get("resources")
    entries = cast("list[Any]", items) if isinstance(items, list) else []
    found = {**raw, "resources": [_directory_entry(entry, server) for entry in entries]}
    if isinstance(raw.get("nextCursor"), str):
        found["nextCursor"] = _sealed(server, raw["nextCursor"])
    return found


def _directory_entry(entry: Any, server: str) -> Any:
    uri = fields(entry).get("uri")
    return {**entry, "uri": qualified_file(uri, server)} if isinstance(uri, str) else entry


def _sealed(server: str, place: str) -> str:
    return urlsafe_b64encode(json.dumps([server, place]).encode()).decode()


def _opened(cursor: object) -> list[str]:
    try:
        found: Any = json.loads(urlsafe_b64decode(cast("str", cursor)))
        pair = cast("list[Any]", found) if isinstance(found, list) else []
        if len(pair) == 2 and all(isinstance(part, str) for part in pair):
            return cast("list[str]", pair)
    except (ValueError, TypeError, RecursionError):
        pass
    raise Refusal(INVALID_PARAMS, "invalid cursor")
