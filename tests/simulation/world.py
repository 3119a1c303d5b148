"""A discrete-event simulation of a cluster: the rules of `mooring.cluster.placement`, a simulated engine, and
what goes wrong with both. One seed is one schedule; the same seed gives the same schedule.

What is simulated, all at random times:

- nodes: clocks that run too fast or too slow, the process stopped (SIGSTOP), the machine frozen, killed and
  restarted under the same name, replaced by a second process of the same name while the first one hangs,
  drained;
- network: a node cut off from the engine in one or both directions, or from other nodes; lost, late and
  repeated notices;
- engine: down, slow, records that expire early because its clock jumped, all data lost, reads out of date,
  acknowledgements lost.

What is checked: the processes of a key that different nodes start never run at the same time, and fencing
numbers only grow. A process runs from the claim until its node fences itself, or until the watchdog (another
process) kills it at the end of the lease.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mooring.cluster.placement import (
    Action,
    ClaimKey,
    EndLease,
    Fence,
    Holder,
    LeaseRecord,
    LeaseRules,
    Mine,
    Placement,
    RouteTo,
    Wait,
    WriteLease,
)

FOREVER = float("inf")
Record = tuple[float, LeaseRecord | None, int]


@dataclass
class Options:
    """Size of the world, and what is switched off to show that it matters."""

    nodes: int = 100
    sessions: int = 1_000_000
    hot: int = 60
    """Sessions that get requests."""
    requests: int = 240
    rules: LeaseRules = field(default_factory=lambda: LeaseRules(ttl=30.0))
    drift: float = 0.01
    """Largest error of a clock's rate."""
    kill: float = 1.0
    """Longest time to end the processes of a lost lease, in seconds."""
    length: float = 150.0
    watchdog: bool = True
    late: bool = False
    """Whether answers of the engine to single nodes are delayed by seconds, before they are cut off."""
    placement: type[Placement] = Placement


class Engine:
    """The key-value store: linearizable writes, reads that may be out of date, leases that expire."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.generation, self.settled = "g0", True
        self.revision = 10_000_000
        self.leases: dict[str, list[Record]] = {}
        self.owners: dict[int, tuple[Holder | None, int]] = {}
        self.down_until = 0.0
        self.slow = 0.0
        self.expiry = world.options.rules.ttl * world.random.choice((1, 10))

    def lease(self, node: str, at: float) -> tuple[LeaseRecord | None, int]:
        """Return a lease record as it was at `at`."""
        for when, record, revision in reversed(self.leases.get(node, ())):
            if when <= at:
                return record, revision
        return None, 0

    def write_lease(self, node: str, record: LeaseRecord | None, last: int) -> int | None:
        now = self.world.now
        history = self.leases.setdefault(node, [])
        if (history[-1][2] if history else 0) != last:
            return None
        self.revision += 1
        history.append((now, record, self.revision))
        del history[:-6]
        self.world.at(now + self.expiry, self._expire, node, self.revision, self.generation)
        return self.revision

    def _expire(self, node: str, revision: int, generation: str) -> None:
        history = self.leases.get(node)
        if generation == self.generation and history and history[-1][2] == revision:
            self._drop(node)

    def _drop(self, node: str) -> None:
        marker = self.world.random.random() < 0.5  # old servers leave none
        if marker:
            self.revision += 1
        self.leases[node].append((self.world.now, None, self.revision if marker else 0))

    def owner(self, key: int) -> tuple[Holder | None, int]:
        if key not in self.owners and self.generation == "g0":
            first = self.world.first_holder(key)
            self.owners[key] = (first, key + 1)
        return self.owners.get(key, (None, 0))

    def write_owner(self, key: int, holder: Holder | None, last: int) -> int | None:
        if self.owner(key)[1] != last:
            return None
        self.revision += 1
        self.owners[key] = (holder, self.revision)
        return self.revision

    def clock_jump(self) -> None:
        for node, history in list(self.leases.items()):
            if history[-1][1] is not None:
                self._drop(node)

    def lose_data(self, until: float) -> None:
        self.generation, self.settled = f"g{self.world.random.getrandbits(30)}", False
        self.leases.clear()
        self.owners.clear()
        self.revision = 0
        self.down_until = until
        for node in self.world.processes:
            node.connected = False
            self.world.at(until + self.world.random.uniform(0, 3), node.connect)


class Node:
    """One process: the placement rules with a clock, a watchdog and a connection to the engine."""

    def __init__(self, world: World, name: str, incarnation: str) -> None:
        self.world, self.name = world, name
        options, rng = world.options, world.random
        self.rules = options.placement(node=name, incarnation=incarnation, rules=options.rules)
        self.rate = 1 + rng.uniform(-options.drift, options.drift)
        self.offset = rng.uniform(0, 1000)
        self.dead = False
        self.paused_until = 0.0
        self.frozen: list[tuple[float, float]] = []
        self.connected = True
        self.cut_from = self.cut_until = 0.0
        self.cut = (False, False)
        """Directions in which messages are lost: to the engine, from the engine."""
        self.peers_cut_until = 0.0
        self.answers_late = 0.0
        """Seconds by which answers of the engine are delayed."""
        self.ended: dict[Holder, float] = {}
        """When the processes of a lost lease ended."""
        self.deadline: dict[Holder, float] = {}
        """When the watchdog kills the processes of a lease."""
        self.ticking = False

    def clock(self) -> float:
        return self.offset + self.rate * self.world.now

    def true_time(self, clock: float) -> float:
        return (clock - self.offset) / self.rate

    # --- its processes --------------------------------------------------------------------------

    def runs(self, holder: Holder) -> bool:
        """Whether a process that was started under this lease still runs."""
        now = self.world.now
        end = self.ended.get(holder, FOREVER)
        if self.world.options.watchdog:
            deadline = self.deadline.get(holder, FOREVER)
            kill = self.world.options.kill
            # A frozen machine runs nothing, and its watchdog is the first to act.
            frozen = any(start <= deadline < stop for start, stop in self.frozen)
            end = min(end, deadline if frozen else deadline + kill)
        return now < end

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Fence):
                self.world.fenced += 1
                self.end_processes()
            else:
                self.write(action)
        holder = self.rules.holder
        if holder is not None:
            self.deadline[holder] = self.true_time(self.rules.usable_until)

    def end_processes(self) -> None:
        end = self.world.now + self.world.random.uniform(0, self.world.options.kill)
        for known in self.deadline:
            self.ended.setdefault(known, end)
        self.world.at(end, self._processes_ended)

    def _processes_ended(self) -> None:
        if self.awake(self._processes_ended):
            self.rules.fenced()

    def crash(self) -> None:
        self.dead = True
        for known in self.deadline:
            self.ended.setdefault(known, self.world.now + 0.01)

    # --- engine ---------------------------------------------------------------------------------

    def awake(self, work: Callable[..., None], *args: Any) -> bool:
        """Whether the process runs; if it is stopped, `work` is done when it continues."""
        if self.dead:
            return False
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until, work, *args)
            return False
        return True

    def reaches(self, direction: int) -> bool:
        now, engine = self.world.now, self.world.engine
        blocked = self.cut_from <= now < self.cut_until and self.cut[direction]
        return self.connected and not blocked and now >= engine.down_until

    def ask(self, work: Callable[[], Any], reply: Callable[[Any], None]) -> None:
        """Send a request to the engine; `reply` gets what `work` returns, unless a message is lost."""
        rng, engine, world = self.world.random, self.world.engine, self.world
        if not self.reaches(0) or rng.random() < 0.002:
            return
        generation = engine.generation

        def arrives() -> None:
            if engine.generation != generation or world.now < engine.down_until:
                return
            result = work()
            if rng.random() >= 0.002:
                world.at(world.now + self.latency() + self.answers_late, returns, result)

        def returns(result: Any) -> None:
            if engine.generation == generation and self.reaches(1) and self.awake(returns, result):
                reply(result)

        world.at(world.now + self.latency(), arrives)

    def latency(self) -> float:
        rng = self.world.random
        slow = self.world.engine.slow
        return rng.uniform(0.001, 0.01) + (rng.expovariate(1 / slow) if slow else 0.0)

    def connect(self) -> None:
        if not self.awake(self.connect):
            return
        engine = self.world.engine
        self.connected = True
        self.do(self.rules.engine(engine.generation, settled=engine.settled, now=self.clock()))
        self.look(self.name)
        self.tick()

    def look(self, node: str) -> None:
        """Read a lease key; the answer may be out of date."""
        world = self.world
        stale = world.random.choice((0.0, 0.0, 0.0, 1.0, 8.0))
        world.interest.setdefault(node, {})[self] = None
        self.ask(
            lambda: world.engine.lease(node, world.now - stale),
            lambda found: self.do(self.rules.lease_seen(node, found[0], found[1], self.clock())),
        )

    def tick(self) -> None:
        if self.ticking or not self.awake(self.tick):
            return
        self.do(self.rules.tick(self.clock()))
        engine = self.world.engine
        if self.connected and self.rules.generation == engine.generation and self.rules.settled(self.clock()):
            engine.settled = True
        if self.rules.seen.get(self.name) is None and self.rules.generation is not None:
            self.look(self.name)
        due = self.true_time(self.rules.due(self.clock()))
        self.ticking = True
        self.world.at(max(due, self.world.now + 0.2), self._tick_again)

    def _tick_again(self) -> None:
        self.ticking = False
        self.tick()

    def write(self, write: WriteLease) -> None:
        world = self.world

        def reply(revision: int | None) -> None:
            if revision is None:
                self.rules.lease_refused(self.clock())
                self.look(self.name)
                return
            self.do(self.rules.lease_written(write, revision, self.clock()))

        def work() -> int | None:
            revision = world.engine.write_lease(self.name, write.record, write.last)
            if revision is not None:
                world.tell(self.name, write.record, revision)
            return revision

        self.ask(work, reply)

    # --- requests -------------------------------------------------------------------------------

    def request(self, key: int, hops: int = 0, tries: int = 0) -> None:
        if not self.awake(self.request, key, hops, tries) or tries > 12:
            return
        text = str(key)
        self.adopt(key)
        fence = self.rules.may_send(text, self.clock())
        if fence is not None:
            self.world.sent(key, self, fence)
            return
        self.ask(
            lambda: self.world.engine.owner(key),
            lambda found: self.decide(key, found[0], found[1], hops, tries),
        )

    def adopt(self, key: int) -> None:
        """Own a session that was placed on this node before the schedule began."""
        first = self.world.first.get(self.name)
        untouched = key not in self.world.touched and self.world.first_holder(key) == first
        if untouched and first == self.rules.holder:
            self.rules.owned[str(key)] = key + 1
        self.world.touch(key)

    def decide(self, key: int, owner: Holder | None, revision: int, hops: int, tries: int) -> None:
        world, text = self.world, str(key)
        decision = self.rules.decide(text, owner, revision, self.clock())
        if isinstance(decision, Mine):
            world.sent(key, self, decision.fence)
        elif isinstance(decision, RouteTo):
            other = world.current.get(decision.node)
            cut = max(self.peers_cut_until, other.peers_cut_until if other else 0.0)
            if other is not None and hops < 2 and world.now >= cut:
                world.at(world.now + 0.002, other.request, key, hops + 1, tries)
            else:
                world.at(world.now + world.random.uniform(1, 5), self.request, key, hops, tries + 1)
        elif isinstance(decision, Wait):
            if owner is not None and owner.node not in self.rules.seen:
                self.look(owner.node)
            wait = max(self.true_time(decision.until) - world.now, 0.1)
            world.at(world.now + wait + 0.05, self.request, key, hops, tries + 1)
        elif isinstance(decision, EndLease):
            self.end_lease(key, decision, hops, tries)
        else:
            self.claim(key, decision, hops, tries)

    def end_lease(self, key: int, decision: EndLease, hops: int, tries: int) -> None:
        world, node = self.world, decision.record.node

        def reply(revision: int | None) -> None:
            if revision is None:
                self.look(node)
            else:
                self.do(self.rules.lease_seen(node, decision.record, revision, self.clock()))
            world.at(world.now + 0.05, self.request, key, hops, tries + 1)

        def work() -> int | None:
            revision = world.engine.write_lease(node, decision.record, decision.last)
            if revision is not None:
                world.takeovers += 1
                world.tell(node, decision.record, revision)
            return revision

        self.ask(work, reply)

    def claim(self, key: int, claim: ClaimKey, hops: int, tries: int) -> None:
        world = self.world

        def reply(revision: int | None) -> None:
            if revision is None:
                world.at(world.now + 0.05, self.request, key, hops, tries + 1)
            elif self.rules.claimed(str(key), claim, revision, self.clock()):
                world.started(key, self, claim.owner, revision)
                world.sent(key, self, self.rules.owned[str(key)])

        self.ask(lambda: world.engine.write_owner(key, claim.owner, claim.last), reply)


class World:
    """One schedule."""

    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.options = options or Options()
        self.random = random.Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self.engine = Engine(self)
        self.processes: list[Node] = []
        self.current: dict[str, Node] = {}
        self.interest: dict[str, dict[Node, None]] = {}
        """Ordered, so that a seed gives one schedule."""
        self.first: dict[str, Holder] = {}
        self.touched: set[int] = set()
        self.started_by: dict[int, list[tuple[Node, Holder, int]]] = {}
        self.last_fence: dict[tuple[int, str | None], int] = {}
        self.sends = self.takeovers = self.claims = self.fenced = 0
        self.violations: list[str] = []
        for number in range(self.options.nodes):
            self._first_node(f"n{number}")

    def _first_node(self, name: str) -> None:
        node = Node(self, name, f"{name}-0")
        self.processes.append(node)
        self.current[name] = node
        rules, clock = node.rules, node.clock()
        rules.engine("g0", settled=True, now=clock)
        rules.lease_seen(name, None, 0, clock)
        (write,) = rules.tick(clock)
        assert isinstance(write, WriteLease)
        revision = self.engine.write_lease(name, write.record, write.last)
        assert revision is not None
        rules.lease_written(write, revision, clock)
        assert rules.holder is not None
        self.first[name] = rules.holder
        node.do([])
        self.at(self.random.uniform(0, self.options.rules.renew), node.tick)

    def first_holder(self, key: int) -> Holder:
        return self.first[f"n{key % self.options.nodes}"]

    def at(self, when: float, work: Callable[..., None], *args: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, work, args))

    def tell(self, node: str, record: LeaseRecord, revision: int) -> None:
        """Send notices of a lease record to the nodes that watch it; some are lost, late or repeated."""
        rng = self.random
        for watcher in self.interest.get(node, ()):
            for _ in range(rng.choice((0, 1, 1, 1, 1, 2))):
                late = rng.uniform(1, 10) if rng.random() < 0.05 else rng.uniform(0.001, 0.02)
                self.at(
                    self.now + late, self._notice, watcher, node, record, revision, self.engine.generation
                )

    def _notice(self, watcher: Node, node: str, record: LeaseRecord, revision: int, generation: str) -> None:
        if generation != self.engine.generation or not watcher.reaches(1):
            return
        if watcher.awake(self._notice, watcher, node, record, revision, generation):
            watcher.do(watcher.rules.lease_seen(node, record, revision, watcher.clock()))

    # --- checks ---------------------------------------------------------------------------------

    def touch(self, key: int) -> None:
        if key not in self.touched:
            self.touched.add(key)
            holder = self.first_holder(key)
            self.started_by[key] = [(self._process_of(holder), holder, key + 1)]

    def _process_of(self, holder: Holder) -> Node:
        return next(
            one
            for one in self.processes
            if one.name == holder.node and one.rules.incarnation == holder.incarnation
        )

    def started(self, key: int, node: Node, holder: Holder, fence: int) -> None:
        """A node starts a process for a key: no other may run."""
        self.claims += 1
        self.touch(key)
        for other, theirs, _ in self.started_by[key]:
            if theirs != holder and other.runs(theirs):
                self.violations.append(
                    f"t={self.now:.3f} key {key}: {holder} starts while {theirs} still runs"
                )
        self.started_by[key].append((node, holder, fence))

    def sent(self, key: int, node: Node, fence: int) -> None:
        """A node sends a request to its process."""
        self.sends += 1
        self.touch(key)
        for other, theirs, _ in self.started_by[key]:
            if theirs != node.rules.holder and other.runs(theirs):
                self.violations.append(f"t={self.now:.3f} key {key}: {node.name} sends while {theirs} runs")
        number = (key, node.rules.generation)
        if fence < self.last_fence.get(number, 0):
            self.violations.append(
                f"t={self.now:.3f} key {key}: fence {fence} after {self.last_fence[number]}"
            )
        self.last_fence[number] = fence

    # --- faults ---------------------------------------------------------------------------------

    def plan(self) -> None:
        """Choose the faults and the requests of this schedule."""
        rng, options = self.random, self.options
        keys = [rng.randrange(options.sessions) for _ in range(options.hot)]
        names = dict.fromkeys(f"n{key % options.nodes}" for key in keys)
        for name in sorted(names):
            if rng.random() < 0.6:
                self.at(rng.uniform(0, options.length * 0.6), self._fault, name)
        for _ in range(rng.randrange(3)):
            self.at(rng.uniform(0, options.length * 0.7), self._engine_fault)
        for _ in range(options.requests):
            self.at(rng.uniform(0, options.length), self._arrive, rng.choice(keys))

    def _arrive(self, key: int) -> None:
        node = self.random.choice(list(self.current.values()))
        node.request(key)

    def _fault(self, name: str) -> None:
        rng, node = self.random, self.current[name]
        length = rng.choice((2.0, 10.0, 26.0, 35.0, 60.0)) * rng.uniform(0.7, 1.3)
        kinds = ("stop", "stop", "freeze", "cut", "cut", "half", "peers", "kill", "replace", "drain")
        kind = "late" if self.options.late and rng.random() < 0.7 else rng.choice(kinds)
        if kind == "late":
            # Renewals arrive and are acknowledged late; then no more arrive.
            node.answers_late = rng.uniform(8, 20)
            node.cut_from, node.cut_until = self.now + rng.uniform(10, 30), self.now + 100
            node.cut = (True, False)
        elif kind in ("stop", "freeze"):
            node.paused_until = max(node.paused_until, self.now + length)
            if kind == "freeze":
                node.frozen.append((self.now, node.paused_until))
        elif kind in ("cut", "half"):
            node.cut_from, node.cut_until = self.now, self.now + length
            node.cut = (True, True) if kind == "cut" else rng.choice(((True, False), (False, True)))
        elif kind == "peers":
            node.peers_cut_until = self.now + length
        elif kind == "drain":
            node.rules.drain(node.clock())
        else:
            if kind == "kill":
                node.crash()
            else:
                node.paused_until = max(node.paused_until, self.now + length)
            self.at(self.now + rng.uniform(0.5, 20), self._restart, name)

    def _restart(self, name: str) -> None:
        node = Node(self, name, f"{name}-{len(self.processes)}")
        self.processes.append(node)
        self.current[name] = node
        node.connect()

    def _engine_fault(self) -> None:
        rng, engine = self.random, self.engine
        length = rng.choice((2.0, 10.0, 40.0)) * rng.uniform(0.7, 1.3)
        kind = rng.choice(("down", "down", "slow", "slow", "clock", "clock", "lost"))
        if kind == "down":
            engine.down_until = max(engine.down_until, self.now + length)
        elif kind == "slow":
            engine.slow = rng.choice((0.5, 3.0, 10.0))
            self.at(self.now + length, setattr, engine, "slow", 0.0)
        elif kind == "clock":
            engine.clock_jump()
        else:
            engine.lose_data(self.now + length)

    def run(self) -> World:
        """Plan the schedule and run it to its end."""
        self.plan()
        return self.run_planned()

    def run_planned(self) -> World:
        """Run what was planned."""
        events, end = self._events, self.options.length
        while events and events[0][0] <= end:
            self.now, _, work, args = heapq.heappop(events)
            work(*args)
        return self
