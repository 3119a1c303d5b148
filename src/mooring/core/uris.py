"""Resource URIs: which may be read, and whether one matches a URI template (RFC 6570, levels 1 to 3)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from urllib.parse import unquote_to_bytes, urlsplit

DANGEROUS = frozenset(("file", "javascript", "data"))
"""Schemes that a remote server must not use: they refer to this machine or run code in a viewer."""

_LONGEST = 8_192
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*):"
_FORBIDDEN = r"[\x00-\x20\x7f-\xa0\u2028\u2029]"
_ENCODED = r"%[0-9A-Fa-f]{2}|%u[0-9A-Fa-f]{4}"
_DRIVE = r"/*[A-Za-z][:|]"


def scheme_of(uri: str) -> str:
    """Return the scheme in lower case, or an empty text."""
    found = re.match(_SCHEME, uri)
    return found[1].lower() if found else ""


def malformed(uri: str) -> str | None:
    """Return why this URI must not be sent to a server, or None."""
    if not uri or len(uri) > _LONGEST:
        return f"a URI has between 1 and {_LONGEST} characters"
    if re.search(_FORBIDDEN, uri):
        return "it has a space or a control character"
    return None


def scheme_refused(uri: str, allowed: Sequence[str], *, remote: bool) -> str | None:
    """Return why the scheme of a URI is not allowed, or None.

    An empty `allowed` allows all schemes, except dangerous ones of remote servers.
    """
    scheme = scheme_of(uri)
    known = {entry.strip().rstrip(":/").lower() for entry in allowed}
    if known and scheme not in known:
        shown = ", ".join(sorted(known))
        return f"`resource_uri_allowlist` allows {shown}, and not {scheme or 'a URI without a scheme'!r}"
    if not known and remote and scheme in DANGEROUS:
        return (
            f"{scheme!r} is not accepted from a remote server; add it to `resource_uri_allowlist` to allow it"
        )
    return None


def local_path(uri: str, *, windows: bool = False) -> str:
    """Return the decoded path of a `file:` URI on this machine.

    Raises:
        ValueError: it has none, or the path is ambiguous.
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
    if re.search(_ENCODED, path):
        raise ValueError("it is encoded twice")
    if "\\" in path:
        raise ValueError("it has a backslash")
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs") for letter in path):
        raise ValueError("it has an invisible character")
    folded = unicodedata.normalize("NFKC", path)
    if folded.count("..") != path.count("..") or folded.count("/") != path.count("/"):
        raise ValueError("it has letters that turn into dots or slashes")
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError("it is not a path from the root of this machine")
    if re.match(_DRIVE, path):
        if not windows:
            raise ValueError("it names a drive")
        return path.lstrip("/").replace("|", ":")
    return path


_LONGEST_TEMPLATE, _LONGEST_URI = 1_024, 8_192
_EXPRESSION = r"\{([+#./;?&]?)([A-Za-z0-9_.%,*:]+)\}"

Accepts = Callable[[str], bool]


_Token = tuple[Accepts, bool]
"""One step of a template: the characters it matches, and whether it repeats."""
_Steps = tuple[tuple[_Token, ...], tuple[tuple[int, int], ...]]
"""All steps, and the optional ranges of steps in order of start."""


def matches(template: str, uri: str) -> bool:
    """Whether the template can expand to this URI."""
    if len(template) > _LONGEST_TEMPLATE or len(uri) > _LONGEST_URI:
        return False
    steps = _steps(template)
    return steps is not None and _run(steps, uri)


def _run(steps: _Steps, uri: str) -> bool:
    tokens, optional = steps
    forward: dict[str, int] = {}
    staying: dict[str, int] = {}
    states = _skipped(1, optional)
    for letter in uri:
        if letter not in forward:
            ahead = stay = 0
            for place, (accepts, repeats) in enumerate(tokens):
                if accepts(letter):
                    ahead |= 1 << place
                    stay |= 1 << (place + 1) if repeats else 0
            forward[letter], staying[letter] = ahead, stay
        states = _skipped((states & forward[letter]) << 1 | states & staying[letter], optional)
        if not states:
            return False
    return bool(states >> len(tokens) & 1)


def _skipped(states: int, optional: tuple[tuple[int, int], ...]) -> int:
    for start, end in optional:
        if states >> start & 1:
            states |= 1 << end
    return states


@lru_cache(maxsize=1_024)
def _steps(template: str) -> _Steps | None:
    """Return the steps of a template, or None if it is invalid."""
    tokens: list[_Token] = []
    optional: list[tuple[int, int]] = []
    place = 0
    for found in re.finditer(_EXPRESSION, template):
        if not _literal(template[place : found.start()], tokens):
            return None
        start = len(tokens)
        tokens.extend(_expression(found[1], found[2]))
        if found[1] not in ("", "+"):
            # A match without the expression must not end where its value could continue.
            tokens.append((_nothing, False))
            optional += [(start, len(tokens)), (len(tokens) - 1, len(tokens))]
        place = found.end()
    if not _literal(template[place:], tokens):
        return None
    return tuple(tokens), tuple(optional)


def _literal(text: str, tokens: list[_Token]) -> bool:
    tokens.extend((letter.__eq__, False) for letter in text)
    return "{" not in text and "}" not in text


def _expression(operator: str, names: str) -> list[_Token]:
    # The operator itself separates exploded or multiple values.
    several = "*" in names or "," in names
    if operator in ("+", "#"):
        value = (_anything, True)
    elif operator in ("?", "&"):
        value = (_no_fragment, True)
    elif several and operator in ("", "/"):
        value = (_path, True)
    else:
        value = (_segment, True)
    return [value] if operator in ("", "+") else [(operator.__eq__, False), value]


def _nothing(letter: str) -> bool:
    return False


def _anything(letter: str) -> bool:
    return True


def _no_fragment(letter: str) -> bool:
    return letter != "#"


def _path(letter: str) -> bool:
    return letter not in "?#"


def _segment(letter: str) -> bool:
    return letter not in "/?#"
