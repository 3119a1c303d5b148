"""Raw JSON of a server as values, checked once. Invalid fields are corrected or left out
with a reason; an invalid entry does not affect others.

Pure: dicts in, values out.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from mooring.core.skills import InvalidSkillError, read_skill_entry
from mooring.core.types import (
    EMPTY,
    Block,
    Contents,
    Message,
    Prompt,
    Resource,
    ResourceTemplate,
    Result,
    ServerInfo,
    Skill,
    Tool,
)
from mooring.transport.message import MAX_DEPTH, TOO_DEEP

Raw = Mapping[str, Any]
T = TypeVar("T")

SHOWN = 80
MOST_VALUES = 100
_TOOL = {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"}
_RESOURCE = {"uri", "name", "title", "description", "mimeType", "size"}
_TEMPLATE = {"uriTemplate", "name", "title", "description", "mimeType"}
_PROMPT = {"name", "title", "description", "arguments"}


class Invalid(ValueError):
    """An entry cannot be used; the text is the reason."""


def entries(raw: Raw, key: str, make: Callable[[str, Raw], T], server: str) -> tuple[list[T], list[str]]:
    """Return the valid entries under `key`, and a warning for each that was left out."""
    good: list[T] = []
    warnings: list[str] = []
    items = raw.get(key)
    if not isinstance(items, list):
        return [], [f"{server}: the list has no {key!r}"]
    for number, item in enumerate(cast("list[Any]", items), 1):
        try:
            good.append(make(server, _mapping(item)))
        except Invalid as problem:
            name = cast("Raw", item).get("name") if isinstance(item, Mapping) else None
            label = f"{str(name)[:SHOWN]!r}" if name is not None else f"number {number}"
            warnings.append(f"{server}: {key[:-1]} {label} is left out: {problem}")
    return good, warnings


def tool(server: str, raw: Raw) -> Tool:
    name = _name(raw)
    if TOO_DEEP in raw.values():
        raise Invalid(f"it is nested more than {MAX_DEPTH} levels deep")
    schema = raw.get("inputSchema")
    if schema is None:
        schema = {"type": "object"}
    elif not isinstance(schema, dict):
        raise Invalid("its inputSchema is not an object")
    output = raw.get("outputSchema")
    fields: dict[str, Any] = {
        "name": name,
        "server": server,
        "remote_name": name,
        "title": _title(raw),
        "description": _text(raw, "description"),
        "input_schema": schema,
        "output_schema": output if isinstance(output, dict) else None,
        "annotations": _optional_mapping(raw, "annotations"),
        "meta": _optional_mapping(raw, "_meta"),
        "extra": _rest(raw, _TOOL),
        "verb": "call",
        "shape": None,
    }
    return Tool.holding(fields)


def resource(server: str, raw: Raw) -> Resource:
    size = raw.get("size")
    return Resource(
        uri=_string(raw, "uri"),
        server=server,
        name=_text(raw, "name") or _string(raw, "uri"),
        title=_title(raw),
        description=_text(raw, "description"),
        mime_type=_text(raw, "mimeType") or None,
        size=size if isinstance(size, int) and size >= 0 else None,
        extra=_rest(raw, _RESOURCE),
    )


def template(server: str, raw: Raw) -> ResourceTemplate:
    return ResourceTemplate(
        uri_template=_string(raw, "uriTemplate"),
        server=server,
        name=_text(raw, "name") or _string(raw, "uriTemplate"),
        title=_title(raw),
        description=_text(raw, "description"),
        mime_type=_text(raw, "mimeType") or None,
        extra=_rest(raw, _TEMPLATE),
    )


def prompt(server: str, raw: Raw) -> Prompt:
    arguments = raw.get("arguments")
    return Prompt(
        name=_name(raw),
        server=server,
        title=_title(raw),
        description=_text(raw, "description"),
        arguments=tuple(
            cast("Raw", item)
            for item in cast("list[Any]", arguments if isinstance(arguments, list) else [])
            if isinstance(item, Mapping) and isinstance(cast("Raw", item).get("name"), str)
        ),
        extra=_rest(raw, _PROMPT),
    )


def skill(server: str, raw: Raw) -> Skill:
    try:
        return read_skill_entry(server, raw)
    except InvalidSkillError as problem:
        raise Invalid(str(problem)) from None


def info(raw: Raw, protocol: str) -> ServerInfo:
    """Return the server info: `serverInfo` of a handshake, or of a discovery."""
    stamp = raw.get("serverInfo")
    if stamp is None:
        meta = raw.get("_meta")
        stamp = (
            cast("Raw", meta).get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
        )
    said: Raw = cast("Raw", stamp) if isinstance(stamp, dict) else {}
    return ServerInfo(
        name=_text(said, "name") or None,
        title=_text(said, "title") or None,
        version=_text(said, "version") or None,
        description=_text(said, "description") or None,
        protocol=protocol,
        capabilities=_optional_mapping(raw, "capabilities"),
    )


def result(server: str, tool_name: str, raw: Raw, duration: float) -> Result:
    """Return the outcome of a call. Parts that violate the protocol are kept if they can be read, and the
    result is marked as an error, so that a partial result is not mistaken for a complete one."""
    blocks, problems = content(raw.get("content"))
    if "content" not in raw and "structuredContent" not in raw:
        problems.append("it holds no content")
    if problems:
        note = f"[The answer of {tool_name!r} is not valid: {'; '.join(problems[:3])}.]"
        blocks.append(Block({"type": "text", "text": note}))
    return Result(
        server=server,
        tool=tool_name,
        blocks=tuple(blocks),
        structured=raw.get("structuredContent"),
        is_error=raw.get("isError") is True or bool(problems),
        duration=duration,
        meta=_optional_mapping(raw, "_meta"),
        raw=None if problems and raw.get("resultType") != "input_required" else raw,
    )


def content(items: Any) -> tuple[list[Block], list[str]]:
    """Return the valid blocks of a result, a prompt message or a resource, and the problems of the others."""
    if items is None:
        return [], []
    if not isinstance(items, list):
        return [], ["its content is not a list"]
    blocks: list[Block] = []
    problems: list[str] = []
    for item in cast("list[Any]", items):
        problem = _block_problem(item)
        if problem is None:
            blocks.append(Block(item))
        else:
            problems.append(problem)
    return blocks, problems


def contents(server: str, uri: str, raw: Raw) -> Contents:
    """Return the contents of a resource.

    Raises:
        Invalid: a part of it cannot be used.
    """
    items = raw.get("contents")
    if not isinstance(items, list):
        raise Invalid("it has no 'contents'")
    pieces = [{"type": "resource", "resource": _piece(uri, item)} for item in cast("list[Any]", items)]
    blocks, problems = content(pieces)
    if problems:
        raise Invalid(problems[0])
    return Contents(uri=uri, server=server, blocks=tuple(blocks))


def _piece(uri: str, item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    blob = cast("dict[str, Any]", item).get("blob")
    if isinstance(blob, str):
        try:
            a2b_base64(blob)
        except ValueError:
            raise Invalid("its data is not base64") from None
    return {"uri": uri, **cast("dict[str, Any]", item)}


def messages(raw: Raw) -> tuple[Message, ...]:
    """Return the messages of a prompt.

    Raises:
        Invalid: one of them is invalid: a partial prompt may have the opposite meaning.
    """
    items = raw.get("messages")
    if not isinstance(items, list):
        raise Invalid("it has no 'messages'")
    found: list[Message] = []
    for item in cast("list[Any]", items):
        fields = _mapping(item)
        role, blocks = fields.get("role"), fields.get("content")
        if role not in ("user", "assistant"):
            raise Invalid("a message has no known role")
        good, problems = content(cast("list[Any]", blocks) if isinstance(blocks, list) else [blocks])
        if problems:
            raise Invalid(problems[0])
        found += [Message(role=role, block=block) for block in good]
    return tuple(found)


def completion(raw: Raw) -> tuple[str, ...]:
    """Return the completions that a server proposes."""
    inner = raw.get("completion")
    values = cast("Raw", inner).get("values") if isinstance(inner, dict) else None
    items = cast("list[Any]", values) if isinstance(values, list) else []
    return tuple(value for value in items[:MOST_VALUES] if isinstance(value, str))


def time_to_live(raw: Raw) -> float | None:
    """Return the seconds for which a result is valid, if the server says so."""
    hint = raw.get("ttlMs")
    if isinstance(hint, bool) or not isinstance(hint, int | float):
        return None
    return max(hint / 1000, 0.0)


_BLOCK_NEEDS: Mapping[str, Sequence[str]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri",),
}


def _block_problem(item: Any) -> str | None:
    if not isinstance(item, dict):
        return "a block is not an object"
    block = cast("dict[str, Any]", item)
    kind = block.get("type")
    if not isinstance(kind, str):
        return "a block has no type"
    if kind == "resource":
        inner = block.get("resource")
        if not isinstance(inner, dict):
            return "an embedded resource is not an object"
        fields = cast("dict[str, Any]", inner)
        if not isinstance(fields.get("text", fields.get("blob")), str):
            return "an embedded resource holds neither text nor data"
        return None
    for need in _BLOCK_NEEDS.get(kind, ()):
        if not isinstance(block.get(need), str):
            return f"{'an' if kind[0] in 'ai' else 'a'} {kind} block has no {need!r}"
    return None


def _mapping(item: Any) -> Raw:
    if not isinstance(item, dict):
        raise Invalid("it is not an object")
    return cast("Raw", item)


def _name(raw: Raw) -> str:
    return _string(raw, "name")


def _string(raw: Raw, key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise Invalid(f"it has no {key!r}")
    return value


def _text(raw: Raw, key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def _title(raw: Raw) -> str | None:
    """Return the display name: `title`, else the title in the annotations."""
    if title := _text(raw, "title"):
        return title
    annotations = raw.get("annotations")
    return (_text(cast("Raw", annotations), "title") or None) if isinstance(annotations, dict) else None


def _optional_mapping(raw: Raw, key: str) -> Raw:
    value = raw.get(key)
    return cast("Raw", value) if isinstance(value, dict) and value else EMPTY


def _rest(raw: Raw, known: set[str]) -> Raw:
    return EMPTY if raw.keys() <= known else {key: value for key, value in raw.items() if key not in known}
