"""A lock that did not change is not checked again; one that did always is."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from mooring.config import verified
from mooring.config.lockfile import read, write
from mooring.config.verified import cache_home, is_verified, note_verified
from mooring.core.lock import build
from mooring.core.locktext import LockError
from tests.lab.offers import FILES, PRINT

LOCK = build([FILES], {"files": PRINT})


@pytest.mark.parametrize("cache", ["", "/elsewhere"])
def test_the_cache_is_where_the_system_wants_it(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOORING_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert cache_home() == platformdirs.user_cache_path("mooring", appauthor=False)


def test_a_lock_is_read_the_same_the_first_time_and_later(tmp_path: Path) -> None:
    path = tmp_path / "mooring.lock"
    write(path, LOCK)
    assert not is_verified(path.read_bytes())
    assert read(path) == LOCK
    assert is_verified(path.read_bytes())
    assert read(path) == LOCK


def test_an_edited_definition_is_found_though_the_lock_was_checked_before(tmp_path: Path) -> None:
    path = tmp_path / "mooring.lock"
    write(path, LOCK)
    read(path)
    text = path.read_text()
    word = FILES.tools[0].description.split()[0]
    path.write_text(text.replace(word, word + "x", 1))
    for _ in range(2):
        with pytest.raises(LockError, match="was edited"):
            read(path)


def test_the_longest_unused_are_forgotten_and_no_place_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "_KEPT", 2)
    for content in (b"a", b"b", b"c"):
        note_verified(content)
    assert len(list((cache_home() / "verified").iterdir())) == 2
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "file"))
    note_verified(b"d")
    assert not is_verified(b"d")
