"""Secrets fetched without blocking the event loop, and not waited for beyond a limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mooring.config.secrets import resolve
from mooring.core.config import ServerConfig, Target
from mooring.core.expand import Lookup, Reference, references
from mooring.errors import ConnectError

__all__ = ["resolve_within"]


async def resolve_within(limit: float, server: ServerConfig, lookup: Lookup, *, slow: bool) -> Target:
    """What `resolve` gives. `slow`: the lookup itself may block, not only its files, keyring and programs.

    Raises:
        ConfigError: see `resolve`.
        ConnectError: it took longer than `limit` seconds.
    """
    blocking = [reference for reference in _references(server) if reference.kind != "env"]
    if not (blocking or slow):
        return resolve(server, lookup)
    try:
        async with asyncio.timeout(limit):
            return await _in_thread(lambda: resolve(server, lookup))
    except TimeoutError:
        names = ", ".join(sorted({f"${{{reference.kind}:…}}" for reference in blocking})) or "get_secret"
        raise ConnectError(
            f"its secrets did not arrive within {limit:g} s; look at {names}, or raise `connect_timeout`",
            server=server.name,
        ) from None


def _references(server: ServerConfig) -> list[Reference]:
    return [reference for _, text in server.texts() for reference in references(text)]


async def _in_thread(work: Callable[[], Target]) -> Target:
    """The outcome of `work`, done in a thread of its own. Not one of a pool: a keyring that never answers
    would keep the interpreter from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Target] = loop.create_future()

    def tell(how: Callable[[Any], None], what: object) -> None:
        if not done.done():
            how(what)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, work())
        except Exception as problem:
            outcome = (done.set_exception, problem)
        with suppress(RuntimeError):  # the loop is gone, and so is whoever waited
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name="mooring-secrets", daemon=True).start()
    return await done
