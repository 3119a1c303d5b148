"""Questions on the terminal: yes or no, and elicitations of servers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mooring.cli.output import Output
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.core.elicitation import Answer, Elicitation


async def asked(question: str, refused: str, out: Output) -> bool:
    """Whether somebody at the terminal says yes. `refused` says what did not happen otherwise."""
    from anyio import to_thread

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        out.error(f"There is no terminal to ask on. {refused} Read the change, then give --yes.")
        return False
    sys.stdout.flush()
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    # In a thread, so that Ctrl-C ends the wait; not by way of `sys.stdin`, whose lock would outlive it.
    answer = await to_thread.run_sync(os.read, sys.stdin.fileno(), 100, abandon_on_cancel=True)
    if answer.strip().lower() in (b"y", b"yes"):
        return True
    out.error(refused, label="")
    return False


_TRIES = 3
_YES = ("y", "yes")


def asker(out: Output) -> Callable[[Elicitation], Awaitable[Answer]]:
    """What answers questions during one command."""

    async def ask(question: Elicitation) -> Answer:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            out.note(f"{question.prompt}\nNobody can answer here: it was declined. Try it on a terminal.")
            return question.decline()
        out.error(question.prompt, label="question:")
        return await (_visit(question) if question.mode == "url" else _fill_in(question, out))

    return ask


async def _visit(question: Elicitation) -> Answer:
    said = await _line(f"Open it yourself if you trust {question.host}. Do you agree? [y/N] ")
    if said is None:
        return question.cancel()
    return question.accept() if said.lower() in _YES else question.decline()


async def _fill_in(question: Elicitation, out: Output) -> Answer:
    fields: Mapping[str, Mapping[str, Any]] = question.schema["properties"]
    required = question.schema.get("required", ())
    content: dict[str, Any] = {}
    for name, field in fields.items():
        given = await _field(name, field, name in required, name in question.sensitive, out)
        if given is None:
            return question.cancel()
        content |= given
    said = await _line(f"Send this to {clean_line(question.server)}? [Y/n] ")
    if said is None:
        return question.cancel()
    return question.accept(content) if said.lower() in ("", *_YES) else question.decline()


async def _field(
    name: str, field: Mapping[str, Any], required: bool, hidden: bool, out: Output
) -> dict[str, Any] | None:
    """The value by its name, nothing where it was left out, None where nobody answers any more."""
    from mooring.core.elicitation import problems_of

    for _ in range(_TRIES):
        said = await _line(_label(name, field, required), hidden=hidden)
        if said is None:
            return None
        if not said and "default" in field:
            return {name: field["default"]}
        if not said and not required:
            return {}
        given = {name: _value(said, field)}
        problems = problems_of(given, {"properties": {name: field}})
        if not problems:
            return given
        out.note("; ".join(problems))
    return None


def _label(name: str, field: Mapping[str, Any], required: bool) -> str:
    from mooring.core.elicitation import choices

    words = [clean_line(str(field.get("title") or name))]
    if described := clean_line(str(field.get("description", ""))):
        words.append(f"- {described}")
    known = choices(field)
    kind = "/".join(map(clean_line, known)) if known else str(field.get("type"))
    default = f", default {clean_line(str(field['default']))}" if "default" in field else ""
    words.append(f"({kind}{default}{'' if required else ', may be left out'})")
    return f"  {' '.join(words)}: "


def _value(text: str, field: Mapping[str, Any]) -> Any:
    """The text as the field wants it; as it is where it does not fit, so that the check can say so."""
    kind = field.get("type")
    with suppress(ValueError):
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    if kind == "boolean":
        return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(
            text.lower(), text
        )
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


async def _line(label: str, *, hidden: bool = False) -> str | None:
    """What is typed; None at the end of input. No thread: one that reads would keep us from ending."""
    sys.stderr.write(label)
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()
    source = sys.stdin.fileno()

    def read() -> None:
        if not typed.done():
            typed.set_result(os.read(source, 4096))

    with _echo(source, on=not hidden):
        loop.add_reader(source, read)
        try:
            data = await typed
        finally:
            loop.remove_reader(source)
    if hidden or not data:
        sys.stderr.write("\n")
    return data.decode("utf-8", "replace").strip() if data else None


@contextmanager
def _echo(source: int, *, on: bool) -> Generator[None]:
    """Whether the terminal shows what is typed."""
    if on or sys.platform == "win32":
        yield
        return
    import termios

    before = termios.tcgetattr(source)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(source, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)
