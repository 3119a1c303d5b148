from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import Host, ServerConfig


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the files of whoever runs it."""
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


def _resources() -> tuple[int, int, int]:
    import threading

    children = len(list(Path("/proc/self/task").glob("*/children"))) and sum(
        len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")
    )
    return len(os.listdir("/proc/self/fd")), threading.active_count(), children


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Fails the test when it leaves file descriptors, threads or child processes behind."""
    asyncio.new_event_loop().close()
    before = _resources()
    yield
    after = _resources()
    assert after <= before, f"fds, threads, children: {before} before, {after} after"
