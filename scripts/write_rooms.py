"""Write the table of rooms in ARCHITECTURE.md: part of `make format`.

The layers come from the import contract in pyproject.toml, the descriptions from the docstrings of the
packages. A test compares the table with what this script would write.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/mooring"
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: written by `make format` -->\n", "<!-- end of rooms -->"


def layers() -> list[list[str]]:
    """The rooms of each layer of the import contract, top to bottom, as far as they exist."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["type"] == "layers")
    named = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    return [[room for room in layer if _path(room).exists()] for layer in named]


def unlisted() -> list[str]:
    """Top-level modules and packages that no layer names; those of the demo run as scripts."""
    listed = {room for layer in layers() for room in layer}
    found = {path.stem for path in SOURCE.glob("*.py")}
    found |= {path.parent.name for path in SOURCE.glob("*/*.py") if path.name != "__init__.py"}
    return sorted(found - listed - {"__init__", "__main__", "demo"})


def table() -> str:
    """The table of rooms: one row per layer, packages with their descriptions."""
    rows = ["| layer | rooms |", "|---|---|"]
    for number, rooms in enumerate(layers(), 1):
        packages = [room for room in rooms if _path(room).name == "__init__.py"]
        cells = [f"`{room}/`: {_description(room)}" for room in packages]
        if modules := [f"`{room}`" for room in rooms if room not in packages]:
            cells.append(", ".join(modules))
        rows.append(f"| {number} | {'<br>'.join(cells)} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """ARCHITECTURE.md with the table of today."""
    before, rest = PAGE.read_text().split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END, 1)[1]}"


def _path(room: str) -> Path:
    package = SOURCE / room / "__init__.py"
    return package if package.exists() else SOURCE / f"{room}.py"


def _description(room: str) -> str:
    """The first sentence of the package's docstring, up to a colon."""
    text = " ".join((ast.get_docstring(ast.parse(_path(room).read_text())) or "").split())
    return re.split(r"[.:](?:\s|$)", text, maxsplit=1)[0].replace("|", "\\|")


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(page() != PAGE.read_text())
    PAGE.write_text(page())
