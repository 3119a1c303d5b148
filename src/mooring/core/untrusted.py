"""Text that servers wrote, made fit to be shown to a model: visible, short, and marked as theirs.

None of this makes the text trustworthy. It keeps it from hiding (characters that nobody sees), from
flooding (length) and from passing as ours (a fence that it cannot close).
"""

from __future__ import annotations

import re

__all__ = ["clean", "fence", "line", "quote"]

_UNSEEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs"))
# Letters and marks by category, invisible all the same: fillers, joiners, variation selectors.
_BLANK = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
_BREAKS = dict.fromkeys(map(ord, "\r\u2028\u2029\x0b\x0c\x85"), "\n")
_SPACE = r"[^\S\n]+"
_GAP = r"\n\s*\n\s*"
_MARK = r"(?i)<\s*/?\s*untrusted"


def clean(text: str, limit: int) -> str:
    """Return a text without invisible and control characters, runs of space collapsed, cut at `limit`."""
    text = text[: 4 * limit]
    if not (text.isascii() and text.isprintable()):
        text = _visible(re.sub(_BLANK, "", text))
    text = re.sub(_GAP, "\n\n", re.sub(_SPACE, " ", text)).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def line(text: str, limit: int) -> str:
    """Return the first paragraph of a text as one clean line."""
    text = clean(text, 4 * limit).partition("\n\n")[0].replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def fence(text: str, server: str, limit: int) -> str:
    """Return a text of a server between marks that say whose it is."""
    # No angle bracket of theirs is left that could open or close a mark.
    body = clean(text, limit).replace("<", "‹").replace(">", "›")
    owner = clean(server, 80).replace("<", "‹").replace(">", "›").replace('"', "'")
    return f'<untrusted from="{owner}">\n{body}\n</untrusted>'


def quote(text: str, server: str, **about: str) -> str:
    """Return a whole text of a server between marks that say whose it is; its layout stays as it is.

    For what was asked for and is to be read as it is written, such as a file. `about` goes into the mark.
    """
    if not (text.isascii() and text.isprintable()):
        text = _visible(text.replace("\r\n", "\n"), tab="\t")
    given = {"from": server, **about}
    marks = "".join(f' {word}="{_attribute(value)}"' for word, value in given.items())
    return f"<untrusted{marks}>\n{re.sub(_MARK, _defused, text)}\n</untrusted>"


def _attribute(value: str) -> str:
    return clean(value, 200).replace("<", "‹").replace(">", "›").replace('"', "'").replace("\n", " ")


def _defused(mark: re.Match[str]) -> str:
    return mark[0].replace("<", "‹")


def _visible(text: str, tab: str = " ") -> str:
    from unicodedata import category  # most texts are plain

    lines = text.translate(_BREAKS)
    kept = (letter for letter in lines if letter in "\n\t" or category(letter) not in _UNSEEN)
    return "".join(kept).replace("\t", tab)
