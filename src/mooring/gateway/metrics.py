"""Metrics of the gateway in the Prometheus text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

__all__ = ["Metrics"]

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Histogram buckets in seconds."""
MAX_SERIES = 1_000


class Metrics:
    """Request counts by method and outcome, and durations."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._refused: defaultdict[str, int] = defaultdict(int)

    def answered(self, method: str, outcome: str, seconds: float) -> None:
        if len(self._requests) >= MAX_SERIES and (method, outcome) not in self._requests:
            method = "other"
        self._requests[method, outcome] += 1
        self._buckets[method][bisect_left(BOUNDS, seconds)] += 1
        self._sums[method] += seconds

    def refused(self, status: int) -> None:
        """Count a request that was rejected with an HTTP status."""
        self._refused[str(status)] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]], servers: Iterable[tuple[str, bool, int]]) -> str:
        """Return all metrics as text; `gauges` maps names to (help text, value)."""
        lines: list[str] = []
        _head(lines, "mooring_gateway_requests_total", "counter", "Requests answered.")
        for (method, outcome), count in sorted(self._requests.items()):
            labels = f'method="{_escaped(method)}",outcome="{outcome}"'
            lines.append(f"mooring_gateway_requests_total{{{labels}}} {count}")
        _head(lines, "mooring_gateway_request_seconds", "histogram", "Time from a request to its response.")
        for method, counts in sorted(self._buckets.items()):
            label, total = f'method="{_escaped(method)}"', 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'mooring_gateway_request_seconds_bucket{{{label},le="{bound}"}} {total}')
            lines.append(f"mooring_gateway_request_seconds_sum{{{label}}} {self._sums[method]:.6f}")
            lines.append(f"mooring_gateway_request_seconds_count{{{label}}} {total}")
        _head(lines, "mooring_gateway_refused_total", "counter", "Requests rejected, by HTTP status.")
        lines += [
            f'mooring_gateway_refused_total{{status="{s}"}} {n}' for s, n in sorted(self._refused.items())
        ]
        for name, (meaning, value) in gauges.items():
            _head(lines, f"mooring_gateway_{name}", "gauge", meaning)
            lines.append(f"mooring_gateway_{name} {value:g}")
        _head(lines, "mooring_server_up", "gauge", "Whether a server is connected.")
        known = list(servers)
        lines += [f'mooring_server_up{{server="{_escaped(name)}"}} {int(up)}' for name, up, _ in known]
        _head(lines, "mooring_server_tools", "gauge", "Number of tools of a server.")
        lines += [f'mooring_server_tools{{server="{_escaped(name)}"}} {tools}' for name, _, tools in known]
        return "\n".join(lines) + "\n"


def _head(lines: list[str], name: str, kind: str, meaning: str) -> None:
    lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
