"""The placement rules alone: single cases, and random orders of events over a linearizable store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.cluster.placement import (
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
    preferred,
)
from mooring.cluster.status import differing

RULES = LeaseRules(ttl=30.0)


def node(name: str = "a", now: float = 0.0) -> Placement:
    placement = Placement(node=name, incarnation=f"{name}1", rules=RULES)
    placement.engine("g", settled=True, now=now)
    placement.lease_seen(name, None, 0, now)
    return placement


def leading(name: str = "a", now: float = 0.0, revision: int = 1) -> Placement:
    placement = node(name, now)
    [write] = placement.tick(now)
    assert isinstance(write, WriteLease)
    placement.lease_written(write, revision, now)
    assert placement.leads(now)
    return placement


def test_a_lease_is_counted_from_the_moment_a_renewal_was_sent() -> None:
    placement = node()
    [write] = placement.tick(100.0)
    assert isinstance(write, WriteLease)
    placement.lease_written(write, 1, 110.0)
    assert placement.leads(124.9)
    assert not placement.leads(125.0)


def test_an_acknowledgement_that_comes_too_late_does_not_count() -> None:
    placement = node()
    [write] = placement.tick(100.0)
    assert isinstance(write, WriteLease)
    placement.lease_written(write, 1, 126.0)
    assert placement.holder is None


def test_a_node_that_cannot_renew_fences_itself_and_waits_for_its_processes() -> None:
    placement = leading()
    claim = placement.decide("k", None, 0, 1.0)
    assert isinstance(claim, ClaimKey)
    assert placement.claimed("k", claim, 7, 1.0)
    assert placement.may_send("k", 24.9) == 7
    assert placement.may_send("k", 25.0) is None
    fences = [one for one in placement.tick(26.0) if isinstance(one, Fence)]
    assert [dict(one.keys) for one in fences] == [{"k": 7}]
    assert placement.tick(40.0) == []  # no new lease while its processes may run
    placement.fenced()
    assert [type(one) for one in placement.tick(41.0)] == [WriteLease]


def test_another_node_routes_to_the_owner_until_its_lease_has_lapsed() -> None:
    a, b = leading("a", revision=1), leading("b", revision=2)
    assert a.holder is not None
    b.lease_seen("a", LeaseRecord("a", "a1", None, 1), 1, 5.0)
    assert b.decide("k", a.holder, 3, 34.9) == RouteTo("a")
    ending = b.decide("k", a.holder, 3, 35.0)
    assert isinstance(ending, EndLease)
    assert ending.last == 1
    b.lease_seen("a", ending.record, 9, 35.0)
    b.usable_until = 100.0
    assert isinstance(b.decide("k", a.holder, 3, 35.0), ClaimKey)


def test_an_absent_lease_record_proves_nothing() -> None:
    a, b = leading("a", revision=1), leading("b", revision=2)
    assert a.holder is not None
    b.lease_seen("a", LeaseRecord("a", "a1", None, 1), 1, 0.0)
    b.lease_seen("a", None, 0, 20.0)  # the clock of the engine jumped
    first = b.decide("k", a.holder, 3, 20.0)
    assert isinstance(first, EndLease)
    assert first.record.vacant
    b.lease_seen("a", first.record, 10, 20.0)
    assert isinstance(b.decide("k", a.holder, 3, 49.0), Wait)
    assert isinstance(b.decide("k", a.holder, 3, 50.0), EndLease)


def test_a_draining_node_claims_nothing() -> None:
    a = leading("a", revision=1)
    a.drain(1.0)
    assert isinstance(a.decide("k", None, 0, 1.0), Wait)
    a.lease_seen("b", LeaseRecord("b", "b1", None, 1), 2, 1.0)
    assert a.decide("k", None, 0, 1.0) == RouteTo("b")


def test_keys_of_new_data_wait_for_a_whole_ttl() -> None:
    placement = Placement(node="a", incarnation="a1", rules=RULES)
    placement.engine("g", settled=False, now=0.0)
    placement.lease_seen("a", None, 0, 0.0)
    [write] = placement.tick(0.0)
    assert isinstance(write, WriteLease)
    placement.lease_written(write, 1, 0.0)
    assert isinstance(placement.decide("k", None, 0, 20.0), Wait)
    [write] = [one for one in placement.tick(20.0) if isinstance(one, WriteLease)]
    placement.lease_written(write, 2, 20.0)
    assert isinstance(placement.decide("k", None, 0, 30.0), ClaimKey)


def test_a_second_node_of_the_same_name_notices_the_first() -> None:
    second = Placement(node="a", incarnation="a2", rules=RULES)
    second.engine("g", settled=True, now=0.0)
    second.lease_seen("a", LeaseRecord("a", "a1", None, 1), 1, 0.0)
    assert second.tick(0.0) == []
    second.lease_seen("a", LeaseRecord("a", "a1", second_epoch(), 2), 4, 5.0)
    assert second.duplicate == "a1"


def second_epoch():
    from mooring.cluster.placement import Epoch

    return Epoch("g", 1)


def test_most_keys_keep_their_node_when_one_leaves() -> None:
    before = {key: preferred(key, ["a", "b", "c"]) for key in map(str, range(300))}
    after = {key: preferred(key, ["a", "b"]) for key in before}
    assert all(after[key] == before[key] for key in before if before[key] != "c")


@dataclass
class Store:
    """A linearizable store of lease and owner records."""

    revision: int = 0
    leases: dict[str, tuple[LeaseRecord, int]] = field(default_factory=dict)
    owner: tuple[Holder | None, int] = (None, 0)

    def write_lease(self, record: LeaseRecord, last: int) -> int | None:
        if self.leases.get(record.node, (None, 0))[1] != last:
            return None
        self.revision += 1
        self.leases[record.node] = (record, self.revision)
        return self.revision

    def claim(self, holder: Holder, last: int) -> int | None:
        if self.owner[1] != last:
            return None
        self.revision += 1
        self.owner = (holder, self.revision)
        return self.revision


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("tick", "ask", "ask", "look", "lose")),
        st.sampled_from(("a", "b", "c")),
        st.sampled_from((0.0, 0.5, 4.0, 9.0, 26.0, 31.0)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_no_order_of_events_makes_two_owners(steps: list[tuple[str, str, float]]) -> None:
    store, now = Store(), 0.0
    nodes = {name: node(name) for name in ("a", "b", "c")}
    for what, name, passed in steps:
        now += passed
        one = nodes[name]
        act(store, one, what, now)
        owners = [name for name, other in nodes.items() if other.may_send("k", now) is not None]
        assert len(owners) <= 1, owners


def act(store: Store, one: Placement, what: str, now: float) -> None:
    if what in ("tick", "lose"):
        for action in one.tick(now):
            if isinstance(action, Fence):
                one.fenced()
                continue
            revision = store.write_lease(action.record, action.last)
            if revision is None:
                one.lease_refused(now)
                one.lease_seen(one.node, *store.leases.get(one.node, (None, 0)), now)
            elif what == "tick":  # else the acknowledgement is lost
                one.lease_written(action, revision, now)
    elif what == "look":
        for name, (record, revision) in store.leases.items():
            if any(isinstance(done, Fence) for done in one.lease_seen(name, record, revision, now)):
                one.fenced()
    else:
        decision = one.decide("k", *store.owner, now)
        if isinstance(decision, ClaimKey):
            revision = store.claim(decision.owner, decision.last)
            if revision is not None:
                one.claimed("k", decision, revision, now)
        elif isinstance(decision, EndLease):
            revision = store.write_lease(decision.record, decision.last)
            if revision is not None:
                one.lease_seen(decision.record.node, decision.record, revision, now)
        else:
            assert isinstance(decision, Mine | RouteTo | Wait)


def announced(key: str, keys: tuple[str, ...], epoch: int) -> dict[str, Any]:
    return {"key": key, "keys": keys, "lease": {"epoch": epoch}}


def test_a_node_that_seals_with_the_new_key_and_opens_the_old_one_does_not_differ() -> None:
    changed, unchanged = announced("new", ("new", "old"), 9), announced("old", ("old", "new"), 1)
    assert differing(changed, [unchanged, unchanged], "key") == []
    assert differing(unchanged, [changed, unchanged], "key") == []
    assert differing(announced("new", ("new",), 9), [unchanged, unchanged], "key") == [unchanged] * 2


def test_of_two_nodes_that_differ_the_younger_one_does() -> None:
    old, young = announced("old", ("old",), 1), announced("new", ("new",), 9)
    assert differing(young, [old], "key") == [old]
    assert differing(old, [young], "key") == []
