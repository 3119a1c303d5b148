"""References in configuration text: parsed once, resolved through a lookup that the caller injects.

    ${VAR}  ${env:VAR}       a variable (or a secret of that name)
    ${VAR:-default}          the default stands in when the variable is unset or empty
    ${file:path}             the content of a file
    ${keyring:name}          an entry of the system keyring
    ${cmd:program arg …}     what a program prints
    $${                      a literal ${

A value that comes in is text and nothing else: it is not looked at for further references and
never splits an argument in two. Other syntax, such as the shell's `${v%p}`, is left as written;
`unknown` tells where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from mooring.core.value import Value
from mooring.errors import ConfigError

__all__ = [
    "Kind",
    "Lookup",
    "MissingReferenceError",
    "Reference",
    "escape",
    "expand",
    "is_reference",
    "references",
    "unknown",
]

Kind = Literal["env", "file", "keyring", "cmd"]


class Reference(Value):
    """One `${…}`: what is meant, not what it stands for."""

    kind: Kind
    name: str
    default: str | None = None

    def __str__(self) -> str:
        """The reference as one would write it, without its default, which may itself be a secret."""
        return f"${{{self.name}}}" if self.kind == "env" else f"${{{self.kind}:{self.name}}}"


Lookup = Callable[[Reference], str | None]
"""Gives the value of a reference; None when there is none."""


class MissingReferenceError(ConfigError):
    """Some references have no value. `references` holds all of them: names, never values."""

    def __init__(self, missing: tuple[Reference, ...]) -> None:
        names = ", ".join(str(reference) for reference in missing)
        super().__init__(f"no value for {names}; provide it, or give a default as in ${{NAME:-default}}")
        self.references = missing


class _UnknownReference(str):
    """A `${…}` that is no reference."""

    __slots__ = ()


# The body ends at the first brace: references do not nest.
_TOKEN = r"\$\$\{|\$\{([^}]*)(\}?)"
_ENV = r"(?s)(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?"
_OTHER = r"(?s)(file|keyring|cmd):\s*(\S.*)"


def expand(text: str, lookup: Lookup) -> str:
    """`text` with every reference replaced by its value.

    Raises:
        MissingReferenceError: naming all references that have neither a value nor a default.
    """
    done: list[str] = []
    missing: dict[Reference, None] = {}
    for part in _parse(text):
        if isinstance(part, Reference):
            value = lookup(part)
            if part.default is not None:
                value = value or part.default
            if value is None:
                missing[part] = None
            else:
                done.append(value)
        else:
            done.append(part)
    if missing:
        raise MissingReferenceError(tuple(missing))
    return "".join(done)


def references(text: str) -> tuple[Reference, ...]:
    """The references in `text`, in order."""
    return tuple(part for part in _parse(text) if isinstance(part, Reference))


def is_reference(text: str) -> bool:
    """Return whether `text` is exactly one reference without a default, so that it holds no literal value."""
    parts = [part for part in _parse(text) if part != ""]
    return len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].default is None


def unknown(text: str) -> tuple[str, ...]:
    """The `${…}` in `text` that are no references, cut after the first word: more may be a secret."""
    return tuple(
        (re.match(r"\$\{\w{0,40}", part) or "${")[0] + "…}"
        for part in _parse(text)
        if isinstance(part, _UnknownReference)
    )


def escape(text: str) -> str:
    """Text that expands to exactly `text`."""
    return text.replace("${", "$${")


def _parse(text: str) -> list[str | Reference]:
    if "${" not in text:  # most are plain
        return [text]
    parts: list[str | Reference] = []
    at = 0
    for token in re.finditer(_TOKEN, text):
        parts.append(text[at : token.start()])
        at = token.end()
        if token[0] == "$${":
            parts.append("${")
        else:
            reference = _reference(token[1]) if token[2] else None
            parts.append(reference or _UnknownReference(token[0]))
    parts.append(text[at:])
    return parts


def _reference(body: str) -> Reference | None:
    if "${" in body:
        return None
    if found := re.fullmatch(_ENV, body):
        return Reference(kind="env", name=found[1], default=found[2])
    if found := re.fullmatch(_OTHER, body):
        kind: Kind = "file" if found[1] == "file" else "keyring" if found[1] == "keyring" else "cmd"
        return Reference(kind=kind, name=found[2])
    return None
