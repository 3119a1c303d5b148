"""The numbers in the documents are those of the code: each limit is read from the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mooring import ServerConfig, audit, concurrency, policy, resources
from mooring.cli import ping
from mooring.config import models, sections
from mooring.core import catalog, discovery
from mooring.core.breaker import Restarts
from mooring.gateway import era_bridge, http_server
from mooring.results import output_schema, store
from mooring.servers import connection, freshness, start_queue
from mooring.transport import limits

ROOT = Path(__file__).parents[2]
MIB = 2**20
WORDS = {5: "five", 10: "ten"}
server = ServerConfig(name="x", command="x")
gateway = sections.GatewaySettings()
host = models.HostConfig()

CLAIMS = [
    ("README.md", f"at most {discovery.BUDGET:,} tokens"),
    ("SECURITY.md", f"more than {limits.MESSAGES:,} messages or {limits.BYTES // MIB} MiB"),
    ("SECURITY.md", f"({limits.MESSAGES_PER_SECOND:,} and {limits.BYTES_PER_SECOND // MIB} MiB per second"),
    ("SECURITY.md", f"in slices of a millisecond{'' if limits.SLICE == 0.001 else '!'}"),
    ("docs/adapters.md", f"at most {discovery.BUDGET:,} tokens"),
    ("docs/gateway.md", f"| {gateway.max_body // MIB} MiB, {gateway.body_timeout:g} s |"),
    ("docs/gateway.md", f"| none, {gateway.burst}, {gateway.concurrency} |"),
    ("docs/gateway.md", f"| {gateway.max_sessions:,}, {gateway.max_connections:,} |"),
    ("docs/gateway.md", f"| `client_sessions` | {gateway.client_sessions:,} |"),
    ("docs/gateway.md", f"| `drain` | {gateway.drain:g} s |"),
    ("docs/gateway.md", f"valid for {'one hour' if era_bridge.STATE_TTL == 3600 else '?'}"),
    ("docs/gateway.md", f"cancelled after {era_bridge.WAIT:g} s"),
    ("docs/gateway.md", f"running calls get {connection.RETIREMENT:g} s to end"),
    ("docs/gateway.md", f"no request after {http_server.FIRST_REQUEST_TIMEOUT:g} s"),
    ("docs/lifecycle.md", f"| `connect_timeout` | server | {server.connect_timeout:g} s |"),
    ("docs/lifecycle.md", f"| `list_timeout` | server | {server.list_timeout:g} s |"),
    ("docs/lifecycle.md", f"| `max_queue` | server | {server.max_queue} |"),
    ("docs/lifecycle.md", f"| `sweep_interval` | server | {server.sweep_interval:g} s |"),
    ("docs/lifecycle.md", f"at least {freshness.LEAST_IN_USE:g} s, while in use"),
    ("docs/lifecycle.md", f"| `shutdown_grace` | server | {server.shutdown_grace:g} s |"),
    ("docs/lifecycle.md", f"up to {WORDS[start_queue.MOST_EXTENSION]} times `connect_timeout`"),
    ("docs/lifecycle.md", f"after {WORDS[Restarts.LIMIT]} failed starts within {Restarts.WINDOW:g} s"),
    ("docs/lifecycle.md", f"read again within {freshness.DEBOUNCE:g} s"),
    ("docs/lifecycle.md", f"health_check(timeout={ping.TIMEOUT})"),
    ("docs/discovery.md", f"at most {discovery.BUDGET:,} tokens"),
    ("docs/migrate/openai-agents.md", f"`call_timeout` ({server.call_timeout:g} s)"),
    ("docs/production.md", f"| `call_timeout` | {server.call_timeout:g} s |"),
    ("docs/production.md", f"| `connect_timeout` | {server.connect_timeout:g} s |"),
    ("docs/production.md", f"| no limit, {server.max_queue} |"),
    ("SECURITY.md", f"a request counts as {limits.REQUEST:g}, over HTTP as {limits.REQUEST_BY_POST:g}"),
    ("docs/resources.md", f"cached for {host.resource_cache.ttl:g} seconds"),
    ("docs/resources.md", f"(at most {'an hour' if resources.MAX_CACHED_TIME == 3600 else '?'})"),
    ("docs/resources.md", f"after {limits.UNRELATED_TIMEOUT:g} s if there is none"),
    ("docs/results.md", f"more than {host.result_budget:,} estimated tokens"),
    ("docs/results.md", f"values below {models.SMALLEST_BUDGET} are refused"),
    (
        "docs/results.md",
        f"to {store.LARGEST_MEDIUM // MIB} MiB each, {store.ALL_MEDIA // MIB} MiB and {store.MOST_MEDIA} of",
    ),
    ("docs/results.md", f"{store.MOST_FILES} files of one result"),
    ("docs/results.md", f"{store._MOST:,} of one host"),
    ("docs/results.md", f"up to {store._IN_MEMORY // MIB} MiB are held in memory"),
    ("docs/results.md", f"more than {output_schema.SECONDS:g} s is not checked"),
    ("docs/security.md", f"(or {WORDS[int(policy.ANSWER_TIMEOUT // 60)]} minutes)"),
    ("docs/security.md", f"within {audit.GATHERED * 1000:g} ms"),
    ("docs/security.md", f"up to {audit.MOST_WAITING:,} lines are queued"),
    ("docs/security.md", f"retried every {WORDS[int(audit.AGAIN)]} seconds"),
    ("docs/security.md", f"shortened to {catalog.LONGEST:,} characters"),
    ("docs/sessions.md", f"up to {concurrency.MAX_QUEUED} of them wait"),
]


@pytest.mark.parametrize(("page", "claim"), CLAIMS)
def test_a_number_on_a_page_is_that_of_the_code(page: str, claim: str) -> None:
    assert claim in re.sub(r"\s+", " ", (ROOT / page).read_text())


def test_the_sizing_table_of_clusters_is_calculated_from_the_measured_costs() -> None:
    measured = (ROOT / "bench/results/cluster.md").read_text()
    found = re.search(r"CPU per call of all gateways \| (\d+) µs \| \d+ µs \| (\d+) µs", measured)
    idle = re.search(r"sessions over 3 nodes: ([\d.]+) KiB each", measured)
    assert found is not None
    assert idle is not None
    call, hop, session = int(found[1]), int(found[2]), float(idle[1])
    page = (ROOT / "docs/cluster.md").read_text()
    assert f"| CPU of a call at its owner | {call} µs |" in page
    assert f"and {hop} µs of CPU more" in page
    rows = re.findall(r"^\| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) MiB \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for nodes, owner, turns, memory in rows:
        count = int(nodes)
        expected = (count / call * 1e6, count / (call + hop * (count - 1) / count) * 1e6)
        assert (owner, turns) == tuple(f"{round(one, -2):,.0f}" for one in expected), nodes
        assert float(memory) == pytest.approx(100_000 * session / 1024 / count, abs=0.5)
