"""The metrics of several workers as one text: what they count is added, a state is that of the worst one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Retired", "merged"]

_LARGEST = frozenset(
    ("mooring_build_info", "mooring_server_tools", "mooring_server_breaker", "mooring_server_lock_changes")
)
_LEAST = frozenset(("mooring_server_up", "mooring_gateway_certificate_expiry_seconds"))
"""Gauges that are no numbers of things, so that their sum says nothing."""

Samples = dict[str, float]
"""Values by name and labels, in the order of the text."""


def merged(texts: Iterable[str], ended: Samples) -> str:
    """Return one text of those of all workers.

    Args:
        texts: The metrics of each worker.
        ended: What workers counted that have ended.
    """
    heads: dict[str, list[str]] = {}
    values: dict[str, Samples] = {}
    for text in texts:
        _collect(text, heads, values)
    for series, value in ended.items():
        family = _family(series, heads)
        if family in heads:
            values[family][series] = values[family].get(series, 0.0) + value
    lines: list[str] = []
    for family, head in heads.items():
        lines += head
        lines += [f"{series} {value:.15g}" for series, value in values[family].items()]
    return "\n".join(lines) + "\n"


def counters(text: str) -> Samples:
    """Return the counters and histograms of a text: what must not become less."""
    heads: dict[str, list[str]] = {}
    values: dict[str, Samples] = {}
    _collect(text, heads, values)
    kinds = {family: head[-1].rpartition(" ")[2] for family, head in heads.items()}
    return {
        series: value
        for family, known in values.items()
        if kinds[family] in ("counter", "histogram")
        for series, value in known.items()
    }


def _collect(text: str, heads: dict[str, list[str]], values: dict[str, Samples]) -> None:
    """Add the values of a text to those of others."""
    family = ""
    for line in text.splitlines():
        if line.startswith("#"):
            _, word, family, _ = line.split(" ", 3)
            known = heads.setdefault(family, [])
            if len(known) < 2 and not any(one.split(" ", 2)[1] == word for one in known):
                known.append(line)
            values.setdefault(family, {})
            continue
        series, _, number = line.rpartition(" ")
        mine, value = values[family], float(number)
        if series not in mine:
            mine[series] = value
        elif family in _LARGEST:
            mine[series] = max(mine[series], value)
        elif family in _LEAST:
            mine[series] = min(mine[series], value)
        else:
            mine[series] += value


def _family(series: str, heads: dict[str, list[str]]) -> str:
    name = series.partition("{")[0]
    for end in ("", "_bucket", "_sum", "_count"):
        if name.endswith(end) and name.removesuffix(end) in heads:
            return name.removesuffix(end)
    return name


class Retired:
    """What workers counted that have ended: a file for each start of a worker, with the last values seen."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def note(self, incarnation: str, text: str) -> None:
        """Keep the values of a worker, in case it ends."""
        file = self._folder / f"counted-{incarnation}"
        beside = file.with_suffix(".new")
        try:
            beside.write_text(json.dumps(counters(text)))
            beside.replace(file)
        except OSError:  # a full disk: the sums become less when the worker ends
            beside.unlink(missing_ok=True)

    def ended(self, running: set[str]) -> Samples:
        """Return the sums over the workers that do not run any more."""
        found: Samples = {}
        for file in sorted(self._folder.glob("counted-*")):
            if file.suffix or file.name.removeprefix("counted-") in running:
                continue
            try:
                known = json.loads(file.read_text())
            except (OSError, ValueError):
                continue
            for series, value in known.items():
                found[series] = found.get(series, 0.0) + value
        return found
