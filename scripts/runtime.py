"""Print what `pip install mooring` needs, one requirement a line."""

from __future__ import annotations

import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    print(*project["dependencies"], sep="\n")
