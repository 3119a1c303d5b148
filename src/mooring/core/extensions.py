"""Extensions of the protocol: identifiers, what each side declares, and addresses behind a gateway."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote, unquote

from mooring.core.types import EMPTY, Extension, Json

__all__ = [
    "ORIGIN",
    "OURS",
    "QUALIFIED",
    "SKILLS",
    "TASKS",
    "UI",
    "address_behind",
    "address_through",
    "check_identifier",
    "common",
    "declared",
    "declared_by_client",
    "original",
    "qualified",
    "qualified_file",
]

_PREFIX = "io.modelcontextprotocol/"
UI = f"{_PREFIX}ui"
SKILLS = f"{_PREFIX}skills"
TASKS = f"{_PREFIX}tasks"
OURS = (UI, SKILLS)
"""Extensions that the gateway serves whether or not a server declares them."""

ORIGIN = "mooring/origin"
"""Key in `_meta` of what a gateway lists: the server behind it, and that server's own name of a tool."""

MOST = 64
"""Extensions of one peer that are read."""
_LONGEST = 200
_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IDENTIFIER = rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"


def check_identifier(name: str) -> str:
    """Return the identifier of an extension.

    Raises:
        ValueError: it has no prefix, or characters that identifiers do not have.
    """
    if len(name) > _LONGEST or not re.fullmatch(_IDENTIFIER, name):
        raise ValueError(
            f"{name[:80]!r} is not an extension: use a prefix and a name, such as 'com.example/maps'"
        )
    return name


def declared(server: str, capabilities: Mapping[str, Any]) -> tuple[Extension, ...]:
    """Return the extensions in the capabilities of a server, in order of name; invalid ones are left out."""
    found = declared_by_client(capabilities)
    return tuple(Extension(name=name, server=server, settings=found[name]) for name in sorted(found))


def declared_by_client(capabilities: Mapping[str, Any]) -> dict[str, Mapping[str, Json]]:
    """Return the valid extensions in the capabilities of a peer, by name."""
    given = capabilities.get("extensions")
    if not isinstance(given, Mapping):
        return {}
    found: dict[str, Mapping[str, Json]] = {}
    for name, settings in cast("Mapping[object, object]", given).items():
        if len(found) == MOST:
            break
        valid = isinstance(name, str) and len(name) <= _LONGEST and re.fullmatch(_IDENTIFIER, name)
        if isinstance(name, str) and valid and isinstance(settings, Mapping):
            found[name] = dict(cast("Mapping[str, Json]", settings))
    return found


def common(extensions: Iterable[Extension]) -> dict[str, Mapping[str, Json]]:
    """Return the union of the extensions of several servers. Settings that differ become empty: a client
    must not rely on them for all of the servers."""
    found: dict[str, Mapping[str, Json]] = {}
    for one in extensions:
        if one.name not in found:
            found[one.name] = one.settings
        elif dict(found[one.name]) != dict(one.settings):
            found[one.name] = EMPTY
    return found


# --- addresses


QUALIFIED = ("ui", "skill")
"""Schemes of addresses that a gateway makes unique for each server."""
_URI = r"(?s)([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)"


def qualified(uri: str, server: str) -> str:
    """Return the address under which a gateway shows a `ui://` or `skill://` address of a server: the
    server's name is put before it. Other addresses stay as they are.

    Not idempotent: apply it exactly once to each address of a server.
    """
    found = re.fullmatch(_URI, uri)
    if found is None or not found[2] or found[1].lower() not in QUALIFIED:
        return uri
    return f"{found[1].lower()}://{_label(server)}/{_escaped(found[3])}"


def qualified_file(uri: str, server: str) -> str:
    """Return the address under which a gateway shows a file of a skill, which may have any scheme: others
    than `skill://` are written into the path of a `skill://` address."""
    found = re.fullmatch(_URI, uri)
    if found is None or (found[2] and found[1].lower() == "skill"):
        return qualified(uri, server)
    return f"skill://{_label(server)}/+{found[1]}{'' if found[2] else ':'}/{found[3]}"


def original(uri: str) -> tuple[str, str] | None:
    """Return the server and the server's own address for one of `qualified` or `qualified_file`; None for
    any other address."""
    found = re.fullmatch(_URI, uri)
    if found is None or not found[2] or (scheme := found[1].lower()) not in QUALIFIED:
        return None
    label, slash, rest = found[3].partition("/")
    try:
        server = unquote(label, errors="strict")
    except UnicodeDecodeError:
        return None
    if not slash or not rest or _label(server) != label:
        return None
    if not rest.startswith("+"):
        return server, f"{scheme}://{rest}"
    other, slash, rest = rest[1:].partition("/")
    if other.endswith(":") and slash:
        return server, f"{other}{rest}"
    return (server, f"{other or scheme}://{rest}") if slash else None


def address_through(uri: str, servers: Sequence[str]) -> str:
    """Return the address under which the first of these gateways shows an address of the last server."""
    for server in reversed(servers):
        uri = qualified(uri, server)
    return uri


def address_behind(uri: str, servers: Sequence[str]) -> str:
    """Undo `address_through`. An address that does not come from this server stays as it is."""
    own = uri
    for server in servers:
        found = original(own)
        if found is None or found[0] != server:
            return uri
        own = found[1]
    return own


def _label(server: str) -> str:
    """Return the name of a server as the authority of an address."""
    return "".join("%2E" for _ in server) if server in (".", "..") else quote(server, safe="")


def _escaped(rest: str) -> str:
    """Return the part after the scheme; a leading `+` is marked, because it announces another scheme."""
    return f"+/{rest}" if rest.startswith("+") else rest
