"""What a server says again is the same object as before: whoever compares, merges or keeps it sees that
at a glance, and it is in memory once."""

from __future__ import annotations

import marshal
from dataclasses import replace

from mooring.core.catalog import same
from mooring.core.types import Json, Snapshot, Tool

__all__ = ["shared"]


def shared(known: Snapshot, listed: Snapshot) -> Snapshot:
    """Return what was listed, with the known tools wherever they say the same to the letter.

    Where all of them do, they come in the known order: that of listing means nothing.
    """
    if not known.tools or not listed.tools:
        return listed
    by_name = {tool.remote_name: tool for tool in known.tools}
    tools = tuple(_shared(by_name.get(tool.remote_name), tool) for tool in listed.tools)
    if len(tools) == len(known.tools) and set(map(id, tools)) == set(map(id, known.tools)):
        tools = known.tools
    return replace(listed, tools=tools)


def _shared(known: Tool | None, tool: Tool) -> Tool:
    # Equality tells most apart quickly, but to it `1` and `true` are the same: letters are the last word.
    if known is None or not same(known, tool):
        return tool
    try:
        return known if _letters(known) == _letters(tool) else tool
    except ValueError:  # no plain JSON, or nested too deep
        return tool


def _letters(tool: Tool) -> bytes:
    """All that a definition holds beside its name, by value alone (version 2 does that)."""
    hints: list[Json] = [dict(tool.annotations), dict(tool.meta), dict(tool.extra)]
    return marshal.dumps([tool.title, tool.description, tool.input_schema, tool.output_schema, hints], 2)
