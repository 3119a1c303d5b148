"""Which URIs may be requested: hostile notations are refused, ordinary URIs are allowed."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.core.uris import local_path, malformed, scheme_of, scheme_refused
from mooring.resources import _inside

DOTS = [
    "..",
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%252e%252e",
    "%25252e%25252e",
    "%c0%ae%c0%ae",
    "%u002e%u002e",
    "．．",
    "‥",
]
SLASHES = ["/", "%2f", "%2F", "\\", "%5c", "%255c", "%252f", "%c0%af", "／", "//", "/./"]
STARTS = ["file://", "FILE://", "file:", "file://localhost"]


def hostile(root: str, outside: str) -> list[str]:
    """Ways to spell a file outside of the root so that it looks like one inside."""
    up = len(Path(root).parts) - 1
    climbs = [
        f"{start}{root}{slash}{(dots + slash) * up}{outside.lstrip('/')}"
        for start, dots, slash in itertools.product(STARTS, DOTS, SLASHES)
    ]
    plain = [f"{start}{outside}" for start in STARTS]
    others = [
        f"file://evil.example{root}/a",
        f"file://127.0.0.1{root}/a",
        f"file:////evil{root}/a",
        f"file:///{quote('//evil')}{root}/a",
        f"file:///C:{root}/a",
        f"file:///C|{root}/a",
        f"file:///c%3A{root}/a",
        f"file://{root}/a?{'../' * up}{outside}",
        f"file://{root}/a#{'../' * up}{outside}",
        f"file://{root}/a%00{outside}",
        f"file://{root}suffix/a",
        f"file://{root}/a\u202e/b",
        "file:relative",
        "file:",
        "file://",
        f"file://user@localhost{root}/a",
        f"file://{root}/\ud800",
    ]
    return climbs + plain + others


def allowed(uri: str, root: str) -> bool:
    if malformed(uri):
        return False
    try:
        path = local_path(uri)
    except ValueError:
        return False
    return _inside(path, [root])


def test_TH09_four_hundred_hostile_spellings_around_the_roots_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    spellings = hostile(str(root), "/etc/passwd")
    assert len(set(spellings)) > 400
    assert [uri for uri in spellings if allowed(uri, str(root))] == []


def test_links_that_lead_out_are_refused_and_those_that_lead_in_pass(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "deep").mkdir(parents=True)
    outside.mkdir()
    (root / "out").symlink_to(outside)
    (root / "in").symlink_to(root / "deep")
    (tmp_path / "alias").symlink_to(root)
    assert not allowed(f"file://{root}/out/a", str(root))
    assert not allowed(f"file://{root}/out/../a", str(root)), "read by its links it is beside the root"
    assert allowed(f"file://{root}/in/a", str(root))
    assert allowed(f"file://{tmp_path}/alias/a", str(tmp_path / "alias")), "the root itself may be a link"
    assert allowed(f"file://{root}", str(root))


paths = st.lists(
    st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Cf"], exclude_characters="/\\%"),
        min_size=1,
        max_size=8,
    ),
    max_size=5,
)


@given(paths)
@settings(max_examples=200)
def test_whatever_passes_is_inside_by_its_letters_and_by_its_links(parts: list[str]) -> None:
    root = "/srv/files"
    uri = f"file://{root}/" + "/".join(quote(part, safe="") for part in parts)
    if allowed(uri, root):
        path = local_path(uri)
        assert os.path.normpath(path).startswith(root)
        assert os.path.realpath(path).startswith(root)


@given(st.text(max_size=60).map(lambda text: f"file:///srv/files/{text}"))
@settings(max_examples=300)
def test_any_text_at_all_is_refused_or_inside(uri: str) -> None:
    if allowed(uri, "/srv/files"):
        assert os.path.realpath(local_path(uri)).startswith("/srv/files")


@given(st.text(max_size=40))
def test_any_text_is_judged_without_failing(uri: str) -> None:
    malformed(uri)
    scheme_refused(uri, ["file"], remote=True)
    assert scheme_of(uri) == scheme_of(uri).lower()


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "FILE:///x", "javascript:alert(1)", "data:,x"])
def test_TH27_dangerous_schemes_are_refused_from_remote_servers_unless_they_are_named(uri: str) -> None:
    assert "remote server" in str(scheme_refused(uri, [], remote=True))
    assert scheme_refused(uri, [], remote=False) is None
    assert scheme_refused(uri, [scheme_of(uri)], remote=True) is None


def test_the_list_of_schemes_is_read_in_any_usual_spelling() -> None:
    for entry in ("https", "https:", "https://", "HTTPS"):
        assert scheme_refused("https://x", [entry], remote=True) is None
        assert "allows https" in str(scheme_refused("ftp://x", [entry], remote=False))
    assert scheme_refused("no-scheme", ["https"], remote=False) is not None


@pytest.mark.parametrize("uri", ["", " file:///x", "a\nb:", "x:\x00", "x" * 9000, "file:///a b"])
def test_what_is_no_uri_is_refused(uri: str) -> None:
    assert malformed(uri)


def test_a_drive_is_a_path_on_windows_only() -> None:
    assert local_path("file:///C:/a/b", windows=True) == "C:/a/b"
    with pytest.raises(ValueError, match="drive"):
        local_path("file:///C:/a/b")
