"""Conversion of blocks for models, and files with names that mooring chooses."""

from __future__ import annotations

import base64
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.types import Block
from mooring.results.store import LARGEST_MEDIUM, MOST_FILES, MOST_MEDIA, Converter, decoded

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
HOSTILE = [
    "../../../../etc/passwd",
    "file:///etc/cron.d/x",
    "/root/.ssh/authorized_keys",
    "..\\..\\boot.ini",
    "a/../../b",
    "CON",
    "a\x00b",
    "~/.bashrc",
    "$(touch /tmp/x)",
    "\x1b]0;title\x07\u202egnp.exe",
]


def blob(uri: str, mime: str | None = "image/png", data: str = PIXEL) -> Block:
    return Block({"type": "resource", "resource": {"uri": uri, "mimeType": mime, "blob": data}})


def image(data: str = PIXEL, kind: str = "image") -> Block:
    return Block({"type": kind, "data": data, "mimeType": f"{kind}/png"})


def texts(blocks: list[Block]) -> list[str]:
    return [block.text or "" for block in blocks]


def test_an_embedded_file_is_saved_and_a_line_names_it(tmp_path: Path) -> None:
    (line,) = texts(Converter(tmp_path).blocks([blob("data:pixel")]))
    found = re.fullmatch(r"\[Resource data:pixel \(image/png\), 208 bytes, saved as (.*)\]", line)
    assert found
    path = Path(found[1])
    assert path.read_bytes() == base64.b64decode(PIXEL)
    assert path.parent == tmp_path / "mcp-blobs"
    assert re.fullmatch(r"[0-9a-f]{32}\.png", path.name)
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_without_a_home_a_note_says_so_and_nothing_is_written() -> None:
    (line,) = texts(Converter(None).blocks([blob("a:b")]))
    reason = "no directory is configured to save it in"
    assert line == f"[Resource a:b (image/png), about 210 bytes, is left out: {reason}]"


@pytest.mark.parametrize(
    ("mime", "suffix"),
    [
        ("application/pdf", ".pdf"),
        ("Audio/MPEG; rate=8000", ".mp3"),
        ("text/html", ".bin"),
        ("application/x-sh", ".bin"),
        ("../../x", ".bin"),
        (None, ".bin"),
    ],
)
def test_the_extension_is_one_of_ours(tmp_path: Path, mime: str | None, suffix: str) -> None:
    Converter(tmp_path).blocks([blob("a:b", mime)])
    (file,) = (tmp_path / "mcp-blobs").iterdir()
    assert file.suffix == suffix


def test_TH22_of_200_hostile_names_none_is_part_of_a_path(tmp_path: Path) -> None:
    blocks = [blob(name * (1 + number), mime=name) for number in range(20) for name in HOSTILE]
    Converter(tmp_path / "home").blocks(blocks)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 200
    assert all(re.fullmatch(r"[0-9a-f]{32}\.bin", file.name) for file in files)
    assert {file.parent for file in files} == {tmp_path / "home" / "mcp-blobs"}


@given(st.text(max_size=300), st.text(max_size=100))
def test_TH23_a_line_of_ours_holds_nothing_hidden(uri: str, mime: str) -> None:
    (line,) = texts(Converter(None).blocks([blob(uri, mime)]))
    assert line.isprintable()


@pytest.mark.parametrize("data", ["!!!", "abc", "YWJj=", "é" * 8, "YW\x00Jj"])
def test_data_that_is_no_base64_is_left_out(tmp_path: Path, data: str) -> None:
    made = Converter(tmp_path).blocks([blob("a:b", data=data), image(data)])
    assert all("is left out: its data is not valid base64]" in line for line in texts(made))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_pictures_and_sounds_stay_blocks_with_their_media_type(kind: str) -> None:
    block = image(kind=kind)
    assert Converter(None).blocks([block]) == [block]


def test_base64_in_lines_is_joined_for_those_who_take_it_only_so() -> None:
    (made,) = Converter(None).blocks([image("\n".join(re.findall(".{1,76}", PIXEL)))])
    assert (made.data, made.mime_type) == (PIXEL, "image/png")


def test_a_picture_that_is_too_large_becomes_a_file(tmp_path: Path) -> None:
    large = base64.b64encode(bytes(LARGEST_MEDIUM + 3)).decode()
    (line,) = texts(Converter(tmp_path).blocks([image(large)]))
    assert line.startswith(f"[Image (image/png), {LARGEST_MEDIUM + 3:,} bytes, saved as ")


def test_TH26_a_flood_of_pictures_becomes_few_pictures_few_files_and_notes(tmp_path: Path) -> None:
    made = Converter(tmp_path).blocks([image()] * (MOST_MEDIA + MOST_FILES + 50))
    assert sum(block.type == "image" for block in made) == MOST_MEDIA
    assert len(list((tmp_path / "mcp-blobs").iterdir())) == MOST_FILES
    assert sum("more than 256 files in one result" in line for line in texts(made)) == 50


def test_a_store_that_takes_nothing_costs_the_file_and_not_the_result(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    (line,) = texts(Converter(tmp_path / "home").blocks([blob("a:b")]))
    assert "it could not be saved: Not a directory]" in line


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "resource_link", "uri": "file:///etc/passwd", "name": "n"},
        {"type": "hologram", "depth": 3},
    ],
    ids=["link", "unknown"],
)
def test_TH09_links_and_unknown_blocks_are_passed_on_untouched(raw: dict[str, Any], tmp_path: Path) -> None:
    assert Converter(tmp_path).blocks([Block(raw)]) == [Block(raw)]
    assert list(tmp_path.iterdir()) == []


@given(st.binary(max_size=300))
def test_base64_is_decoded_as_it_was_encoded(data: bytes) -> None:
    assert decoded(base64.b64encode(data).decode()) == data
    assert decoded(base64.encodebytes(data).decode()) == data
