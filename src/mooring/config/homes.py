"""Where mooring keeps its files. `MOORING_HOME` moves all of them; `XDG_…_HOME` each kind on Unix and Mac."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_home", "config_homes", "state_home"]

_MAC = "~/Library/Application Support"
_WINDOWS = r"~\AppData\Local"


def state_home() -> Path:
    """Return the directory for approvals, logins, stored results, backups and the user's own lock."""
    return _own_home() or _usual("XDG_STATE_HOME", unix="~/.local/state", mac=_MAC)


def cache_home() -> Path:
    """Return the directory for files that can be made again."""
    if (home := _own_home()) is not None:
        return home / "cache"
    usual = _usual("XDG_CACHE_HOME", unix="~/.cache", mac="~/Library/Caches")
    return usual / "Cache" if sys.platform == "win32" else usual


def config_homes() -> tuple[Path, ...]:
    """Return the directories in which the user's configuration is looked for; the last one is written to."""
    usual = _usual("XDG_CONFIG_HOME", unix="~/.config", mac=_MAC)
    return (usual,) if (home := _own_home()) is None else (usual, home)


def _usual(variable: str, *, unix: str, mac: str) -> Path:
    """The directory that programs of this system use."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or os.path.expanduser(_WINDOWS), "mooring")
    given = os.environ.get(variable, "").strip()
    if not os.path.isabs(given):  # as the XDG specification wants it
        given = os.path.expanduser(mac if sys.platform == "darwin" else unix)
    return Path(given, "mooring")


def _own_home() -> Path | None:
    given = os.environ.get("MOORING_HOME")
    return Path(given).expanduser() if given else None
