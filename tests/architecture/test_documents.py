"""The documents for contributors match the code, as far as a test can check it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
PAGES = [
    PAGE,
    ROOT / "CONTRIBUTING.md",
    ROOT / "AGENTS.md",
    *sorted((ROOT / "docs/architecture").glob("*.md")),
]


def section(title: str) -> str:
    return PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_table_of_rooms_is_that_of_the_import_contract() -> None:
    rooms = runpy.run_path(str(ROOT / "scripts/write_rooms.py"))
    assert rooms["page"]() == PAGE.read_text(), "run `make format`"


def test_the_table_of_the_negotiation_is_that_of_the_code() -> None:
    written = runpy.run_path(str(ROOT / "scripts/write_rooms.py"))
    assert written["eras_page"]() == written["ERAS"].read_text(), "run `make format`"


def test_every_room_is_in_the_import_contract() -> None:
    assert runpy.run_path(str(ROOT / "scripts/write_rooms.py"))["unlisted"]() == []


def test_the_page_is_short_and_has_one_drawing() -> None:
    text = PAGE.read_text()
    assert len(text.split()) <= 900
    assert text.count("```") == 2


def test_the_vocabulary_is_small_and_each_word_is_a_name_in_the_code() -> None:
    words = re.findall(r"^\| `(\w+)`", section("Words"), re.MULTILINE)
    assert 20 <= len(words) <= 31
    source = "".join(path.read_text() for path in (ROOT / "src/mooring").rglob("*.py"))
    assert [word for word in words if not re.search(rf"^class {word}\b", source, re.MULTILINE)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`([\w./-]+(?:\.py|\.toml|\.txt|\.json|/))`", page.read_text())
    missing = [
        name for name in named if not (ROOT / name).exists() and not (ROOT / "src/mooring" / name).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= targets


@pytest.mark.parametrize(
    ("topic", "file"),
    [
        ("backoff", "core/breaker.py"),
        ("not sent twice", "servers/requests.py"),
        ("Tool names", "core/names.py"),
        ("HTTP 401", "transport/endpoint.py"),
        ("JSON shape of `mooring list`", "cli/list.py"),
        ("exit codes", "cli/app.py"),
        ("ending processes", "transport/windows_process.py"),
        ("`max_concurrency`", "servers/requests.py"),
        ("checks the pin", "lock/enforce.py"),
        ("shortens the result", "results/pipeline.py"),
        ("`${VAR}`", "config/secrets.py"),
        ("debounces `list_changed`", "servers/freshness.py"),
        ("keeps their sessions", "gateway/clients.py"),
        ("forwards progress", "gateway/handlers.py"),
        ("Its calls arrive", "scripts/calls.py"),
        ("Unix sockets", "cluster/peer_http.py"),
    ],
)
def test_the_page_says_where_to_look(topic: str, file: str) -> None:
    paragraphs = re.split(r"\n\n|\n(?=\d\. |\| )", PAGE.read_text())
    assert [text for text in paragraphs if topic in text and f"`{file}`" in text]
