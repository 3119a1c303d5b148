"""The results as one JSON document, and as tables to read."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.entries import REFERENCE, Entry
from bench.figures import Outcome
from bench.process import Failed
from bench.scenarios import Metric, Scenario
from bench.stage import Stage

Document = dict[str, Any]


def document(
    stage: Stage,
    entries: Sequence[Entry],
    unavailable: Mapping[str, str],
    outcomes: Mapping[str, tuple[Scenario, Outcome]],
    *,
    era: str,
) -> Document:
    """Everything that was measured, where, when and with which versions."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": _machine(),
        "python": platform.python_version(),
        "era": era,
        "reference": REFERENCE,
        "contestants": {
            entry.name: {"label": entry.label, "versions": _versions(stage, entry.name)} for entry in entries
        },
        "unavailable": dict(unavailable),
        "scenarios": {
            name: {
                "title": scenario.title,
                "metrics": {key: asdict(metric) for key, metric in scenario.metrics.items()},
                **asdict(outcome),
            }
            for name, (scenario, outcome) in outcomes.items()
        },
    }


def _versions(stage: Stage, name: str) -> dict[str, str]:
    try:
        return stage.process(name).ask("hello")["versions"]
    except Failed:
        return {}


def _machine() -> str:
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text("utf-8").splitlines()
        model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"


def markdown(doc: Document) -> str:
    """The tables, aligned so that they read well as plain text too."""
    parts = [
        "# Benchmark",
        f"{doc['date']}, Python {doc['python']}, {doc['machine']}. Protocol of the servers: {doc['era']}.",
        "Ratios compare with the raw SDK in the same cycle: the median, and the quartiles in brackets.\n"
        "Absolute values are this machine's. CPU is that of the client process.",
        "\n".join(_version_lines(doc)),
    ]
    for scenario in doc["scenarios"].values():
        parts.append(f"## {scenario['title']}")
        parts.append(_scenario_table(doc, scenario))
        parts.extend(f"{_label(doc, name)} failed: {why}" for name, why in scenario["failed"].items())
    parts.extend(f"{name} could not be installed: {why}" for name, why in doc["unavailable"].items())
    return "\n\n".join(parts) + "\n"


def _scenario_table(doc: Document, scenario: Document) -> str:
    """One scenario: a row for each contestant."""
    metrics = {key: Metric(**fields) for key, fields in scenario["metrics"].items()}
    compared = [key for key in metrics if any(f[key]["ratio"] for f in scenario["figures"].values())]
    header = ["contestant", *(f"{m.label} {m.unit}".strip() for m in metrics.values())]
    header += [f"{metrics[key].label} / SDK" for key in compared]
    rows = [
        [
            _label(doc, name),
            *(_number(figures[key]["value"] * metric.scale) for key, metric in metrics.items()),
            *(_ratio(figures[key]) for key in compared),
        ]
        for name, figures in scenario["figures"].items()
    ]
    return _table(header, rows)


def _version_lines(doc: Document) -> list[str]:
    return [
        f"- {contestant['label']}: {', '.join(map(' '.join, contestant['versions'].items()))}"
        for contestant in doc["contestants"].values()
    ]


def _label(doc: Document, name: str) -> str:
    return doc["contestants"][name]["label"]


def _ratio(figure: Mapping[str, float | None]) -> str:
    if figure["ratio"] is None or figure["low"] is None or figure["high"] is None:
        return "–"
    return f"{figure['ratio']:.2f} [{figure['low']:.2f}–{figure['high']:.2f}]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]

    def line(cells: list[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])
