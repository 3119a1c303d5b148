"""Where mooring keeps files of its own. `MOORING_HOME` moves all of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_home", "config_homes", "state_home"]


def state_home() -> Path:
    """Return the directory for approvals, logins, stored results, backups and the user's own lock."""
    if (home := _own_home()) is not None:
        return home
    import platformdirs  # slow to import

    return platformdirs.user_state_path("mooring", appauthor=False)


def cache_home() -> Path:
    """Return the directory for files that can be made again."""
    if (home := _own_home()) is not None:
        return home / "cache"
    if sys.platform == "linux":  # as platformdirs has it, which is slow to import
        return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or Path("~/.cache").expanduser()) / "mooring"
    import platformdirs

    return platformdirs.user_cache_path("mooring", appauthor=False)


def config_homes() -> tuple[Path, ...]:
    """Return the directories in which the user's configuration is looked for; the last one is written to."""
    import platformdirs

    usual = platformdirs.user_config_path("mooring", appauthor=False)
    return (usual,) if (home := _own_home()) is None else (usual, home)


def _own_home() -> Path | None:
    given = os.environ.get("MOORING_HOME")
    return Path(given).expanduser() if given else None
