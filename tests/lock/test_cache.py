"""The cache of pins: failures have no effect, and other users cannot read it."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mooring.core.types import Extension
from mooring.lock import cache
from mooring.lock.cache import cache_path, load_lock, remember, save_lock
from mooring.lock.cache import recall as recalled
from mooring.lock.compare import Pin, as_reported, build, pin_of
from tests.lab.offers import FILES, PRINT, of

PIN = pin_of(FILES, PRINT, whole=False)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def recall(server: str, fingerprint: str) -> Pin | None:
    found = recalled(server, fingerprint)
    return None if found is None else found.pin


def test_what_is_remembered_is_recalled_and_no_other_may_read_it() -> None:
    remember(PIN)
    path = cache_path("files", PRINT)
    assert recall("files", PRINT) == PIN
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert path.is_relative_to(os.environ["MOORING_HOME"])


def test_counts_and_extensions_are_recalled_without_reading_the_definitions() -> None:
    ui = Extension(name="io.modelcontextprotocol/ui", server="files", settings={"mimeTypes": ["text/html"]})
    remember(pin_of(replace(FILES, extensions=(ui,)), PRINT, whole=False))
    found = recalled("files", PRINT)
    assert found is not None
    assert (found.tools, found.templates, found.prompts, found.extensions) == (2, 1, 1, (ui,))
    assert "pin" not in vars(found)


def test_a_pin_is_recalled_for_the_very_configuration_only() -> None:
    remember(PIN)
    assert recall("files", "0" * 64) is None
    assert recall("web", PRINT) is None


def test_a_cache_that_claims_another_configuration_is_ignored() -> None:
    remember(PIN)
    other = cache_path("files", "0" * 64)
    cache_path("files", PRINT).rename(other)
    assert recall("files", "0" * 64) is None


def test_a_damaged_cache_is_ignored_and_replaced() -> None:
    remember(PIN)
    cache_path("files", PRINT).write_text("{")
    assert recall("files", PRINT) is None
    remember(PIN)
    assert recall("files", PRINT) == PIN


def test_without_a_place_for_it_there_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "file"))
    remember(PIN)
    assert recall("files", PRINT) is None


def test_any_name_of_a_server_makes_a_file_name() -> None:
    for name in ("Ünïcode 读", "..", "x" * 128, "con"):
        pin = pin_of(of(FILES, name), PRINT)
        remember(pin)
        assert recall(name, PRINT) == pin
        assert len(cache_path(name, PRINT).name) < 80


def test_the_cache_forgets_what_was_unused_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_KEPT", 2)
    for age, name in enumerate(("old", "used", "new")):
        remember(replace(PIN, snapshot=of(FILES, name)))
        os.utime(cache_path(name, PRINT), (age, age))
    assert recall("used", PRINT) is not None
    remember(replace(PIN, snapshot=of(FILES, "newest")))
    kept = [name for name in ("old", "used", "new", "newest") if recall(name, PRINT)]
    assert kept == ["used", "newest"]


@pytest.mark.parametrize("line", [b"{}", b"[]", b"null", b'{"version": 1}', b"[1, 2, 3, 4, 5]", b"nonsense"])
def test_a_cache_of_another_form_is_not_there_even_if_its_seal_fits(line: bytes) -> None:
    remember(PIN)
    path = cache_path("files", PRINT)
    sealed = line + b"\n" + path.read_bytes().split(b"\n", 2)[2]
    path.write_bytes(sha256(sealed).hexdigest().encode() + b"\n" + sealed)
    assert recalled("files", PRINT) is None


def test_a_cached_pin_shows_what_it_holds_before_its_definitions_are_read() -> None:
    remember(PIN)
    found = recalled("files", PRINT)
    assert found is not None
    assert found.tools == len(PIN.snapshot.tools)
    assert found.protocol == PIN.snapshot.info.protocol
    assert found.says(as_reported(PIN.snapshot, PRINT))
    fewer = replace(PIN.snapshot, tools=PIN.snapshot.tools[1:])
    assert not found.says(as_reported(fewer, PRINT))
    assert not found.says(as_reported(PIN.snapshot, "0" * 64))


@pytest.mark.parametrize("change", [(3, 5), (4, "2"), (5, None), (6, 1.5)])
def test_facts_of_another_type_are_not_read(change: tuple[int, Any]) -> None:
    remember(PIN)
    path = cache_path("files", PRINT)
    _, first, body = path.read_bytes().split(b"\n", 2)
    place, value = change
    facts: list[Any] = json.loads(first)
    facts[place] = value
    sealed = json.dumps(facts).encode() + b"\n" + body
    path.write_bytes(sha256(sealed).hexdigest().encode() + b"\n" + sealed)
    assert recalled("files", PRINT) is None
    facts = json.loads(first)
    sealed = json.dumps(facts).encode() + b"\n" + body
    path.write_bytes(sha256(sealed).hexdigest().encode() + b"\n" + sealed)
    assert recalled("files", PRINT) is not None


def test_a_lock_is_written_into_a_directory_that_may_or_may_not_exist(tmp_path: Path) -> None:
    place = tmp_path / "new" / "inner" / "mooring.lock"
    for _ in range(2):
        save_lock(place, build([FILES], {"files": PRINT}))
        assert set(load_lock(place).servers) == {"files"}
