"""A lock that did not change is not checked again; one that did always is."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from mooring.config.files import cache_home, keep, kept
from mooring.lock import Lock, LockError, cache, text
from mooring.lock.cache import load_lock, save_lock
from mooring.lock.compare import build
from tests.lab.offers import FILES, PRINT

LOCK = build([FILES], {"files": PRINT})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mooring.lock"
    save_lock(path, LOCK)
    return path


def checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the text of the lock is parsed, and its hashes held against it, to read it."""
    seen: list[Lock] = []
    with monkeypatch.context() as patched:
        patched.setattr(text, "_verify", lambda *_: seen.append(LOCK))
        assert load_lock(path) == LOCK
    return bool(seen)


@pytest.mark.parametrize("cache", ["", "/elsewhere"])
def test_the_cache_is_where_the_system_wants_it(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOORING_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert cache_home() == platformdirs.user_cache_path("mooring", appauthor=False)


def test_a_lock_is_read_the_same_the_first_time_and_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checked(path, monkeypatch)
    assert not checked(path, monkeypatch)
    lock = load_lock(path)
    assert lock is not None
    assert lock.words is not None
    assert lock.words.size == len(FILES.tools)


def test_an_edited_definition_is_found_though_the_lock_was_checked_before(path: Path) -> None:
    load_lock(path)
    text = path.read_text()
    word = FILES.tools[0].description.split()[0]
    path.write_text(text.replace(word, word + "x", 1))
    for _ in range(2):
        with pytest.raises(LockError, match="was edited"):
            load_lock(path)


@pytest.mark.parametrize("damage", [b"", b"x", b"[]", b"\xff", b"null"])
@pytest.mark.parametrize("sealed", [True, False])
def test_what_was_kept_of_a_lock_and_is_damaged_is_not_there(
    path: Path, damage: bytes, sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_lock(path)
    (file,) = (cache_home() / "locks").iterdir()
    if sealed:
        keep(file, damage, most=9)
    else:
        file.write_bytes(file.read_bytes()[:-9] + damage)
    assert checked(path, monkeypatch)
    assert not checked(path, monkeypatch)


def test_no_place_for_what_is_kept_is_no_harm(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "file"))
    assert checked(path, monkeypatch)
    assert checked(path, monkeypatch)


def test_the_longest_unused_are_forgotten(tmp_path: Path) -> None:
    for name in "abc":
        keep(tmp_path / f"{name}.json", name.encode(), most=2)
    assert [kept(tmp_path / f"{name}.json") for name in "abc"] == [None, b"b", b"c"]


def test_what_is_kept_is_for_its_owner_alone(path: Path) -> None:
    assert load_lock(path) is not None
    (file,) = (cache_home() / "locks").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert cache.NAME not in file.name
