"""Everything a server offers, page by page, within caps: one `Snapshot`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from mooring.core.extensions import SKILLS, declared
from mooring.core.injection_scan import suspicion
from mooring.core.json_values import heavy, remember, shared
from mooring.core.types import Prompt, Resource, ResourceTemplate, Skill, Snapshot, Tool
from mooring.lock.definitions import is_pinnable
from mooring.servers.negotiate import Peer
from mooring.transport import wire
from mooring.transport.message import METHOD_NOT_FOUND, WireError

MAX_PAGES = 64
MAX_ITEMS = 10_000

T = TypeVar("T")
Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


async def take_snapshot(server: str, peer: Peer, ask: Ask) -> Snapshot:
    """What the server offers now. Without its tools there is no snapshot; any other kind that fails is
    left out with a warning.

    Raises:
        WireError: the tools could not be listed.
    """
    offered = peer.info.capabilities
    tools: list[Tool] = []
    resources: list[Resource] = []
    templates: list[ResourceTemplate] = []
    prompts: list[Prompt] = []
    skills: list[Skill] = []
    extensions = declared(server, offered)
    warnings: list[str] = []
    failed: list[WireError] = []

    async def optional(
        method: str, key: str, make: Callable[[str, Mapping[str, Any]], T], into: list[T]
    ) -> None:
        try:
            await _pages(server, method, key, make, ask, into, warnings)
        except WireError as fault:
            if fault.code != METHOD_NOT_FOUND:
                warnings.append(f"{server}: {method} failed: {fault}")

    async def required() -> None:
        try:
            await _pages(server, "tools/list", "tools", wire.tool, ask, tools, warnings)
        except WireError as fault:
            if fault.code != METHOD_NOT_FOUND:
                failed.append(fault)

    async with anyio.create_task_group() as tasks:
        if "tools" in offered or not offered:
            tasks.start_soon(required)
        if "resources" in offered:
            tasks.start_soon(optional, "resources/list", "resources", wire.resource, resources)
            tasks.start_soon(
                optional, "resources/templates/list", "resourceTemplates", wire.template, templates
            )
        if "prompts" in offered:
            tasks.start_soon(optional, "prompts/list", "prompts", wire.prompt, prompts)
        if any(one.name == SKILLS for one in extensions):
            tasks.start_soon(optional, "skills/list", "skills", wire.skill, skills)
    if failed:
        raise failed[0]
    return Snapshot(
        server=server,
        info=peer.info,
        instructions=peer.instructions,
        tools=tuple(tools),
        resources=tuple(resources),
        templates=tuple(templates),
        prompts=tuple(prompts),
        extensions=extensions,
        skills=tuple(skills),
        warnings=tuple(warnings),
    )


async def compared(known: Snapshot | None, listed: Snapshot) -> Snapshot:
    """What was listed, with the known tools where they say the same; see `shared`. Large definitions are
    compared, and looked through for doubtful text, in a thread."""
    if heavy([tool.input_schema for tool in listed.tools]):
        return await to_thread.run_sync(_compared, known, listed)
    return listed if known is None else shared(known, listed)


def _compared(known: Snapshot | None, listed: Snapshot) -> Snapshot:
    snapshot = listed if known is None else shared(known, listed)
    for tool in snapshot.tools:
        if heavy(tool.input_schema):
            remember(suspicion, tool)
            remember(is_pinnable, tool)
    return snapshot


async def _pages(
    server: str,
    method: str,
    key: str,
    make: Callable[[str, Mapping[str, Any]], T],
    ask: Ask,
    into: list[T],
    warnings: list[str],
) -> None:
    cursor: str | None = None
    before: tuple[str | None, object] | None = None
    for _ in range(MAX_PAGES):
        page = await ask(method, {} if cursor is None else {"cursor": cursor})
        following = page.get("nextCursor")
        if before == (following, page.get(key)):
            warnings.append(f"{server}: {method} repeats itself; what came before is kept")
            return
        before = (following, page.get(key))
        good, bad = wire.entries(page, key, make, server)
        warnings.extend(bad)
        into.extend(good)
        if len(into) > MAX_ITEMS:
            del into[MAX_ITEMS:]
            warnings.append(f"{server}: {method} holds more than {MAX_ITEMS} entries; the rest is left out")
            return
        if not isinstance(following, str):  # an empty cursor is one; only its absence is the end
            return
        cursor = following
    warnings.append(f"{server}: {method} has more than {MAX_PAGES} pages; the rest is left out")
