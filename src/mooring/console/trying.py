"""Calls that a person makes in the console: progress, cancel, results, history; resources and prompts."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooring.config.logs import logger
from mooring.console.access import Visitor
from mooring.console.journal import Journal
from mooring.console.state import LIMITS
from mooring.console.verbs import Body
from mooring.console.web import Verb, VerbRefused, encoded
from mooring.core.apps import page_address
from mooring.core.text import clean, line
from mooring.core.types import Block, Result
from mooring.errors import MooringError, next_command
from mooring.host import Host

__all__ = ["Tries", "block_document"]

log = logger("mooring.console")

SESSION = "console"
"""Session of the calls that are made in the console."""
MOST_RUNNING = 32
KEPT_BYTES = 32 * 2**20
"""Results that are kept, together."""
LARGEST = 16 * 2**20
"""Bytes of one result that is shown."""
TIMEOUT = 600.0
"""Longest time of a call, in seconds."""
SUMMARY = 160


@dataclass(slots=True)
class Try:
    """One call of the console."""

    key: str
    tool: str
    arguments: Mapping[str, Any]
    task: asyncio.Task[None] | None = None
    result: Result | None = None
    document: Mapping[str, Any] | None = None
    size: int = 0


class Tries:
    """Makes the calls of the console and keeps their results."""

    def __init__(self, host: Host, journal: Journal) -> None:
        self._host, self._journal = host, journal
        self._tries: OrderedDict[str, Try] = OrderedDict()
        self._count = 0
        self._bytes = 0

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs by name."""
        return {
            "call": self.call,
            "cancel": self.cancel,
            "replay": self.replay,
            "result": self.result,
            "resources": self.resources,
            "read": self.read,
            "prompts": self.prompts,
            "prompt": self.prompt,
        }

    async def close(self) -> None:
        """Cancel the calls that run."""
        tasks = [one.task for one in self._tries.values() if one.task is not None and not one.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def made(self, key: str) -> Try:
        """Return a call of the console.

        Raises:
            VerbRefused: There is none, or it is not kept any more.
        """
        found = self._tries.get(key)
        if found is None:
            raise VerbRefused(404, f"Call {key[:40]!r} is not kept any more. Make it again.", kind="Gone")
        return found

    # --- calls ----------------------------------------------------------------------------------

    async def call(self, given: Mapping[str, Any], _: Visitor) -> Any:
        body = Body(given)
        timeout = body.number("timeout", None, least=0.1, most=TIMEOUT)
        return {"id": self._start(body.text("tool"), body.mapping("arguments"), timeout)}

    async def replay(self, given: Mapping[str, Any], _: Visitor) -> Any:
        made = self.made(Body(given).text("id"))
        return {"id": self._start(made.tool, made.arguments, None)}

    def _start(self, tool: str, arguments: Mapping[str, Any], timeout: float | None) -> str:
        running = sum(one.task is not None and not one.task.done() for one in self._tries.values())
        if running >= MOST_RUNNING:
            raise VerbRefused(429, f"{MOST_RUNNING} calls of the console are running. Cancel one first.")
        self._count += 1
        made = Try(f"t{self._count}", tool, arguments)
        known = self._host.catalog.tools.get(tool)
        self._tries[made.key] = made
        self._forget()
        row = {
            "id": made.key,
            "tool": line(tool, 300),
            "server": None if known is None else known.server,
            "arguments": line(self._host.redact(json.dumps(arguments, ensure_ascii=False)), SUMMARY),
            "started": round(time.time(), 3),
            "ms": None,
            "state": "running",
            "progress": None,
            "summary": "",
            "blocks": 0,
            "app": known is not None and page_address(known) is not None,
        }
        self._journal.put("tries", row)
        made.task = asyncio.create_task(self._run(made, timeout))
        return made.key

    async def _run(self, made: Try, timeout: float | None) -> None:
        started = time.monotonic()

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            shown = None if message is None else line(self._host.redact(message), SUMMARY)
            self._change(made.key, progress={"progress": progress, "total": total, "message": shown})

        try:
            session = self._host.session(SESSION, agent_id=SESSION)
            result = await session.call(
                made.tool, made.arguments, timeout=timeout, on_progress=progressed, budget=0
            )
        except asyncio.CancelledError:
            made.document = _ended(None, "")
            self._change(made.key, state="cancelled", ms=_ms(started), summary="cancelled")
            raise
        except Exception as problem:
            log.exception("call of the console failed: tool=%s", line(made.tool, 80))
            text = self._host.redact(str(problem))
            made.document = _ended(type(problem).__name__, text)
            self._change(made.key, state="error", ms=_ms(started), summary=line(text, SUMMARY))
            return
        self._keep(made, result)
        self._change(
            made.key,
            state="error" if result.is_error else "ok",
            ms=round(result.duration * 1000, 1),
            summary=line(self._host.redact(result.text), SUMMARY),
            blocks=len(result.blocks),
            server=result.server or None,
        )

    def _change(self, key: str, **fields: Any) -> None:
        row = self._journal.row("tries", key)
        if row is not None:
            self._journal.replace("tries", {**row, **fields})

    def _keep(self, made: Try, result: Result) -> None:
        made.result, made.document = result, self._document(result)
        made.size = len(encoded(made.document))
        if made.size > LARGEST:
            text = (
                f"The result takes {made.size / 2**20:.1f} MiB with its raw form; the console shows at most "
                f"{LARGEST >> 20} MiB."
            )
            made.document = {
                **_ended("TooLarge", text, f"mooring call {made.tool}"),
                "is_error": result.is_error,
                "handle": result.handle,
            }
            made.result, made.size = None, 0
        self._bytes += made.size
        self._forget()

    def _forget(self) -> None:
        """Drop the oldest calls that have ended while there are too many or too large ones."""
        while len(self._tries) > LIMITS["tries"] or self._bytes > KEPT_BYTES:
            done = next((one for one in self._tries.values() if one.task is None or one.task.done()), None)
            if done is None or len(self._tries) == 1:
                return
            del self._tries[done.key]
            self._bytes -= done.size

    async def cancel(self, given: Mapping[str, Any], _: Visitor) -> Any:
        made = self.made(Body(given).text("id"))
        running = made.task is not None and not made.task.done()
        if running and made.task is not None:
            made.task.cancel()
            await asyncio.wait({made.task}, timeout=5)
        return {"id": made.key, "cancelled": running}

    async def result(self, given: Mapping[str, Any], _: Visitor) -> Any:
        made = self.made(Body(given).text("id"))
        row = self._journal.row("tries", made.key)
        if made.document is None:
            raise VerbRefused(409, f"Call {made.key!r} is still running.")
        about = {"id": made.key, "tool": made.tool, "arguments": dict(made.arguments)}
        state = {} if row is None else {"server": row["server"], "state": row["state"], "ms": row["ms"]}
        return self._host.redact.within({**about, **state, **made.document})

    def _document(self, result: Result) -> dict[str, Any]:
        error = result.error
        return {
            "is_error": result.is_error,
            "text": result.text,
            "blocks": [block_document(block) for block in result.blocks],
            "structured": result.structured,
            "raw": None if result.raw is None else dict(result.raw),
            "error": None
            if error is None
            else {
                "kind": type(error).__name__,
                "message": str(error),
                "next": next_command(str(error), error),
            },
            "handle": result.handle,
        }

    # --- resources and prompts ----------------------------------------------------------------------

    async def resources(self, given: Mapping[str, Any], _: Visitor) -> Any:
        server, catalog = Body(given).maybe("server"), self._host.catalog
        found = [one for one in catalog.resources if server in (None, one.server)]
        templates = [one for one in catalog.templates if server in (None, one.server)]
        about = ("server", "name", "title", "description", "mime_type")
        rows = [{"uri": one.uri, "size": one.size, **_fields(one, about)} for one in found[:5_000]]
        more = [{"uri_template": one.uri_template, **_fields(one, about)} for one in templates[:1_000]]
        return self._host.redact.within({"resources": rows, "templates": more})

    async def read(self, given: Mapping[str, Any], _: Visitor) -> Any:
        body = Body(given)
        contents = await self._host.read(body.text("uri"), body.maybe("server"), timeout=60.0)
        blocks = [block_document(block) for block in contents.blocks]
        return self._shown({"uri": contents.uri, "server": contents.server, "blocks": blocks})

    async def prompts(self, given: Mapping[str, Any], _: Visitor) -> Any:
        server = Body(given).maybe("server")
        found = [one for one in self._host.catalog.prompts if server in (None, one.server)]
        about = ("name", "server", "title", "description")
        rows = [
            {**_fields(one, about), "arguments": [dict(each) for each in one.arguments]}
            for one in found[:5_000]
        ]
        return self._host.redact.within({"prompts": rows})

    async def prompt(self, given: Mapping[str, Any], _: Visitor) -> Any:
        body = Body(given)
        made = await self._host.prompt(
            body.text("server"), body.text("name"), body.mapping("arguments"), timeout=60.0
        )
        messages = [{"role": line(one.role, 40), "block": block_document(one.block)} for one in made]
        return self._shown({"messages": messages})

    def _shown(self, document: dict[str, Any]) -> Any:
        shown = self._host.redact.within(document)
        if len(encoded(shown)) > LARGEST:
            raise MooringError(f"It has more than {LARGEST >> 20} MiB; the console does not show it.")
        return shown


def block_document(block: Block) -> dict[str, Any]:
    """Return a content block of a server as a page shows it."""
    raw = block.raw
    found = {
        "type": line(block.type, 40),
        "text": block.text,
        "data": block.data,
        "mime_type": block.mime_type,
        "uri": block.uri,
        "name": raw.get("name"),
        "title": raw.get("title"),
    }
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _ended(kind: str | None, text: str, command: str | None = None) -> dict[str, Any]:
    """Return the document of a call without a result; `kind` of its error is None if it was cancelled."""
    return {
        "is_error": kind is not None,
        "text": text,
        "blocks": [],
        "structured": None,
        "raw": None,
        "error": None if kind is None else {"kind": kind, "message": text, "next": command},
        "handle": None,
    }


def _fields(one: Any, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: getattr(one, name) for name in names}
    return {key: clean(value)[:2_000] if isinstance(value, str) else value for key, value in found.items()}


def _ms(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 1)
