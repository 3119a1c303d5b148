"""Which URIs of resources may be asked for. What cannot be told for certain is refused.

A URI that a model or a server chose is read twice: here, and by the server that is to serve it. So a
`file:` URI passes only if every way to read it stays inside the roots.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes, urlsplit

__all__ = ["DANGEROUS", "local_path", "malformed", "scheme_of", "scheme_refused"]

DANGEROUS = frozenset(("file", "javascript", "data"))
"""Schemes that no remote server serves honestly: it would speak of this machine, or run in a viewer."""

_LONGEST = 8_192
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}|%u[0-9A-Fa-f]{4}")
_DRIVE = re.compile(r"/*[A-Za-z][:|]")


def scheme_of(uri: str) -> str:
    """Return the scheme in lower case; empty where there is none."""
    found = _SCHEME.match(uri)
    return found[1].lower() if found else ""


def malformed(uri: str) -> str | None:
    """Return why this is no URI that anybody should be sent, or None."""
    if not uri or len(uri) > _LONGEST:
        return f"a URI has between 1 and {_LONGEST} characters"
    if _FORBIDDEN.search(uri):
        return "it holds a blank or a control character"
    return None


def scheme_refused(uri: str, allowed: Sequence[str], *, remote: bool) -> str | None:
    """Return why the scheme of a URI may not be asked for, or None.

    An empty `allowed` allows all, but from a remote server none that is dangerous.
    """
    scheme = scheme_of(uri)
    known = {entry.strip().rstrip(":/").lower() for entry in allowed}
    if known and scheme not in known:
        shown = ", ".join(sorted(known))
        return f"`resource_uri_allowlist` allows {shown}, and not {scheme or 'a URI without a scheme'!r}"
    if not known and remote and scheme in DANGEROUS:
        return (
            f"{scheme!r} is not taken from a remote server; "
            f"name it in `resource_uri_allowlist` if it is meant"
        )
    return None


def local_path(uri: str, *, windows: bool = False) -> str:
    """Return the path that a `file:` URI names on this machine, decoded.

    Raises:
        ValueError: it names none, or two readers could disagree about which.
    """
    try:
        parts = urlsplit(uri)
    except ValueError as problem:
        raise ValueError(f"it cannot be read ({problem})") from None
    if parts.query or parts.fragment or "?" in uri or "#" in uri:
        raise ValueError("it has a query or a fragment")
    if parts.netloc.lower() not in ("", "localhost"):
        raise ValueError("it names another machine")
    try:
        path = unquote_to_bytes(parts.path).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 when decoded") from None
    if _ENCODED.search(path):
        raise ValueError("it is encoded twice")
    if "\\" in path:
        raise ValueError("it has a backslash")
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs") for letter in path):
        raise ValueError("it has a character that nobody sees")
    folded = unicodedata.normalize("NFKC", path)
    if folded.count("..") != path.count("..") or folded.count("/") != path.count("/"):
        raise ValueError("it has letters that turn into dots or slashes")
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError("it is not a path from the root of this machine")
    if _DRIVE.match(path):
        if not windows:
            raise ValueError("it names a drive")
        return path.lstrip("/").replace("|", ":")
    return path
