from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mooring.testing import FakeServer
from tests.scripts.shop import shop


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with shop() as running:
        yield running
