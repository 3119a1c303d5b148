"""Files that mooring writes: private, with its own names, limited in size and age."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mooring.config.files import state_home
from mooring.results.store import GRACE, PrivateDirectory


def folder(path: Path) -> PrivateDirectory:
    return PrivateDirectory(path, names=r"\w+\.txt", size=1000, age=86_400.0)


def aged(path: Path, seconds: float) -> Path:
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_directory_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    written = folder(tmp_path / "a" / "b").write("x.txt", [b"one", b"two"])
    assert written.read_bytes() == b"onetwo"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert stat.S_IMODE(written.parent.stat().st_mode) == 0o700


def test_a_directory_that_others_could_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir(mode=0o755)
    folder(tmp_path / "b").write("x.txt", [b""])
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700


def test_TH22_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "linked").symlink_to(outside)
    with pytest.raises(OSError, match="not a directory"):
        folder(tmp_path / "linked").write("x.txt", [b"data"])
    inside = folder(tmp_path / "real")
    inside.write("first.txt", [b""])
    (tmp_path / "real" / "x.txt").symlink_to(outside / "x.txt")
    with pytest.raises(FileExistsError):
        inside.write("x.txt", [b"data"])
    assert names(outside) == []


def test_what_is_too_old_is_deleted_and_what_is_not_ours_is_left(tmp_path: Path) -> None:
    made = folder(tmp_path)
    aged(made.write("old.txt", [b""]), 2 * 86_400)
    aged(made.write("new.txt", [b""]), 100)
    (tmp_path / "theirs.doc").write_text("x")
    aged(tmp_path / "theirs.doc", 10 * 86_400)
    folder(tmp_path).tidy()
    assert names(tmp_path) == ["new.txt", "theirs.doc"]


def test_what_is_too_much_goes_the_oldest_first(tmp_path: Path) -> None:
    made = folder(tmp_path)
    for number in range(9):
        aged(made.write(f"f{number}.txt", [b"x" * 110]), GRACE + 1000 - number)
    folder(tmp_path).write("fresh.txt", [b"x" * 110])
    assert names(tmp_path) == [*(f"f{number}.txt" for number in range(1, 9)), "fresh.txt"]


def test_files_that_may_be_in_use_are_not_deleted_and_the_limit_holds(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.write("live.txt", [b"x" * 900])
    with pytest.raises(OSError, match="its limit"):
        made.write("more.txt", [b"x" * 60, b"x" * 60])
    assert names(tmp_path) == ["live.txt"]


def test_a_home_that_takes_nothing_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(NotADirectoryError):
        folder(tmp_path / "file" / "store").write("x.txt", [b""])


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from pathlib import Path
from mooring.results.store import PrivateDirectory
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    PrivateDirectory(Path({str(tmp_path)!r}), names="x", size=10**9, age=1e9).write("x", [b"x" * 4096] * 3)
except OSError as problem:
    print(type(problem).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == ("OSError\n", "")
    assert names(tmp_path) == []


def test_home_is_what_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_HOME", "/somewhere")
    assert state_home() == Path("/somewhere")
    monkeypatch.delenv("MOORING_HOME")
    assert state_home().name == "mooring"
