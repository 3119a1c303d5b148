"""The memory of large answers, which is taken and given back again and again.

glibc hands the top of the heap back to the system when more of it is free than twice the largest block
that was ever freed. A large answer takes more than three times its size, in pieces, joined and parsed: so
each gives its memory back and the next fetches it again, page by page, which takes as long as all the rest.
"""

from __future__ import annotations

__all__ = ["LARGE", "keep_room"]

LARGE = 128 * 2**10
"""Smaller blocks are kept anyway."""
_MOST = 2 * 2**20
"""For larger answers the memory had better go back: sixteen megabytes at most are kept."""
_FOLD = 4

_known = LARGE


def keep_room(size: int) -> None:
    """An answer of this many bytes came: have room kept for the next one, once for each size.

    Elsewhere than with glibc it does nothing, and nowhere does it touch the memory that it asks for.
    """
    global _known
    if _known < size <= _MOST:
        _known = min(2 * size, _MOST)
        bytes(_FOLD * _known)  # asked for and let go: the largest block that was ever freed
