"""Recall of the search on a labelled file: `python bench/search_quality.py FILE [--misses]`.

The file is JSON: `tools` (each `id`, `server`, `server_description`, `name`, `description`,
`inputSchema`), and lists of questions such as `steps` and `tasks`, each `{"text", "gold"}`. `gold` has
one entry per tool that is needed: a list of ids, any of which will do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mooring.core.catalog import Catalog, merge
from mooring.core.search import Index
from mooring.core.types import ServerInfo, Snapshot, Tool

MEASURES = (("steps", 1), ("steps", 5), ("tasks", 10))


def load(data: dict[str, Any]) -> Catalog:
    """Return the catalog of the tools in a labelled file."""
    servers: dict[str, list[dict[str, Any]]] = {}
    for entry in data["tools"]:
        servers.setdefault(entry["server"], []).append(entry)
    return merge(
        Snapshot(
            server=server,
            info=ServerInfo(description=entries[0].get("server_description") or None),
            tools=tuple(
                Tool(
                    name=entry["name"],
                    server=server,
                    remote_name=entry["name"],
                    description=entry["description"] or "",
                    input_schema=entry["inputSchema"],
                )
                for entry in entries
            ),
        )
        for server, entries in servers.items()
    )


def recall(gold: Sequence[Sequence[str]], found: Sequence[str]) -> float:
    """Return the share of the needed tools that were found."""
    return sum(any(option in found for option in needed) for needed in gold) / len(gold)


def main() -> None:
    data = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    catalog = load(data)
    ids = {name: f"{tool.server}/{tool.remote_name}" for name, tool in catalog.tools.items()}
    index = Index.build(catalog.tools, catalog.groups)
    for kind, limit in MEASURES:
        questions = data[kind]
        total = 0.0
        for question in questions:
            found = [ids[hit.name] for hit in index.search(question["text"], limit)]
            share = recall(question["gold"], found)
            total += share
            if share < 1 and "--misses" in sys.argv:
                print(f"  {question['text']!r}: wanted {question['gold']}, found {found}")
        print(f"{kind} recall@{limit}: {total / len(questions):.3f} of {len(questions)}")


if __name__ == "__main__":
    main()
