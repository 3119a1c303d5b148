"""How the host-wide settings of an approved project file combine with the user's own: never less strict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, cast

from mooring.core.config import Conformance, HostConfig
from mooring.core.uris import DANGEROUS
from mooring.core.values import replace

__all__ = ["NEVER", "combined", "settings_mark"]

NEVER: Mapping[str, str] = {
    "gateway": "the gateway is configured by your own file",
    "audit": "project files found automatically may not set output paths",
    "artifacts": "project files found automatically may not set output paths",
}
"""Settings that no project file found automatically may have, approved or not, and why."""

_CONFORMANCE: Mapping[Conformance, int] = {"off": 0, "warn": 1, "strict": 2}
_NOTHING = ("-",)
"""An allowlist that no scheme is on."""


def settings_mark(settings: Mapping[str, Any]) -> str:
    """Return a hash of host-wide settings as they are written."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def combined(
    mine: HostConfig, theirs: HostConfig, given: Mapping[str, Any]
) -> tuple[HostConfig, tuple[str, ...]]:
    """Return the user's settings with those of an approved project file, and the names that were refused.

    Args:
        mine: The user's settings; a setting that the user leaves out has its default.
        theirs: The project's settings.
        given: Those that the project's file has, as they are written.
    """
    changes: dict[str, Any] = {name: getattr(theirs, name) for name in given}
    refused: list[str] = []

    def keep(name: str, value: object) -> None:
        changes[name] = value
        if value != getattr(theirs, name):
            refused.append(name)

    if "policy" in given:
        changes["project_policy"] = changes.pop("policy")  # both apply, the stricter answer counts
    if "enabled" in given:
        keep("enabled", mine.enabled and theirs.enabled)
    if "enabled_servers" in given and (wanted := mine.enabled_servers) is not None:
        also = theirs.enabled_servers
        changes["enabled_servers"] = (
            wanted if also is None else tuple(name for name in wanted if name in also)
        )
    if "output_schema" in given:
        stricter = _CONFORMANCE[theirs.output_schema] > _CONFORMANCE[mine.output_schema]
        keep("output_schema", theirs.output_schema if stricter else mine.output_schema)
    if "strict_root_paths" in given:
        keep("strict_root_paths", mine.strict_root_paths or theirs.strict_root_paths)
    if "roots" in given and mine.strict_root_paths:
        keep("roots", mine.roots)
    if "resource_uri_allowlist" in given:
        keep("resource_uri_allowlist", _schemes(mine, theirs))
    if "context" in given:
        said = "passthrough" in cast("Mapping[str, Any]", given["context"])
        passthrough = mine.context.passthrough and (theirs.context.passthrough or not said)
        changes["context"] = replace(theirs.context, passthrough=passthrough)
        if theirs.context.passthrough and not passthrough:
            refused.append("context.passthrough")
    return HostConfig.holding({**vars(mine), **changes}), tuple(refused)


def _schemes(mine: HostConfig, theirs: HostConfig) -> tuple[str, ...]:
    """Return the schemes that both lists allow; an empty list allows all but the dangerous ones."""
    allowed, wanted = mine.resource_uri_allowlist, theirs.resource_uri_allowlist
    if not wanted:
        return allowed
    if not allowed:
        return tuple(scheme for scheme in wanted if _plain(scheme) not in DANGEROUS)
    both = {_plain(scheme) for scheme in allowed}
    return tuple(scheme for scheme in wanted if _plain(scheme) in both) or _NOTHING


def _plain(scheme: str) -> str:
    return scheme.strip().rstrip(":/").lower()
