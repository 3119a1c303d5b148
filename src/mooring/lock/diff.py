"""Differences between two snapshots of one server, entry by entry, and their text."""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Literal, TypeAlias, cast, get_args

from mooring.core.types import Json, Prompt, ServerInfo, Snapshot, Tool
from mooring.core.value import Value, replace
from mooring.lock import NO_MARKS, Mark, Marks
from mooring.lock.definitions import (
    LONGEST_NAME,
    Entry,
    canonical,
    cut,
    definition,
    first_of_each,
    is_pinnable,
    key_of,
    shown_name,
    visible_text,
    words,
)
from mooring.lock.schema_diff import Difference, Weight, ordered, schema_differences

Kind = Literal[
    "text", "annotations", "compatible", "breaking", "added", "removed", "renamed", "launch", "protocol"
]
"""`text`: wording only. `annotations`: the server's hints. `compatible`, `breaking`: the schema.
`launch`: the configuration runs or reaches something else. `protocol`: the version is older."""
Subject = Literal["server", "tool", "resource", "template", "prompt", "extension", "skill", "page"]
FIRM: tuple[Subject, ...] = ("extension", "skill", "page")
"""Subjects that are never volatile: what differs between two starts must be approved."""

_WEIGHTS: tuple[Weight, ...] = get_args(Weight)
_Entries: TypeAlias = Mapping[str, Entry]


class Change(Value):
    """A difference of one entry, or of the server itself, from the pin."""

    server: str
    subject: Subject
    name: str
    """Current name of the entry; the old name of a removed one."""
    kind: Kind
    before: Entry | None = None
    after: Entry | None = None
    differences: tuple[Difference, ...] = ()


def _entries_of(before: Snapshot, after: Snapshot) -> Iterator[tuple[Subject, _Entries, _Entries]]:
    """Yield the entries of two snapshots by key, for each subject that is not the same object."""
    if before.tools is not after.tools:
        yield "tool", first_of_each(before.tools), first_of_each(after.tools)
    if before.resources is not after.resources:
        yield "resource", first_of_each(before.resources), first_of_each(after.resources)
    if before.templates is not after.templates:
        yield "template", first_of_each(before.templates), first_of_each(after.templates)
    if before.prompts is not after.prompts:
        yield "prompt", first_of_each(before.prompts), first_of_each(after.prompts)
    if before.extensions is not after.extensions:
        yield "extension", first_of_each(before.extensions), first_of_each(after.extensions)
    if before.skills is not after.skills:
        yield "skill", first_of_each(before.skills), first_of_each(after.skills)
    if before.pages is not None and after.pages is not None:
        yield "page", first_of_each(before.pages), first_of_each(after.pages)


def changes_between(before: Snapshot, after: Snapshot, volatile: Marks = NO_MARKS) -> tuple[Change, ...]:
    """Return every change: of the server first, then of each kind of entry by name.

    Every difference that a model or a client could see is a change. The order of listings, JSON keys and
    unordered lists is ignored, as are `volatile` fields.
    """
    return (
        *_server_changes(before, after, volatile),
        *(
            change
            for subject, old, new in _entries_of(before, after)
            for change in _entry_changes(after.server, subject, old, new, volatile)
        ),
    )


def volatile_between(first: Snapshot, second: Snapshot) -> dict[Mark, str]:
    """Return the fields that differ between two listings of an unchanged server, and how."""
    found: dict[Mark, str] = {}
    for change in changes_between(first, second):
        if change.kind in ("added", "removed", "renamed", "protocol") or change.subject in FIRM:
            continue
        name = "" if change.subject == "server" else change.name
        for one in change.differences:
            if one.path != "definition":
                order = _same_words(one.before, one.after)
                found[change.subject, name, one.path] = "order" if order else "text"
    return found


def same(one: Entry, other: Entry, volatile: Marks = NO_MARKS, subject: Subject = "tool") -> bool:
    """Whether two entries of one key are equal except in `volatile` fields."""
    differences = _differences(one, other)
    return not (_without_volatile(subject, key_of(other), differences, volatile) if volatile else differences)


def same_text(field: str, one: str | None, other: str | None, volatile: Marks) -> bool:
    """Whether a text of the server is equal, unless it is `volatile`."""
    return one == other or _tolerated(volatile.get(("server", "", field)), _shown(one), _shown(other))


def _server_texts(snapshot: Snapshot) -> tuple[tuple[str, str | None], ...]:
    info = snapshot.info
    texts = (("name", info.name), ("title", info.title), ("description", info.description))
    return (*texts, ("instructions", snapshot.instructions))


def _server_changes(before: Snapshot, after: Snapshot, volatile: Marks) -> Iterator[Change]:
    texts = [
        Difference(path=path, weight="text", before=_shown(old), after=_shown(new))
        for (path, old), (_, new) in zip(_server_texts(before), _server_texts(after), strict=True)
        if not same_text(path, old, new, volatile)
    ]
    server = after.server
    if texts:
        yield Change(server=server, subject="server", name=server, kind="text", differences=tuple(texts))
    if _is_older(after.info, before.info):
        versions = Difference(
            path="protocol",
            weight="breaking",
            before=_shown(before.info.protocol),
            after=_shown(after.info.protocol),
        )
        yield Change(server=server, subject="server", name=server, kind="protocol", differences=(versions,))


def _is_older(now: ServerInfo, then: ServerInfo) -> bool:
    """Return a change if the protocol version is older, unless mooring asked for it. Versions are dates and
    compare as texts."""
    if now.chosen:
        return False
    return then.protocol is not None and now.protocol is not None and now.protocol < then.protocol


def _tolerated(how: str | None, old: str | None, new: str | None) -> bool:
    """Whether a difference of two JSON values is allowed by this kind of volatility."""
    return how == "text" or (how == "order" and _same_words(old, new))


def _same_words(old: str | None, new: str | None) -> bool:
    return words(json.loads(old or "null")) == words(json.loads(new or "null"))


def _entry_changes(
    server: str, subject: Subject, old: _Entries, new: _Entries, volatile: Marks
) -> Iterator[Change]:
    gone = {key: entry for key, entry in old.items() if key not in new}
    come = {key: entry for key, entry in new.items() if key not in old}
    renamed = {} if subject in FIRM else dict(_renamed(gone, come))
    left = {key_of(entry) for entry in renamed.values()}
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        kind: Kind
        differences: tuple[Difference, ...] = ()
        if before is not None and after is not None:
            differences = _differences(before, after)
            if volatile and differences:
                differences = _without_volatile(subject, key, differences, volatile)
            if not differences:
                continue
            kind = _WEIGHTS[max(_WEIGHTS.index(difference.weight) for difference in differences)]
        elif before is not None:
            if key in left:
                continue
            kind = "removed"
        else:
            before = renamed.get(key)
            kind = "added" if before is None else "renamed"
        yield Change(
            server=server,
            subject=subject,
            name=key,
            kind=kind,
            before=before,
            after=after,
            differences=differences,
        )


def _renamed(gone: _Entries, come: _Entries) -> Iterator[tuple[str, Entry]]:
    """Yield each new key with the removed entry of the same definition."""
    known: dict[str, list[Entry]] = {}
    if gone and come:
        for entry in gone.values():
            if is_pinnable(entry):
                known.setdefault(_meaning(entry, named=False), []).append(entry)
    for key, entry in come.items():
        if known and is_pinnable(entry) and (same := known.get(_meaning(entry, named=False))):
            yield key, same.pop(0)


def _meaning(entry: Entry, *, named: bool = True) -> str:
    """Return a text that is equal for equal entries."""
    counted = definition(entry)
    match entry:
        case Tool():
            counted["input"] = ordered(counted["input"])
            counted["output"] = ordered(counted["output"])
        case Prompt():
            counted["arguments"] = sorted(entry.arguments, key=canonical)
        case _:
            pass
    return canonical(counted if named else list(counted.values())[1:])


def _alike(before: Entry, after: Entry) -> bool:
    """Whether two definitions are identical: a fast check of the usual case. `==` is not enough, because
    `1 == True`; marshal version 2 compares by value."""
    try:
        return marshal.dumps(definition(before), 2) == marshal.dumps(definition(after), 2)
    except ValueError:  # not plain JSON, or nested too deeply
        return False


def _differences(before: Entry, after: Entry) -> tuple[Difference, ...]:
    """Return the differences of two entries of one key."""
    if before is after or _alike(before, after):
        return ()
    if not (is_pinnable(before) and is_pinnable(after)):
        return (Difference(path="definition", weight="breaking", before=None, after=None),)
    old, new = definition(before), definition(after)
    if canonical(old) == canonical(new) or _meaning(before) == _meaning(after):
        return ()
    found: list[Difference] = []
    for path in (*old, *(path for path in new if path not in old)):
        one, two = old.get(path), new.get(path)
        if canonical(one) != canonical(two):
            found += _field(path, one, two)
    if not found:  # an unexplained difference gets the highest severity
        found.append(Difference(path="definition", weight="breaking", before=_shown(old), after=_shown(new)))
    return tuple(found)


def _without_volatile(
    subject: Subject, key: str, differences: tuple[Difference, ...], volatile: Marks
) -> tuple[Difference, ...]:
    """Return the differences without volatile ones. Each path counts alone, so that one random text does not
    unpin the rest of a schema."""
    return tuple(
        one
        for one in differences
        if not _tolerated(volatile.get((subject, key, one.path)), one.before, one.after)
    )


def _field(path: str, before: Json, after: Json) -> list[Difference]:
    match path:
        case "input":
            return schema_differences(before, after, path)
        case "output":
            return _output_differences(before, after)
        case "annotations" | "meta" | "more":
            return _hint_differences(path, before or {}, after or {})
        case "arguments":
            return _argument_differences(before, after)
        case "mime_type" | "page" | "csp" | "permissions":
            return [_difference(path, before, after, "breaking")]
        case "files" | "frontmatter" | "settings":
            return _part_differences(path, before, after)
        case _:
            return [_difference(path, before, after, "text")]


def _output_differences(
    before: Mapping[str, Json] | None, after: Mapping[str, Json] | None
) -> list[Difference]:
    if before is None or after is None:
        return [_difference("output", before, after, "compatible" if before is None else "breaking")]
    # For output schemas compatibility is reversed.
    turned = schema_differences(after, before, "output")
    return [replace(found, before=found.after, after=found.before) for found in turned]


def _hint_differences(path: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> list[Difference]:
    return [
        _difference(f"{path}.{hint}", old, new, "text" if hint == "title" else "annotations")
        for hint in sorted(before.keys() | after.keys())
        if canonical(old := before.get(hint)) != canonical(new := after.get(hint))
    ]


def _part_differences(path: str, before: Json, after: Json) -> list[Difference]:
    """Return the differences of two mappings, key by key; of anything else as a whole."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return [_difference(path, before, after, "breaking")]
    old, new = cast("Mapping[str, Json]", before), cast("Mapping[str, Json]", after)
    return [
        _difference(f"{path}.{key}", old.get(key), new.get(key), "breaking")
        for key in sorted(old.keys() | new.keys())
        if canonical(old.get(key)) != canonical(new.get(key))
    ]


def _argument_differences(
    before: tuple[Mapping[str, Json], ...], after: tuple[Mapping[str, Json], ...]
) -> list[Difference]:
    old, new = ({str(argument.get("name")): argument for argument in side} for side in (before, after))
    return [
        _difference(f"arguments.{name}", old.get(name), new.get(name), _weigh(old.get(name), new.get(name)))
        for name in sorted(old.keys() | new.keys())
        if canonical(old.get(name)) != canonical(new.get(name))
    ]


def _weigh(before: Mapping[str, Json] | None, after: Mapping[str, Json] | None) -> Weight:
    if after is None:
        return "breaking"
    if before is None:
        return "breaking" if after.get("required") else "compatible"
    changed = {
        key for key in before.keys() | after.keys() if canonical(before.get(key)) != canonical(after.get(key))
    }
    if changed <= {"title", "description"}:
        return "text"
    loosened = changed <= {"title", "description", "required"} and not after.get("required")
    return "compatible" if loosened else "breaking"


def _difference(path: str, before: Json, after: Json, weight: Weight) -> Difference:
    return Difference(path=path, weight=weight, before=_shown(before), after=_shown(after))


def _shown(value: Json) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=dict)


_VALUE = 400
_CONTEXT = 60
"""Characters before the first difference of two long values."""
_PLACES = 20
_LINES = 20


def summary(change: Change) -> str:
    """Return one line: what changed, and how to see and accept it.

    It quotes only the name of the new definition, because a model may read the message.
    """
    advice = f"See it with `mooring check`, accept it with `{_command(change)}`."
    return f"{_headline(change)}. {advice}{_REORDERED if _reordered(change) else ''}"


def describe(change: Change) -> str:
    """Return the change for a person: each place with the old and the new text, quoted, shortened around the
    difference, with invisible characters escaped.
    """
    lines = [f"{_headline(change)}:" if change.differences else f"{_headline(change)}."]
    for difference in change.differences[:_PLACES]:
        lines += _difference_text(difference)
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
    """Whether texts changed only in the order of their words, without an added sign or hidden character."""
    return bool(change.differences) and all(
        difference.weight == "text"
        and difference.before is not None
        and difference.after is not None
        and words(difference.before) == words(difference.after)
        and sorted(difference.before) == sorted(difference.after)
        for difference in change.differences
    )


def warnings_of(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return one warning for each change, up to a limit."""
    lines = [summary(change) for change in changes[:_LINES]]
    if (more := len(changes) - _LINES) > 0:
        lines.append(f"Server {shown_name(changes[0].server)}: {more} more changes; see `mooring check`.")
    return tuple(lines)


def since_last_run(changes: Sequence[Change]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return warnings and notes about changes of a server that no lock covers.

    A definition that changed is a warning. New, missing, renamed and reordered entries are notes, and so is
    another name or version of the server.
    """
    warned: list[str] = []
    noted: list[str] = []
    for change in changes:
        server = f"server {shown_name(change.server)}"
        if change.subject == "server":
            if change.kind == "protocol":
                warned.append(f"S{server[1:]} speaks an older protocol than in the last run.")
            else:
                noted.append("the server itself")
        elif change.kind in ("added", "removed", "renamed") or _reordered(change):
            noted.append(shown_name(change.name))
        else:
            thing = f"{change.subject.capitalize()} {shown_name(change.name)} of {server}"
            warned.append(
                f"{thing} changed since the last run: {_areas(change)} ({change.kind}). {_UNPINNED}"
            )
    if (more := len(warned) - _LINES) > 0:
        warned[_LINES:] = [
            f"Server {shown_name(changes[0].server)}: {more} more changes since the last run. {_UNPINNED}"
        ]
    return tuple(warned), tuple(noted[:_LINES])


_UNPINNED = "There is no lock, so nothing is blocked; `mooring lock` pins what servers offer."


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
            return "is configured to run or reach something other than what was approved"
        case "protocol":
            return "speaks an older protocol than it did when it was approved"
        case _:
            return f"identifies itself differently since it was approved: {_areas(change)} changed"


def _areas(change: Change) -> str:
    """Return the changed fields, without names in a schema, which the server chooses."""
    words = {
        "input": "input schema",
        "output": "output schema",
        "mime_type": "MIME type",
        "meta": "`_meta`",
        "more": "other fields",
        "csp": "content security policy",
    }
    fields = dict.fromkeys(difference.path.partition(".")[0] for difference in change.differences)
    return ", ".join(words.get(field, field) for field in fields)


def _command(change: Change) -> str:
    whole = f"mooring approve {quote(change.server)}"
    # A name that cannot be typed can only be approved with its server.
    typed = visible_text(change.name) == change.name and len(change.name) <= LONGEST_NAME
    if change.subject != "tool" or not typed:
        return whole
    return f"mooring approve {quote(f'{change.server}/{change.name}')}"


def _difference_text(difference: Difference) -> list[str]:
    before, after = _excerpts(difference.before, difference.after)
    lines = [f"  {cut(visible_text(difference.path), _VALUE)} ({difference.weight})"]
    lines += [f"    - {before}"] if before is not None else []
    lines += [f"    + {after}"] if after is not None else []
    return lines


def _excerpts(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Return both values with escapes; for long ones the part around the first difference."""
    one, two = (None if value is None else visible_text(value) for value in (before, after))
    if one is not None and two is not None:
        same = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(min(one, two)))
        if (start := same - _CONTEXT) > 0:
            one, two = "…" + one[start:], "…" + two[start:]
    return one and cut(one, _VALUE), two and cut(two, _VALUE)


def _definition(change: Change) -> list[str]:
    if change.after is None or not is_pinnable(change.after):
        return []
    fields = list(definition(change.after).items())[1:]
    return [
        f"{name}: {cut(visible_text(json.dumps(json.loads(canonical(value)), ensure_ascii=False)), _VALUE)}"
        for name, value in fields
        if value not in (None, "", {}, ())
    ]
