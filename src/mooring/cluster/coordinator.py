"""One node of a cluster with an engine: its lease, the leases of the others, and the owners of keys.

`placement` decides; this module reads the clock, talks to the engine and ends processes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, cast

from mooring.cluster.engine import EngineAccess, EngineError, NatsEngine
from mooring.cluster.fencing import Watchdog, clock, runs
from mooring.cluster.placement import (
    Action,
    ClaimKey,
    EndLease,
    Epoch,
    Fence,
    Holder,
    LeaseRecord,
    LeaseRules,
    Mine,
    Placement,
    RouteTo,
    WriteLease,
)
from mooring.concurrency import end_tasks
from mooring.config.logs import logger
from mooring.errors import ConfigError, MooringError
from mooring.gateway.nodes import NodeId

__all__ = ["Coordinator", "Member", "NotPlaced", "encode_lease", "owner_of", "read_lease"]

log = logger("mooring.cluster")

SETTLED = "settled"
"""Key in `owners`: the generation of the data that was watched for a whole `ttl`."""
MAX_CACHED = 100_000
END_WAIT = 5.0


class NotPlaced(MooringError):
    """No node could be found for a key in time."""


@dataclass(frozen=True, slots=True)
class Member:
    """What a node announces about itself."""

    name: str
    incarnation: str
    about: Mapping[str, Any]
    """`url`, `version`, `configuration`, `key`."""
    heard: float = field(compare=False)
    """When this node heard of it, on the clock of `fencing`."""
    draining: bool = False


def encode_lease(record: LeaseRecord, about: Mapping[str, Any]) -> bytes:
    """Return the value of a lease key."""
    return json.dumps(
        {
            "node": record.node,
            "incarnation": record.incarnation,
            "epoch": record.epoch,
            "beat": record.beat,
            "ended": record.ended,
            "draining": record.draining,
            "vacant": record.vacant,
            "certain": record.certain,
            "about": dict(about),
        }
    ).encode()


def read_lease(value: bytes | None) -> tuple[LeaseRecord | None, dict[str, Any]]:
    """Return the record of a lease key, and what its node says about itself."""
    if value is None:
        return None, {}
    try:
        given = json.loads(value)
        epoch = given["epoch"]
        record = LeaseRecord(
            str(given["node"]),
            str(given["incarnation"]),
            None if epoch is None else Epoch(str(epoch[0]), int(epoch[1])),
            int(given["beat"]),
            ended=bool(given["ended"]),
            draining=bool(given["draining"]),
            vacant=bool(given["vacant"]),
            certain=bool(given["certain"]),
        )
        about: object = given["about"]
        return record, cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    except (ValueError, KeyError, TypeError, IndexError):
        log.warning("a lease record of the engine cannot be read; it counts as absent")
        return None, {}


def owner_of(value: bytes | None) -> tuple[Holder | None, dict[str, Any]]:
    """Return the owner of a key, and what the record says about the key."""
    if value is None:
        return None, {}
    try:
        node, incarnation, (generation, revision) = (given := json.loads(value))["owner"]
        return Holder(str(node), str(incarnation), Epoch(str(generation), int(revision))), given
    except (ValueError, KeyError, TypeError):
        log.warning("an owner record of the engine cannot be read; it counts as absent")
        return None, {}


class Coordinator:
    """Keeps the lease of this node and places keys.

    Args:
        me: This node.
        access: How to reach the engine.
        about: What to announce about this node; called for each renewal.
        on_fence: Called with the keys of a lost lease, after their processes were killed.
        on_members: Called when a node joined, left or changed what it announces.
        answers: Returns whether a node has answered a request since a time of the monotonic clock.
        find: Asks the other nodes themselves for the owner of a key, when the engine does not answer.
    """

    def __init__(
        self,
        me: NodeId,
        access: EngineAccess,
        *,
        about: Callable[[], Mapping[str, Any]],
        on_fence: Callable[[Iterable[str], str], Awaitable[None]],
        on_members: Callable[[], None],
        answers: Callable[[NodeId, float], bool],
        find: Callable[[str], Awaitable[NodeId | None]],
    ) -> None:
        self.me = me
        self.rules = LeaseRules(ttl=access.ttl)
        self.placement = Placement(node=me.name, incarnation=me.incarnation, rules=self.rules)
        self._wake, self._reached = asyncio.Event(), 0.0  # since when the engine works
        self.engine = NatsEngine(access, self._connected, self._wake.set)
        self.watchdog = Watchdog(self._watchdog_ended)
        self.members: dict[str, Member] = {}
        self.fenced = 0
        """How often this node lost its lease."""
        self._about, self._on_fence, self._on_members = about, on_fence, on_members
        self._answers, self._find = answers, find
        self._closing: dict[str, asyncio.Event] = {}
        self._reasons: dict[str, str] = {}
        """Why keys have no owner yet."""
        self._moved: dict[NodeId, float] = {}
        """Nodes that refused a request for a key that their record names, and when."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._flights: dict[str, asyncio.Lock] = {}
        self._routes: dict[str, Holder] = {}
        self._gone: dict[NodeId, float] = {}
        """Nodes that do not answer requests, and since when."""
        self._announced = b""
        self._acquainted = False
        """Whether it has heard of the other nodes. Before, it claims nothing: it may differ from them."""
        self._writing = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster.

        Raises:
            ConfigError: The engine cannot be used, or the name is taken.
        """
        self.watchdog.start()
        await self.engine.open()
        await self.engine.subscribe("lease", self._heard)
        self._renewing = self._spawn(self._run())
        self._spawn(self._beat())
        try:
            async with asyncio.timeout(self.rules.ttl + self.rules.renew + 5):
                while not self.placement.duplicate and not (  # noqa: ASYNC110
                    self._acquainted and self.placement.leads(clock())
                ):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise ConfigError(
                f"node {self.me.name!r} got no lease in time: {self.engine.problem or 'no answer'}",
                place="gateway.cluster",
            ) from None
        if self.placement.duplicate is not None:
            raise ConfigError(
                f"A node with the name {self.me.name!r} runs already in this cluster; give this one another "
                "name with `--node`, or end the other",
                place="gateway.node",
            )

    async def stop(self) -> None:
        """Give up the lease. All keys must have been released before."""
        if self._renewing is not None:
            await end_tasks((self._renewing,))
        async with self._writing:  # a renewal on its way changes the revision
            write = self.placement.leave()
            self.watchdog.kill()
            if write is not None:
                value = encode_lease(write.record, {})
                with suppress(EngineError):
                    if revision := await self.engine.write("leases", self.me.name, value, write.last):
                        await self._announce(value, revision)
        await self.close()

    async def close(self) -> None:
        """End without giving anything up."""
        await end_tasks(self._tasks)
        await self.watchdog.stop()
        await self.engine.close()

    def drain(self) -> None:
        """Claim nothing any more, and announce it."""
        self.placement.drain(clock())
        self._wake.set()

    def bar(self, barred: bool) -> None:
        """Claim nothing while this node differs from the others."""
        if barred != self.placement.draining:
            self.placement.draining = barred
            self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the own lease --------------------------------------------------------------------------

    async def _connected(self, generation: str) -> None:
        self._reached = clock()
        value, _ = await self.engine.read("owners", SETTLED)
        settled = value is not None and value.decode("utf-8", "replace") == generation
        self._perform(self.placement.engine(generation, settled=settled, now=clock()))
        self._routes.clear()
        await self._look(self.me.name)
        self._spawn(self._acquaint(await self.engine.entries("leases")))
        self._wake.set()

    async def _acquaint(self, leases: Mapping[str, tuple[bytes, int]]) -> None:
        """Wait for a heartbeat of each node with a lease; a node without one in time has ended."""
        self._acquainted, records = False, [read_lease(value)[0] for value, _ in leases.values()]
        others = {one.node for one in records if one and not one.ended and not one.vacant} - {self.me.name}
        with suppress(TimeoutError):
            async with asyncio.timeout(2.5 * self.rules.heartbeat):
                while not others <= self.members.keys():  # noqa: ASYNC110 (they come one by one)
                    await asyncio.sleep(0.02)
        self._acquainted = True

    def _watchdog_ended(self) -> None:
        """Without a watchdog a stopped node would not be fenced: give up the lease and begin a new one."""
        if self.placement.holder is not None:
            self._perform(self.placement.abandon("its watchdog ended"))

    async def _run(self) -> None:
        settled: str | None = None
        while True:
            now = clock()
            self._wake.clear()
            self._perform(self.placement.tick(now))
            self.placement.forget(now)
            generation = self.placement.generation
            if settled != generation and self.engine.connected and self.placement.settled(now):
                settled = generation if await self._settle() else None
            if self.engine.connected and self.me.name not in self.placement.seen:
                with suppress(EngineError):
                    await self._look(self.me.name)
            pause = max(self.placement.due(clock()) - clock(), 0.05)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, self.rules.renew)):
                    await self._wake.wait()

    async def _settle(self) -> bool:
        """Write down that this data was watched for a whole `ttl`."""
        generation = self.placement.generation or ""
        with suppress(EngineError):
            value, last = await self.engine.read("owners", SETTLED)
            if value == generation.encode():
                return True
            return await self.engine.write("owners", SETTLED, generation.encode(), last) is not None
        return False

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Fence):
                self._fence(action)
            else:
                self._spawn(self._write(action))
        self.watchdog.until(self.placement.usable_until)

    def _fence(self, fence: Fence) -> None:
        pids = self.watchdog.pids
        self.watchdog.kill()
        self.fenced += 1
        log.warning("this node fenced itself: %s keys=%d", fence.reason, len(fence.keys))
        self._spawn(self._after_fence(fence, pids))

    async def _after_fence(self, fence: Fence, pids: frozenset[int]) -> None:
        while any(map(runs, pids)):  # noqa: ASYNC110 (they are no children of this process)
            await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(END_WAIT):
                await self._on_fence(fence.keys, fence.reason)
        except TimeoutError:
            log.warning("sessions of a lost lease did not close in time")
        self.placement.fenced()
        self._wake.set()

    async def _write(self, write: WriteLease) -> None:
        async with self._writing:
            await self._written(write)

    async def _written(self, write: WriteLease) -> None:
        value, connects = encode_lease(write.record, self._about()), self.engine.connects
        try:
            revision = await self.engine.write("leases", self.me.name, value, write.last)
            if connects != self.engine.connects:
                return
            if revision is None:
                self.placement.lease_refused(clock())
                await self._look(self.me.name)
            else:
                self._perform(self.placement.lease_written(write, revision, clock()))
                self._remember(write.record, self._about())
                await self._announce(value, revision)
        except EngineError as problem:
            log.info("the lease was not renewed: %s", problem)
        self._wake.set()

    # --- other nodes ----------------------------------------------------------------------------

    async def _announce(self, value: bytes, revision: int) -> None:
        self._announced = b"%d " % revision + value
        await self.engine.publish("lease", self._announced)

    async def _beat(self) -> None:
        """Repeat the last renewal, so that a lost notice does no harm."""
        while True:
            await asyncio.sleep(self.rules.heartbeat)
            if self._announced and self.placement.leads(clock()):
                await self.engine.publish("lease", self._announced)
            self._expire_members()

    def _heard(self, data: bytes) -> None:
        number, _, value = data.partition(b" ")
        record, about = read_lease(value)
        if record is None or not number.isdigit() or record.node == self.me.name:
            return
        self._seen(record.node, record, about, int(number))

    def _seen(self, node: str, record: LeaseRecord | None, about: Mapping[str, Any], revision: int) -> None:
        self._perform(self.placement.lease_seen(node, record, revision, clock()))
        if record is not None and not record.vacant:
            self._remember(record, about)

    def _remember(self, record: LeaseRecord, about: Mapping[str, Any]) -> None:
        known = self.members.get(record.node)
        if record.ended:
            if known is not None and known.incarnation == record.incarnation:
                del self.members[record.node]
                self._on_members()
            return
        new = Member(record.node, record.incarnation, about, clock(), record.draining)
        self.members[record.node] = new
        if known != new:
            self._gone.pop(NodeId(new.name, new.incarnation), None)
            self._on_members()

    def _expire_members(self) -> None:
        """Forget nodes that were silent for `ttl` while this one could renew its lease."""
        if not self.engine.connected or not self.placement.leads(clock()):
            self._reached = clock()
        if self._reached > (oldest := clock() - self.rules.ttl):
            return
        late = [name for name, one in self.members.items() if one.heard < oldest and name != self.me.name]
        for name in late:
            del self.members[name]
        if late:
            self._on_members()

    async def _look(self, node: str) -> None:
        """Read the lease record of a node.

        Raises:
            EngineError: The engine does not answer.
        """
        value, revision = await self.engine.read("leases", node)
        record, about = read_lease(value)
        self._seen(node, record, about, revision)

    # --- keys -----------------------------------------------------------------------------------

    def may_send(self, key: str) -> int | None:
        """Return the fencing number of a key that this node may use now."""
        return self.placement.may_send(key, clock())

    def forget(self, node: NodeId, *, gone: bool) -> None:
        """Read the owners of keys again that this node had. `gone`: it did not answer; else it refused."""
        (self._gone if gone else self._moved)[node] = monotonic()
        for key in [key for key, holder in self._routes.items() if holder[:2] == node]:
            del self._routes[key]
        for known in (self._gone, self._moved):
            while len(known) > 1000:
                del known[next(iter(known))]

    async def place(self, key: str, about: Mapping[str, Any], wait: float) -> NodeId:
        """Return the node that owns a key. If no node does, this one claims it.

        Args:
            key: Letters, digits, `.`, `-` and `_`.
            about: What `cluster status` shows about the key.
            wait: Seconds to wait for an owner.

        Raises:
            NotPlaced: There is no owner, and this node could not become it in time.
        """
        while (gate := self._closing.get(key)) is not None:
            await gate.wait()
        if self.may_send(key) is not None:
            return self.me
        if (known := self._cached(key)) is not None:
            return known
        lock = self._flights.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(wait), lock:
                if self.may_send(key) is not None:
                    return self.me
                return await self._placed(key, about)
        except TimeoutError:
            reason = self._reasons.pop(key, "no answer of the engine")
            raise NotPlaced(f"{_shown(about)} has no node that runs it: {reason}") from None
        finally:
            if not lock.locked():
                self._flights.pop(key, None)
                self._reasons.pop(key, None)

    def _cached(self, key: str) -> NodeId | None:
        holder = self._routes.get(key)
        if holder is None or self.placement.ended(holder, clock()):
            return None
        member = self.members.get(holder.node)
        # Without the engine there is no better knowledge; the owner checks its own lease.
        fresh = not self.engine.connected or (
            member is not None and clock() - member.heard < self.rules.ttl / 3
        )
        return NodeId(holder.node, holder.incarnation) if fresh else None

    async def _placed(self, key: str, about: Mapping[str, Any]) -> NodeId:
        while True:
            try:
                found = await self._try(key, about)
            except EngineError as problem:
                found = await self._find(key) or str(problem)
            if isinstance(found, NodeId):
                return found
            if found is not None:
                self._reasons[key] = found
                await asyncio.sleep(min(self.rules.heartbeat / 2, 0.25))

    async def _try(self, key: str, about: Mapping[str, Any]) -> NodeId | str | None:
        """Return the owner, why there is none yet, or None to try again at once."""
        value, revision = await self.engine.read("owners", key)
        owner, _ = owner_of(value)
        decision = self.placement.decide(key, owner, revision, clock())
        if isinstance(decision, Mine):
            return self.me
        if isinstance(decision, RouteTo):
            return self._routed(key, decision.node, owner)
        if isinstance(decision, ClaimKey):
            if not self._acquainted:
                return "this node has not heard of the other nodes yet"
            return await self._claim(key, decision, about)
        if isinstance(decision, EndLease):
            node = decision.record.node
            written = await self.engine.write(
                "leases", node, encode_lease(decision.record, {}), decision.last
            )
            if written is None:
                await self._look(node)
            else:
                self._perform(self.placement.lease_seen(node, decision.record, written, clock()))
                if decision.record.ended:
                    log.warning("the lease of node %s has ended; its keys are placed again", node)
            return None
        if owner is not None and owner.node not in self.placement.seen:
            await self._look(owner.node)
            return None
        return decision.reason

    def _routed(self, key: str, node: str, owner: Holder | None) -> NodeId | str:
        if owner is not None and owner.node == node:
            target = NodeId(node, owner.incarnation)
            if not self._reachable(target):
                return f"node {node!r} does not answer, and its lease has not ended yet"
            if monotonic() - self._moved.get(target, float("-inf")) < self.rules.heartbeat:
                return f"node {node!r} has lost its lease, which has not ended yet"
            if len(self._routes) >= MAX_CACHED:
                self._routes.pop(next(iter(self._routes)))
            self._routes[key] = owner
            return target
        member = self.members.get(node)
        if member is None or not self._reachable(target := NodeId(node, member.incarnation)):
            return f"node {node!r} does not answer"
        return target

    def _reachable(self, node: NodeId) -> bool:
        since = self._gone.get(node)
        return since is None or self._answers(node, since)

    async def _claim(self, key: str, claim: ClaimKey, about: Mapping[str, Any]) -> NodeId | None:
        connects = self.engine.connects
        value = json.dumps({"owner": claim.owner, **about}).encode()
        revision = await self.engine.write("owners", key, value, claim.last)
        # An answer of data that the engine lost in between means nothing.
        if revision is None or connects != self.engine.connects:
            return None
        return self.me if self.placement.claimed(key, claim, revision, clock()) else None

    @contextmanager
    def closing(self, key: str) -> Generator[None]:
        """While the block runs, requests for a key wait: it is about to be released."""
        gate = self._closing[key] = asyncio.Event()
        try:
            yield
        finally:
            self._closing.pop(key, None)
            gate.set()

    async def release(self, key: str) -> None:
        """Give up a key. What it stands for must have ended before."""
        revision = self.placement.release(key)
        if revision is not None:
            with suppress(EngineError):
                await self.engine.delete("owners", key, revision)


def _shown(about: Mapping[str, Any]) -> str:
    if "server" in about:
        return f"server {about['server']!r}"
    return f"the session of principal {about.get('principal')!r}"
