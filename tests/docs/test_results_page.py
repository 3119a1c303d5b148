"""The example in docs/results.md runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/results.md").read_text()


def test_the_example_prints_what_it_says(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"# prints: (.*)", source)


def test_the_settings_on_the_page_can_be_loaded(tmp_path: Path) -> None:
    from mooring.config import load

    (settings,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "mooring.yaml"
    file.write_text(settings)
    config = load([file])
    assert config.warnings == ()
    (db,) = config.servers
    assert (config.result_budget, config.artifacts, db.result_budget, db.output_schema) == (
        25_000,
        "./run",
        4_000,
        "strict",
    )
    assert db.context is not None
    assert db.context.passthrough
