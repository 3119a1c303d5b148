"""Large outputs: stored unchanged, and readable by their own session only."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.results import store as module
from mooring.results.store import OutputStore

# Long enough for several strides, in characters of every width, halves of surrogate pairs among them.
TEXTS = st.builds(
    lambda seed, times: seed * times,
    st.text(alphabet=st.characters(codec=None), min_size=1, max_size=50),
    st.integers(1, 6000),
)


def keep(made: OutputStore, text: str, session: str = "a") -> str:
    return made.keep(text, session=session, server="s", tool="t")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[OutputStore]:
    return [OutputStore(tmp_path_factory.mktemp("home")), OutputStore(None)]


@settings(max_examples=50)
@given(text=TEXTS, offset=st.integers(0, 400_000), count=st.integers(0, 200_000))
def test_any_part_equals_the_stored_text(both: list[OutputStore], text: str, offset: int, count: int) -> None:
    for made in both:
        output = made.find("a", keep(made, text))
        assert output is not None
        assert output.length == len(text)
        assert output.read(offset, count) == text[offset : offset + count]
        assert output.read() == text
        made.close()


def test_TH26_a_handle_is_good_in_its_own_session_only(tmp_path: Path) -> None:
    made = OutputStore(tmp_path)
    handle = keep(made, "secret", "alice")
    assert made.find("bob", handle) is None
    assert made.find("alice", handle) is not None
    assert (made.any_of("alice"), made.any_of("bob")) == (True, False)
    assert re.fullmatch(r"r_[0-9a-f]{32}", handle)
    assert keep(made, "secret", "alice") != handle


def test_the_file_is_private_and_goes_when_the_host_closes(tmp_path: Path) -> None:
    made = OutputStore(tmp_path)
    keep(made, "text")
    (file,) = (tmp_path / "mcp-outputs").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made.close()
    assert list((tmp_path / "mcp-outputs").iterdir()) == []


def test_an_output_whose_file_is_gone_or_changed_is_an_error(tmp_path: Path) -> None:
    made = OutputStore(tmp_path)
    output = made.find("a", keep(made, "text" * 100))
    assert output is not None
    (file,) = (tmp_path / "mcp-outputs").iterdir()
    file.write_text("less")
    with pytest.raises(OSError, match="the file was changed"):
        output.read()
    file.unlink()
    with pytest.raises(FileNotFoundError):
        output.read()


def test_where_the_home_takes_nothing_memory_does(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    made = OutputStore(tmp_path / "home")
    output = made.find("a", keep(made, "text é" * 100_000))
    assert output is not None
    assert output.read(6, 6) == "text é"


def test_memory_holds_the_newest_and_never_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IN_MEMORY", 1000)
    made = OutputStore(None)
    old, new = keep(made, "x" * 600), keep(made, "y" * 600)
    assert made.find("a", old) is None
    assert made.find("a", new) is not None
    with pytest.raises(OSError, match="too large for memory"):
        keep(made, "z" * 1001)


def test_of_very_many_outputs_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    made = OutputStore(tmp_path)
    handles = [keep(made, "x") for _ in range(5)]
    assert [made.find("a", handle) is not None for handle in handles] == [False, False, True, True, True]
    assert len(list((tmp_path / "mcp-outputs").iterdir())) == 3
