"""The engine of a cluster: a NATS server with JetStream. Compare-and-set of keys, notices to all nodes."""

# nats-py has few types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mooring.auth.cipher import setting_secret
from mooring.config.logs import logger
from mooring.errors import ConfigError, MooringError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from mooring.config.operation import ClusterSettings

__all__ = ["Bucket", "EngineAccess", "EngineError", "NatsEngine", "engine_access", "settings_with"]

log = logger("mooring.cluster")

Bucket = Literal["leases", "owners", "logins", "counts"]
BUCKETS: tuple[Bucket, ...] = ("leases", "owners", "logins", "counts")
MAX_NOTICE = 64 * 1024
"""Largest notice in bytes; the server takes 1 MiB."""
COUNTS_TTL = 3600.0
LEASES_KEPT = 10
"""How long the engine keeps the record of a lease that is not renewed, in multiples of `ttl`."""
_WRONG_REVISION = (10071, 10164)
_OPERATIONS = ("KV-Operation", "Nats-Marker-Reason")


T = TypeVar("T")


class EngineError(MooringError):
    """The engine did not answer, or refused a request. Whether it acted on it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAccess:
    """How to reach the engine. Secrets are resolved."""

    urls: tuple[str, ...]
    name: str = "mooring"
    """Name of the cluster: clusters with different names can use one engine."""
    ttl: float = 30.0
    replicas: int = 1
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey: str | None = field(default=None, repr=False)
    """Seed of an nkey."""
    credentials: str | None = None
    """Path of a credentials file."""
    tls: ssl.SSLContext | None = None


def settings_with(settings: ClusterSettings | None, url: str) -> ClusterSettings:
    """Return the settings of the cluster with the address of `--cluster`.

    Raises:
        ConfigError: It is no address of a NATS server.
    """
    from mooring.config.operation import ClusterSettings
    from mooring.core.value import replace

    try:
        return ClusterSettings(url=(url,)) if settings is None else replace(settings, url=(url,))
    except ConfigError as problem:
        raise ConfigError(problem.problem.removeprefix("'url' "), place="--cluster") from None


def engine_access(settings: ClusterSettings) -> EngineAccess:
    """Return how to reach the engine, with the secrets behind the references.

    Raises:
        ConfigError: A reference has no value, or a certificate cannot be read.
    """

    def secret(name: str) -> str | None:
        reference: str | None = getattr(settings, name)
        return None if reference is None else setting_secret(reference, f"gateway.cluster.{name}")

    context: ssl.SSLContext | None = None
    if settings.tls is not None or any(url.startswith("tls:") for url in settings.url):
        tls = settings.tls
        try:
            context = ssl.create_default_context(cafile=tls.ca if tls else None)
            if tls is not None and tls.cert is not None:
                context.load_cert_chain(tls.cert, tls.key)
        except (OSError, ssl.SSLError) as problem:
            raise ConfigError(
                f"a certificate for the engine cannot be used: {problem}", place="gateway.cluster.tls"
            ) from None
    return EngineAccess(
        urls=settings.url,
        name=settings.name,
        ttl=settings.ttl,
        replicas=settings.replicas,
        user=settings.user,
        password=secret("password"),
        token=secret("token"),
        nkey=secret("nkey"),
        credentials=settings.credentials,
        tls=context,
    )


async def _answer(request: Coroutine[Any, Any, T]) -> T:
    """Return the result of a request of the client. It runs in a task of its own: nats-py, and `wait_for` of
    Python 3.11, sometimes ignore that their task is cancelled, and the caller would run on for ever."""
    task = asyncio.create_task(request)
    task.add_done_callback(_retrieved)
    try:
        await asyncio.wait((task,))
    finally:
        task.cancel()
    return task.result()


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Read the exception of a task, which may have no reader any more."""
    if not task.cancelled():
        task.exception()


def _is_shown(record: logging.LogRecord) -> bool:
    """Leave out a warning of asyncio about each TLS connection of nats-py that ends. It has no effect."""
    return not str(record.msg).startswith("returning true from eof_received()")


class NatsEngine:
    """A connection that is restored by itself.

    Args:
        access: How to reach it.
        on_connect: Called after each connect, before any other request, with the generation of the data.
        on_disconnect: Called when the connection is lost.
        create: Whether to create missing buckets.
    """

    def __init__(
        self,
        access: EngineAccess,
        on_connect: Callable[[str], Awaitable[None]],
        on_disconnect: Callable[[], None],
        *,
        create: bool = True,
    ) -> None:
        self._access, self._create = access, create
        self._on_connect, self._on_disconnect = on_connect, on_disconnect
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self.connected = False
        self.connects = 0
        """Number of connects; a request that spans two of them is not to be trusted."""
        self.problem: str | None = "not connected yet"
        self._refused = False
        """Whether `problem` is what the engine said, not a failure to reach it."""
        self.slow = 0
        """Notices that were lost because this node read them too slowly."""
        self._joining: asyncio.Task[None] | None = None

    @property
    def timeout(self) -> float:
        return max(self._access.ttl / 6, 0.5)

    async def open(self) -> None:
        """Connect and create the buckets.

        Raises:
            ConfigError: The server cannot be reached, denies access, or has no JetStream.
        """
        try:
            from nats import errors as nats_errors
            from nats.aio.client import Client
        except ImportError:
            raise ConfigError(
                "a cluster needs the extra `cluster`: pip install 'mooring[cluster]'", place="gateway.cluster"
            ) from None
        logging.getLogger("asyncio").addFilter(_is_shown)
        self._client = Client()
        try:
            async with asyncio.timeout(self.timeout + 5):
                await _answer(self._client.connect(**self._options()))
                self._stream = self._client.jetstream(timeout=self.timeout)
                while True:
                    with suppress(nats_errors.TimeoutError):  # the engine is busy
                        await self._joined()
                        break
        except Exception as problem:  # `nkeys` has errors of its own
            await self.close()
            shown = ", ".join(self._access.urls)
            reason = (
                self.problem
                if self.problem and not str(problem)
                else (str(problem) or type(problem).__name__)
            )
            raise ConfigError(
                f"the engine at {shown} cannot be used: {reason}. Start nats-server with `-js`, and check "
                "the address and the credentials",
                place="gateway.cluster",
            ) from None

    def _options(self) -> dict[str, Any]:
        access = self._access
        options: dict[str, Any] = {
            "servers": list(access.urls),
            "name": f"mooring {access.name}",
            "error_cb": self._failed,
            "disconnected_cb": self._disconnected,
            "reconnected_cb": self._reconnected,
            "closed_cb": self._disconnected,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": min(access.ttl / 30, 1.0),
            "connect_timeout": 3,
            "ping_interval": max(access.ttl / 10, 0.5),
            "max_outstanding_pings": 2,
            "user": access.user,
            "password": access.password,
            "token": access.token,
            "nkeys_seed_str": access.nkey,
            "user_credentials": access.credentials,
            "tls": access.tls,
        }
        return {name: value for name, value in options.items() if value is not None}

    async def close(self) -> None:
        client, self._client = self._client, None
        self.connected = False
        if self._joining is not None:
            self._joining.cancel()
        if client is not None and not client.is_closed:
            with suppress(Exception):
                async with asyncio.timeout(2):
                    await _answer(client.close())

    # --- connection -----------------------------------------------------------------------------

    async def _failed(self, problem: Exception) -> None:
        from nats.errors import SlowConsumerError

        if isinstance(problem, SlowConsumerError):
            self.slow += 1
            log.warning(
                "notices of the engine were lost: this node reads them too slowly count=%d", self.slow
            )
            return
        shown = str(problem) or type(problem).__name__
        if not self.connects and self._refused and isinstance(problem, ConnectionError):
            return  # the engine has said why it closes the connection
        self._refused = not isinstance(problem, OSError)
        if shown != self.problem:
            self.problem = shown
            if self.connects:  # before, `open` raises an error with it
                log.warning("engine: %s", shown)

    async def _disconnected(self) -> None:
        if self.connected:
            log.warning("the engine is not reachable; owned sessions go on until their lease ends")
            self.problem = "not reachable"
        self.connected = False
        self._on_disconnect()

    async def _reconnected(self) -> None:
        # Not here: the client delivers nothing until this callback returns.
        self._joining = asyncio.create_task(self._join_again())

    async def _join_again(self) -> None:
        while self._client is not None and self._client.is_connected:
            try:
                await self._joined()
                log.info("the engine is reachable again")
                return
            except Exception as problem:
                self.problem = str(problem) or type(problem).__name__
                log.warning("engine: %s", self.problem)
                await asyncio.sleep(min(self._access.ttl / 30, 1.0))

    async def _joined(self) -> None:
        if self._create:
            await self._create_buckets()
        generation = await self.generation() if self._create else ""
        self.connects += 1
        await self._on_connect(generation)
        self.connected, self.problem = True, None

    async def _create_buckets(self) -> None:
        from nats.js.api import KeyValueConfig, StorageType
        from nats.js.errors import BadRequestError

        assert self._stream is not None
        # Records of leases outlast them: the rules of `placement` do not trust the clock of the engine.
        ttls = {"leases": LEASES_KEPT * self._access.ttl, "counts": COUNTS_TTL}
        for bucket in BUCKETS:
            ttl = ttls.get(bucket)
            config = KeyValueConfig(
                bucket=self._bucket(bucket),
                history=1,
                ttl=ttl,
                storage=StorageType.MEMORY if bucket == "counts" else StorageType.FILE,
                replicas=self._access.replicas,
            )
            with suppress(BadRequestError):  # it exists
                await _answer(self._stream.create_key_value(config=config))
                continue
            info = await _answer(self._stream.stream_info(f"KV_{self._bucket(bucket)}"))
            if bucket == "leases" and (info.config.max_age or 0) != ttl:
                raise ValueError(
                    f"the nodes of cluster {self._access.name!r} have another `ttl` "
                    f"({(info.config.max_age or 0) / LEASES_KEPT:g} s); give all of them the same, or this "
                    "cluster another `name`"
                )

    async def generation(self) -> str:
        """Return what changes when the engine lost its data."""
        assert self._stream is not None
        made: list[str] = []
        for bucket in ("leases", "owners"):
            info = await _answer(self._stream.stream_info(f"KV_{self._bucket(bucket)}"))
            made.append(str(info.created))
        return "|".join(made)

    # --- keys -----------------------------------------------------------------------------------

    def _bucket(self, bucket: str) -> str:
        return f"{self._access.name}_{bucket}"

    def _subject(self, bucket: Bucket, key: str) -> str:
        return f"$KV.{self._bucket(bucket)}.{key}"

    async def read(self, bucket: Bucket, key: str) -> tuple[bytes | None, int]:
        """Return the value of a key, and its revision or that of its deletion marker; (None, 0) without one.

        Raises:
            EngineError: There was no answer.
        """
        from nats.js.errors import NotFoundError

        stream = self._require()
        try:
            found = await _answer(
                stream.get_last_msg(f"KV_{self._bucket(bucket)}", self._subject(bucket, key))
            )
        except NotFoundError:
            return None, 0
        except Exception as problem:
            raise self._error(problem) from None
        gone = any(name in (found.headers or {}) for name in _OPERATIONS)
        return None if gone else found.data or b"", found.seq or 0

    async def write(self, bucket: Bucket, key: str, value: bytes, last: int) -> int | None:
        """Set a key that still has revision `last`; return the new revision, None if it has another one.

        Raises:
            EngineError: There was no answer. It may be written later.
        """
        return await self._put(bucket, key, value, {"Nats-Expected-Last-Subject-Sequence": str(last)})

    async def delete(self, bucket: Bucket, key: str, last: int) -> bool:
        """Delete a key that still has revision `last`; return whether it had.

        Raises:
            EngineError: There was no answer.
        """
        headers = {"Nats-Expected-Last-Subject-Sequence": str(last), "KV-Operation": "DEL"}
        return await self._put(bucket, key, b"", headers) is not None

    async def _put(self, bucket: Bucket, key: str, value: bytes, headers: dict[str, str]) -> int | None:
        from nats.js.errors import APIError

        stream = self._require()
        assert self._client is not None
        if len(value) > self._client.max_payload - 1024:
            raise EngineError(
                f"{len(value)} bytes are more than the engine takes ({self._client.max_payload})"
            )
        try:
            done = await _answer(
                stream.publish(self._subject(bucket, key), value, timeout=self.timeout, headers=headers)
            )
        except APIError as problem:
            if problem.err_code in _WRONG_REVISION:
                return None
            raise self._error(problem) from None
        except Exception as problem:
            raise self._error(problem) from None
        return done.seq

    async def entries(self, bucket: Bucket, limit: int = 100_000) -> dict[str, tuple[bytes, int]]:
        """Return the values and revisions of all keys.

        Raises:
            EngineError: There was no answer.
        """
        from nats.js.errors import NotFoundError

        stream, prefix = self._require(), f"$KV.{self._bucket(bucket)}."
        found: dict[str, tuple[bytes, int]] = {}
        try:
            info = await _answer(
                stream.stream_info(f"KV_{self._bucket(bucket)}", subjects_filter=f"{prefix}>")
            )
        except NotFoundError:
            return found
        except Exception as problem:
            raise self._error(problem) from None
        for subject in list(info.state.subjects or {})[:limit]:
            key = subject.removeprefix(prefix)
            value, revision = await self.read(bucket, key)
            if value is not None:
                found[key] = (value, revision)
        return found

    def _require(self) -> JetStreamContext:
        if self._stream is None or self._client is None or not self._client.is_connected:
            raise EngineError(f"the engine is not reachable ({self.problem})")
        return self._stream

    def _error(self, problem: Exception) -> EngineError:
        return EngineError(f"the engine did not answer: {str(problem) or type(problem).__name__}")

    # --- notices --------------------------------------------------------------------------------

    async def publish(self, topic: str, data: bytes) -> None:
        """Send a notice to all nodes, if the engine is reachable. Notices can be lost."""
        if self._client is None or not self._client.is_connected or len(data) > MAX_NOTICE:
            return
        with suppress(Exception):
            await _answer(self._client.publish(f"mooring.{self._access.name}.{topic}", data))

    async def subscribe(self, topic: str, hear: Callable[[bytes], None]) -> None:
        """Call `hear` with each notice."""
        assert self._client is not None

        async def received(message: Msg) -> None:
            try:
                hear(message.data)
            except Exception:
                log.exception("a notice could not be used topic=%s", topic)

        await _answer(self._client.subscribe(f"mooring.{self._access.name}.{topic}", cb=received))
