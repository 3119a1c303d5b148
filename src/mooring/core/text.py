"""Safe display of server text, suggestions for misspelled names, and estimates of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from mooring.core.types import Tool

# Invisible and control characters. Newline and tab are left to the callers.
_HIDDEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls, ESC among them
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, fillers, Arabic letter mark
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero widths, line separators, bidirectional controls
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"  # blanks that are letters, variation selectors
    r"\ud800-\udfff"  # lone surrogates, which cannot be encoded for a terminal
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand, music, tag characters
)
_HIDDEN_CHARACTER = f"[{_HIDDEN}]"
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# Joiners and variation selectors of emoji: the emoji are shown without them.
_EMOJI_GLUE = "(?<=[\u2190-\u2bff\U0001f000-\U0001faff])[\u200d\ufe0f]+"
_SPACES = r"\s+"


def clean(text: str) -> str:
    """Return the text with every invisible or control character written as an escape (`\\x1b`, `\\u202e`).

    Newlines and tabs stay. The result is safe on a terminal.
    """
    text = re.sub(_EMOJI_GLUE, "", text.replace("\r\n", "\n"))
    return re.sub(_HIDDEN_CHARACTER, lambda match: _escape(ord(match[0])), text)


def without_controls(text: str) -> str:
    """Return the text with control characters other than newline and tab written as escapes (`\\x1b`).

    For pipes and files: a terminal that shows the text later does not execute it. Other invisible characters,
    such as zero-width joiners, stay.
    """
    return re.sub(_CONTROL, lambda match: _escape(ord(match[0])), text.replace("\r\n", "\n"))


def hides(text: str) -> bool:
    """Whether the text contains invisible or control characters other than newline and tab."""
    if text.isascii() and text.isprintable():
        return False
    return re.search(_HIDDEN_CHARACTER, re.sub(_EMOJI_GLUE, "", text.replace("\r\n", "\n"))) is not None


def without_hidden(text: str) -> str:
    """Return the text without invisible characters, for models."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_HIDDEN_CHARACTER, "", re.sub(_EMOJI_GLUE, "", text.replace("\r\n", "\n")))


def clean_line(text: str) -> str:
    """Return the text as one clean line, with runs of white space as one space."""
    return clean(re.sub(_SPACES, " ", text).strip())


def clean_json(document: str) -> str:
    """Return an equal JSON document, with invisible characters in strings as JSON escapes."""
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


_NOT_TEXT = frozenset(("Cf", "Cn", "Co"))
"""Categories that models do not get either: format characters, unassigned and private code points."""
_BREAKS = dict.fromkeys(map(ord, "\r\u2028\u2029\x0b\x0c\x85"), "\n")
_SPACE = r"[^\S\n]+"
_GAP = r"\n\s*\n\s*"
_MARK = r"(?i)<\s*/?\s*untrusted"


def clean_for_model(text: str, limit: int) -> str:
    """Return a text without invisible and control characters, runs of space collapsed, cut at `limit`."""
    text = text[: 4 * limit]
    if not (text.isascii() and text.isprintable()):
        text = _visible(text)
    text = re.sub(_GAP, "\n\n", re.sub(_SPACE, " ", text)).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def line(text: str, limit: int) -> str:
    """Return the first paragraph of a text as one clean line."""
    text = clean_for_model(text, 4 * limit).partition("\n\n")[0].replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def fence(text: str, server: str, limit: int) -> str:
    """Return a text of a server between tags that name the server."""
    # No angle bracket of the text remains that could open or close a tag.
    body = clean_for_model(text, limit).replace("<", "‹").replace(">", "›")
    owner = clean_for_model(server, 80).replace("<", "‹").replace(">", "›").replace('"', "'")
    return f'<untrusted from="{owner}">\n{body}\n</untrusted>'


def quote(text: str, server: str, **about: str) -> str:
    """Return a whole text of a server, with its layout, between tags that name the server.

    For requested content such as a file. `about` becomes attributes of the tag.
    """
    if not (text.isascii() and text.isprintable()):
        text = _visible(text.replace("\r\n", "\n"), tab="\t")
    given = {"from": server, **about}
    marks = "".join(f' {word}="{_attribute(value)}"' for word, value in given.items())
    return f"<untrusted{marks}>\n{re.sub(_MARK, _defused, text)}\n</untrusted>"


def _attribute(value: str) -> str:
    return (
        clean_for_model(value, 200).replace("<", "‹").replace(">", "›").replace('"', "'").replace("\n", " ")
    )


def _defused(mark: re.Match[str]) -> str:
    return mark[0].replace("<", "‹")


def _visible(text: str, tab: str = " ") -> str:
    text = re.sub(_HIDDEN_CHARACTER, "", text.translate(_BREAKS)).replace("\t", tab)
    if text.isascii():
        return text
    from unicodedata import category  # most texts are plain

    return "".join(letter for letter in text if category(letter) not in _NOT_TEXT)


_LONGEST = 96
"""Characters of a name that are compared: names may come from untrusted servers."""
_SHORTLIST = 24
_SWAPPED = 0.8
"""Least similarity of two words with the same letters."""
_WORSE = 0.1
"""How much less similar than the best name another suggestion may be."""


def nearest(name: str, names: Iterable[str], limit: int = 3, *, similar: float = 0.5) -> tuple[str, ...]:
    """Return up to `limit` names that resemble `name`, the best first, ties in order of name.

    `similar` is the least similarity, from 0 to 1. Comparing with ten thousand names takes half a second, so
    the names that share most pairs of letters are selected first.
    """
    from difflib import SequenceMatcher  # only when a name was wrong

    wanted = name[:_LONGEST].casefold()
    grams = set(map("".join, pairwise(wanted)))
    folded = ((candidate, candidate[:_LONGEST].casefold()) for candidate in names)
    shared = ((sum(gram in text for gram in grams), candidate, text) for candidate, text in folded)
    # Of names that share the same number of pairs, the shorter ones are more similar.
    short = nlargest(_SHORTLIST, shared, key=lambda entry: (entry[0], -len(entry[2]), entry[1]))
    matcher = SequenceMatcher(b=wanted)
    scored: list[tuple[float, str]] = []
    for _, candidate, text in short:
        matcher.set_seq1(text)
        ratio = matcher.ratio()
        if len(wanted) > 2 and (text.startswith(wanted) or text.endswith(wanted)):
            ratio = 1.0
        elif sorted(text) == sorted(wanted):  # swapped letters, which count twice in a short word
            ratio = max(ratio, _SWAPPED)
        if ratio >= similar:
            scored.append((-ratio, candidate))
    scored.sort()
    # Names that share only a prefix are not worth showing beside a probable misspelling.
    return tuple(candidate for worse, candidate in scored[:limit] if worse <= scored[0][0] + _WORSE)


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Return the name that `name` is most likely a misspelling of, if any."""
    return next(iter(nearest(name, names, 1, similar=0.75)), None)


def misspelt_arguments(schema: Mapping[str, Any], arguments: object) -> str | None:
    """Return a note on misspelt arguments and values of an `enum`; None if there are none."""
    known: Any = schema.get("properties")
    if not isinstance(known, dict) or not isinstance(arguments, Mapping):
        return None
    properties = {str(name): keywords for name, keywords in cast("dict[Any, Any]", known).items()}
    missing = [name for name in properties if name not in arguments]
    notes: list[str] = []
    for name, value in list(cast("Mapping[Any, Any]", arguments).items())[:_SHORTLIST]:
        known_name = str(name) in properties
        near = _near_choice(properties[str(name)], value) if known_name else did_you_mean(str(name), missing)
        if near is not None:
            said = line(str(name), 60)
            wrong = (
                f"{said!r} cannot be {line(value, 60)!r}" if known_name else f"there is no argument {said!r}"
            )
            notes.append(f"{wrong}, did you mean {line(near, 60)!r}?")
    return f"[mooring: {'; '.join(notes)}]" if notes else None


def _near_choice(keywords: object, value: object) -> str | None:
    """Return the text of an `enum` that the value is most likely a misspelling of, if any."""
    choices: Any = cast("dict[Any, Any]", keywords).get("enum") if isinstance(keywords, dict) else None
    if not isinstance(choices, list) or not isinstance(value, str) or value in choices:
        return None
    return did_you_mean(value, [one for one in cast("list[Any]", choices) if isinstance(one, str)])


def estimate(text: str) -> int:
    """Return about how many tokens a text has: four ASCII characters each, one for any other character."""
    if text.isascii():
        return len(text) // 4
    plain = len(text.encode("ascii", "ignore"))
    return plain // 4 + len(text) - plain


def definition(tool: Tool) -> dict[str, Any]:
    """Return the parts of a tool's definition that a model gets."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def tool_cost(tool: Tool) -> int:
    """Return about how many tokens the definition of a tool takes in a prompt."""
    return estimate(dumps(definition(tool)))


def dumps(value: Any) -> str:
    """Return compact JSON that can be encoded as UTF-8, with the type of each value that is not JSON."""
    import json  # lazy: `mooring --help` does not need it

    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_other)
    except (TypeError, ValueError, RecursionError):
        # Keys of several types, cycles or deep nesting, which only a program can build.
        text = json.dumps({"error": "not representable as JSON"})
    # A lone surrogate is valid in JSON, but cannot be encoded as UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _other(value: Any) -> Any:
    try:
        return dict(value)
    except (TypeError, ValueError):
        return f"<{type(value).__name__}>"
