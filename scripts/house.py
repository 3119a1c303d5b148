"""Figures of the code base beside their goals: `make house`.

`--check` compares each figure with scripts/house.json and fails when one got worse. `--accept` writes the
current figures there: do that when a new capability needs more modules or lines, in the same commit.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import collections
import inspect
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/mooring"
ACCEPTED = ROOT / "scripts/house.json"
CAPABILITIES = {
    "command line and reference": """cli.explain cli.help cli.init cli.logs cli.schema cli.terminal cli.tool
        cli.version config.reference demo.__main__""",
    "extensions": """cli.skill cli.skills core.apps core.extensions core.skills extensions gateway.extensions
        gateway.lists""",
    "authorization extensions": "auth.cipher auth.grants auth.subject gateway.login_pages gateway.logins",
    "nodes and workers": "cli.cluster cluster gateway.nodes gateway.seal",
    "scripts": "cli.run core.calls scripts transport.confine",
    "rules, transforms and guards": """cli.policy config.shaping core.callers core.rules core.schema.patterns
        core.transforms policy.external policy.guards policy.replay""",
    "console": """cli.console config.edit.lines config.edit.target config.programs.importing
        config.trust_review console gateway.host_admin""",
    "operation of the gateway": """cli.remote cli.sessions cli.token config.operation gateway.access
        gateway.admin gateway.asgi gateway.logs gateway.metrics gateway.shutdown gateway.tls gateway.tokens
        gateway.web""",
}
"""Modules and packages of capabilities that came after the goals were set. They are counted apart."""
NEW_VERBS = frozenset(("skills", "view"))
"""Verbs of a host that came with them."""
PERSONIFICATION = r"\b(?:told|nobody|whoever|somebody|let know)\b"


@dataclass(frozen=True)
class Figure:
    name: str
    value: int
    goal: int
    details: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.goal


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found: dict[str, Path] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["mooring", *path.relative_to(SOURCE).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def capability(name: str) -> str | None:
    """The later capability that a module belongs to; None for the features that the goals are about."""
    inner = name.removeprefix("mooring.")
    for title, members in CAPABILITIES.items():
        if any(inner == member or inner.startswith(f"{member}.") for member in members.split()):
            return title
    return None


def importers(found: dict[str, Path]) -> dict[str, set[str]]:
    """For each module, the modules that import it."""
    users: dict[str, set[str]] = {name: set() for name in found}
    for name, path in found.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    for used in (f"{node.module}.{alias.name}", node.module):
                        if used in users:
                            users[used].add(name)
                            break
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in users:
                        users[alias.name].add(name)
    for name, using in users.items():
        using.discard(name)
        using.discard("mooring")
    return users


def once_imported(found: dict[str, Path]) -> list[str]:
    """Modules with one importer. Packages, commands, and modules that run as programs do not count."""
    users = importers(found)
    return [
        name
        for name, path in found.items()
        if path.name != "__init__.py"
        and len(users[name]) == 1
        and not name.startswith(("mooring.cli.", "mooring.adapters.", "mooring.demo."))
    ]


def repeated_classes(found: dict[str, Path]) -> list[str]:
    """Names that more than one class has."""
    names = collections.Counter(
        node.name
        for path in found.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def layers() -> int:
    """Layers of the import contract."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return next(len(one["layers"]) for one in settings["contracts"] if one["type"] == "layers")


def vocabulary() -> int:
    """Rows of the table of words in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## Words")[2].partition("\n## ")[0]
    return sum(
        len(re.findall(r"`(\w+)`", row.split("|")[1]))
        for row in section.splitlines()
        if row.startswith("| `")
    )


def personified(found: dict[str, Path]) -> list[str]:
    """Lines of the source that speak of machinery as of people. The injection scan quotes attackers."""
    return [
        f"{name}:{number}"
        for name, path in found.items()
        if name != "mooring.core.injection_phrases"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(PERSONIFICATION, line)
    ]


def vague_signatures() -> list[str]:
    """Exports whose run-time signature hides their parameters."""
    import mooring

    vague: list[str] = []
    for name in mooring.__all__:
        value = getattr(mooring, name)
        if not callable(value) or getattr(value, "_is_protocol", False):  # a protocol is not constructed
            continue
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):
            vague.append(name)
            continue
        if any(one.kind is one.VAR_KEYWORD and one.name in ("given", "kwargs", "kwds") for one in parameters):
            vague.append(name)
    return vague


def host_names() -> list[str]:
    """Public names of a Host, whether they stand on the class or on the instance."""
    import mooring

    host = mooring.Host()
    return sorted(name for name in {*dir(mooring.Host), *vars(host)} if not name.startswith("_"))


def undocumented() -> list[str]:
    """Public names of the four main classes that are not on the class or have no docstring."""
    import mooring

    missing: list[str] = []
    for kind in (mooring.Host, mooring.Session, mooring.SyncHost, mooring.SyncSession):
        public = [name for name in dir(kind) if not name.startswith("_")]
        missing += [
            f"{kind.__name__}.{name}"
            for name in public
            if not inspect.getdoc(inspect.getattr_static(kind, name))
        ]
    missing += [f"Host.{name} (instance)" for name in host_names() if not hasattr(mooring.Host, name)]
    return missing


def call_path() -> tuple[int, int]:
    """Frames from `host.call` to the write on a child's pipe, and calls from session.py into host.py."""
    import mooring
    from mooring.transport.stdio import StdioTransport

    depth = trips = 0
    write = next(name for name in ("_write", "write", "_send", "send") if hasattr(StdioTransport, name))
    original = getattr(StdioTransport, write)

    def measured(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal depth
        frame, frames = inspect.currentframe(), 0
        while frame is not None and frame.f_code is not mooring.Host.call.__code__:
            frame, frames = frame.f_back, frames + 1
        if frame is not None:
            depth = max(depth, frames)
        return original(self, *args, **options)

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal trips
        back = frame.f_back
        if event == "call" and back is not None and frame.f_code.co_filename.endswith("mooring/host.py"):
            trips += back.f_code.co_filename.endswith("mooring/session.py")

    async def run() -> None:
        server = mooring.ServerConfig(
            name="notes", command=sys.executable, args=(str(SOURCE / "demo/servers/notes.py"),)
        )
        async with mooring.Host([server], lock=False, home=False) as host:
            await host.ready()
            await host.call("mcp_notes_read_note", {"title": "welcome"})
            setattr(StdioTransport, write, measured)
            sys.setprofile(profile)
            await host.call("mcp_notes_read_note", {"title": "welcome"})
            sys.setprofile(None)
            setattr(StdioTransport, write, original)

    asyncio.run(run())
    return depth, trips


def figures() -> list[Figure]:
    """All figures of the table."""
    found = modules()
    first = {name: path for name, path in found.items() if capability(name) is None}
    later = {name: path for name, path in found.items() if name not in first}
    top = [path for path in found.values() if path.parent == SOURCE]
    once = [name for name in once_imported(found) if name in first]
    twice, people = repeated_classes(found), personified(found)
    frames, trips = call_path()
    vague, names, bare = vague_signatures(), host_names(), undocumented()
    words = len((ROOT / "ARCHITECTURE.md").read_text().split())
    return [
        Figure("modules", len(first), 200),
        Figure("modules at the top level", len(top), 14),
        Figure("lines", lines(first), 36_000),
        Figure("import layers", layers(), 9),
        Figure("vocabulary", vocabulary(), 26 + 6),  # six words of later capabilities
        Figure("frames from host.call to the write", frames, 8),
        Figure("calls from session to host in one call", trips, 3),
        Figure("modules with one importer", len(once), 15, ", ".join(once)),
        Figure("class names used twice", len(twice), 0, ", ".join(twice)),
        Figure("public names of a Host", len(NEW_VERBS.symmetric_difference(names)), 34, ", ".join(names)),
        Figure("public names without a docstring on the class", len(bare), 0, ", ".join(bare)),
        Figure("exports with a vague signature", len(vague), 0, ", ".join(vague)),
        Figure("words in ARCHITECTURE.md", words, 900),
        Figure("personifications in src", len(people), 0, ", ".join(people[:20])),
        Figure("modules of later capabilities", len(later), len(later), _by_capability(later)),
        Figure("lines of later capabilities", lines(later), lines(later)),
    ]


def lines(found: dict[str, Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in found.values())


def _by_capability(found: dict[str, Path]) -> str:
    """Modules and lines of each later capability."""
    groups: dict[str, dict[str, Path]] = collections.defaultdict(dict)
    for name, path in found.items():
        groups[str(capability(name))][name] = path
    return ", ".join(
        f"{title}: {len(group)} modules, {lines(group):,} lines" for title, group in groups.items()
    )


def main() -> int:
    """Print the table; with `--check`, fail when a figure is worse than accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a figure got worse")
    parser.add_argument("--accept", action="store_true", help="write the figures to scripts/house.json")
    parser.add_argument("--details", action="store_true", help="list what each figure counts")
    options = parser.parse_args()
    found = figures()
    width = max(len(one.name) for one in found)
    for one in found:
        print(
            f"{one.name:<{width}}  {one.value:>7,}  goal ≤ {one.goal:>6,}  {'met' if one.met else 'NOT MET'}"
        )
        if options.details and one.details:
            print(f"    {one.details}")
    if options.accept:
        ACCEPTED.write_text(json.dumps({one.name: one.value for one in found}, indent=2) + "\n")
    if options.check:
        accepted = json.loads(ACCEPTED.read_text())
        worse = [one for one in found if one.value > max(one.goal, accepted.get(one.name, 0))]
        for one in worse:
            print(
                f"{one.name}: {one.value:,} is more than the accepted {accepted.get(one.name, 0):,}",
                file=sys.stderr,
            )
        return bool(worse)
    return 0


if __name__ == "__main__":
    sys.exit(main())
