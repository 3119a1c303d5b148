"""Hooks of mkdocs: pages of the repository that stand outside docs/, links between them, and llms.txt."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
DOCS = "docs/"
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "bench/results/latest.md": "bench/results/latest.md",
    "examples/README.md": "examples/README.md",
}
"""Files of the repository that are pages of the site, with their places there."""
LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)]*)?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    config.plugins["llmstxt"].config.sections = {
        section: list(_files(pages)) for entry in config.nav for section, pages in entry.items()
    }
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/, and every other file that a page links to."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    for page in list(files.documentation_pages()):
        for link in _links(page.content_string):
            target = _in_repository(page.src_uri, link)
            if _on_site(target) is None and (ROOT / target).is_file():
                place = f"files/{target}"
                if files.get_file_from_path(place) is None:
                    files.append(File.generated(config, place, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links that hold in the repository to those that hold on the site."""

    def site(found: re.Match[str]) -> str:
        target = _in_repository(page.file.src_uri, found[2])
        if _on_site(target) is None and (ROOT / target).is_dir():
            return found[1].lstrip("!")[1:-2]  # a folder: its name
        place = _on_site(target) or f"files/{target}"
        link = posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".")
        return f"{found[1]}{link}{found[3] or ''})"

    return _outside_fences(markdown, lambda text: LINK.sub(site, text))


def _outside_fences(markdown: str, change: Any) -> str:
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _links(markdown: str) -> list[str]:
    return [found[2] for found in LINK.finditer(FENCE.sub("", markdown))]


def _in_repository(page: str, link: str) -> str:
    """The path in the repository of a link on a page of the site."""
    outside = {place: source for source, place in PAGES.items()}
    source = outside.get(page, DOCS + page)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _on_site(target: str) -> str | None:
    """The place on the site of a file of the repository; None if the site does not have it by itself."""
    if target in PAGES:
        return PAGES[target]
    return target.removeprefix(DOCS) if target.startswith(DOCS) else None


def _files(pages: Any) -> Iterator[str]:
    for entry in pages if isinstance(pages, list) else [pages]:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(inner, list):
            yield from _files(inner)
        else:
            yield inner
