from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser.chromium import AXE, CHROMIUM, Chromium, chromium


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Chromium]:
    """Chromium with a fresh profile. Every name of the example domain leads to this machine."""
    for needed, how in ((CHROMIUM, "Debian's package chromium"), (AXE, "`npm ci` in tests/console/browser")):
        if not Path(needed).exists():
            pytest.fail(f"needs {how} (make test-console)")
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    rules = "--host-resolver-rules=MAP *.example 127.0.0.1"
    async with chromium(rules, downloads=downloads) as running:
        yield running


@pytest.fixture
def project() -> Iterator[Path]:
    """An empty directory with a short name, as it is seen in pictures."""
    with tempfile.TemporaryDirectory(prefix="harbour-") as directory:
        yield Path(directory)


@pytest.fixture
def config(project: Path) -> Any:
    """Write the configuration file of the project."""

    def write(document: dict[str, Any]) -> Path:
        path = project / "mooring.json"
        path.write_text(json.dumps(document, indent=2))
        return path

    return write
