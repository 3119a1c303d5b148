"""The settings in docs/results.md are those of the code."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/results.md").read_text()


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
