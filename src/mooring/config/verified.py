"""Locks whose hashes were found to fit, by their content: a lock that did not change is not checked again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

__all__ = ["cache_home", "is_verified", "note_verified"]

_KEPT = 64
"""Locks that are remembered; the longest unused go first."""


def cache_home() -> Path:
    """Return where mooring keeps, for this user, what it can make anew."""
    if home := os.environ.get("MOORING_HOME"):
        return Path(home) / "cache"
    if sys.platform == "linux":  # as platformdirs has it, which is slow to import
        return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or Path("~/.cache").expanduser()) / "mooring"
    import platformdirs

    return platformdirs.user_cache_path("mooring", appauthor=False)


def is_verified(content: bytes) -> bool:
    """Return whether this very content was checked before, by this user."""
    return _stamp(content).exists()


def note_verified(content: bytes) -> None:
    """Remember that this content was checked; where that fails, it is checked again the next time."""
    stamp = _stamp(content)
    with suppress(OSError):
        stamp.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp.touch(0o600)
        known = sorted(stamp.parent.iterdir(), key=lambda file: file.stat().st_mtime)
        for old in known[:-_KEPT]:
            old.unlink(missing_ok=True)


def _stamp(content: bytes) -> Path:
    return cache_home() / "verified" / sha256(content).hexdigest()
