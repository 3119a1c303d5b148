"""References in configuration text: parsed once, resolved through a lookup that the caller injects.

    ${VAR}  ${env:VAR}       a variable (or a secret of that name)
    ${VAR:-default}          the default is used if the variable is unset or empty
    ${file:path}             the content of a file
    ${keyring:name}          an entry of the system keyring
    ${cmd:program arg …}     the output of a program
    $${                      a literal ${

A resolved value is plain text: it is not searched for further references and never splits an argument.
Other syntax, such as the shell's `${v%p}`, is left as written; `unknown` returns it.
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
    """One `${…}` as parsed, without its value."""

    kind: Kind
    name: str
    default: str | None = None

    def __str__(self) -> str:
        """The reference as it is written, without its default, which may be a secret."""
        return f"${{{self.name}}}" if self.kind == "env" else f"${{{self.kind}:{self.name}}}"


Lookup = Callable[[Reference], str | None]
"""Returns the value of a reference; None if it has none."""


class MissingReferenceError(ConfigError):
    """Some references have no value. `references` holds all of them: names, never values."""

    def __init__(self, missing: tuple[Reference, ...]) -> None:
        names = ", ".join(str(reference) for reference in missing)
        super().__init__(f"no value for {names}; provide it, or give a default as in ${{NAME:-default}}")
        self.references = missing


class _UnknownReference(str):
    """A `${…}` that is not a reference."""

    __slots__ = ()


# The body ends at the first brace: references do not nest.
_TOKEN = r"\$\$\{|\$\{([^}]*)(\}?)"
_ENV = r"(?s)(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?"
_OTHER = r"(?s)(file|keyring|cmd):\s*(\S.*)"


def expand(text: str, lookup: Lookup) -> str:
    """Return `text` with every reference replaced by its value.

    Raises:
    MissingReferenceError: references have neither a value nor a default; it names all of them.
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
    """Return the references in `text`, in order."""
    return tuple(part for part in _parse(text) if isinstance(part, Reference))


def is_reference(text: str) -> bool:
    """Return whether `text` is exactly one reference without a default, so that it holds no literal value."""
    parts = [part for part in _parse(text) if part != ""]
    return len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].default is None


def unknown(text: str) -> tuple[str, ...]:
    """Return the `${…}` in `text` that are not references, cut after the first word: the rest may be
    secret."""
    return tuple(
        (re.match(r"\$\{\w{0,40}", part) or "${")[0] + "…}"
        for part in _parse(text)
        if isinstance(part, _UnknownReference)
    )


def escape(text: str) -> str:
    """Return text that expands to exactly `text`."""
    return text.replace("${", "$${")


def _parse(text: str) -> list[str | Reference]:
    if "${" not in text:  # most texts have no references
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
