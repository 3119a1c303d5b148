from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from mooring import Host, ServerConfig

# In a fresh clone, hypothesis reads the whole source while it makes its first inputs: slow is no failure.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same commit is judged the same each time; looking further is the work of `make nightly`.
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True, max_examples=30)
settings.load_profile("steady")


# A shell starts background jobs with SIGINT ignored, which the programs under test would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `MOORING_TEST_LOOP=uvloop` runs every test on that loop (`make test-uvloop`).
LOOP = os.environ.get("MOORING_TEST_LOOP", "asyncio")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": LOOP == "uvloop"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if LOOP == "uvloop":
        turned = pytest.mark.skip(reason="the clock of uvloop cannot be turned")
        for item in items:
            code = getattr(getattr(item, "function", None), "__code__", None)
            if code is not None and "VirtualClock" in code.co_names:
                item.add_marker(turned)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the files of the user who runs it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "home" / "mooring"))
    monkeypatch.delenv("MOORING_CONFIG", raising=False)


@asynccontextmanager
async def _hosting(*servers: ServerConfig, ready: bool = True, **options: Any) -> AsyncIterator[Host]:
    with anyio.fail_after(45):
        async with Host(servers, **options) as host:
            if ready:
                await host.ready(20)
            yield host


@pytest.fixture
def hosting() -> Callable[..., Any]:
    """`async with hosting(server, …) as host`: a host whose servers have settled, within a bound."""
    return _hosting


def _held() -> dict[str, int]:
    return {
        "open files": len(os.listdir("/proc/self/fd")),
        "children": sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")),
    }


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Fails the test when it leaves file descriptors, threads or child processes behind."""
    asyncio.new_event_loop().close()
    if importlib.util.find_spec("uvloop"):
        # From its first loop on, libuv keeps a pipe for signals.
        importlib.import_module("uvloop").new_event_loop().close()
    before, running = _held(), set(threading.enumerate())
    yield
    # anyio tells its worker threads to end when the loop does, and does not wait for them.
    for thread in set(threading.enumerate()) - running:
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} goes on"
    after = _held()
    assert not [what for what in before if after[what] > before[what]], f"{before} before, {after} after"
