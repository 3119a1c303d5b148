"""Directories of mooring's files: the same as those of the package platformdirs."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs.macos
import platformdirs.unix
import pytest

from mooring.config.files import cache_home, config_homes, state_home

SYSTEMS = {"linux": platformdirs.unix.Unix, "darwin": platformdirs.macos.MacOS}


@pytest.mark.parametrize("given", ["", "/somewhere", "relative", "  "])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_directories_are_the_usual_ones(system: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOORING_HOME")
    for kind in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", given)
    usual = SYSTEMS[system]("mooring", appauthor=False)
    monkeypatch.setattr(sys, "platform", system)
    assert str(state_home()) == usual.user_state_dir
    assert str(cache_home()) == usual.user_cache_dir
    assert [str(home) for home in config_homes()] == [usual.user_config_dir]


def test_one_variable_moves_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_HOME", "/elsewhere")
    assert (state_home(), cache_home()) == (Path("/elsewhere"), Path("/elsewhere/cache"))
    assert config_homes()[-1] == Path("/elsewhere")
