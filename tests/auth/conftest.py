"""Shared fixtures of the login tests."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def kept() -> Callable[[], dict[str, Any]]:
    """The one login that is kept on disk."""

    def read() -> dict[str, Any]:
        return json.loads(kept_file().read_text())

    return read


@pytest.fixture
def run_out() -> Callable[[], None]:
    """Makes the kept login one whose token has run out."""

    def change() -> None:
        file = kept_file()
        document = json.loads(file.read_text())
        file.write_text(json.dumps(document | {"expires_at": 1.0, "renew_at": 1.0}))

    return change


def kept_file() -> Path:
    (file,) = (Path(os.environ["MOORING_HOME"]) / "oauth").glob("*.json")
    return file
