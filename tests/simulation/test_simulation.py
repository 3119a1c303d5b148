"""The placement rules in simulated clusters. `make simulation` runs 10,000 schedules."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from mooring.cluster.placement import Action, Holder, LeaseRecord, LeaseRules, Placement
from tests.simulation.world import Options, World

SCHEDULES = 25
TRIES = 60
"""Schedules in which a broken rule must show. Most show within fifteen."""


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


TRACE = """
from tests.simulation.world import World
for seed in (7, 8):
    world = World(seed).run()
    print(world.sends, world.claims, world.takeovers, world.fenced, world.random.random())
"""


def test_the_same_seed_gives_the_same_schedule_in_every_process() -> None:
    """The last number of the generator shows that all of them were used alike."""
    said = [
        subprocess.run(
            [sys.executable, "-c", TRACE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(said[0].splitlines()) == 2


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


@dataclass(slots=True)
class CountsFromTheAcknowledgement(Placement):
    """Breaks rule 1: a lease is counted from the acknowledgement of a renewal, not from its sending."""

    def _own_seen(self, record: LeaseRecord | None, revision: int, now: float) -> list[Action]:
        if record is not None and (sent := self._sent.get(record.beat)) is not None:
            sent.at = now
        return Placement._own_seen(self, record, revision, now)


SMALL = Options(nodes=6, sessions=10_000, hot=60, requests=600)
"""Few nodes, so that those which take over have seen the last renewals."""
BROKEN = {
    "no margin": replace(SMALL, rules=LeaseRules(margin=0.0)),
    "used after its end": replace(SMALL, rules=LeaseRules(margin=-3.0)),
    "counted from the acknowledgement": replace(SMALL, placement=CountsFromTheAcknowledgement, late=True),
    "no watchdog": replace(SMALL, watchdog=False),
    "no lease check": replace(SMALL, placement=DoesNotCheckTheLeaseWhenItSends, watchdog=False),
    "no compare-and-set": replace(SMALL, placement=TakesOverWithoutEndingTheLease),
    "engine clock": replace(SMALL, placement=BelievesTheClockOfTheEngine),
    "new data": replace(SMALL, placement=ClaimsFromNewDataAtOnce),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_simulation_finds_double_owners_when_a_rule_is_broken(name: str) -> None:
    assert any(World(seed, BROKEN[name]).run().violations for seed in range(TRIES)), name


@pytest.mark.parametrize("late", [True, False])
def test_the_present_rules_hold_in_the_schedules_that_show_broken_ones(late: bool) -> None:
    for seed in range(TRIES):
        world = World(seed, replace(SMALL, late=late)).run()
        assert not world.violations, (seed, world.violations[:3])


def test_a_million_sessions_are_placed_once_each_while_nodes_fail() -> None:
    """Every session of a smaller world gets requests; `make simulation` does it with a million."""
    options = Options(nodes=20, sessions=2_000, hot=2_000, requests=6_000)
    world = World(3, options).run()
    assert not world.violations, world.violations[:3]
    assert len(world.touched) > 1_000
