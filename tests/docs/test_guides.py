"""The examples of the guides run as they stand, and print what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(source, id=f"{page}-{number}")
    for page in ("sessions", "agents", "testing")
    for number, source in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL), 1
    )
]


@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_of_a_guide_prints_what_it_says(source: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"# prints: (.*)", source)
    assert expected
    assert [line for line in expected if line not in done.stdout] == []
