"""Recall of the search on a labelled file: `python bench/search_quality.py FILE [--misses]`.

The file is JSON: `tools` (each `id`, `server`, `server_description`, `name`, `description`,
`inputSchema`), and lists of questions such as `steps` and `tasks`, each `{"text", "gold"}`. `gold` has
one entry per tool that is needed: a list of ids, any of which will do. `mooring eval` reads it too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mooring.cli.eval import catalog_of, ids_of, questions_of, recall
from mooring.core.search import Index

MEASURES = (("steps", 1), ("steps", 5), ("tasks", 10))


def main() -> None:
    data = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    catalog = catalog_of(data)
    assert catalog is not None, "the file has no tools"
    index = Index.build(catalog.tools, catalog.groups)
    questions, ids = questions_of(data), ids_of(catalog)

    def search(text: str, limit: int) -> list[str]:
        return [hit.name for hit in index.search(text, limit)]

    for kind, limit in MEASURES:
        answers = recall(questions[kind], search, ids, [limit])
        for question, shares, found in answers:
            if shares[limit] < 1 and "--misses" in sys.argv:
                print(
                    f"  {question.text!r}: wanted {question.gold}, found {[ids[name][0] for name in found]}"
                )
        share = sum(shares[limit] for _, shares, _ in answers) / len(answers)
        print(f"{kind} recall@{limit}: {share:.3f} of {len(answers)}")


if __name__ == "__main__":
    main()
