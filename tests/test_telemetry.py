"""Spans and metrics by the semantic conventions, if OpenTelemetry is enabled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.lab.spans import measured, recorded
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def spans() -> InMemorySpanExporter:
    spans = recorded()
    spans.clear()
    return spans


def _one(spans: InMemorySpanExporter) -> ReadableSpan:
    (span,) = spans.get_finished_spans()
    return span


async def test_a_call_is_one_client_span_with_names_and_no_arguments(
    spans: InMemorySpanExporter, hosting: Any
) -> None:
    async with hosting(lab_server()) as host:
        await host.call("mcp_lab_echo", {"text": "private words"})
    span = _one(spans)
    assert (span.name, span.kind) == ("tools/call echo", trace.SpanKind.CLIENT)
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "echo",
        "gen_ai.operation.name": "execute_tool",
        "mooring.server": "lab",
        "mooring.session": "00000000-0000-0000-0000-000000000000",
    }
    assert "private words" not in span.to_json()


async def test_a_failed_tool_and_a_lost_server_are_distinguished(
    spans: InMemorySpanExporter, hosting: Any
) -> None:
    async with hosting(lab_server(tools=["fail", "crash"])) as host:
        await host.call("mcp_lab_fail")
        await host.call("mcp_lab_crash")
    kinds = [(span.attributes or {}).get("error.type") for span in spans.get_finished_spans()]
    assert kinds == ["tool_error", "ConnectionLost"]


async def test_the_trace_context_goes_with_the_request(spans: InMemorySpanExporter, hosting: Any) -> None:
    async with hosting(lab_server(tools=["meta"])) as host:
        meta = json.loads((await host.call("mcp_lab_meta")).text)
    context = _one(spans).get_span_context()
    assert context is not None
    assert f"{context.trace_id:032x}" in meta["traceparent"]


async def test_durations_of_calls_and_connections_are_measured(hosting: Any) -> None:
    reader = measured()
    async with hosting(lab_server("measured")) as host:
        await host.call("mcp_measured_echo", {"text": "x"})
        await host.remove("measured")
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: [dict(point.attributes or {}) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert any(p.get("mooring.server") == "measured" for p in found["mcp.client.operation.duration"])
    assert {"mooring.server": "measured"} in found["mcp.client.session.duration"]
