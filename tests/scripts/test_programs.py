"""Hostile programs end in readable errors, common constructs work or are reported with the alternative."""

from __future__ import annotations

import asyncio

import pytest

from mooring.errors import CallTimeout
from mooring.testing import FakeServer
from tests.scripts.programs import HARMLESS, HOSTILE, REPORTED, WORKS
from tests.scripts.shop import shop_host

pytestmark = pytest.mark.anyio

SLOW = (
    *("list growth", "loop", "catch everything", "finally loop", "endless print", "many small prints"),
    *(
        "endless calls",
        "thousands of calls",
        "deep list",
        "sleep",
        "regex nested",
        "power tower",
        "many writes",
    ),
)
"""Those that use all of a limit, and one of a kind of the others: `make test-scripts` runs all."""
QUICK = [
    name
    for name in HOSTILE
    if name.startswith(
        ("import", "open", "eval", "exec", "a ", "an ", "deep s", "too l", "big", "nan", "pathlib")
    )
]


def test_the_corpus_has_the_promised_size() -> None:
    assert len(HOSTILE) >= 60
    assert len(WORKS) + len(REPORTED) >= 30
    assert set(SLOW) <= set(HOSTILE)
    assert set(HARMLESS) <= set(HOSTILE)


async def test_hostile_programs_end_in_readable_errors_and_the_host_lives(server: FakeServer) -> None:
    limits = {"time": 0.4, "memory": 30 * 2**20, "calls": 20}
    async with shop_host(server, scripts=limits, on_approval=lambda request: True) as host:
        for name in (*QUICK, *SLOW):
            result = await host.session().run_script(HOSTILE[name], timeout=10)
            assert result.is_error or name in HARMLESS, f"{name}: {result.structured!r:.100}"
            assert result.text.strip() or not result.is_error, name
            assert len(result.text) < 20_000, name
        last = "(await mcp_shop_get(id=2))['name']"
        async with asyncio.timeout(30):
            # A busy machine may need more than the limit to start the next worker.
            while isinstance((result := await host.session().run_script(last)).error, CallTimeout):
                pass
        assert result.structured == "item 2", result.text
    assert len(server.calls("note")) == 0


async def test_common_constructs_work(server: FakeServer) -> None:
    async with shop_host(server) as host:
        for name, (code, value) in WORKS.items():
            result = await host.session().run_script(code)
            assert (result.is_error, result.structured) == (False, value), f"{name}: {result.text}"


async def test_other_constructs_are_reported_with_the_alternative_before_anything_runs(
    server: FakeServer,
) -> None:
    async with shop_host(server) as host:
        for name, (code, advice) in REPORTED.items():
            result = await host.session().run_script(f"print('started')\n{code}")
            assert result.is_error, name
            assert "The script was not run" in result.text, f"{name}: {result.text}"
            assert advice in result.text, f"{name}: {result.text}"
            assert "line " in result.text, name
    assert server.calls("get") == []
