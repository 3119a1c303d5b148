"""Snapshots for the tests of the lock: handwritten and random ones."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from mooring.core.types import Prompt, Resource, ResourceTemplate, ServerInfo, Snapshot, Tool

PRINT = "f" * 64

quick = settings(max_examples=50)
"""Offers are large: fewer of them are tried."""

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where the file is"},
        "mode": {"type": "string", "enum": ["text", "binary"]},
    },
    "required": ["path", "mode"],
    "additionalProperties": False,
}


def tool(name: str, description: str = "Does it.", **more: Any) -> Tool:
    more.setdefault("input_schema", SCHEMA)
    return Tool(name=name, server="files", remote_name=name, description=description, **more)


def snapshot(*tools: Tool, **more: Any) -> Snapshot:
    more.setdefault("info", ServerInfo(name="files-server", title="Files", protocol="2026-07-28"))
    return Snapshot(server=more.pop("server", "files"), tools=tools, **more)


FILES = snapshot(
    tool("read", "Reads a file.", title="Read", annotations={"readOnlyHint": True}),
    tool("write", "Writes a file."),
    instructions="Read before you write.",
    templates=(ResourceTemplate(uri_template="file:///{path}", server="files", name="file"),),
    prompts=(Prompt(name="summarise", server="files", arguments=({"name": "path", "required": True},)),),
)

texts = st.sampled_from(["", "A word.", "Ein Wörtchen\t\x1b[2J", "\u202e\U000e0041"]) | st.text(max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=3,
)
names = st.sampled_from(["a", "b", "c", "read file", "wrïte", "\u202e", "", "x" * 90])

schemas = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", ["string", "null"], "object"]),
            "title": texts,
            "description": texts,
            "enum": st.lists(values, max_size=3),
            "default": values,
            "minimum": st.integers(-3, 3),
            "x-own": values,
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names, max_size=3),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "$defs": st.dictionaries(names, inner, max_size=2),
            "description": texts,
        },
    ),
    max_leaves=3,
)
tools = st.builds(
    lambda name, **more: Tool(name=name, remote_name=name, server="files", **more),
    names,
    title=st.none() | texts,
    description=texts | st.just("several\nlines\n"),
    input_schema=schemas,
    output_schema=st.none() | schemas,
    annotations=st.dictionaries(st.sampled_from(["title", "readOnlyHint", "own"]), values, max_size=2),
    meta=st.dictionaries(st.sampled_from(["ui", "own"]), values, max_size=1),
    extra=st.dictionaries(st.sampled_from(["icons", "execution"]), values, max_size=1),
)
resources = st.builds(
    Resource,
    uri=names,
    server=st.just("files"),
    name=texts,
    title=st.none() | texts,
    description=texts,
    mime_type=st.none() | texts,
    extra=st.dictionaries(st.sampled_from(["icons", "_meta"]), values, max_size=1),
)
templates = st.builds(
    ResourceTemplate,
    uri_template=names,
    server=st.just("files"),
    name=texts,
    title=st.none() | texts,
    description=texts,
    mime_type=st.none() | texts,
)
prompts = st.builds(
    Prompt,
    name=names,
    server=st.just("files"),
    title=st.none() | texts,
    description=texts,
    arguments=st.lists(
        st.fixed_dictionaries(
            {"name": names}, optional={"description": texts, "required": st.booleans(), "own": values}
        ),
        max_size=2,
        unique_by=lambda argument: argument["name"],
    ).map(tuple),
)
snapshots = st.builds(
    Snapshot,
    server=st.just("files"),
    info=st.builds(
        ServerInfo,
        name=st.none() | texts,
        title=st.none() | texts,
        version=st.none() | texts,
        description=st.none() | texts,
        protocol=st.sampled_from([None, "2025-11-25", "2026-07-28"]),
        capabilities=st.dictionaries(st.sampled_from(["tools", "prompts"]), st.just({}), max_size=2),
    ),
    instructions=st.none() | texts | st.just("two\nlines"),
    tools=st.lists(tools, max_size=3, unique_by=lambda tool: tool.remote_name).map(tuple),
    resources=st.lists(resources, max_size=1, unique_by=lambda entry: entry.uri).map(tuple),
    templates=st.lists(templates, max_size=1, unique_by=lambda entry: entry.uri_template).map(tuple),
    prompts=st.lists(prompts, max_size=1, unique_by=lambda entry: entry.name).map(tuple),
)


def of(snapshot: Snapshot, server: str) -> Snapshot:
    """The same offer, by another server."""
    return replace(
        snapshot,
        server=server,
        tools=tuple(replace(entry, server=server) for entry in snapshot.tools),
        resources=tuple(replace(entry, server=server) for entry in snapshot.resources),
        templates=tuple(replace(entry, server=server) for entry in snapshot.templates),
        prompts=tuple(replace(entry, server=server) for entry in snapshot.prompts),
    )


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same offer, with everything in another order whose order means nothing."""
    dice = random.Random(seed)

    def schema(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return keys({word: keyword(word, inner) for word, inner in value.items()})

    def keyword(word: str, value: Any) -> Any:
        if word in ("required", "enum", "type") and isinstance(value, list):
            return mixed(value)
        if word in ("properties", "$defs"):
            return keys({name: schema(inner) for name, inner in value.items()})
        if word == "anyOf":
            return [schema(inner) for inner in value]
        return schema(value) if word in ("items", "additionalProperties") else data(value)

    def data(value: Any) -> Any:
        if isinstance(value, list):
            return [data(inner) for inner in value]
        return (
            keys({name: data(inner) for name, inner in value.items()}) if isinstance(value, dict) else value
        )

    def keys(value: dict[str, Any]) -> dict[str, Any]:
        return dict(mixed(value.items()))

    def mixed(items: Any) -> list[Any]:
        found = list(items)
        dice.shuffle(found)
        return found

    return replace(
        snapshot,
        tools=tuple(
            replace(
                entry,
                input_schema=schema(entry.input_schema),
                output_schema=schema(entry.output_schema),
                annotations=data(entry.annotations),
            )
            for entry in mixed(snapshot.tools)
        ),
        templates=tuple(mixed(snapshot.templates)),
        prompts=tuple(
            replace(entry, arguments=tuple(keys(dict(item)) for item in mixed(entry.arguments)))
            for entry in mixed(snapshot.prompts)
        ),
    )


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all places in a JSON value that hold no container, or an empty one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [place for key, item in inner for place in leaves(item, (*path, key))]
    return found or [path]


def with_leaf(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    """The value with one leaf replaced."""
    if not path:
        return leaf
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        return [with_leaf(item, rest, leaf) if i == key else item for i, item in enumerate(value)]
    return {name: with_leaf(item, rest, leaf) if name == key else item for name, item in value.items()}
