"""Build the documentation site into site/VERSION, and check what was built.

    .venv-docs/bin/python scripts/build_docs.py [--target DIR]

The build is strict: a broken link, a missing anchor or a page outside of nav fails it. Afterwards no page
may load anything from another host, and every exported name must have its anchor. Other versions in the
target stay; `versions.json` lists them for the menu of the site.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*?"
    r"""\b(?:src|href|data)=["']?(?:https?:)?//"""
)
CSS = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//""")
REDIRECT = (
    '<!doctype html><meta charset="utf-8"><title>mooring</title>'
    '<meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">mooring {0}</a>\n'
)


def version() -> str:
    return re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]


def build(target: Path) -> None:
    """Run mkdocs in strict mode, without a network."""
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--clean",
        "--site-dir",
        str(target),
    ]
    if code := subprocess.run(command, cwd=ROOT, env=environment).returncode:
        sys.exit(code)


def outside(target: Path) -> Iterator[str]:
    """What a page would load from another host."""
    for page in target.rglob("*.html"):
        for found in LOADS.finditer(page.read_text()):
            if 'rel="canonical"' not in found[0]:
                yield f"{page.relative_to(target)}: {found[0][:120]}"
    for sheet in target.rglob("*.css"):
        yield from (f"{sheet.relative_to(target)}: {found[0]}" for found in CSS.finditer(sheet.read_text()))


def without_anchor(target: Path) -> Iterator[str]:
    """Entries of the reference that have no anchor on their page."""
    for source in (ROOT / "docs/reference/api").glob("*.md"):
        page = (target / "reference/api" / f"{source.stem}.html").read_text()
        for name in re.findall(r"^::: (\S+)$", source.read_text(), re.MULTILINE):
            if f'id="{name}"' not in page:
                yield f"{source.stem}.html: {name}"


def versions(target: Path) -> None:
    """Write the list of versions, newest first, and the redirect of the root."""

    def key(name: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", name)]

    found = sorted((path.parent.name for path in target.glob("*/index.html")), key=key, reverse=True)
    menu = [{"version": name, "title": name, "aliases": []} for name in found]
    (target / "versions.json").write_text(json.dumps(menu, indent=1) + "\n")
    (target / "index.html").write_text(REDIRECT.format(found[0]))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=Path, default=ROOT / "site")
    target: Path = parser.parse_args().target
    built = target / version()
    build(built)
    problems = [*outside(built), *without_anchor(built)]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    versions(target)
    sizes = [(built / name).stat().st_size // 1024 for name in ("llms.txt", "llms-full.txt")]
    pages = len(list(built.rglob("*.html")))
    print(f"{pages} pages in {built}; llms.txt {sizes[0]} KiB, llms-full.txt {sizes[1]} KiB")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
