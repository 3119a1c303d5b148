"""Placement rules: leases of nodes, owners of keys, takeover and fencing. Pure; the time is an argument.

A *key* is something that may run once in the cluster: a server with `placement: cluster`, or the private
servers of one principal. Each node has one *lease*, and the owner record of a key names the lease of its
owner: a million keys cost no more to renew than one.

Why two nodes never own a key at once:

1. A node counts its lease from the moment before it *sent* a renewal, and stops using it `margin` seconds
   before it ends. A renewal that is acknowledged later than that does not count.
2. Another node takes over only after it knew one revision of the lease record for `ttl` seconds *on its own
   clock*, and after it replaced that revision by compare-and-set. A renewal in between makes that fail; after
   it, the old owner can never renew. An absent key has no revision; it gets a `vacant` record first.
3. A claim is a compare-and-set of the owner record. Its revision is the fencing number of the key.

So neither the clock of the engine, nor a late message, nor an out-of-date view can make two owners. What
remains is the rate of the clocks and the time to end child processes: that is what `margin` is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRules:
    """Durations in seconds. All of them scale with `ttl`."""

    ttl: float = 30.0
    """How long a lease lasts after its last renewal."""
    margin: float | None = None
    """How long before its end a node stops using its lease. Default: a sixth of `ttl`."""

    @property
    def renew(self) -> float:
        """Interval of renewals."""
        return self.ttl / 6

    @property
    def heartbeat(self) -> float:
        """Interval of heartbeats, which show failures in `cluster status` before a lease ends."""
        return self.ttl / 30

    @property
    def usable(self) -> float:
        """How long a node uses its lease after it sent a renewal."""
        return self.ttl - (self.ttl / 6 if self.margin is None else self.margin)


class Epoch(NamedTuple):
    """When a lease began: the revision of its first record, within one generation of the engine's data."""

    generation: str
    revision: int


class Holder(NamedTuple):
    """One lease of one run of a node."""

    node: str
    incarnation: str
    """Random for each start of the node."""
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The value of a node's lease key."""

    node: str
    incarnation: str
    epoch: Epoch | None
    """None in the first record of a lease: its own revision is the epoch."""
    beat: int
    """Number of the renewal."""
    ended: bool = False
    """Whether another node ended this lease, or its own node gave it up."""
    draining: bool = False
    vacant: bool = False
    """Written to an absent key, so that it has a revision which shows whether a lease begins."""
    certain: bool = True
    """Whether it was certain when this lease began that no earlier one of the same name was in use."""

    def holder(self, generation: str, revision: int) -> Holder:
        """Return the holder of a record that has this revision."""
        return Holder(self.node, self.incarnation, self.epoch or Epoch(generation, revision))


@dataclass(slots=True)
class Seen:
    """What one node knows about the lease key of another."""

    record: LeaseRecord | None
    revision: int
    since: float
    """When it learned of the last renewal, or began to look."""
    began: float
    """When it learned of the lease."""


# --- actions and decisions --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Write the own lease record if the key still has revision `last`."""

    record: LeaseRecord
    last: int


@dataclass(frozen=True, slots=True)
class Fence:
    """The lease is lost: send nothing to the servers of these keys, kill them, then call `fenced`."""

    keys: Mapping[str, int]
    reason: str


Action = WriteLease | Fence


@dataclass(frozen=True, slots=True)
class Mine:
    """This node owns the key; `fence` is its fencing number."""

    fence: int


@dataclass(frozen=True, slots=True)
class RouteTo:
    """Another node owns the key, or should claim it."""

    node: str


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """Write `owner` to the owner key if it still has revision `last`."""

    owner: Holder
    last: int


@dataclass(frozen=True, slots=True)
class EndLease:
    """First end the lease of the former owner, or begin to: write `record` if its lease key still has
    revision `last`, and report it with `lease_seen`."""

    record: LeaseRecord
    last: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be decided before `until`, or before the next notice of the engine."""

    until: float
    reason: str


Decision = Mine | RouteTo | ClaimKey | EndLease | Wait


@dataclass(slots=True)
class _Sent:
    """A renewal that was sent and not acknowledged yet."""

    record: LeaseRecord
    at: float


@dataclass(slots=True)
class Placement:
    """The state of one node. Methods report what happened; they return what to do."""

    node: str
    incarnation: str
    rules: LeaseRules = field(default_factory=LeaseRules)
    holder: Holder | None = None
    """The lease of this node; None before the first and after a lost one."""
    usable_until: float = float("-inf")
    draining: bool = False
    duplicate: str | None = None
    """Incarnation of another live node with the same name."""
    fencing: bool = False
    """Whether processes of a lost lease may still run. No new lease begins before they ended."""
    owned: dict[str, int] = field(default_factory=dict[str, int])
    """Fencing number of each owned key."""
    seen: dict[str, Seen] = field(default_factory=dict[str, Seen])
    generation: str | None = None
    _settled_at: float = float("inf")
    _sent: dict[int, _Sent] = field(default_factory=dict[int, _Sent])
    _beat: int = 0
    _certain: bool = True
    _next_write: float = float("-inf")

    # --- the own lease --------------------------------------------------------------------------

    def engine(self, generation: str, *, settled: bool, now: float) -> list[Action]:
        """Take note of the engine's data after each connect.

        Args:
            generation: Changes when the engine lost its data.
            settled: Whether a node has watched this data for `ttl` seconds: no lease of lost data is in use.
        """
        actions: list[Action] = []
        if self.generation != generation:
            actions = self._lose("the engine lost its data") if self.generation is not None else []
            self.generation, self._settled_at = generation, now + self.rules.ttl
            self.seen.clear()
            self._sent.clear()
            self._next_write = now
        if settled:
            self._settled_at = min(self._settled_at, now)
        return actions

    def settled(self, now: float) -> bool:
        """Whether keys without an owner may be claimed."""
        return now >= self._settled_at

    def leads(self, now: float) -> bool:
        """Whether the lease of this node may be used."""
        return self.holder is not None and now < self.usable_until

    def may_send(self, key: str, now: float) -> int | None:
        """Return the fencing number of a key that this node owns at `now`; None if it may not be used."""
        return self.owned.get(key) if self.leads(now) else None

    def tick(self, now: float) -> list[Action]:
        """Return what is due. Call it at `due()` at the latest, and after a pause before anything else."""
        actions = self._expire(now)
        if self.generation is None or now < self._next_write:
            return actions
        write = self._renewal() if self.holder is not None else self._first(now)
        if write is not None:
            self._beat, self._certain = write.record.beat, write.record.certain
            self._sent[write.record.beat] = _Sent(write.record, now)
            self._next_write = now + self.rules.renew
            actions.append(write)
        return actions

    def due(self, now: float) -> float:
        """Return the time of the next `tick`."""
        times = [self._next_write if self.generation is not None else now + self.rules.renew]
        if self.holder is not None:
            times.append(self.usable_until)
        return max(min(times), now)

    def _expire(self, now: float) -> list[Action]:
        if self.holder is None or now < self.usable_until:
            return []
        return self._lose("the lease was not renewed in time")

    def _lose(self, reason: str) -> list[Action]:
        if self.holder is None:
            return []
        keys, self.owned = self.owned, {}
        self.holder, self.usable_until = None, float("-inf")
        self._sent.clear()
        self._next_write = float("-inf")
        self.fencing = True
        return [Fence(keys, reason)]

    def abandon(self, reason: str) -> list[Action]:
        """Give up the lease at once because it cannot be kept safely; a new one begins after `fenced`."""
        return self._lose(reason)

    def fenced(self) -> None:
        """Take note that all processes of the lost lease have ended."""
        self.fencing = False

    def _renewal(self) -> WriteLease:
        assert self.holder is not None
        record = LeaseRecord(
            self.node,
            self.incarnation,
            self.holder.epoch,
            self._beat + 1,
            draining=self.draining,
            certain=self._certain,
        )
        own = self.seen.get(self.node)
        return WriteLease(record, 0 if own is None else own.revision)

    def _first(self, now: float) -> WriteLease | None:
        """Return the write that begins a lease; None while an earlier one of this name may be in use."""
        own = self.seen.get(self.node)
        if own is None or self.fencing:
            return None  # the key is read first
        before, lapsed = own.record, now >= own.since + self.rules.ttl
        if before is not None and not before.ended and before.incarnation != self.incarnation and not lapsed:
            return None
        # Without a record it is not known whether an earlier run of this name is still in use.
        record = LeaseRecord(
            self.node,
            self.incarnation,
            None,
            self._beat + 1,
            draining=self.draining,
            certain=before is not None and (before.certain or lapsed),
        )
        return WriteLease(record, own.revision)

    def lease_written(self, write: WriteLease, revision: int, now: float) -> list[Action]:
        """Take note of an acknowledged write of the own lease record."""
        assert self.generation is not None
        return self.lease_seen(self.node, write.record, revision, now)

    def lease_refused(self, now: float) -> None:
        """Take note that the key had another revision. Report its record with `lease_seen`, too."""
        self._next_write = now

    def _own_seen(self, record: LeaseRecord | None, revision: int, now: float) -> list[Action]:
        actions = self._expire(now)
        if record is None:
            # The engine let it expire early. No other node ended the lease, so it can be written again.
            self._next_write = now
            return actions
        if record.incarnation != self.incarnation or record.ended:
            return actions + self._lose("another node ended the lease")
        sent = self._sent.get(record.beat)
        if sent is None or sent.record != record:
            return actions
        until = sent.at + self.rules.usable
        for beat in [beat for beat in self._sent if beat <= record.beat]:
            del self._sent[beat]
        if now < until and (self.holder is None or record.epoch == self.holder.epoch):
            self.holder = record.holder(self.generation or "", revision)
            self.usable_until = max(self.usable_until, until)
        return actions

    def drain(self, now: float) -> None:
        """Claim nothing any more, and announce it with the next renewal, which is due now."""
        self.draining, self._next_write = True, now

    def leave(self) -> WriteLease | None:
        """Return the write that gives up the lease, after all keys were released; None without a lease."""
        if self.holder is None:
            return None
        write = self._renewal()
        self.holder, self.usable_until, self.owned = None, float("-inf"), {}
        return WriteLease(
            LeaseRecord(
                self.node,
                self.incarnation,
                write.record.epoch,
                write.record.beat,
                ended=True,
                certain=self._certain,
            ),
            write.last,
        )

    # --- other nodes ----------------------------------------------------------------------------

    def lease_seen(self, node: str, record: LeaseRecord | None, revision: int, now: float) -> list[Action]:
        """Take note of the record of a lease key. Notices may be late, repeated and out of order.

        Args:
            node: The name of the node.
            record: None if the key does not exist, was deleted or has expired.
            revision: The revision of the record or of its expiry marker; 0 if there is neither.
            now: The time.
        """
        known = self.seen.get(node)
        if record is not None and record.vacant:
            record = None
        if known is None:
            self.seen[node] = Seen(record, revision, now, now)
        elif record is None:
            if (revision == known.revision and known.record is None) or 0 < revision < known.revision:
                return []
            # A renewal that this node missed may have come before.
            known.record, known.revision, known.since = None, revision, now
        elif revision <= known.revision:
            return []
        else:
            self._check_name(node, known, record)
            if record.epoch is None or known.record is None or known.record.incarnation != record.incarnation:
                known.began = now
            known.record, known.revision, known.since = record, revision, now
        return self._own_seen(record, revision, now) if node == self.node else []

    def _check_name(self, node: str, known: Seen, record: LeaseRecord) -> None:
        before = known.record
        if (
            node == self.node
            and self.holder is None
            and record.incarnation != self.incarnation
            and not record.ended
            and before is not None
            and before.incarnation == record.incarnation
        ):
            self.duplicate = record.incarnation

    def ended(self, holder: Holder, now: float) -> bool:
        """Whether it is certain that this lease can never be used again."""
        if holder.node == self.node and holder.incarnation == self.incarnation:
            return holder != self.holder
        if holder.epoch.generation != self.generation:
            return self.settled(now)  # `ttl` seconds have passed since its data was lost
        known = self.seen.get(holder.node)
        if known is None or known.record is None:
            return False
        current = known.record
        began = known.revision if current.ended or current.epoch is None else current.epoch.revision
        if began <= holder.epoch.revision:
            return False
        same_run = current.incarnation == holder.incarnation  # it fenced itself before it began again
        return same_run or current.certain or now >= known.began + self.rules.ttl

    def live(self, now: float) -> list[str]:
        """Return the names of the nodes that hold a lease, this one included, sorted."""
        return sorted(
            name
            for name, seen in self.seen.items()
            if seen.record is not None and not seen.record.ended and now < seen.since + self.rules.ttl
        )

    def forget(self, now: float) -> None:
        """Forget nodes that have been gone for ten times `ttl`."""
        for name, seen in list(self.seen.items()):
            if name != self.node and now > seen.since + 10 * self.rules.ttl:
                del self.seen[name]

    # --- keys -----------------------------------------------------------------------------------

    def decide(self, key: str, owner: Holder | None, revision: int, now: float) -> Decision:
        """Return what to do with a request for `key`.

        Args:
            key: The key.
            owner: The owner record of the key; None if there is none.
            revision: Its revision, or that of its deletion marker; 0 if there is neither.
            now: The time.
        """
        if (fence := self.may_send(key, now)) is not None:
            return Mine(fence)
        if owner is not None and owner != self.holder and not self.ended(owner, now):
            return self._contested(owner, now)
        if not self.settled(now):
            return Wait(self._settled_at, "the data of the engine is new: a lease of lost data may be in use")
        if self.draining:
            return self._elsewhere(key, now)
        if self.holder is None or not self.leads(now):
            return Wait(now + self.rules.renew, "this node has no lease: it does not reach the engine")
        # Also for a record with this lease: an acknowledgement may be lost, or the record out of date.
        return ClaimKey(self.holder, revision)

    def _contested(self, owner: Holder, now: float) -> Decision:
        known = self.seen.get(owner.node)
        if known is None:
            return Wait(now, f"the lease of node {owner.node!r} must be read first")
        if not known.revision:
            return EndLease(LeaseRecord(owner.node, owner.incarnation, None, 0, vacant=True), 0)
        if now >= known.since + self.rules.ttl:
            return EndLease(LeaseRecord(owner.node, owner.incarnation, None, 0, ended=True), known.revision)
        if known.record is None or known.record.ended:
            until = known.since + self.rules.ttl
            return Wait(until, f"node {owner.node!r} is gone; its lease may be in use for some seconds")
        return RouteTo(owner.node)

    def _elsewhere(self, key: str, now: float) -> Decision:
        able = [
            name
            for name in self.live(now)
            if name != self.node and (record := self.seen[name].record) is not None and not record.draining
        ]
        if not able:
            return Wait(now + self.rules.renew, "this node is draining, and there is no other")
        return RouteTo(preferred(key, able))

    def claimed(self, key: str, claim: ClaimKey, revision: int, now: float) -> bool:
        """Take note of an acknowledged claim; return whether this node owns the key."""
        if not self.leads(now) or claim.owner != self.holder:
            return False
        self.owned[key] = max(revision, self.owned.get(key, 0))
        return True

    def release(self, key: str) -> int | None:
        """Give up a key whose server has ended. Return the revision of the owner record to delete."""
        return self.owned.pop(key, None)


def preferred(key: str, nodes: list[str]) -> str:
    """Return the node of the list that should get `key`; most keys keep theirs when the list changes."""
    return max(nodes, key=lambda node: blake2b(f"{node}\0{key}".encode(), digest_size=8).digest())
