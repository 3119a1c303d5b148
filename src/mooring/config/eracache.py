"""Tools that can ask their user in one protocol era only, kept for this user alone.

What cannot be read is not there, and what cannot be written is let go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from mooring.config.homes import cache_home
from mooring.config.kept import keep, kept
from mooring.config.logs import logger
from mooring.core.config import ServerConfig
from mooring.core.plan import fingerprint

__all__ = ["recall_eras", "remember_eras"]

_KEPT = 512
_log = logger("mooring.eracache")


def recall_eras(server: ServerConfig) -> dict[str, str]:
    """The era of each tool that was remembered for this server."""
    try:
        found: object = json.loads(kept(_path(server)) or b"{}")
    except (OSError, ValueError) as error:
        _log.debug("The era cache of server %r is ignored: %s", server.name, error)
        return {}
    if not isinstance(found, dict):
        return {}
    eras = cast("dict[str, Any]", found)
    return {tool: era for tool, era in eras.items() if era in ("legacy", "modern")}


def remember_eras(server: ServerConfig, eras: Mapping[str, str]) -> None:
    """Keep the eras for the next start."""
    try:
        keep(_path(server), json.dumps(dict(eras)).encode(), most=_KEPT)
    except OSError as error:
        _log.debug("No era cache for server %r: %s", server.name, error)


def _path(server: ServerConfig) -> Path:
    unique = sha256(f"{server.name}\0{fingerprint(server)}".encode("utf-8", "surrogatepass")).hexdigest()
    return cache_home() / "eras" / f"{unique[:32]}.json"
