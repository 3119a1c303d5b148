"""The placement rules in simulated clusters. `make simulation` runs 10,000 schedules."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from mooring.cluster.placement import Action, Holder, LeaseRules, Placement
from tests.simulation.world import Options, World

SCHEDULES = 25
TRIES = 150
"""Schedules in which a broken rule must show. Most show within ten."""


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_a_schedule_has_no_double_owner(seed: int) -> None:
    world = World(1_000_000 + seed).run()
    assert not world.violations, world.violations[:3]
    assert world.sends > 50


def test_schedules_contain_what_they_are_for() -> None:
    worlds = [World(seed).run() for seed in range(12)]
    assert sum(world.takeovers for world in worlds) > 5
    assert sum(world.fenced for world in worlds) > 50
    assert sum(world.claims for world in worlds) > 200
    assert any(not world.engine.generation.startswith("g0") for world in worlds)


def test_the_same_seed_gives_the_same_schedule() -> None:
    first, second = World(7).run(), World(7).run()
    assert (first.sends, first.claims, first.takeovers) == (second.sends, second.claims, second.takeovers)


@dataclass(slots=True)
class TakesOverWithoutEndingTheLease(Placement):
    """Breaks rule 2: no compare-and-set before a takeover."""

    def ended(self, holder: Holder, now: float) -> bool:
        known = self.seen.get(holder.node)
        return Placement.ended(self, holder, now) or (
            known is not None and holder.node != self.node and now >= known.since + self.rules.ttl
        )


@dataclass(slots=True)
class BelievesTheClockOfTheEngine(Placement):
    """Breaks rule 2: a record that the engine let expire counts as the end of the lease."""

    def ended(self, holder: Holder, now: float) -> bool:
        known = self.seen.get(holder.node)
        gone = known is not None and known.record is None and holder.node != self.node
        return gone or Placement.ended(self, holder, now)


@dataclass(slots=True)
class ClaimsFromNewDataAtOnce(Placement):
    """Breaks the rule for an engine that lost its data."""

    def settled(self, now: float) -> bool:
        return True


@dataclass(slots=True)
class DoesNotCheckTheLeaseWhenItSends(Placement):
    """Breaks self-fencing: a claim that is acknowledged after the lease ended counts."""

    def leads(self, now: float) -> bool:
        return self.holder is not None

    def _expire(self, now: float) -> list[Action]:
        return []


# That a lease counts from the sending of a renewal is tested in tests/cluster/test_placement.py: simulated
# acknowledgements are rarely late enough to show it.
BROKEN = {
    "used after its end": Options(rules=LeaseRules(margin=-3.0)),
    "no watchdog": Options(watchdog=False),
    "no lease check": Options(placement=DoesNotCheckTheLeaseWhenItSends, watchdog=False),
    "no compare-and-set": Options(placement=TakesOverWithoutEndingTheLease),
    "engine clock": Options(placement=BelievesTheClockOfTheEngine),
    "new data": Options(placement=ClaimsFromNewDataAtOnce),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_simulation_finds_double_owners_when_a_rule_is_broken(name: str) -> None:
    options = replace(BROKEN[name], hot=120, requests=500)
    assert any(World(seed, options).run().violations for seed in range(TRIES)), name


def test_a_million_sessions_are_placed_once_each_while_nodes_fail() -> None:
    """Every session of a smaller world gets requests; `make simulation` does it with a million."""
    options = Options(nodes=20, sessions=2_000, hot=2_000, requests=6_000)
    world = World(3, options).run()
    assert not world.violations, world.violations[:3]
    assert len(world.touched) > 1_000
