"""From samples to figures: medians, and ratios to the reference taken within a cycle."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.entries import REFERENCE
from bench.process import Failed
from bench.scenarios import Scenario
from bench.stage import Stage

Cycle = dict[str, dict[str, float]]
"""The samples of one cycle: contestant, then metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The median of one metric; its ratio to the reference with quartiles, where both were measured."""

    value: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one scenario brought."""

    cycles: int
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict[str, dict[str, Figure]])
    failed: dict[str, str] = field(default_factory=dict[str, str])


def measure(scenario: Scenario, stage: Stage, names: Sequence[str], cycles: int) -> Outcome:
    """Sample all contestants `cycles` times. Within a cycle they follow each other in random order, so that
    a slow moment of the machine hits them alike; one that fails drops out of this scenario."""
    failed: dict[str, str] = {}
    running: list[str] = []
    for name in filter(scenario.concerns, names):
        try:
            scenario.prepare(stage, name)
            running.append(name)
        except Failed as problem:
            failed[name] = str(problem)
    shuffle = random.Random(scenario.id).shuffle
    samples: list[Cycle] = []
    for _ in range(cycles):
        shuffle(running)
        cycle: Cycle = {}
        for name in tuple(running):
            try:
                cycle[name] = scenario.sample(stage, name)
            except Failed as problem:
                failed[name] = str(problem)
                running.remove(name)
        samples.append(cycle)
    figures = {name: _figures(samples, name) for name in names if name in running}
    return Outcome(cycles=cycles, figures=figures, failed=failed)


def _figures(samples: Sequence[Cycle], name: str) -> dict[str, Figure]:
    return {metric: _figure(samples, name, metric) for metric in samples[0][name]}


def _figure(samples: Sequence[Cycle], name: str, metric: str) -> Figure:
    value = statistics.median(cycle[name][metric] for cycle in samples)
    pairs = [(cycle[name][metric], cycle.get(REFERENCE, {}).get(metric)) for cycle in samples]
    ratios = [ours / theirs for ours, theirs in pairs if theirs]
    if not ratios:
        return Figure(value=value)
    if len(ratios) == 1:
        ratios *= 2  # quartiles want two points
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Figure(value=value, ratio=middle, low=low, high=high)
