"""The modules of the console's pages that make no elements, run in node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "browser"
STATIC = Path(__file__).parents[2] / "src" / "mooring" / "console" / "static"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_modules_of_the_pages_pass_their_own_tests() -> None:
    done = subprocess.run(
        ["node", "--no-warnings", "--test", "modules.test.mjs"],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_load_nothing_from_outside_and_hold_no_inline_code() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix not in (".js", ".css", ".html", ".svg"):
            continue
        text = path.read_text()
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "@import",
            "srcdoc=",
        ):
            assert forbidden not in text, f"{forbidden} in {path.name}"
        for scheme in ("https://", "//cdn"):
            found = [
                line
                for line in text.splitlines()
                if scheme in line and "placeholder" not in line and "line(" not in line
            ]
            assert not found, (path.name, found)
    html = (STATIC / "index.html").read_text()
    assert "<style" not in html
    assert html.count("<script") == html.count('<script type="module" src=')


def test_the_pages_stay_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < 400_000
