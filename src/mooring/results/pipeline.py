"""Processing of results for the model: validate, convert, cut to the budget, store, record."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.concurrency import in_thread
from mooring.config.logs import logger
from mooring.config.models import SMALLEST_BUDGET, Conformance, HostConfig, ServerConfig
from mooring.core.builtin_tools import (
    READ,
    UNLIMITED,
    ReadRequest,
    ResultPart,
    Unreadable,
    chosen,
    cut,
    found,
    request,
)
from mooring.core.names import OWNER
from mooring.core.render import MOST_BLOCKS, arranged, as_text, plain, preview, split, text_block, within
from mooring.core.text import dumps, line
from mooring.core.types import Block, Result, Tool
from mooring.core.value import Value, replace

if TYPE_CHECKING:
    from mooring.results.output_schema import Schemas
    from mooring.results.store import Artifacts, Converter, OutputStore, StoredOutput


class Rules(Value):
    """Settings for the calls and results of one server."""

    budget: int
    """Largest size of a result for the model, in estimated tokens; 0: no limit."""
    output_schema: Conformance
    passthrough: bool
    """Whether the server receives the caller's context."""


def rules_for(host: HostConfig, server: ServerConfig | None) -> Rules:
    """Return the rules of a server; None is a provider that is not in the configuration."""
    budget, conformance, context = (
        (None, None, None) if server is None else (server.result_budget, server.output_schema, server.context)
    )
    return Rules(
        budget=host.result_budget if budget is None else budget,
        output_schema=conformance or host.output_schema,
        passthrough=(context or host.context).passthrough,
    )


class RuleBook:
    """Cache of the rules of every server."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[HostConfig, ServerConfig | None, Rules]] = {}

    def rules(self, name: str, host: HostConfig, server: ServerConfig | None) -> Rules:
        """Return the rules of the server `name`."""
        known = self._known.get(name)
        if known is None or known[0] is not host or known[1] is not server:
            known = self._known[name] = (host, server, rules_for(host, server))
        return known[2]


log = logger("mooring.results")

SETTLED = 5.0
"""Seconds after the start of a host at which old files are deleted."""
_NOTICE = 70
"""Longest position line after a part, in tokens."""
_QUICK = 32_768
"""Characters that are converted on the event loop instead of a thread."""
_HEADING = 400
"""Characters that converting a block may add."""


def home_at(given: str | os.PathLike[str] | bool | None) -> Path | None:
    """Return the directory of the stores: a path, the user's state directory (True), or None."""
    if given is True:
        from mooring.config.files import state_home

        return state_home()
    return None if given is None or given is False else Path(given)


def directory(given: str | os.PathLike[str] | None) -> Path | None:
    """Return a configured directory with `~` expanded."""
    return None if given is None else Path(given).expanduser()


class ResultPipeline:
    """Processes the results of one host. Its stores are opened on first use."""

    def __init__(
        self,
        home: Callable[[], Path | None],
        artifacts: Callable[[], Path | None],
        redact: Callable[[str], str],
    ) -> None:
        self._home, self._artifacts, self._redact = home, artifacts, redact
        self._stores: tuple[Converter, OutputStore] | None = None
        self._schemas: Schemas | None = None
        self._records: Artifacts | None = None
        self._reported: set[tuple[str, str]] = set()

    # --- results --------------------------------------------------------------------------------

    async def keep(
        self, tool: Tool, result: Result, *, session: str, budget: int, conformance: Conformance
    ) -> Result:
        """Return the result for the model; the part beyond the budget is stored. Never raises."""
        if tool.output_schema is not None and conformance != "off" and not result.is_error:
            result = await self._conforming(tool, result, strict=conformance == "strict")
        if plain(result, budget):
            return result
        self._open()
        work = partial(self._shown, tool, result, session, max(budget, SMALLEST_BUDGET) if budget else 0)
        return work() if _light(result, budget) else await in_thread(work)

    async def save(self, block: Block) -> str:
        """Write the data of a block to a file; return a line with its path, or why it was not saved."""
        return await in_thread(self._open()[0].saved, block)

    async def _conforming(self, tool: Tool, result: Result, *, strict: bool) -> Result:
        if self._schemas is None:
            from mooring.results.output_schema import Schemas

            self._schemas = Schemas()
        problem = await self._schemas.problem(tool, result.structured)
        if problem is None:
            return result
        key = (tool.server, tool.remote_name)
        if key not in self._reported:
            self._reported.add(key)
            log.warning("result does not match its output schema tool=%s problem=%s", _source(*key), problem)
        if not strict:
            return result
        note = text_block(f"[This does not match the output schema of {_source(*key)}: {problem}]")
        return replace(result, blocks=(*result.blocks, note), is_error=True)

    def _shown(self, tool: Tool, result: Result, session: str, budget: int) -> Result:
        converter, outputs = self._open()
        blocks = result.blocks
        if result.structured is not None and all(block.text is None for block in blocks):
            blocks = (*blocks, text_block(dumps(result.structured)))
        blocks = arranged(converter.blocks(blocks))
        if not budget:
            return replace(result, blocks=blocks)
        text, beside, left = split(blocks, budget)
        whole = "\n".join(map(as_text, text))
        if within(whole, left):
            lines = any(block.type != "text" for block in text)
            return replace(result, blocks=(text_block(whole), *beside) if lines else blocks)
        handle, rest = _spilled(outputs, whole, session, tool)
        shown = text_block(preview(whole, left, rest))
        return replace(result, blocks=(shown, *beside), handle=handle)

    # --- stored outputs -------------------------------------------------------------------------

    def has(self, session: str) -> bool:
        """Whether this session has stored outputs for `result_read`."""
        return self._stores is not None and self._stores[1].any_of(session)

    async def read(self, arguments: Mapping[str, Any], *, session: str, budget: int) -> Result:
        """Answer `result_read`: a part of a stored output, unchanged, and a line with the next offset."""
        started = time.monotonic()
        structured: dict[str, Any] | None = None
        try:
            wanted = request(arguments)
            if (output := self._open()[1].find(session, wanted.handle)) is None:
                raise Unreadable(
                    "this session has no result with this handle; use the handle exactly as given"
                )
            room = max(budget, SMALLEST_BUDGET) - _NOTICE if budget else 0
            piece, total = await in_thread(_read, output, wanted, room)
            structured = {
                "handle": wanted.handle,
                "offset": wanted.offset,
                "next_offset": piece.next_offset,
                "total": total,
            }
            blocks = (text_block(piece.text), text_block(_place(wanted, piece, total, output)))
        except (Unreadable, OSError) as problem:
            gone = "this result is no longer stored; call the tool again"
            blocks = (text_block(str(problem) if isinstance(problem, Unreadable) else gone),)
        return Result(
            server=OWNER,
            tool=READ.name,
            blocks=blocks,
            structured=structured,
            is_error=structured is None,
            duration=time.monotonic() - started,
        )

    # --- records --------------------------------------------------------------------------------

    @property
    def recording(self) -> bool:
        """Whether calls are recorded."""
        return self._artifacts() is not None

    async def record(self, result: Result, **about: Any) -> None:
        """Write a call and its result to the directory of the run; failures are logged."""
        path = self._artifacts()
        assert path is not None
        if self._records is None or self._records.folder.path != path:
            from mooring.results.store import Artifacts

            self._records = Artifacts(path, self._redact)
        record = {
            "server": result.server,
            "tool": result.tool,
            **about,
            "started_at": _moment(time.time() - result.duration),
            "duration_ms": round(result.duration * 1000, 2),
            "is_error": result.is_error,
            "error": type(result.error).__name__ if result.error else None,
            "content": result.content,
            "structured": result.structured,
        }
        try:
            await in_thread(self._records.write, record)
        except OSError as problem:
            log.warning("call record could not be written directory=%s reason=%s", path, problem)

    # --- lifecycle ------------------------------------------------------------------------------

    async def tidy(self) -> None:
        """Delete expired files of earlier runs, some seconds after the start."""
        await asyncio.sleep(SETTLED)
        home = self._home()
        if home is not None and any((home / name).exists() for name in ("mcp-blobs", "mcp-outputs")):
            self._open()
            await in_thread(self._tidy)

    def _tidy(self) -> None:
        for store in self._open():
            if store.folder is not None:
                store.folder.tidy()

    async def close(self) -> None:
        """Delete the stored outputs: their handles end with the host."""
        if self._stores is not None:
            await in_thread(self._stores[1].close)

    def _open(self) -> tuple[Converter, OutputStore]:
        if self._stores is None:
            from mooring.results.store import Converter, OutputStore

            home = self._home()
            self._stores = Converter(home), OutputStore(home)
        return self._stores


def _source(server: str, tool: str) -> str:
    return line(f"{server}/{tool}", 40)


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _spilled(outputs: OutputStore, whole: str, session: str, tool: Tool) -> tuple[str | None, str]:
    """Store a text that exceeds the budget; return its handle and a hint how to read it."""
    try:
        handle = outputs.keep(whole, session=session, server=tool.server, tool=tool.remote_name)
    except OSError as problem:
        source = _source(tool.server, tool.remote_name)
        log.warning("part of a large result could not be stored tool=%s reason=%s", source, problem)
        why = (problem.strerror or str(problem))[:100].encode("ascii", "replace").decode()
        return None, f"They could not be stored: {why}."
    return handle, f"Read them with result_read, handle {handle}."


def _light(result: Result, budget: int) -> bool:
    """Whether the result is small text that needs no storing or decoding."""
    most = min(budget or _QUICK, _QUICK)
    for block in result.blocks:
        text = block.text
        if text is None:
            return False
        most -= len(text) + _HEADING
    return most > 0 and 0 < len(result.blocks) <= MOST_BLOCKS


def _read(output: StoredOutput, wanted: ReadRequest, budget: int) -> tuple[ResultPart, int]:
    """Return the requested part and the length of the text."""
    count = min(wanted.limit or 4 * budget + 3, 4 * budget + 3) if budget else wanted.limit or UNLIMITED
    if wanted.grep is not None:
        return found(output.read(), wanted, budget), output.length
    if wanted.json_path is not None:
        part = chosen(output.read(), wanted.json_path)
        total, text = len(part), part[wanted.offset : wanted.offset + count]
    else:
        total, text = output.length, output.read(wanted.offset, count)
    if wanted.offset > total:
        raise Unreadable(f"offset {wanted.offset:,} is beyond the end: the text has {total:,} characters")
    return cut(text, wanted.offset, total, wanted.limit, budget), total


def _place(wanted: ReadRequest, piece: ResultPart, total: int, output: StoredOutput) -> str:
    source = _source(output.server, output.tool)
    if wanted.grep is not None:
        what = f"Matches in {total:,} characters of {source}" if piece.text else f"No match in {source}"
    else:
        end = wanted.offset + len(piece.text)
        what = f"Characters {wanted.offset:,} to {end:,} of {total:,} of {source}"
    more = "End." if piece.next_offset is None else f"Continue with offset {piece.next_offset}."
    return f"[{what}. {more}]"
