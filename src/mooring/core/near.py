"""The names nearest to one that does not exist, for "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

__all__ = ["nearest"]

_LONGEST = 96
"""Characters of a name that are looked at: both sides may come from a stranger."""
_SHORTLIST = 24
_SIMILAR = 0.5


def nearest(name: str, names: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """Return up to `limit` names that resemble `name`, the best first, ties in order of name.

    Comparing whole strings with ten thousand names takes half a second, so that counting shared
    pairs of letters makes a short list first.
    """
    from difflib import SequenceMatcher  # only when a name was wrong

    wanted = name[:_LONGEST].casefold()
    grams = {wanted[i : i + 2] for i in range(len(wanted) - 1)}
    folded = ((candidate, candidate[:_LONGEST].casefold()) for candidate in names)
    shared = ((sum(gram in text for gram in grams), candidate, text) for candidate, text in folded)
    # Of those that share the same number of pairs the shorter ones are the more alike.
    short = nlargest(_SHORTLIST, shared, key=lambda entry: (entry[0], -len(entry[2]), entry[1]))
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    scored: list[tuple[float, str]] = []
    for _, candidate, text in short:
        matcher.set_seq1(text)
        ratio = 1.0 if wanted and text.endswith(wanted) else matcher.ratio()
        if ratio >= _SIMILAR:
            scored.append((-ratio, candidate))
    return tuple(candidate for _, candidate in sorted(scored)[:limit])
