"""What the engine knows of a cluster: nodes, leases, owners, and how nodes differ."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mooring.cluster.coordinator import SETTLED, owner_of, read_lease
from mooring.cluster.engine import EngineAccess, NatsEngine
from mooring.cluster.placement import Epoch, LeaseRecord, LeaseRules

__all__ = ["OPTIONS", "cluster_status", "describe", "differing"]

OPTIONS = ("--style", "--discovery", "--sse", "--no-lock")
"""Options of `mooring serve` that change what clients see; nodes announce them."""
MAX_OWNERS = 1000
"""Owners that are listed; all of them are counted."""


async def cluster_status(access: EngineAccess) -> dict[str, Any]:
    """Return the state of a cluster, as a program that is no node of it sees it.

    Raises:
        ConfigError: The engine cannot be used.
        EngineError: It does not answer.
    """
    heard: set[tuple[str, str]] = set()

    async def connected(generation: str) -> None:
        pass

    def hear(data: bytes) -> None:
        record, _ = read_lease(data.partition(b" ")[2])
        if record is not None:
            heard.add((record.node, record.incarnation))

    engine = NatsEngine(access, connected, lambda: None, create=False)
    await engine.open()
    try:
        await engine.subscribe("lease", hear)
        await asyncio.sleep(2.5 * LeaseRules(ttl=access.ttl).heartbeat)
        return await describe(engine, heard)
    finally:
        await engine.close()


async def describe(engine: NatsEngine, heard: set[tuple[str, str]]) -> dict[str, Any]:
    """Return `{"nodes": […], "owners": […]}` from the keys of the engine.

    Args:
        engine: A connected engine.
        heard: Name and incarnation of each node that was heard of lately.

    Raises:
        EngineError: It does not answer.
    """
    leases = {name: (value, rev) for name, (value, rev) in (await engine.entries("leases")).items()}
    owners = await engine.entries("owners", MAX_OWNERS)
    owners.pop(SETTLED, None)
    rows: list[dict[str, Any]] = []
    for key, (value, revision) in sorted(owners.items()):
        holder, about = owner_of(value)
        if holder is not None:
            row = {"key": key, "node": holder.node, "fence": revision, "epoch": holder.epoch.revision}
            rows.append(
                {**row, **{name: about[name] for name in ("profile", "principal", "server") if name in about}}
            )
    count = Counter(row["node"] for row in rows)
    nodes = [
        _node(record, about, revision, heard, count)
        for value, revision in leases.values()
        for record, about in (read_lease(value),)
        if record is not None and not record.vacant
    ]
    live = [node for node in nodes if node["state"] in ("live", "draining")]
    for node in nodes:
        others = [one for one in live if one is not node]
        fields = ("configuration", "key", "version", *OPTIONS) if node in live else ()
        node["drift"] = [name for name in fields if differing(node, others, name)]
    for node in nodes:
        if set(node["drift"]) - {"version"}:  # it claims nothing; see `EngineNodes`
            node["state"] = "not ready"
    current = {node["name"]: node for node in nodes}
    for row in rows:
        node = current.get(row["node"])
        row["lease"] = "current" if node is not None and _covers(node, row.pop("epoch")) else "ended"
        row.pop("epoch", None)
    return {"nodes": sorted(nodes, key=lambda one: one["name"]), "owners": rows}


def _node(
    record: LeaseRecord,
    about: Mapping[str, Any],
    revision: int,
    heard: set[tuple[str, str]],
    owned: Mapping[str, int],
) -> dict[str, Any]:
    epoch = record.epoch or Epoch("", revision)
    live = (record.node, record.incarnation) in heard
    state = "ended" if record.ended else "silent" if not live else "draining" if record.draining else "live"
    return {
        "name": record.node,
        "state": state,
        "incarnation": record.incarnation,
        "url": about.get("url"),
        "version": about.get("version"),
        "configuration": about.get("configuration"),
        "key": about.get("key"),
        "keys": about.get("keys", []),
        **{name: about[name] for name in OPTIONS if name in about},
        "lease": {"epoch": epoch.revision, "revision": revision, "renewals": record.beat},
        "owned": owned.get(record.node, 0),
    }


def differing(
    mine: Mapping[str, Any], others: Sequence[Mapping[str, Any]], field: str
) -> list[Mapping[str, Any]]:
    """Return the nodes from which one differs, if they are more than half of all; the oldest decide a tie.

    Args:
        mine: What the node announces, and its `lease` with the `epoch`, the revision at which it began.
        others: The same of the other nodes.
        field: What to compare. Of two keys, the first seals and both open.
    """
    others = [one for one in others if field in one or field not in OPTIONS]  # earlier versions have none
    same = {mine.get(field), *(mine.get("keys", ()) if field == "key" else ())}
    found = [one for one in others if one.get(field) not in same]
    agreeing = 1 + len(others) - len(found)
    youngest = all(one["lease"]["epoch"] <= mine["lease"]["epoch"] for one in found)
    return found if len(found) > agreeing or (len(found) == agreeing and youngest) else []


def _covers(node: Mapping[str, Any], epoch: int) -> bool:
    return node["state"] != "ended" and node["lease"]["epoch"] == epoch
