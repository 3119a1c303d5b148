"""Rows of the console that are made from the catalog, the configuration and the lock of a host."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mooring.core.apps import page_address
from mooring.core.callers import CallContext
from mooring.core.discovery import DISCOVERY
from mooring.core.names import OWNER
from mooring.core.text import line, tool_cost
from mooring.core.types import Hidden, Tool
from mooring.host import Host, runtime_of

__all__ = ["CatalogRows", "hints"]

SLICE = 0.01
"""Seconds after which other tasks may run."""
SUMMARY = 160
_HINTS = (
    ("readOnlyHint", "read-only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open-world"),
)
_CALLER = CallContext()


class CatalogRows:
    """Makes the rows of `tools`, and the numbers about them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, tuple[Tool, dict[str, Any]]] = {}
        """By local name: the tool, and the part of its row that depends on nothing else."""
        self.tokens: Counter[str] = Counter()
        """By server: tokens of its tools in a prompt."""
        self.hidden: Counter[str] = Counter()
        """By server: tools, resources and prompts that are not shown."""
        self.totals: dict[str, Any] = {}

    async def make(self) -> list[dict[str, Any]]:
        """Return the rows of all tools, shown ones first."""
        host, runtime = self._host, runtime_of(self._host)
        catalog = host.catalog
        await asyncio.sleep(0)
        hidden = host.hidden()
        await asyncio.sleep(0)
        visible = runtime.exposure(host.discovery)
        await asyncio.sleep(0)
        first = set(visible.names)
        known: dict[str, tuple[Tool, dict[str, Any]]] = {}
        rows: list[dict[str, Any]] = []
        tools = [tool for tool in catalog.tools.values() if tool.server != OWNER]
        until = time.monotonic() + SLICE
        for tool in tools:
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE
            before = self._known.get(tool.name)
            basis = before[1] if before is not None and before[0] is tool else self._basis(tool)
            known[tool.name] = (tool, basis)
            shown = "always" if not visible.discovery or tool.name in first else "search"
            rows.append({**basis, **self._judged(tool), "shown": shown, "hidden": None})
        self._known = known
        rows += [self._hidden_row(one) for one in hidden if one.kind == "tool"]
        self.tokens = Counter()
        for row in rows:
            self.tokens[row["server"]] += row["tokens"]
        self.hidden = Counter(one.server for one in hidden)
        costs = {name: basis["tokens"] for name, (_, basis) in known.items()}
        prompt = sum(map(tool_cost, DISCOVERY)) + sum(costs.get(name, 0) for name in first)
        everything = sum(costs.values())
        self.totals = {
            "tools": len(tools),
            "hidden": len(hidden),
            "resources": len(catalog.resources),
            "prompts": len(catalog.prompts),
            "tokens": everything,
            "shown_tokens": prompt if visible.discovery else everything,
            "discovery_used": visible.discovery,
        }
        return rows

    def _basis(self, tool: Tool) -> dict[str, Any]:
        redact = self._host.redact
        return {
            "id": tool.name,
            "name": tool.name,
            "server": tool.server,
            "remote": line(tool.remote_name, 300),
            "title": None if tool.title is None else line(redact(tool.title), SUMMARY),
            "summary": line(redact(tool.description), SUMMARY),
            "tokens": tool_cost(tool),
            "hints": hints(tool.annotations),
            "app": page_address(tool) is not None,
            "verb": tool.verb,
        }

    def _judged(self, tool: Tool) -> dict[str, Any]:
        runtime = runtime_of(self._host)
        allowed = runtime.policy.allows(tool)
        policy = "allow" if allowed else runtime.policy.decision(tool, {}, _CALLER).verdict
        return {"policy": policy, "pinned": tool.remote_name in runtime.builder.pins.pinned(tool.server)}

    def _hidden_row(self, one: Hidden) -> dict[str, Any]:
        redact = self._host.redact
        name = line(redact(one.name or ""), 300)
        why = {"by": one.by, "reason": line(redact(one.reason), 300)}
        return {
            "id": f"{one.server}/{name}",
            "name": None,
            "server": one.server,
            "remote": name,
            "title": None,
            "summary": "",
            "tokens": 0,
            "hints": [],
            "app": False,
            "verb": "call",
            "policy": "deny" if one.by == "policy" else "allow",
            "pinned": one.by == "lock",
            "shown": "page" if one.by == "visibility" else "no",
            "hidden": why,
        }


def hints(annotations: Mapping[str, Any]) -> Sequence[str]:
    """Return the hints of a tool that are set, in words."""
    return [word for key, word in _HINTS if annotations.get(key) is True]
