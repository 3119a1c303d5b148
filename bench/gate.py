"""Print which goals the last run met: `python bench/gate.py [--goals fast]`; exit code 1 if not all.

Goals are ratios to the raw SDK of the same run, except where users were promised seconds. Timings are
not part of the test suite: this runs by hand and at night.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

LATEST = Path(__file__).with_name("results") / "latest.json"
OURS = "mooring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on one figure of ours: its ratio to the SDK, or its value in the unit of the table."""

    scenario: str
    metric: str
    limit: float
    of: Literal["ratio", "value"] = "ratio"
    at_least: bool = False

    def judge(self, doc: dict[str, Any]) -> tuple[bool, str]:
        """Whether it is met, and a line that says so."""
        what = f"{self.scenario} {self.metric} {self.of}"
        wanted = f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        scenario = doc["scenarios"].get(self.scenario, {})
        figure = scenario.get("figures", {}).get(OURS, {}).get(self.metric)
        if figure is None or figure[self.of] is None:
            return False, f"{what}: not measured, should be {wanted}"
        scale = scenario["metrics"][self.metric]["scale"] if self.of == "value" else 1.0
        got = figure[self.of] * scale
        met = got >= self.limit if self.at_least else got <= self.limit
        return met, f"{what}: {got:.4g}, should be {wanted}"


BASE = (
    Goal(scenario="echo-stdio", metric="p50", limit=1.0),
    Goal(scenario="echo-http", metric="p50", limit=1.0),
    Goal(scenario="connect-stdio", metric="wall", of="value", limit=0.45),
    Goal(scenario="connect-http", metric="wall", limit=0.3),
    Goal(scenario="catalog", metric="wall", limit=1.2),
    Goal(scenario="instant", metric="wall", of="value", limit=0.15),
    Goal(scenario="import-mooring", metric="cpu", of="value", limit=60),
    Goal(scenario="help", metric="wall", of="value", limit=300),
    Goal(scenario="tools", metric="wall", of="value", limit=400),
)
FAST = (
    *BASE,
    Goal(scenario="echo-stdio", metric="p50", limit=0.5),
    Goal(scenario="echo-stdio", metric="cpu", limit=0.45),
    Goal(scenario="echo-http", metric="p50", limit=0.33),
    Goal(scenario="echo-http", metric="cpu", limit=0.3),
    Goal(scenario="flood-stdio", metric="rate", limit=5.0, at_least=True),
    Goal(scenario="flood-http", metric="rate", limit=5.0, at_least=True),
    Goal(scenario="large-stdio", metric="p50", limit=0.6),
    Goal(scenario="large-http", metric="p50", limit=0.6),
    Goal(scenario="catalog", metric="cpu", limit=0.4),
    Goal(scenario="catalog", metric="memory", limit=0.7),
    Goal(scenario="connect-http", metric="wall", limit=0.2),
)
GOALS = {"base": BASE, "fast": FAST}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--goals", choices=GOALS, default="base")
    parser.add_argument("--results", type=Path, default=LATEST, metavar="FILE")
    options = parser.parse_args()
    doc = json.loads(options.results.read_text("utf-8"))
    missed = False
    for goal in GOALS[options.goals]:
        met, line = goal.judge(doc)
        missed = missed or not met
        print(f"{'met   ' if met else 'MISSED'}  {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
