"""Write the table of rooms in ARCHITECTURE.md and that of the negotiation in docs/architecture/eras.md.

Part of `make format`. The layers come from the import contract in pyproject.toml, the descriptions from the
docstrings of the packages, the negotiation from `mooring.core.eras`. A test compares the pages with what this
script would write.
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
ERAS = ROOT / "docs/architecture/eras.md"
ERAS_BEGIN, ERAS_END = "<!-- negotiation: written by `make format` -->\n", "<!-- end of negotiation -->"


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


def negotiation() -> str:
    """The table of the negotiation: state, reply, action and next state."""
    from mooring.core.eras import ERRORS, ROWS

    lines = ["| state | request | reply | action | next state |", "|---|---|---|---|---|"]
    for state, request, outcomes, action, after in ROWS:
        reply = "any error" if outcomes == ERRORS else ", ".join(outcomes)
        lines.append(f"| {state} | {request} | {reply} | {action} | {after} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """ARCHITECTURE.md with the table of today."""
    before, rest = PAGE.read_text().split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END, 1)[1]}"


def eras_page() -> str:
    """docs/architecture/eras.md with the table of today."""
    before, rest = ERAS.read_text().split(ERAS_BEGIN)
    return f"{before}{ERAS_BEGIN}{negotiation()}{ERAS_END}{rest.split(ERAS_END, 1)[1]}"


def _path(room: str) -> Path:
    package = SOURCE / room / "__init__.py"
    return package if package.exists() else SOURCE / f"{room}.py"


def _description(room: str) -> str:
    """The first sentence of the package's docstring, up to a colon."""
    text = " ".join((ast.get_docstring(ast.parse(_path(room).read_text())) or "").split())
    return re.split(r"[.:](?:\s|$)", text, maxsplit=1)[0].replace("|", "\\|")


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(page() != PAGE.read_text() or eras_page() != ERAS.read_text())
    PAGE.write_text(page())
    ERAS.write_text(eras_page())
