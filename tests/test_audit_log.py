"""The file of an audit log: whole lines only, rotated when full, private."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.audit import AuditLog


def log(path: Path, *, max_bytes: int = 65_536, keep: int = 3) -> AuditLog:
    return AuditLog(path, max_bytes=max_bytes, keep=keep)


def read(path: Path) -> list[str]:
    """All lines, the oldest first."""
    aside = sorted(path.parent.glob(f"{path.name}.[0-9]*"), key=lambda file: -int(file.suffix[1:]))
    return [text for file in (*aside, path) for text in file.read_text().splitlines()]


def test_a_full_file_is_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    file = tmp_path / "new" / "audit.jsonl"
    for number in range(60):
        log(file, max_bytes=100, keep=2).append([f"{number:019}\n".encode()])
    assert [int(text) for text in read(file)] == list(range(45, 60))
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "audit.jsonl",
        "audit.jsonl.1",
        "audit.jsonl.2",
        "audit.jsonl.lock",
    ]
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o600}


def test_one_batch_may_fill_several_files_and_fewer_files_may_be_kept_than_before(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log(file, max_bytes=100, keep=9).append([f"{number:019}\n".encode() for number in range(42)])
    assert [int(text) for text in read(file)] == list(range(42))
    log(file, max_bytes=100, keep=2).append([b"x" * 99 + b"\n"] * 2)
    assert len(list(tmp_path.glob("*.[0-9]*"))) == 2


WRITER = """
import json, sys
from pathlib import Path
from mooring.audit import AuditLog
who, path = sys.argv[1:]
log = AuditLog(Path(path), max_bytes=65536, keep=100)
for number in range(0, 3000, 20):
    log.append([json.dumps({"who": who, "number": n, "pad": "x" * (n % 200)}).encode() + b"\\n"
                for n in range(number, number + 20)])
"""


def test_two_processes_lose_and_mix_no_line_while_files_are_put_aside(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, who, str(file)], stderr=subprocess.PIPE, text=True)
        for who in ("one", "two")
    ]
    for writer in writers:
        assert writer.communicate(timeout=30)[1] == ""
    lines = [json.loads(text) for text in read(file)]
    for who in ("one", "two"):
        assert [one["number"] for one in lines if one["who"] == who] == list(range(3000))
    assert len(list(tmp_path.glob("*.[0-9]*"))) >= 5


FULL = """
import resource, signal, sys
from pathlib import Path
from mooring.audit import AuditLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (250, 250))
log = AuditLog(Path(sys.argv[1]), max_bytes=65536, keep=2)
lines = [b"x" * 99 + b"\\n"] * 2
log.append(lines)
lines = [b"y" * 99 + b"\\n"]
for _ in range(2):
    try:
        log.append(lines)
    except OSError as problem:
        print(len(lines), problem.strerror)
"""


def test_a_full_disk_leaves_no_half_line_and_the_line_is_still_there_to_write(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == ("1 No space left on device\n" * 2, "")
    assert file.read_text() == ("x" * 99 + "\n") * 2


def test_a_line_after_an_unfinished_line_starts_on_a_new_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b'{"half": ')
    log(file).append([b"{}\n"])
    assert file.read_bytes() == b'{"half": \n{}\n'


def test_a_link_or_anything_that_is_no_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "folder", "pipe"):
        assert log(tmp_path / name).problem() is not None
        with pytest.raises(OSError, match=r"link|regular|directory|symbolic|device"):
            log(tmp_path / name).append([b"{}\n"])
    assert target.read_text() == "mine"


def test_a_link_in_the_place_of_the_lock_or_the_key_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "audit.jsonl.lock").symlink_to(target)
    with pytest.raises(OSError, match=r"link|regular|directory|symbolic|device"):
        log(tmp_path / "audit.jsonl").append([b"{}\n"])
    (tmp_path / "audit.jsonl.lock").unlink()
    (tmp_path / "audit.jsonl.key").symlink_to(target)
    with pytest.raises(OSError, match="is a symbolic link"):
        log(tmp_path / "audit.jsonl").key()
    assert target.read_text() == "mine"


def test_what_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("")
    file.chmod(0o644)
    log(file).append([b"{}\n"])
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("theirs\n")
    os.chown(file, 4711, 4711)
    assert "another user" in (log(file).problem() or "")
    with pytest.raises(PermissionError, match="another user"):
        log(file).append([b"{}\n"])


def test_the_key_is_created_once_and_shared_by_all_processes(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    key = log(file).key()
    assert len(key) == 64
    assert log(file).key() == key
    assert log(tmp_path / "other.jsonl").key() != key


def test_what_can_be_written_has_no_problem_and_looking_makes_nothing(tmp_path: Path) -> None:
    assert log(tmp_path / "not" / "there" / "audit.jsonl").problem() is None
    (tmp_path / "file").write_text("in the way")
    assert log(tmp_path / "file" / "audit.jsonl").problem() == "Not a directory"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
