"""Metrics of the gateway in the Prometheus text format.

`prometheus-client` would be the 21st package of an installation; only its text format is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mooring import __version__
from mooring.host import runtime_of

if TYPE_CHECKING:
    from mooring.config.operation import MetricsSettings
    from mooring.gateway.access import RequestRecord
    from mooring.gateway.app import Gateway

__all__ = ["Metrics", "gateway_metrics"]

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Histogram buckets in seconds."""
_EDGES = (*map(str, BOUNDS), "+Inf")
MAX_SERVERS = 1_000
OTHER = "other"
BYTES_PER_TOKEN = 4
"""Of definitions of tools as JSON, estimated."""

Sample = tuple[Mapping[str, str], float]
"""Labels and value."""


class Histogram:
    """Counts by bucket, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def lines(self, name: str, labels: str) -> list[str]:
        count, lines = 0, list[str]()
        for edge, number in zip(_EDGES, self.counts, strict=True):
            count += number
            lines.append(f'{name}_bucket{{{labels},le="{edge}"}} {count}')
        return [*lines, f"{name}_sum{{{labels}}} {self.total:.6f}", f"{name}_count{{{labels}}} {count}"]


class Metrics:
    """Counts of requests and their durations. The number of series is limited: what exceeds a limit counts as
    `other`."""

    def __init__(self, settings: MetricsSettings) -> None:
        self.settings = settings
        self._requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._methods: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._tools: dict[tuple[str, str], Histogram] = {}
        self._named = 0
        """Tools with a series of their own."""
        self._calls: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._servers: set[str] = set()
        self._errors: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._principals: dict[str, defaultdict[str, int]] = {}
        self._refused: defaultdict[str, int] = defaultdict(int)
        self.tokens_saved = 0
        """Tokens that discovery kept out of lists of tools."""

    def answered(self, record: RequestRecord) -> None:
        """Count a request that was answered. The methods are those that the gateway knows."""
        method, outcome, seconds = record.method, record.outcome, record.seconds
        self._requests[method, outcome] += 1
        self._methods[method].add(seconds)
        if record.server is not None:
            server = self._server(record.server)
            if record.tool is not None:
                tool = self._tool(server, record.tool)
                self._tools[server, tool].add(seconds)
                self._calls[server, tool, outcome] += 1
            if record.error is not None:
                self._errors[server, record.error] += 1
        elif record.error is not None:
            self._errors["", record.error] += 1
        self.tokens_saved += record.saved // BYTES_PER_TOKEN
        if self.settings.principals:
            self._principal(record.principal)[outcome] += 1

    def refused(self, status: int) -> None:
        """Count a request that was rejected with an HTTP status."""
        self._refused[str(status)] += 1

    def _server(self, name: str) -> str:
        if name not in self._servers:
            if len(self._servers) >= MAX_SERVERS:
                return OTHER
            self._servers.add(name)
        return name

    def _tool(self, server: str, tool: str) -> str:
        if (server, tool) not in self._tools:
            if self._named >= self.settings.max_tools:
                tool = OTHER
            else:
                self._named += 1
            self._tools.setdefault((server, tool), Histogram())
        return tool

    def _principal(self, name: str) -> defaultdict[str, int]:
        if name not in self._principals and len(self._principals) >= self.settings.max_principals:
            name = OTHER
        return self._principals.setdefault(name, defaultdict(int))

    def text(self, more: Iterable[str] = ()) -> str:
        """Return all metrics as text, with the lines of `more`; see `family`."""
        lines = family(
            "mooring_gateway_requests_total",
            "counter",
            "Requests answered, by JSON-RPC method and outcome.",
            [({"method": m, "outcome": o}, n) for (m, o), n in sorted(self._requests.items())],
        )
        name = "mooring_gateway_request_seconds"
        lines += family(name, "histogram", "Time from a request to its response.", ())
        for method, histogram in sorted(self._methods.items()):
            lines += histogram.lines(name, _labels({"method": method}))
        lines += family(
            "mooring_gateway_refused_total",
            "counter",
            "Requests rejected before they were read, by HTTP status.",
            [({"status": status}, count) for status, count in sorted(self._refused.items())],
        )
        lines += family(
            "mooring_tool_calls_total",
            "counter",
            "Calls by server, tool and outcome.",
            [({"server": s, "tool": t, "outcome": o}, n) for (s, t, o), n in sorted(self._calls.items())],
        )
        name = "mooring_tool_call_seconds"
        lines += family(name, "histogram", "Duration of calls by server and tool.", ())
        for (server, tool), histogram in sorted(self._tools.items()):
            lines += histogram.lines(name, _labels({"server": server, "tool": tool}))
        lines += family(
            "mooring_errors_total",
            "counter",
            "Requests that failed, by server and kind of error. Without a server: they reached none.",
            [({"server": s, "kind": k}, n) for (s, k), n in sorted(self._errors.items())],
        )
        if self.settings.principals:
            lines += family(
                "mooring_principal_requests_total",
                "counter",
                "Requests by principal and outcome.",
                [
                    ({"principal": name, "outcome": outcome}, count)
                    for name, counts in sorted(self._principals.items())
                    for outcome, count in sorted(counts.items())
                ],
            )
        lines += family(
            "mooring_discovery_tokens_saved_total",
            "counter",
            "Tokens that discovery kept out of tools/list results, estimated.",
            [({}, self.tokens_saved)],
        )
        return "\n".join([*lines, *more]) + "\n"


_BREAKER = {"closed": 0.0, "half-open": 1.0, "open": 2.0}


def gateway_metrics(gateway: Gateway, connections: int) -> list[str]:
    """Return the metrics of the current state of a gateway and its servers."""
    host = gateway.host
    statuses, load = host.status(), runtime_of(host).servers.load()
    hidden = Counter(item.server for item in host.hidden() if item.by == "lock")
    audit = runtime_of(host).audit
    gauges: list[tuple[str, str, float]] = [
        ("gateway_sessions", "Sessions of handshake clients.", len(gateway.registry)),
        ("gateway_connections", "Open connections.", connections),
        ("gateway_under_way", "Running requests.", gateway.under_way),
    ]
    if gateway.certificate_expires is not None:
        text = "When the certificate expires, in seconds since 1970."
        gauges.append(("gateway_certificate_expiry_seconds", text, gateway.certificate_expires))
    lines = family("mooring_build_info", "gauge", "Version of mooring.", [({"version": __version__}, 1)])
    for name, meaning, value in gauges:
        lines += family(f"mooring_{name}", "gauge", meaning, [({}, value)])
    for name, kind, meaning, values in (
        ("up", "gauge", "Whether a server is connected.", {s.name: s.state == "connected" for s in statuses}),
        ("tools", "gauge", "Number of tools of a server.", {s.name: s.tools for s in statuses}),
        (
            "breaker",
            "gauge",
            "Circuit breaker of a server: 0 closed, 1 half-open, 2 open.",
            {s.name: _BREAKER.get(s.breaker, 0.0) for s in statuses},
        ),
        ("running", "gauge", "Requests under way at a server.", {n: one.running for n, one in load.items()}),
        ("queue", "gauge", "Requests in the queue of a server.", {n: one.waiting for n, one in load.items()}),
        ("processes", "gauge", "Child processes of a server.", {n: one.processes for n, one in load.items()}),
        (
            "restarts_total",
            "counter",
            "How often a server was connected again.",
            {n: max(one.connects - 1, 0) for n, one in load.items()},
        ),
        (
            "lock_changes",
            "gauge",
            "Tools of a server that are hidden because they differ from the lock.",
            {s.name: hidden.get(s.name, 0) for s in statuses},
        ),
    ):
        lines += family(
            f"mooring_server_{name}", kind, meaning, [({"server": n}, float(v)) for n, v in values.items()]
        )
    lost = {"access": gateway.access_log.lost, "audit": 0 if audit is None else audit.lost}
    return lines + family(
        "mooring_log_lines_lost_total",
        "counter",
        "Lines that could not be written.",
        [({"log": name}, count) for name, count in lost.items()],
    )


def family(name: str, kind: str, meaning: str, samples: Sequence[Sample]) -> list[str]:
    """Return the lines of one metric."""
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        lines.append(f"{name}{{{_labels(labels)}}} {value:.15g}" if labels else f"{name} {value:.15g}")
    return lines


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
