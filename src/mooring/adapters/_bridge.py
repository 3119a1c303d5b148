"""The way from a framework to a host or session: lists and calls, from any loop or thread."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from mooring.adapters._offers import Offer, compiled_for, is_kept
from mooring.core.catalog import Catalog
from mooring.core.deferral import Namespace, deferrable, namespaces
from mooring.core.discovery import CALL, DISCOVERY
from mooring.core.schema import Compiled, Dialect
from mooring.core.types import Result, Tool

T = TypeVar("T")

_OWN = {tool.name: tool for tool in (*DISCOVERY, CALL)}


class Source(Protocol):
    """A `Host` or a `Session`."""

    @property
    def catalog(self) -> Catalog: ...

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]: ...

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, /
    ) -> Coroutine[Any, Any, Result]: ...


class SyncSource(Protocol):
    """A `SyncHost` or a `SyncSession`."""

    @property
    def catalog(self) -> Catalog: ...

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]: ...

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, /) -> Result: ...


AnySource = Source | SyncSource


@contextmanager
def extra(name: str) -> Generator[None]:
    """Runs imports of a framework; one that is missing is told together with what to install."""
    try:
        yield
    except ImportError as problem:
        raise ImportError(
            f"mooring.adapters.{name} needs a package that is not installed ({problem}): "
            f'pip install "mooring[{name.replace("_", "-")}]"'
        ) from problem


class Bridge:
    """The tools of one source in one dialect, to be listed and called from any loop or thread."""

    def __init__(self, source: AnySource, dialect: Dialect, *, unlisted: bool = False) -> None:
        """
        Args:
            source: A host or a session.
            dialect: The form of JSON Schema that the provider reads.
            unlisted: Whether calls of tools that were not listed reach the adapter. If not, the source lists
                the whole catalog in mode `auto`, and `tools_call` in mode `always`.
        """
        self._source = source
        self._dialect: Dialect = dialect
        self._unlisted = unlisted
        self.blocking = not inspect.iscoroutinefunction(source.call)
        """Whether the source is for threads: its verbs wait instead of being awaited."""
        self._home = None if self.blocking else _running()

    def offers(self, *, deferred: bool = False) -> list[Offer]:
        """The tools that the model sees now, without those whose schema cannot be offered.

        Args:
            deferred: All tools of the catalog instead; those that the session does not show are marked.
        """
        if self.blocking or self._at_home():
            return self._compiled(self._listed(deferred))
        return self._compiled(self._wait(self._look, deferred))

    def namespaces(self) -> tuple[list[tuple[Namespace, list[Offer]]], list[Offer]]:
        """All tools of the catalog by namespace, and those that belong to none."""
        left = {offer.name: offer for offer in self.offers(deferred=True)}
        loaded = {name for name, offer in left.items() if not offer.deferred}
        found: list[tuple[Namespace, list[Offer]]] = []
        for space in namespaces(self._source.catalog, loaded):
            members = [left.pop(entry.tool.name) for entry in space.tools if entry.tool.name in left]
            if members:
                found.append((space, members))
        return found, list(left.values())

    async def fresh_offers(self, *, deferred: bool = False) -> list[Offer]:
        """The same, compiled off the loop: for frameworks that ask again before each turn."""
        listed = await self._reach(self._look(deferred), partial(self._listed, deferred))
        if all(is_kept(tool, self._dialect) for tool, _ in listed):
            return self._compiled(listed)
        return await asyncio.to_thread(self._compiled, listed)

    def named(self, name: str) -> Offer | None:
        """The tool of the catalog with this name, listed or not; None if it does not exist or cannot be
        offered."""
        tool = self._source.catalog.tools.get(name)
        compiled = compiled_for(tool, self._dialect) if tool is not None else None
        return Offer(tool=tool, compiled=compiled) if tool is not None and compiled is not None else None

    def names(self) -> list[str]:
        """The names of all tools of the catalog."""
        return list(self._source.catalog.tools)

    async def call(self, name: str, arguments: Any, compiled: Compiled | None = None) -> Result:
        """The outcome of one call with the arguments that the model gave for `compiled`."""
        return await self._reach(
            self._call(name, arguments, compiled), partial(self._call_blocking, name, arguments, compiled)
        )

    def call_now(self, name: str, arguments: Any, compiled: Compiled | None = None) -> Result:
        """The same from a thread that cannot await.

        Raises:
            RuntimeError: this thread runs the loop of the host, which would wait for itself.
        """
        if self.blocking:
            return self._call_blocking(name, arguments, compiled)
        if self._at_home():
            raise RuntimeError(
                "a tool of a Host was called without await on the thread of its event loop: run the agent "
                "in a thread (`await asyncio.to_thread(agent.run, …)`), or use SyncHost"
            )
        return self._wait(self._call, name, arguments, compiled)

    def _at_home(self) -> bool:
        """Whether this thread runs the loop of the host, as far as that is known."""
        return self._home is None or self._home is _running()

    def _wait(self, work: Callable[..., Coroutine[Any, Any, T]], *given: Any) -> T:
        """Let the loop of the host do some work, from a thread that can wait for it."""
        home = self._alive()
        future = asyncio.run_coroutine_threadsafe(work(*given), home)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _reach(self, work: Coroutine[Any, Any, T], blocking: Callable[[], T]) -> T:
        """Do `work` on the loop of the host, whichever loop this is; for a blocking source, in a thread."""
        if self.blocking:
            work.close()
            return await asyncio.to_thread(blocking)
        if self._at_home():
            return await work
        try:
            home = self._alive()
        except RuntimeError:
            work.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))

    def _alive(self) -> asyncio.AbstractEventLoop:
        assert self._home is not None
        if not self._home.is_running():
            raise RuntimeError("the event loop of the host has ended; make the tools where the host runs")
        return self._home

    async def _look(self, deferred: bool) -> list[tuple[Tool, bool]]:
        return self._listed(deferred)

    def _listed(self, deferred: bool) -> list[tuple[Tool, bool]]:
        shown = self._source.tools(complete=not (deferred or self._unlisted))
        if not deferred:
            return [(tool, False) for tool in shown]
        loaded = {tool.name for tool in shown}
        return [(entry.tool, entry.defer_loading) for entry in deferrable(self._source.catalog, loaded)]

    def _compiled(self, listed: Sequence[tuple[Tool, bool]]) -> list[Offer]:
        offers: list[Offer] = []
        for tool, later in listed:
            if (compiled := compiled_for(tool, self._dialect)) is not None:
                offers.append(Offer(tool=tool, compiled=compiled, deferred=later))
        return offers

    async def _call(self, name: str, arguments: Any, compiled: Compiled | None) -> Result:
        return await cast("Source", self._source).call(name, self._back(name, arguments, compiled))

    def _call_blocking(self, name: str, arguments: Any, compiled: Compiled | None) -> Result:
        return cast("SyncSource", self._source).call(name, self._back(name, arguments, compiled))

    def _back(self, name: str, arguments: Any, compiled: Compiled | None) -> Any:
        """What the server wants for what the model gave. What is no object is refused by the session."""
        if not isinstance(arguments, Mapping):
            return arguments
        given = cast("Mapping[str, Any]", arguments)
        if compiled is None:
            tool = _OWN.get(name) or self._source.catalog.tools.get(name)
            compiled = compiled_for(tool, self._dialect) if tool is not None else None
        return compiled.back(given) if compiled is not None else given


def parsed(text: str) -> Any:
    """Arguments that a model wrote as text. What is no JSON stays text, which the session refuses."""
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
