"""Checks of single configuration values. Each raises ValueError in words a person understands.

No message shows the value: what stands in the wrong place is often a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from mooring.core.durations import kind
from mooring.core.expand import expand, references
from mooring.core.secret import reveal

__all__ = [
    "check_command",
    "check_header",
    "check_headers",
    "check_name",
    "check_protocol",
    "check_spoken",
    "check_url",
    "check_url_text",
    "list_of_text",
    "map_of_text",
    "reference_names",
    "shown",
]

PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Every version of the protocol that mooring speaks."""
_RESERVED = frozenset(
    {
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "accept",
        "content-type",
        "content-length",
        "transfer-encoding",
        "host",
        "connection",
    }
)
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER_VALUE = r"[\x20-\x7e\t]*"
_PATH_LIKE = r"[./~$]|[A-Za-z]:[\\/]|\\\\"
_NAME_LIMIT = 128


def shown(name: str) -> str:
    """A name as it may stand in a message: quoted, control characters escaped, never long."""
    return repr(name if len(name) <= 40 else name[:39] + "…")


def check_name(name: str) -> str:
    if not name or name != name.strip():
        raise ValueError("must be a name that neither is empty nor begins or ends with a space")
    if len(name) > _NAME_LIMIT:
        raise ValueError(f"must be a name of at most {_NAME_LIMIT} characters")
    if not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError("must be a name without slashes and control characters, such as 'github'")
    return name


def check_command(command: str, *, has_args: bool) -> None:
    if not command.strip():
        raise ValueError("must name a program")
    if " " in command.strip() and not has_args and not re.match(_PATH_LIKE, command):
        raise ValueError(
            "looks like a shell line; write the program alone in 'command' "
            "and each argument as one item of 'args'"
        )


def check_url_text(url: str) -> str:
    """`url` itself, when it can be one we reach; references in it stand for any text."""
    check_url(sample_url(url))
    return url


def sample_url(url: str) -> str:
    """An address such as `url` may become, once its references are filled in."""
    text = expand(url, lambda _: "1")
    # The scheme comes with a reference at the start, and is checked when connecting.
    return "http://" + text if url.startswith("${") and references(url) else text


def check_url(text: str) -> None:
    if not re.match(r"https?://", text, re.IGNORECASE):
        raise ValueError("must start with http:// or https://")
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("must not hold spaces or control characters")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        # The library's own message repeats parts of the URL.
        raise ValueError("is not a valid URL: check the host and the port") from None
    if "@" in parts.netloc:
        raise ValueError(
            "must not hold a user name, password or token before the host; "
            'send it as a header: headers: {Authorization: "Bearer ${VAR}"}'
        )
    if not host:
        raise ValueError("names no host; write it as https://host/path")


def check_header(name: str, value: str) -> None:
    if not re.fullmatch(_HEADER_NAME, name):
        raise ValueError(
            "has a header name that is none: letters, digits and hyphens, such as 'Authorization'; "
            "the value stands after it"
        )
    if name.lower() in _RESERVED or name.lower().startswith("mcp-param-"):
        raise ValueError(f"sets {shown(name)}, which belongs to the protocol; remove it")
    if not re.fullmatch(_HEADER_VALUE, reveal(value)):
        raise ValueError(
            f"has a value for {shown(name)} that a header cannot carry: only visible ASCII, on one line"
        )


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        check_header(name, value)
    return headers


def check_protocol(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"20\d\d-\d\d-\d\d", value):
        return value
    raise ValueError("must be a version of the protocol, such as '2025-06-18'")


def check_spoken(value: object) -> str:
    """`auto`, or one of the protocol versions that mooring speaks."""
    if value == "auto" or value in PROTOCOLS:
        return str(value)
    raise ValueError(f"must be 'auto' or one of {', '.join(PROTOCOLS)}")


def text_of(value: object) -> str:
    """The text of a scalar: `8080` and `true` in JSON mean what they look like."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            if "\0" in reveal(value):
                raise ValueError("must not hold a NUL character")
            return value
        case _:
            raise ValueError(f"must be text, not {kind(value)}")


def list_of_text(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        hint = ", never a shell string" if isinstance(value, str) else f", not {kind(value)}"
        raise ValueError(f'must be a list such as ["first", "second"]{hint}')
    items = cast("list[object]", value)
    try:
        return tuple(text_of(item) for item in items)
    except ValueError as problem:
        raise ValueError(f"must be a list of texts; one item {problem}") from None


def map_of_text(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of names to texts, not {kind(value)}")
    result: dict[str, str] = {}
    for name, item in cast("Mapping[Any, object]", value).items():
        if not isinstance(name, str) or not name or "\0" in name or "=" in name:
            raise ValueError("must be a mapping of names to texts; one name is empty or holds '='")
        try:
            result[name] = text_of(item)
        except ValueError as problem:
            raise ValueError(f"{shown(name)} {problem}") from None
    return result


def reference_names(value: object) -> object:
    """`value` with every text reduced to the references in it: its shape, without what may be secret."""
    match value:
        case str():
            return [str(reference) for reference in references(value)]
        case Mapping():
            return {
                str(key): reference_names(item)
                for key, item in sorted(cast("Mapping[Any, object]", value).items())
            }
        case list() | tuple():
            return [reference_names(item) for item in cast("list[object]", value)]
        case _:
            return None
