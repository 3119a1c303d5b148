"""Run many schedules: `python -m tests.simulation --schedules 10000`. Exit 1 if one has a double owner."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from multiprocessing import Pool

from tests.simulation.world import Options, World


def run(seed: int) -> tuple[int, int, int, int, list[str]]:
    world = World(seed).run()
    return world.sends, world.claims, world.takeovers, world.fenced, world.violations


def all_sessions(nodes: int, sessions: int) -> list[str]:
    """One schedule in which each of the sessions gets a request."""
    started = time.monotonic()
    world = World(0, Options(nodes=nodes, sessions=sessions, hot=0, requests=0))
    for key in range(sessions):
        world.at(world.random.uniform(0, 100), world._arrive, key)
    for number in range(nodes // 2):
        world.at(world.random.uniform(0, 90), world._fault, f"n{number}")
    world.run_planned()
    print(
        f"one schedule with a request for each of {sessions:,} sessions on {nodes} nodes: "
        f"{world.sends:,} sends, "
        f"{world.claims:,} claims, {world.takeovers} leases ended, {world.fenced} nodes fenced, "
        f"{len(world.violations)} double owners, {time.monotonic() - started:.0f} s"
    )
    return world.violations


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument(
        "--sessions", type=int, default=1_000_000, help="of the schedule that uses each; 0: none"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    given = parser.parse_args(argv)
    started, totals, bad = time.monotonic(), [0, 0, 0, 0], 0
    with Pool(given.jobs) as pool:
        seeds = range(given.first, given.first + given.schedules)
        for seed, (*counts, violations) in zip(seeds, pool.imap(run, seeds, chunksize=20), strict=True):
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
            if violations:
                bad += 1
                print(f"seed {seed}: {violations[0]}", flush=True)
            if (seed + 1 - given.first) % 1000 == 0:
                print(f"{seed + 1 - given.first} schedules, {time.monotonic() - started:.0f} s", flush=True)
    print(
        f"{given.schedules:,} schedules of 100 nodes and 1,000,000 sessions: {totals[0]:,} sends, "
        f"{totals[1]:,} claims, {totals[2]:,} leases ended by other nodes, {totals[3]:,} nodes fenced; "
        f"schedules with double owners: {bad}; {time.monotonic() - started:.0f} s"
    )
    if given.sessions and all_sessions(100, given.sessions):
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
