"""Changes in words: one line that is safe for a model to read, or the whole difference for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from shlex import quote

from mooring.core.changes import Change
from mooring.core.definitions import canonical, definition, is_pinnable, key_of, visible_text, words
from mooring.core.schemachange import Difference

__all__ = ["describe", "shown_name", "summary", "warnings_of"]

_NAME = 80
_VALUE = 400
_CONTEXT = 60
"""Characters kept before the first difference of two long values."""
_PLACES = 20
_LINES = 20


def summary(change: Change) -> str:
    """Return one line: what was changed, and how to see and accept it.

    It quotes nothing of the new definition but the name, so that what was set aside does not reach a
    model by way of the message that says so.
    """
    advice = f"See it with `mooring check`, accept it with `{_command(change)}`."
    return f"{_headline(change)}. {advice}{_REORDERED if _reordered(change) else ''}"


def describe(change: Change) -> str:
    """Return the change for a person to judge: each place with the old and the new text.

    The texts are the server's: quoted, shortened around the difference, nothing in them invisible.
    """
    lines = [f"{_headline(change)}:" if change.differences else f"{_headline(change)}."]
    for difference in change.differences[:_PLACES]:
        lines += _difference(difference)
    if (more := len(change.differences) - _PLACES) > 0:
        lines.append(f"  … and {more} more places")
    if change.kind == "added" and change.after is not None:
        lines += [f"  {line}" for line in _definition(change)]
    lines.append(f"Accept it with `{_command(change)}`.{_REORDERED if _reordered(change) else ''}")
    return "\n".join(lines)


_REORDERED = (
    " Only the order of the words differs. If the server says this differently at every start, "
    "`mooring lock` marks it as volatile; `pins: warn` in the server's configuration accepts any change."
)


def _reordered(change: Change) -> bool:
    """Whether texts changed, and all of them have the same words as before."""
    return bool(change.differences) and all(
        difference.weight == "text"
        and difference.before is not None
        and difference.after is not None
        and words(difference.before) == words(difference.after)
        for difference in change.differences
    )


def warnings_of(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return one warning for each change, up to a bound that no server can push."""
    lines = [summary(change) for change in changes[:_LINES]]
    if (more := len(changes) - _LINES) > 0:
        lines.append(f"Server {shown_name(changes[0].server)}: {more} more changes; see `mooring check`.")
    return tuple(lines)


def _headline(change: Change) -> str:
    server = f"server {shown_name(change.server)}"
    if change.subject == "server":
        return f"{server[0].upper()}{server[1:]} {_of_server(change)}"
    thing = f"{change.subject.capitalize()} {shown_name(change.name)} of {server}"
    match change.kind:
        case "added":
            reason = "" if change.after is None or is_pinnable(change.after) else " and cannot be pinned"
            return f"{thing} is new{reason}: it was never approved"
        case "removed":
            return f"{thing} was approved and is no longer offered"
        case "renamed" if change.before is not None:
            return (
                f"{thing} is new: it is the approved {shown_name(key_of(change.before))} under another name"
            )
        case _:
            return f"{thing} is not what was approved: {_areas(change)} changed ({change.kind})"


def _of_server(change: Change) -> str:
    match change.kind:
        case "launch":
            return "is configured to run or reach something else than what was approved"
        case "protocol":
            return "speaks an older protocol than it did when it was approved"
        case _:
            return f"describes itself otherwise than was approved: {_areas(change)} changed"


def _areas(change: Change) -> str:
    """The fields that changed, without the names in a schema, which are the server's choice."""
    words = {
        "input": "input schema",
        "output": "output schema",
        "mime_type": "MIME type",
        "meta": "`_meta`",
        "more": "other fields",
    }
    fields = dict.fromkeys(difference.path.partition(".")[0] for difference in change.differences)
    return ", ".join(words.get(field, field) for field in fields)


def _command(change: Change) -> str:
    whole = f"mooring approve {quote(change.server)}"
    # A name that cannot be typed is approved with its server.
    if change.subject != "tool" or visible_text(change.name) != change.name or len(change.name) > _NAME:
        return whole
    return f"mooring approve {quote(f'{change.server}/{change.name}')}"


def _difference(difference: Difference) -> list[str]:
    before, after = _excerpts(difference.before, difference.after)
    lines = [f"  {_cut(visible_text(difference.path), _VALUE)} ({difference.weight})"]
    lines += [f"    - {before}"] if before is not None else []
    lines += [f"    + {after}"] if after is not None else []
    return lines


def _excerpts(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Both values, made visible; of long ones, the part around the first difference."""
    one, two = (None if value is None else visible_text(value) for value in (before, after))
    if one is not None and two is not None:
        same = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(min(one, two)))
        if (start := same - _CONTEXT) > 0:
            one, two = "…" + one[start:], "…" + two[start:]
    return one and _cut(one, _VALUE), two and _cut(two, _VALUE)


def _definition(change: Change) -> list[str]:
    if change.after is None or not is_pinnable(change.after):
        return []
    fields = list(definition(change.after).items())[1:]
    return [
        f"{name}: {_cut(visible_text(json.dumps(json.loads(canonical(value)), ensure_ascii=False)), _VALUE)}"
        for name, value in fields
        if value not in (None, "", {}, ())
    ]


def shown_name(name: str) -> str:
    """Return a name quoted, shortened, and with nothing invisible in it."""
    return "'" + _cut(visible_text(name), _NAME) + "'"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
