"""Untrusted text made safe to show: nothing hidden, nothing that moves the cursor or turns the line around.

What a server says reaches people's terminals. A control sequence can repaint the screen, a bidirectional
override can make `rm` look like something else, and invisible characters carry text that only a model
reads. `clean` writes each of them out, so that a reader sees what is there.
"""

from __future__ import annotations

import re

__all__ = ["clean", "clean_json", "clean_line", "hides", "without_controls", "without_hidden"]

# Everything that is not seen, or that acts instead of being seen. Newline and tab are left to the callers.
_HIDDEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls, ESC among them
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, fillers, Arabic letter mark
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero widths, line separators, bidirectional controls
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"  # blanks that are letters, variation selectors
    r"\ud800-\udfff"  # halves of surrogate pairs: no terminal can be sent one
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand, music, tag characters
)
_HIDDEN_CHARACTER = f"[{_HIDDEN}]"
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# An emoji joined to its neighbour, or asked to be drawn in colour: the parts are shown without the glue.
_EMOJI_GLUE = "(?<=[\u2190-\u2bff\U0001f000-\U0001faff])[\u200d\ufe0f]+"
_SPACES = r"\s+"


def clean(text: str) -> str:
    """The text with every hidden or acting character written as an escape (`\\x1b`, `\\u202e`).

    Newlines and tabs stay. The result never holds a control character, so it is safe on a terminal.
    """
    text = re.sub(_EMOJI_GLUE, "", text.replace("\r\n", "\n"))
    return re.sub(_HIDDEN_CHARACTER, lambda match: _escape(ord(match[0])), text)


def without_controls(text: str) -> str:
    """The text with control characters other than newline and tab written as escapes (`\\x1b`).

    For pipes and files: a terminal that shows the text later does not act on it, and every other character,
    such as a zero-width joiner, stays as it is.
    """
    return re.sub(_CONTROL, lambda match: _escape(ord(match[0])), text.replace("\r\n", "\n"))


def hides(text: str) -> bool:
    """Whether the text holds characters that nobody sees, or that act instead of being seen."""
    if text.isascii() and text.isprintable():
        return False
    return re.search(_HIDDEN_CHARACTER, re.sub(_EMOJI_GLUE, "", text.replace("\r\n", "\n"))) is not None


def without_hidden(text: str) -> str:
    """The text without the characters that nobody sees: for models, to which escapes would be noise."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_HIDDEN_CHARACTER, "", re.sub(_EMOJI_GLUE, "", text.replace("\r\n", "\n")))


def clean_line(text: str) -> str:
    """The text as one clean line: runs of white space become one blank."""
    return clean(re.sub(_SPACES, " ", text).strip())


def clean_json(document: str) -> str:
    """A JSON document that means the same, with hidden characters inside its strings as JSON escapes."""
    return re.sub(_HIDDEN_CHARACTER, lambda match: _json_escape(ord(match[0])), document)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
