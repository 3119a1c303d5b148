"""Lock files: written atomically, and never overwritten without a request."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.config import FoundFile, files
from mooring.lock import LockError, NewerLockError
from mooring.lock.cache import load_lock, lock_path, save_lock
from mooring.lock.compare import Lock, build, pin_of
from mooring.lock.text import render
from tests.lab.offers import FILES, PRINT, of

LOCK = build([FILES], {"files": PRINT})
PIN = pin_of(FILES, PRINT)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- where


def test_the_lock_stands_beside_the_configuration_of_the_project(tmp_path: Path) -> None:
    user = FoundFile(path=tmp_path / "home" / "config.yaml", scope="user")
    project = FoundFile(path=tmp_path / "project" / ".mcp.json", scope="project")
    assert lock_path([user, project], tmp_path) == tmp_path / "project" / "mooring.lock"


def test_of_several_explicit_files_the_last_says_where(tmp_path: Path) -> None:
    files = [FoundFile(path=tmp_path / name / "mcp.json", scope="explicit") for name in "ab"]
    assert lock_path(files, tmp_path) == tmp_path / "b" / "mooring.lock"


def test_with_the_users_file_alone_it_is_among_the_users_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = FoundFile(path=tmp_path / "config.yaml", scope="user")
    assert lock_path([user], tmp_path) == Path(os.environ["MOORING_HOME"]) / "mooring.lock"
    monkeypatch.delenv("MOORING_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert lock_path([user], tmp_path) == tmp_path / "state" / "mooring" / "mooring.lock"


def test_without_any_file_it_is_in_the_working_directory(tmp_path: Path) -> None:
    assert lock_path([], tmp_path) == tmp_path / "mooring.lock"


# --- the lock


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mooring.lock"
    save_lock(path, LOCK)
    assert load_lock(path) == LOCK
    assert mode(path) == 0o644
    assert os.listdir(path.parent) == ["mooring.lock"]


def test_a_missing_lock_is_none(tmp_path: Path) -> None:
    assert load_lock(tmp_path / "mooring.lock") is None


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (render(LOCK).encode()[:300], LockError, "line "),
        (b"", LockError, "is empty"),
        (b"{}", LockError, "'version'"),
        (render(LOCK).encode().replace(b"Writes", b"Wr\xffites"), LockError, "not UTF-8"),
        (b'{"version": 99}', NewerLockError, "newer mooring"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_is_not_written_over(
    tmp_path: Path, content: bytes, error: type[LockError], words: str
) -> None:
    path = tmp_path / "mooring.lock"
    path.write_bytes(content)
    with pytest.raises(error, match=words) as caught:
        load_lock(path)
    assert caught.value.file == str(path)
    with pytest.raises(error):
        save_lock(path, LOCK)
    assert path.read_bytes() == content
    save_lock(path, LOCK, force=True)
    assert load_lock(path) == LOCK


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "mooring.lock"
    link.symlink_to(tmp_path / "real" / "kept.lock")
    save_lock(link, LOCK)
    assert link.is_symlink()
    assert load_lock(tmp_path / "real" / "kept.lock") == LOCK


def test_a_pipe_or_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(LockError, match="not a regular file"):
            load_lock(path)


def test_a_lock_beyond_the_limit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SIZE_LIMIT", 100)
    path = tmp_path / "mooring.lock"
    save_lock(path, LOCK, force=True)
    with pytest.raises(LockError, match="larger than"):
        load_lock(path)


def test_what_cannot_be_written_is_an_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(LockError, match="cannot be"):
        save_lock(blocked / "mooring.lock", LOCK, force=True)


def test_a_write_that_fails_half_way_leaves_the_old_lock_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mooring.lock"
    save_lock(path, LOCK)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LockError, match="No space left"):
        save_lock(path, Lock())
    assert load_lock(path) == LOCK
    assert set(os.listdir(tmp_path)) - {"home"} == {"mooring.lock"}


WRITER = """
import sys
from pathlib import Path
from mooring.lock.cache import load_lock, save_lock
from mooring.lock.compare import Lock, build
from tests.lab.offers import FILES, PRINT, of
path, name = Path(sys.argv[1]), sys.argv[2]
lock = build([of(FILES, name)], {name: PRINT})
for _ in range(20):
    save_lock(path, lock)
    assert len(load_lock(path).servers) == 1
"""


def test_of_processes_that_write_at_once_one_whole_file_wins(tmp_path: Path) -> None:
    path = tmp_path / "mooring.lock"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"server-{i}"]) for i in range(3)]
    assert [writer.wait(50) for writer in writers] == [0, 0, 0]
    last = load_lock(path)
    assert last in [build([of(FILES, f"server-{i}")], {f"server-{i}": PRINT}) for i in range(3)]
    assert set(os.listdir(tmp_path)) - {"home"} == {"mooring.lock"}
