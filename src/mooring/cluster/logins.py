"""Logins that all nodes of a cluster share: encrypted in the engine, changed by one node at a time.

Each node keeps a copy in its own token store. Before a node refreshes a login, it gets the lock of that login
and takes over what another node stored; so a refresh token is used once in the cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from mooring.auth import token_store
from mooring.auth.cipher import LoginCipher
from mooring.auth.token_store import TokenStore, UnsafeStoreError, grant_from_json, grant_to_json
from mooring.cluster.engine import EngineError, NatsEngine
from mooring.cluster.fencing import clock
from mooring.concurrency import end_tasks
from mooring.config.logs import logger
from mooring.errors import ConfigError, MooringError
from mooring.host import runtime_of

if TYPE_CHECKING:
    from mooring.host import Host
    from mooring.servers.connection import Connection

__all__ = ["SharedLogins"]

log = logger("mooring.cluster")

TOPIC = "login"
POLL = 0.1
STALE_AFTER = 20.0
"""Seconds without a change after which the lock of a node that ended is replaced."""
LOOK_INTERVAL = 5.0
"""Seconds between two looks for logins while a server waits for one: a notice can be lost."""
PATIENCE = 40.0
"""Seconds to wait for the lock of a login."""


class SharedLogins:
    """The logins in the engine.

    Args:
        engine: The engine.
        cipher: Encrypts the logins with `gateway.key`.
        key: Returns the key in the engine for a kind and a name.
        host: The host whose servers use them.
    """

    def __init__(
        self,
        engine: NatsEngine,
        cipher: LoginCipher,
        key: Callable[[str, str], str],
        host: Host,
    ) -> None:
        self._engine, self._cipher, self._key, self._host = engine, cipher, key, host
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take over the stored logins, and those that other nodes store from now on."""
        await self._engine.subscribe(TOPIC, self._heard)
        await self._look()
        self._spawn(self._keep_looking())
        token_store.cluster_logins = self
        self._spawn(self._share())

    async def stop(self) -> None:
        token_store.cluster_logins = None
        await end_tasks(self._tasks)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            if any(one.state == "needs-auth" for one in self._connections()):
                await self._look()

    async def _share(self) -> None:
        """Give the other nodes the logins that only this one has."""
        for supervisor in [one.supervisor for one in self._connections()]:
            if supervisor.access is None and supervisor.state != "disabled":
                with suppress(MooringError):  # its start reports the problem
                    await supervisor.introduce()
            if supervisor.access is not None and isinstance(supervisor.access.store, TokenStore):
                async with supervisor.access.store.locked():
                    pass

    def _connections(self) -> Iterable[Connection]:
        return list(runtime_of(self._host).servers.connections.values())

    def _arrived(self) -> None:
        """Connect servers that wait for a login, which another node may have stored, and those whose attempt
        without it is running."""
        for connection in self._connections():
            running = connection.state == "pending" and connection.config.start != "lazy"
            if connection.state == "needs-auth" or (running and connection.supervisor.access is not None):
                connection.supervisor.connect_now()

    async def _look(self) -> None:
        """Take over all stored logins."""
        with suppress(EngineError):
            stored = await self._engine.entries("logins")
            logins = [value for name, (value, _) in stored.items() if name.startswith("login.")]
            if any([await self._take_over(value) for value in logins]):
                self._arrived()

    def _heard(self, data: bytes) -> None:
        self._spawn(self._fetch(data.decode("utf-8", "replace")))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, name: str) -> None:
        with suppress(EngineError):
            value, _ = await self._engine.read("logins", name)
            if value and await self._take_over(value):
                self._arrived()

    async def _take_over(self, value: bytes) -> bool:
        """Store a login of another node here; return whether it was not known."""
        said = self._opened(value)
        if said is None:
            return False
        store = self._copy(said["store"], said["personal"])
        return await to_thread.run_sync(_stored, store, said["login"])

    def _copy(self, key: str, personal: bool) -> TokenStore:
        """Return another store of the same login: what it writes is news to the store of a connection, which
        then reads it, and what it reads does not count as read there."""
        store = TokenStore("", None, None, self._cipher if personal else None)
        store.key = key
        return store

    def _opened(self, value: bytes) -> dict[str, Any] | None:
        try:
            text = self._cipher.open(value.decode("ascii", "replace"), "cluster")
            if text is not None:
                return json.loads(text)
        except (ConfigError, ValueError):
            pass
        log.warning("a login of the cluster cannot be decrypted: another `gateway.key` encrypted it")
        return None

    @asynccontextmanager
    async def holding(self, store: TokenStore) -> AsyncGenerator[None]:
        """Lock the login of a store for all nodes; without the engine, only for this one."""
        name, lock = self._key("login", store.key), self._key("lock", store.key)
        revision = await self._lock(lock)
        said: dict[str, Any] | None = None
        last = 0
        try:
            with suppress(EngineError):
                value, last = await self._engine.read("logins", name)
                said = self._opened(value) if value else None
                if value and said and said["store"] == store.key and await self._take_over(value):
                    self._arrived()
            store.written = False
            yield
            text = await to_thread.run_sync(_text, self._copy(store.key, store.cipher is not None))
            if store.written or (said is None and text):
                await self._put(name, store, text, last)
        finally:
            if revision is not None:
                with suppress(EngineError):
                    await self._engine.delete("logins", lock, revision)

    async def _put(self, name: str, store: TokenStore, text: str, last: int) -> None:
        content = json.dumps({"store": store.key, "login": text, "personal": store.cipher is not None})
        try:
            sealed = self._cipher.seal(content, "cluster").encode()
            while await self._engine.write("logins", name, sealed, last) is None:
                _, last = await self._engine.read("logins", name)  # the lock was taken over: the newest wins
            await self._engine.publish(TOPIC, name.encode())
        except (EngineError, ConfigError) as problem:
            log.warning("a login was not shared with the other nodes: %s", problem)

    async def _lock(self, name: str) -> int | None:
        """Return the revision of the lock when this node has it; None without the engine."""
        began = seen_at = clock()
        seen = -1
        while clock() < began + PATIENCE:
            try:
                value, revision = await self._engine.read("logins", name)
                if revision != seen:
                    seen, seen_at = revision, clock()
                if value is None or clock() > seen_at + STALE_AFTER:
                    written = await self._engine.write("logins", name, b"held", revision)
                    if written is not None:
                        return written
                    continue
            except EngineError as problem:
                log.warning("a login is refreshed without the lock of the cluster: %s", problem)
                return None
            await asyncio.sleep(POLL)
        log.warning("a login is refreshed without the lock of the cluster: another node holds it")
        return None


def _text(store: TokenStore) -> str:
    """Return the login of a store; empty if there is none."""
    with suppress(UnsafeStoreError):
        if (grant := store.load()) is not None:
            return json.dumps(grant_to_json(grant))
    return ""


def _stored(store: TokenStore, text: str) -> bool:
    """Store the login of another node; an empty text deletes it. Return whether it was not known."""
    if text == _text(store):
        return False
    grant = grant_from_json(json.loads(text)) if text else None
    if grant is None:
        store.delete()
    else:
        store.save(grant)
    return True
