"""Ask on the terminal: confirmations, and elicitations of servers."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mooring.cli.output import Output, wrap
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.core.elicitation import Answer, Elicitation


async def typed_line(most: int = 65_536) -> bytes:
    """Wait for a line of the terminal. Empty: the terminal was closed.

    A daemon thread reads it, so that neither Ctrl-C nor the end of the program waits for the Enter key;
    `sys.stdin.read` would keep its lock after an interrupt.
    """
    import threading

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def settle(line: bytes) -> None:
        if not answer.done():
            answer.set_result(line)

    def read() -> None:
        try:
            line = os.read(sys.stdin.fileno(), most)
        except OSError:
            line = b""
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, line)

    threading.Thread(target=read, name="mooring terminal", daemon=True).start()
    return await answer


async def typed_text(what: str) -> str:
    """Everything up to the end of standard input. A terminal first shows `what` to type; Ctrl-C ends it.

    Raises:
        UnicodeDecodeError: it is not UTF-8 text.
    """
    if not sys.stdin.isatty():
        return sys.stdin.read()
    if what:
        sys.stderr.write(f"Type {what}; end with Ctrl-D on a line of its own.\n")
        sys.stderr.flush()
    parts: list[bytes] = []
    while part := await typed_line():
        parts.append(part)
    return b"".join(parts).decode()


def on_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def confirm(question: str, refused: str, out: Output) -> bool:
    """Ask for a yes on the terminal. Without one, print what was not done (`refused`), unless it is empty."""
    if not on_terminal():
        out.error(f"{refused} There is no terminal to confirm it on: review the output, then use --yes.")
        return False
    sys.stdout.flush()
    shown, _, last = clean(question).rpartition("\n")  # a plan is shown as it is
    lines = [*shown.splitlines(), *wrap(f"{last} [y/N]", shutil.get_terminal_size().columns)]
    sys.stderr.write("\n".join(lines) + " ")
    sys.stderr.flush()
    answer = await typed_line(100)
    if answer.strip().lower() in (b"y", b"yes"):
        return True
    if refused:
        out.error(refused, label="")
    return False


_TRIES = 3
_YES = ("y", "yes")


def elicitation_handler(out: Output) -> Callable[[Elicitation], Awaitable[Answer]]:
    """Return an `on_elicit` that asks on the terminal and declines without one."""

    async def ask(question: Elicitation) -> Answer:
        if not on_terminal():
            out.note(
                f"{question.prompt}\nDeclined: there is no terminal. Run the command on a terminal to answer."
            )
            return question.decline()
        out.error(question.prompt, label="question:")
        return await (_confirm_url(question) if question.mode == "url" else _fill_in(question, out))

    return ask


async def _confirm_url(question: Elicitation) -> Answer:
    reply = await _line(f"Open the URL in a browser if you trust {question.host}. Accept? [y/N] ")
    if reply is None:
        return question.cancel()
    return question.accept() if reply.lower() in _YES else question.decline()


async def _fill_in(question: Elicitation, out: Output) -> Answer:
    fields: Mapping[str, Mapping[str, Any]] = question.schema["properties"]
    required = question.schema.get("required", ())
    content: dict[str, Any] = {}
    for name, field in fields.items():
        value = await _field(name, field, name in required, name in question.sensitive, out)
        if value is None:
            return question.cancel()
        content |= value
    reply = await _line(f"Send this to {clean_line(question.server)}? [Y/n] ")
    if reply is None:
        return question.cancel()
    return question.accept(content) if reply.lower() in ("", *_YES) else question.decline()


async def _field(
    name: str, field: Mapping[str, Any], required: bool, hidden: bool, out: Output
) -> dict[str, Any] | None:
    """The value by its name; empty if left out; None at the end of input or after three wrong values."""
    from mooring.core.elicitation import problems_of

    for _ in range(_TRIES):
        reply = await _line(_label(name, field, required), hidden=hidden)
        if reply is None:
            return None
        if not reply and "default" in field:
            return {name: field["default"]}
        if not reply and not required:
            return {}
        value = {name: _value(reply, field)}
        problems = problems_of(value, {"properties": {name: field}})
        if not problems:
            return value
        out.note("; ".join(problems))
    return None


def _label(name: str, field: Mapping[str, Any], required: bool) -> str:
    from mooring.core.elicitation import choices

    words = [clean_line(str(field.get("title") or name))]
    if described := clean_line(str(field.get("description", ""))):
        words.append(f"- {described}")
    options = choices(field)
    kind = "/".join(map(clean_line, options)) if options else str(field.get("type"))
    default = f", default {clean_line(str(field['default']))}" if "default" in field else ""
    words.append(f"({kind}{default}{'' if required else ', optional'})")
    return f"  {' '.join(words)}: "


def _value(text: str, field: Mapping[str, Any]) -> Any:
    """Convert the text to the type of the field; return it unchanged if it does not fit."""
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
    """Read a line; None at the end of input. Not in a thread, which would block the exit of the process."""
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
    """Turn the echo of the terminal on or off."""
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
