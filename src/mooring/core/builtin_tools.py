"""Definitions of mooring's own tools: login, prompts as tools, and `result_read`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from mooring.core.names import AUTHENTICATE, LOGIN, OWNER
from mooring.core.render import fit
from mooring.core.text import did_you_mean, dumps, estimate, line, nearest, quote
from mooring.core.types import Block, Message, Prompt, Result, Tool
from mooring.core.value import Value


def login_tool(server: str, *, possible: bool = True) -> Tool:
    """Return the tool that starts a login to a server. It contains no text of the server.

    Args:
        server: Its name.
        possible: Whether a login in a browser is possible. If not, the tool explains what to do instead.
    """
    description = (
        f"Log in to {server!r}, which requires a login before it offers its tools or continues. "
        "Starts a login that a person completes in a browser; the tools appear afterwards."
        if possible
        else f"Explain why {server!r} refuses access and what the user can do. A login in a browser is not "
        "possible; the tools appear when the credentials in its configuration are corrected."
    )
    return Tool(
        name=AUTHENTICATE,
        server=server,
        remote_name=LOGIN,
        title="Log in",
        description=description,
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    )


def is_login(tool: Tool) -> bool:
    """Whether a tool of the catalog starts a login."""
    return tool.remote_name == LOGIN


READ_SKILL = "read_skill"
"""Name of the tool that reads skills. The catalog shows it if a server has skills."""

RESOURCE_TOOLS = ("list_mcp_resources", "read_mcp_resource")
"""Names of the tools for resources. The catalog shows them if a server has resources."""

MOST_ARGUMENTS = 64
"""Most arguments of one prompt."""


def prompt_tools(prompts: Iterable[Prompt]) -> dict[str, Tool]:
    """Return a tool for each prompt, by the name it has beside its server's own tools."""
    tools: dict[str, Tool] = {}
    for prompt in prompts:
        name = f"get_prompt_{prompt.name}"
        tools.setdefault(name, _tool(prompt, name))
    return tools


def _tool(prompt: Prompt, name: str) -> Tool:
    given = prompt.arguments[:MOST_ARGUMENTS]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {argument["name"]: {"type": "string", **_description(argument)} for argument in given},
        "additionalProperties": False,
    }
    if required := [argument["name"] for argument in given if argument.get("required") is True]:
        schema["required"] = required
    return Tool(
        name=name,
        server=prompt.server,
        remote_name=prompt.name,
        title=prompt.title,
        description=f"Get the prompt {prompt.name!r}. {prompt.description}".strip(),
        input_schema=schema,
        annotations={"readOnlyHint": True},
        verb="prompt",
    )


def _description(argument: Mapping[str, Any]) -> dict[str, str]:
    text = argument.get("description")
    return {"description": text} if isinstance(text, str) and text else {}


def fitting(prompt: Prompt, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments as the strings that a prompt takes.

    Raises:
        ValueError: one is missing, unknown or not a plain value.
    """
    given = prompt.arguments[:MOST_ARGUMENTS]
    known = [argument["name"] for argument in given]
    if unknown := sorted(set(arguments) - set(known)):
        near = did_you_mean(unknown[0], known)
        hint = "" if near is None else f" (did you mean {near!r}?)"
        takes = f"it takes {', '.join(map(repr, known))}" if known else "it takes none"
        raise ValueError(f"it has no argument {unknown[0]!r}{hint}; {takes}")
    missing = [a["name"] for a in given if a.get("required") is True and a["name"] not in arguments]
    if missing:
        raise ValueError(f"it needs {', '.join(map(repr, missing))}")
    return {name: _text(name, value) for name, value in arguments.items()}


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return dumps(value)
    raise ValueError(f"its argument {name!r} must be text, not {type(value).__name__}")


def prompt_result(prompt: Prompt, messages: Iterable[Message], duration: float) -> Result:
    """Return the messages of a prompt for a model, each text marked as untrusted."""
    blocks = tuple(_shown(prompt, message) for message in messages)
    return Result(server=prompt.server, tool=prompt.name, blocks=blocks, duration=duration)


def _shown(prompt: Prompt, message: Message) -> Block:
    if message.text is None:
        return message.block
    return Block({"type": "text", "text": quote(message.text, prompt.server, role=message.role)})


_LONGEST_PATH, _MOST_STEPS = 500, 64
_LONGEST_NEEDLE = 500
_AROUND = 200
"""Characters before and after a match."""
UNLIMITED = 100_000
"""Characters of a piece without a budget."""

READ = Tool(
    name="result_read",
    server=OWNER,
    remote_name="result_read",
    description="Read what was left out of a result that was too large to show. Give the handle that the "
    "result names, and one way to read: 'offset' (go on there; the answer says the next offset), 'grep' "
    "(lines that hold this literal text, each with its offset) or 'json_path' (one part of a JSON result, "
    "such as items[0].name).",
    input_schema={
        "type": "object",
        "properties": {
            "handle": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "In characters."},
            "limit": {"type": "integer", "minimum": 1, "description": "Characters, or lines with 'grep'."},
            "grep": {"type": "string"},
            "ignore_case": {"type": "boolean", "default": False},
            "json_path": {"type": "string"},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
)
"""Listed in sessions that have a stored result."""


SCRIPT_API = Tool(
    name="script_api",
    server=OWNER,
    remote_name="script_api",
    description="Return the tools as typed Python functions for script_run. Give 'query' (what the script "
    "has to do) or 'tools' (names). Read it before you write a script.",
    input_schema={
        "type": "object",
        "properties": {"query": {"type": "string"}, "tools": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": False,
    },
    annotations={"readOnlyHint": True},
)
SCRIPT_RUN = Tool(
    name="script_run",
    server=OWNER,
    remote_name="script_run",
    description="Run a Python program that calls several tools, instead of many single calls: "
    "`rows = await tool(a=1)`, in parallel with `await asyncio.gather(...)`. Only what it prints and the "
    "value of its last expression are returned. It is checked first. Calls that change something are "
    "approved once, before the first of them.",
    input_schema={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
SCRIPT_NAMES = frozenset((SCRIPT_API.name, SCRIPT_RUN.name))
"""Listed where `scripts` is enabled."""


class Unreadable(ValueError):
    """The request is invalid. The text says why, and what is possible."""


class ReadRequest(Value):
    """A request for a part of a stored result."""

    handle: str
    offset: int = 0
    limit: int | None = None
    grep: str | None = None
    ignore_case: bool = False
    json_path: str | None = None


class ResultPart(Value):
    """A part of a text."""

    text: str
    next_offset: int | None
    """Offset of the next piece; None at the end."""


_KINDS: Mapping[str, tuple[type, str]] = {
    "handle": (str, "text"),
    "offset": (int, "a whole number from 0 on"),
    "limit": (int, "a whole number from 1 on"),
    "grep": (str, "text"),
    "ignore_case": (bool, "true or false"),
    "json_path": (str, "text"),
}


def request(arguments: Mapping[str, Any]) -> ReadRequest:
    """Return the request in the arguments of `result_read`.

    Raises:
        Unreadable: they are invalid.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    for name, value in given.items():
        if name not in _KINDS:
            raise Unreadable(f"result_read takes no {str(name)[:40]!r}; it takes {', '.join(_KINDS)}")
        of, what = _KINDS[name]
        low = {"offset": 0, "limit": 1}.get(name)
        if type(value) is not of or (low is not None and value < low):
            raise Unreadable(f"{name!r} of result_read must be {what}")
    if "handle" not in given:
        raise Unreadable("result_read needs the 'handle' that the result names")
    if "grep" in given and "json_path" in given:
        raise Unreadable("result_read takes 'grep' or 'json_path', not both")
    if not 0 < len(given.get("grep", "x")) <= _LONGEST_NEEDLE:
        raise Unreadable(f"'grep' of result_read must have 1 to {_LONGEST_NEEDLE} characters")
    return ReadRequest(**given)


def cut(text: str, offset: int, total: int, limit: int | None, budget: int) -> ResultPart:
    """Return the piece that begins where `text` does, at `offset` of `total` characters.

    Consecutive pieces make up the whole text.
    """
    count = min(len(text), limit or len(text))
    if budget:
        count = min(count, max(fit(text, budget), 1))
    if limit is None and offset + count < total:
        border = text.rfind("\n", count // 2, count) + 1
        count = border or count
    end = offset + count
    return ResultPart(text=text[:count], next_offset=end if end < total else None)


def found(text: str, wanted: ReadRequest, budget: int) -> ResultPart:
    """Return the lines from `offset` on that contain the literal text, each with its offset.

    Very long lines are cut to the text around each match.
    """
    needle = wanted.grep or ""
    where = _lowered(text) if wanted.ignore_case else text
    needle = _lowered(needle) if wanted.ignore_case else needle
    hits: list[str] = []
    spent, place = 0, where.find(needle, wanted.offset)
    while place >= 0:
        start, end = _around(text, place, place + len(needle), wanted.offset)
        hit = f"{start}: {text[start:end]}"
        spent += estimate(hit) + 2
        if hits and ((budget and spent > budget) or len(hits) == wanted.limit):
            return ResultPart(text="\n".join(hits), next_offset=start)
        hits.append(hit[: fit(hit, budget)] if budget else hit)
        place = where.find(needle, end)
    return ResultPart(text="\n".join(hits), next_offset=None)


def _around(text: str, place: int, end: int, least: int) -> tuple[int, int]:
    """Return the start and end of the line, limited to some characters."""
    low = max(place - _AROUND, least)
    start = text.rfind("\n", low, place) + 1 or low
    stop = text.find("\n", end, end + _AROUND)
    return start, min(end + _AROUND, len(text)) if stop < 0 else stop


def _lowered(text: str) -> str:
    """Return the text in lower case with unchanged offsets."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)


_STEP = r"""\.?([^\W\d][\w$-]*)|\[(-?\d{1,9})\]|\["([^"\\]*)"\]|\['([^'\\]*)'\]"""


def chosen(text: str, path: str) -> str:
    """Return the value at a path of a JSON text: strings as they are, other values as JSON.

    Raises:
        Unreadable: the text is not JSON, or the path is invalid or does not exist.
    """
    steps = _steps(path)
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("this result is not JSON; read it with 'offset' or 'grep'") from None
    for number, step in enumerate(steps):
        value = _stepped(value, step, steps[:number])
    return value if isinstance(value, str) else dumps(value)


def _steps(path: str) -> list[str | int]:
    rest = path.strip().removeprefix("$")
    steps: list[str | int] = []
    while rest and len(path) <= _LONGEST_PATH:
        step = re.match(_STEP, rest)
        if step is None or len(steps) == _MOST_STEPS:
            break
        name, index, double, single = step.groups()
        steps.append(int(index) if index is not None else cast("str", name or double or single or ""))
        rest = rest[step.end() :]
    if rest:
        raise Unreadable(
            "'json_path' is a chain of names and numbers, such as items[0].name or $['first name'][2]"
        )
    return steps


def _stepped(value: Any, step: str | int, before: list[str | int]) -> Any:
    here = "$" + "".join(f"[{part}]" if isinstance(part, int) else f"['{line(part, 40)}']" for part in before)
    if isinstance(step, int) and isinstance(value, list):
        items = cast("list[Any]", value)
        if -len(items) <= step < len(items):
            return items[step]
        raise Unreadable(f"there is no [{step}] at {here}: it has {len(items)} items")
    if isinstance(step, str) and isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if step in members:
            return members[step]
        near = [line(name, 40) for name in nearest(step, members) or list(members)[:10]]
        raise Unreadable(f"there is no {line(step, 40)!r} at {here}; there is {', '.join(near) or 'nothing'}")
    kind = (
        "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "a single value"
    )
    raise Unreadable(f"{here} is {kind}: {step!r} does not exist there")
