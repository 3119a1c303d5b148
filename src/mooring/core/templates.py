"""Whether a URI may come of a URI template (RFC 6570, levels 1 to 3).

Templates come from servers, URIs from models: the match takes time in proportion to both and never
backtracks. All ways to read a URI are followed at once, one bit each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

__all__ = ["matches"]

_LONGEST_TEMPLATE, _LONGEST_URI = 1_024, 8_192
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([A-Za-z0-9_.%,*:]+)\}")

Accepts = Callable[[str], bool]


_Token = tuple[Accepts, bool]
"""One step of a template: the characters it takes, and whether it takes as many as come."""
_Steps = tuple[tuple[_Token, ...], tuple[tuple[int, int], ...]]
"""All steps, and the stretches that may be left out: from, to; in the order in which they begin."""


def matches(template: str, uri: str) -> bool:
    """Return whether some values of the template's variables give this URI."""
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
    """Return the steps of a template; None if it is none."""
    tokens: list[_Token] = []
    optional: list[tuple[int, int]] = []
    place = 0
    for found in _EXPRESSION.finditer(template):
        if not _literal(template[place : found.start()], tokens):
            return None
        start = len(tokens)
        tokens.extend(_expression(found[1], found[2]))
        if found[1] not in ("", "+"):
            # Whoever leaves the stretch out must not stand where its value may still go on.
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
    # Where a value is exploded, or is one of several, the operator itself may stand between the parts.
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
