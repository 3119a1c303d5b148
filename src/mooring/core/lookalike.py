"""Names that a person could take for one another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

__all__ = ["latin", "look_alikes", "skeleton"]

# Letters of other scripts, and digits, that look like Latin ones in common typefaces.
_ALIKE = str.maketrans(
    "аьсԁеһіјӏкԛмопрѕԝхугвтнзαβεηικνορτυχωγμζ01|ıɑɡß",
    "abcdehijlkqmonpswxyrbth3abenikvoptuxwyuzolliagb",
)
_JOINT = r"[\W_]+"


@lru_cache(1024)
def skeleton(name: str) -> str:
    """A form that is the same for names which look the same: without case, accents, width and punctuation."""
    bare = name.lower() if name.isascii() else _bare(name)
    return (
        re.sub(_JOINT, "_", bare.translate(_ALIKE)).strip("_").replace("rn", "m").replace("vv", "w") or name
    )


def latin(text: str) -> str:
    """The text in Latin letters as far as others look like them: without case and accents."""
    return _bare(text).translate(_ALIKE)


def _bare(name: str) -> str:
    from unicodedata import combining, normalize

    plain = normalize("NFKD", normalize("NFKC", name).casefold())
    return "".join(letter for letter in plain if not combining(letter))


def look_alikes(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that looks like an earlier one, after that one.

    Names that differ in case or punctuation alone, such as `a-b` and `A_b`, are no look-alikes: the
    difference can be seen.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(skeleton(name), name)
        if _letters(other) != _letters(name):
            yield other, name


def _letters(name: str) -> str:
    return re.sub(_JOINT, "_", name.lower())
