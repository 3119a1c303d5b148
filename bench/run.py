"""Measure mooring beside the raw SDK and its peers: `python bench/run.py --help`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `bench` is a package

from bench.chart import chart
from bench.document import document, markdown
from bench.entries import OURS, REFERENCE, Entry, Unavailable, entries, install
from bench.figures import Outcome, measure
from bench.scenarios import LONG, SCENARIOS, Scenario
from bench.stage import Stage

RESULTS = Path(__file__).with_name("results")


def main() -> int:
    options = _options()
    chosen = [s for s in SCENARIOS if s.id in options.only] if options.only else _usual(options.full)
    present, unavailable = _contestants("none" if options.quick else options.peers)
    names = [entry.name for entry in present]
    outcomes: dict[str, tuple[Scenario, Outcome]] = {}
    with Stage(present, era=options.era) as stage:
        for scenario in chosen:
            if not any(map(scenario.concerns, names)):
                continue
            cycles = options.cycles or (max(3, scenario.cycles // 2) if options.quick else scenario.cycles)
            _say(f"{scenario.title} ({cycles} cycles) …")
            outcomes[scenario.id] = scenario, measure(scenario, stage, names, cycles)
        doc = document(stage, present, unavailable, outcomes, era=options.era)
    print(markdown(doc))
    _write(options.results / "latest.json", json.dumps(doc, indent=1, ensure_ascii=False) + "\n")
    _write(options.results / "latest.md", markdown(doc))
    _write(options.results / "latest.svg", chart(doc))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="mooring and the raw SDK only, half the cycles")
    parser.add_argument("--full", action="store_true", help="also what takes long (idle)")
    parser.add_argument("--peers", default="all", metavar="all|none|NAME,…", help="which peers take part")
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", choices=[s.id for s in SCENARIOS])
    parser.add_argument("--cycles", type=int, metavar="N", help="instead of each scenario's own number")
    parser.add_argument("--era", choices=["legacy", "dual"], default="legacy", help="what the servers speak")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    return parser.parse_args()


def _usual(full: bool) -> list[Scenario]:
    return [scenario for scenario in SCENARIOS if full or scenario.id not in LONG]


def _contestants(peers: str) -> tuple[list[Entry], dict[str, str]]:
    """Who takes part, and who cannot and why."""
    present: list[Entry] = []
    unavailable: dict[str, str] = {}
    for entry in entries():
        if entry.name not in (OURS, REFERENCE) and peers != "all" and entry.name not in peers.split(","):
            continue
        try:
            install(entry)
            present.append(entry)
        except Unavailable as problem:
            _say(f"{entry.name} cannot be installed: {problem}")
            unavailable[entry.name] = str(problem)
    return present, unavailable


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
