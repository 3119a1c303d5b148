"""Embedded files of results: base64 in, a file out."""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from mooring.store.folder import Folder

__all__ = ["Blobs", "decoded"]

_DAY = 86_400.0
_STEP = 2**20
_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/bmp": ".bmp",
    "image/tiff": ".tiff",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/markdown": ".md",
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
}


def decoded(data: str) -> bytes | None:
    """The bytes in strict base64, line breaks aside; None when it is none."""
    for text in (data, "".join(data.split())):
        if len(text) % 4 == 0:  # which `strict_mode` does not look at everywhere
            with suppress(ValueError):
                return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    return None


class Blobs:
    """The files under `mcp-blobs` in the home."""

    def __init__(self, home: Path) -> None:
        self.folder = Folder(
            home / "mcp-blobs", names=r"[0-9a-f]{32}\.[a-z0-9]{2,5}", size=2**30, age=7 * _DAY
        )

    def save(self, data: bytes, mime_type: str | None) -> Path:
        """Write the data under a random name.

        Raises:
            OSError: that is not possible.
        """
        kind = (mime_type or "").partition(";")[0].strip().lower()
        return self.folder.write(f"{token_hex(16)}{_SUFFIXES.get(kind, '.bin')}", _chunks(data))


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _STEP):
        yield data[start : start + _STEP]
