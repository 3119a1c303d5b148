"""Files that mooring keeps for this user and can make anew: sealed, so that half a file is no file."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from mooring.config.files import read_bytes, replace_file

__all__ = ["keep", "kept"]


def keep(path: Path, body: bytes, *, most: int) -> None:
    """Write a file for the next time. Of its folder the `most` stay that were used last.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    replace_file(path, _seal(body) + b"\n" + body, mode=0o600)
    files = list(path.parent.glob(f"*{path.suffix}"))
    if len(files) > most:
        files.sort(key=lambda file: file.stat().st_mtime)
        for file in files[:-most]:
            file.unlink(missing_ok=True)


def kept(path: Path) -> bytes | None:
    """Return what was kept, and count it as used; None when it is not there, or not whole.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        seal, _, body = read_bytes(path).partition(b"\n")
    except FileNotFoundError:
        return None
    if seal != _seal(body):
        return None
    with suppress(OSError):
        os.utime(path)
    return body


def _seal(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode()
