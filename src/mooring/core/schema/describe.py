"""What a schema says in words: title, description, default, and what its keywords may not say."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from mooring.core.types import Json

__all__ = ["described", "shared", "told"]

_DESCRIPTION = 4_096
"""Characters of a description."""
_HINT = 400
"""Characters of one thing that is told in the description only."""


def described(
    schema: dict[str, Json], text: Mapping[str, Json], hints: tuple[str, ...], annotations: Collection[str]
) -> dict[str, Json]:
    """The schema with its texts. A default or examples that may not be annotations become hints."""
    every = list(hints)
    outcome = dict(schema)
    if "title" in text:
        outcome["title"] = text["title"]
    for name in ("default", "examples"):
        if name in text and name in annotations:
            outcome[name] = text[name]
        elif text.get(name) is not None:
            every.append(f"{name}: {json.dumps(text[name], ensure_ascii=False)}")
    hint = "; ".join(one if len(one) <= _HINT else f"{one[: _HINT - 1]}…" for one in every)
    if words := told(text.get("description"), f"({hint})" if hint else None):
        outcome["description"] = words
    return outcome


def told(text: str | None, hint: str | None) -> str:
    """A description that ends in the hint, however long it was."""
    hint = hint or ""
    room = max(_DESCRIPTION - len(hint) - 1, 0)
    if text and len(text) > room:
        text = f"{text[: room - 1]}…" if room else None
    return f"{text} {hint}" if text and hint else text or hint


def shared(schema: dict[str, Json], raw: Mapping[str, Json] | None) -> dict[str, Json]:
    """The server's own schema where nothing was changed: no copy is kept then."""
    return raw if isinstance(raw, dict) and raw == schema else schema
