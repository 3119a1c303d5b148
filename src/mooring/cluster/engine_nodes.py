"""Nodes that find each other through an engine, and place what may run only once in the cluster."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from mooring import __version__
from mooring.auth.cipher import LoginCipher, key_secrets
from mooring.cluster.coordinator import Coordinator, Member, NotPlaced
from mooring.cluster.engine import EngineError, engine_access, settings_with
from mooring.cluster.fencing import clock
from mooring.cluster.forward import NODE, SILENT_AFTER, PeerNode
from mooring.cluster.logins import SharedLogins
from mooring.cluster.nodes import NodeCluster, new_incarnation, peer_tls
from mooring.cluster.once import PATH, PLACE, SessionLease, SharedOnce, check_once
from mooring.cluster.rates import DividedLimits, ExactRate, placement_key
from mooring.cluster.status import OPTIONS, describe, differing
from mooring.config.logs import logger
from mooring.config.models import HostConfig
from mooring.core.value import Value
from mooring.errors import ConfigError, MooringError
from mooring.gateway.auth import is_loopback
from mooring.gateway.nodes import NodeId, OwnerGone, OwnerMoved
from mooring.gateway.routes import RateLimited, too_many
from mooring.gateway.web import Denied, Response, WebRequest, document
from mooring.host import runtime_of

if TYPE_CHECKING:
    from mooring.config.operation import ClusterSettings
    from mooring.config.sections import GatewaySettings, ProfileSettings
    from mooring.gateway.clients import Principal
    from mooring.gateway.profiles import Profile
    from mooring.gateway.routes import Limits, Routes
    from mooring.host import Host
    from mooring.servers.state import ServerLease

__all__ = ["EngineNodes", "configuration_hash", "engine_nodes"]

log = logger("mooring.cluster")

FIND_WAIT = 1.0
ARRIVED_WAIT = 0.5
"""Seconds in which a node that got a request must become its owner."""
PEER_WAIT = 3.0
"""Seconds to wait for the address of a node that owns a session."""
PEER_RETRY = 1.0
"""Seconds until the TLS settings for a node are read again after a failure."""
GIVE_UP_WAIT = 3.0
"""Seconds to give up what is still owned at the end of `drain`."""
SESSION = "gateway:"
"""Start of the ids of sessions that belong to a principal, not to one handshake."""
_OF_ONE_NODE = frozenset(
    (
        "node",
        "nodes",
        "cluster",
        "tls",
        "log",
        "access_log",
        "audit",
        "metrics",
        "forwarded",
        "token_file",
        "key",
    )
)
"""Settings of the gateway that may differ between nodes."""
_WHERE = ("file", "source", "warnings")


def configuration_hash(config: HostConfig) -> str:
    """Return a hash of the settings that all nodes must share. Secrets are references in them."""

    def plain(value: object) -> Any:
        if isinstance(value, Value):
            given = {**type(value).field_defaults(), **vars(value)}
            return {name: plain(one) for name, one in given.items() if name not in _WHERE}
        if isinstance(value, Mapping):
            return {str(name): plain(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(value, list | tuple | set | frozenset):
            return [plain(one) for one in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return value if isinstance(value, str | int | float | bool | None) else str(value)

    known = plain(config)
    known["gateway"] = {name: one for name, one in known["gateway"].items() if name not in _OF_ONE_NODE}
    known["servers"] = sorted(known["servers"], key=lambda one: one["name"])
    return sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


class EngineNodes(NodeCluster):
    """The nodes that announce themselves in an engine.

    Args:
        host: The host that is served.
        name: Name of this node.
        address: URL at which the others reach it.
        settings: The settings of the cluster.
        options: Values of `status.OPTIONS` on the command line.

    Raises:
        ConfigError: A setting that nodes need is missing or unsafe.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        address: str,
        settings: ClusterSettings,
        options: Mapping[str, str | bool | None],
    ) -> None:
        gateway = host.config.gateway
        if not gateway.key:
            raise ConfigError("a cluster needs a `gateway.key` that all nodes share", place="gateway.key")
        secrets = key_secrets(gateway.key)
        super().__init__(NodeId(name, new_incarnation()), secrets)
        self._host, self._address, self._given = host, address, gateway.cluster
        self._is_exact, self._options = settings.exact, dict(options)
        _check_plain(gateway, address)
        self._key_marks = [hmac.digest(one, b"mooring cluster", "sha256").hex()[:16] for one in secrets]
        self._hash = configuration_hash(host.config)
        self.coordinator = Coordinator(
            self.me,
            engine_access(settings),
            about=self._about,
            on_fence=self._fenced,
            on_members=self._members_changed,
            answers=self._answers,
            find=self._find,
        )
        self._once = SharedOnce(host, self, placement_key)
        cipher, engine = LoginCipher(*gateway.key), self.coordinator.engine
        self._logins = SharedLogins(engine, cipher, placement_key, host)
        self._limits: DividedLimits | None = None
        self._changes: asyncio.Task[None] | None = None
        self._sessions: dict[str, str] = {}
        """Session ids of the keys that this node owns."""
        self._serving = Counter[str]()
        """Requests that this node answers, by their key."""
        self._leaving = False
        self._known_drift: list[str] = []

    def check(self, config: HostConfig, default_profile: ProfileSettings) -> None:
        if config.gateway.cluster != self._given or config.gateway.nodes:
            raise ConfigError("the cluster cannot change while it runs; restart", place="gateway.cluster")
        check_once(config)
        self._hash = configuration_hash(config)

    async def start(self, routes: Routes) -> None:
        sessions = runtime_of(self._host).sessions
        sessions.lease_of, sessions.ended = self._lease_of, self._session_ended
        try:
            await self.coordinator.start()
        except BaseException:
            await self.coordinator.close()
            raise
        await super().start(routes)
        self._members_changed()
        self._once.joined()
        await self._logins.start()

    async def leave(self) -> None:
        """Claim nothing, end the sessions of owned keys when they are idle, and give the keys up."""
        self._leaving = True
        self._once.leave()
        self.coordinator.drain()
        end = clock() + self.settings.drain
        await super().leave()
        try:
            async with asyncio.timeout(end - clock()):
                await asyncio.gather(*(self._give_up(key) for key in list(self.coordinator.placement.owned)))
        except TimeoutError:
            log.warning("calls of private servers were still running at the end of `drain`")
        # What cannot be given up in time ends with the lease.
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_WAIT):
                for key in list(self.coordinator.placement.owned):
                    await self._give_up(key, wait=False)

    async def stop(self) -> None:
        self._once.stop()
        await self._logins.stop()
        if self._changes is not None:
            self._changes.cancel()
        await self.coordinator.stop()
        await super().stop()

    # --- membership -----------------------------------------------------------------------------

    def _about(self) -> Mapping[str, Any]:
        return {
            "url": self._address,
            "version": __version__,
            "configuration": self._hash,
            "key": self._key_marks[0],
            "keys": self._key_marks,
            **self._options,
        }

    def _others(self) -> dict[str, Member]:
        return {name: one for name, one in self.coordinator.members.items() if name != self.me.name}

    def _members_changed(self) -> None:
        if self._limits is not None:
            self._limits.share(len(self.coordinator.members) or 1)
        drift = self._drift()
        if drift != self._known_drift:
            self._known_drift = drift
            if drift:
                log.warning("this node is not ready: it has %s", "; ".join(drift))
            else:
                log.info("this node does not differ from the others any more")
        self.coordinator.bar(self._leaving or bool(drift))
        if self._routes is not None and (self._changes is None or self._changes.done()):
            self._changes = asyncio.create_task(self._update_peers())

    def _wanted(self) -> dict[str, str]:
        """Return the URLs of the nodes that this one must be able to reach."""
        urls = {name: str(one.about.get("url", "")) for name, one in self._others().items()}
        return {name: url for name, url in urls.items() if urlsplit(url).scheme in ("http", "https")}

    async def _update_peers(self) -> None:
        """Begin and end the checks of nodes that joined and left, also of those that do so meanwhile."""
        while True:
            wanted = self._wanted()
            for name, peer in list(self.peers.items()):
                if self._has_left(peer) if name not in wanted else wanted[name] != peer.url:
                    del self.peers[name]
                    self.unwatch(peer)
            missing = wanted.keys() - self.peers.keys()
            if not missing:
                return
            for name in missing:
                try:
                    await self._add_peer(name, wanted[name])
                except (MooringError, OSError) as problem:
                    log.warning("node cannot be used node=%s: %s", name, problem)
                    await asyncio.sleep(PEER_RETRY)

    def _has_left(self, peer: PeerNode) -> bool:
        """Whether a node that is not heard in the engine has ended. Otherwise it may have lost only the
        engine, and its sessions are reached as before."""
        return peer.refuses or peer.incarnation is None or peer.silence > SILENT_AFTER

    async def probe(self, peer: PeerNode) -> None:
        await super().probe(peer)
        if (
            self.peers.get(peer.name) is peer
            and peer.name not in self.coordinator.members
            and self._has_left(peer)
        ):
            self._members_changed()

    async def _add_peer(self, name: str, url: str) -> None:
        peer = PeerNode(name, url, ssl=await peer_tls(self._host.config, url))
        member = self.coordinator.members.get(name)
        if member is not None:
            peer.incarnation = member.incarnation
        self.peers[name] = peer
        self.watch(peer)
        log.info("node joined node=%s url=%s", name, url)

    def _drift(self) -> list[str]:
        """Return how this node differs from more than half of the nodes; the oldest decide a tie."""
        placement = self.coordinator.placement
        if self.me.name not in self.coordinator.members:
            return []
        began = math.inf if placement.holder is None else placement.holder.epoch.revision
        mine = {**self._about(), "lease": {"epoch": began}}
        others = [self._compared(one) for one in self._others().values()]
        found: list[str] = []
        named = {"configuration": "another configuration", "key": "another `gateway.key`"}
        for field, name in {**named, **{one: f"another `{one}`" for one in OPTIONS}}.items():
            if names := ", ".join(sorted(one["name"] for one in differing(mine, others, field))):
                found.append(f"{name} than the nodes {names}")
        return found

    def problems(self) -> list[str]:
        found = [*super().problems(), *self._drift()]
        if self.coordinator.placement.duplicate is not None:
            found.append(f"another node with the name {self.me.name!r} is in the cluster")
        return sorted(set(found))

    def document(self) -> Mapping[str, Any]:
        placement, engine = self.coordinator.placement, self.coordinator.engine
        return {
            "node": self.me.name,
            "engine": "connected" if engine.connected else f"not reachable: {engine.problem}",
            "lease": round(max(placement.usable_until - clock(), 0.0), 1) if placement.holder else None,
            "owned": len(placement.owned),
            "fenced": self.coordinator.fenced,
            "nodes": {name: self._shown(one) for name, one in sorted(self.coordinator.members.items())},
            "problems": self.problems(),
        }

    async def status(self) -> Mapping[str, Any]:
        """Return what the engine knows; what this node knows while the engine is not reachable."""
        heard = {(one.name, one.incarnation) for one in self.coordinator.members.values()}
        try:
            return await describe(self.coordinator.engine, heard)
        except EngineError as problem:
            return {**await super().status(), "problem": str(problem)}

    def _shown(self, member: Member) -> dict[str, Any]:
        peer = self.peers.get(member.name)
        state = "here" if member.name == self.me.name else "up" if peer is not None and peer.up else "down"
        return {
            "incarnation": member.incarnation,
            "state": "not ready" if self._differs(member) else "draining" if member.draining else state,
            **{name: member.about.get(name) for name in ("url", "version", "configuration")},
            "heard": round(clock() - member.heard, 1),
            **({} if peer is None or peer.problem is None else {"problem": peer.problem}),
        }

    def _differs(self, member: Member) -> bool:
        """Whether a node is not ready because it differs, as `mooring cluster status` shows it."""
        known = {one.name: self._compared(one) for one in self.coordinator.members.values()}
        others = [one for name, one in known.items() if name != member.name]
        return any(differing(known[member.name], others, name) for name in ("configuration", "key", *OPTIONS))

    def _compared(self, member: Member) -> dict[str, Any]:
        known = self.coordinator.placement.seen.get(member.name)
        record = None if known is None else known.record
        epoch = None if record is None else record.epoch
        revision = 0 if known is None or record is None else known.revision
        lease = {"epoch": epoch.revision if epoch else revision}
        return {**member.about, "name": member.name, "lease": lease}

    def limits(self, **settings: Any) -> Limits | None:
        exact = ExactRate(self.coordinator.engine, placement_key) if self._is_exact else None
        self._limits = DividedLimits(exact=exact, **settings)
        return self._limits

    async def admit_client(self, client: str) -> None:
        if self._is_exact and self._limits is not None:
            try:
                await self._limits.count(client)
            except RateLimited as problem:
                raise too_many(problem) from None

    def _answers(self, node: NodeId, since: float) -> bool:
        """Whether a node has answered since then, on the monotonic clock."""
        peer = self.peers.get(node.name)
        return peer is not None and peer.up and peer.incarnation == node.incarnation and peer.answered > since

    async def peer(self, request: WebRequest, path: str) -> Response | None:
        if path == "/peer/owns":
            owns = self.coordinator.may_send(request.query.get("key", "")) is not None
            return document({"owns": owns}, 200, {NODE: self.me.incarnation})
        if path.startswith(PATH) and request.hop is not None:
            return await self._once.serve(request, path, request.hop)
        if path.startswith(PLACE):
            return await self._once.placed(path)
        return await super().peer(request, path)

    async def _find(self, key: str) -> NodeId | None:
        """Ask the other nodes which of them owns a key."""

        async def asked(peer: PeerNode) -> NodeId | None:
            with suppress(aiohttp.ClientError, OSError, ValueError, TimeoutError):
                async with (
                    asyncio.timeout(FIND_WAIT),
                    self.ask(peer, "GET", f"/peer/owns?key={key}") as response,
                ):
                    if response.status == 200 and (await response.json()).get("owns") is True:
                        return NodeId(peer.name, response.headers.get(NODE, ""))
            return None

        found = await asyncio.gather(*(asked(peer) for peer in self.peers.values() if peer.up))
        return next((one for one in found if one is not None), None)

    # --- placement ------------------------------------------------------------------------------

    async def home(
        self, profile: Profile, principal: Principal, server: str | None, message: Mapping[str, Any]
    ) -> NodeId | None:
        try:
            return await self._place(profile, principal, self.coordinator.rules.ttl + 2)
        except NotPlaced as problem:
            raise Denied(503, str(problem), {"Retry-After": "2"}) from None

    async def _place(self, profile: Profile, principal: Principal, wait: float) -> NodeId:
        session = f"{SESSION}{profile.name}:{principal.name}"
        key = placement_key("session", session)
        about = {"profile": profile.name, "principal": principal.name}
        node = await self.coordinator.place(key, about, wait)
        if node == self.me:
            self._sessions[key] = session
        return node

    @contextmanager
    def serving(self, profile: Profile, principal: Principal) -> Generator[None]:
        key = placement_key("session", f"{SESSION}{profile.name}:{principal.name}")
        self._serving[key] += 1
        try:
            yield
        finally:
            self._serving[key] -= 1
            if not self._serving[key]:
                del self._serving[key]

    async def arrived(
        self, profile: Profile, principal: Principal, server: str | None, message: Mapping[str, Any]
    ) -> None:
        try:
            node = await self._place(profile, principal, ARRIVED_WAIT)
        except NotPlaced:  # the node that forwarded it waits, and finds the next owner
            node = None
        if node != self.me:
            raise self.moved()

    async def forward(
        self, request: WebRequest, owner: NodeId, body: bytes | None, *, counted: bool = False
    ) -> Response | None:
        await self._know(owner)
        try:
            return await super().forward(request, owner, body, counted=counted)
        except OwnerGone as problem:
            self.coordinator.forget(owner, gone=not isinstance(problem, OwnerMoved))
            raise

    async def _know(self, owner: NodeId) -> None:
        """Wait for the address of a node; after a pause of this process, ask whether it is still there."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PEER_WAIT):
                while (peer := self.peers.get(owner.name)) is None:  # noqa: ASYNC110 (it depends on the engine)
                    await asyncio.sleep(0.05)
                if peer.silence > SILENT_AFTER:
                    await self.probe(peer)

    def _lease_of(self, session: str, server: str) -> ServerLease | None:
        if not session.startswith(SESSION):
            return None
        return SessionLease(self.coordinator, placement_key("session", session))

    async def _session_ended(self, session: str) -> None:
        """Give up the key of a session that was idle."""
        if session.startswith(SESSION):
            key = placement_key("session", session)
            self._sessions.pop(key, None)
            await self.coordinator.release(key)

    async def _give_up(self, key: str, *, wait: bool = True) -> None:
        if key in self._once:
            await self._once.give_up(key, wait=wait)
            return
        sessions = runtime_of(self._host).sessions
        with self.coordinator.closing(key):
            while wait and self._is_used(key):  # noqa: ASYNC110 (there is no event)
                await asyncio.sleep(0.05)
            session = sessions.find(self._sessions.get(key, ""))
            if session is not None:
                await sessions.end(session, "left")
            await self.coordinator.release(key)

    def _is_used(self, key: str) -> bool:
        """Whether a request or a suspended call uses a session; a request does so before its call begins."""
        sessions = runtime_of(self._host).sessions
        session = sessions.find(self._sessions.get(key, ""))
        return self._serving[key] > 0 or (session is not None and sessions.is_busy(session))

    async def _fenced(self, keys: Iterable[str], reason: str) -> None:
        """End the sessions of a lost lease; their processes are dead already."""
        sessions = runtime_of(self._host).sessions
        for key in keys:
            if key in self._once:
                self._once.fenced(key)
                continue
            session = sessions.find(self._sessions.pop(key, ""))
            if session is not None:
                with suppress(Exception):
                    await sessions.end(session, "left")


def _check_plain(gateway: GatewaySettings, address: str) -> None:
    """Refuse plain HTTP between machines: requests carry the tokens of clients."""
    parts = urlsplit(address)
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not gateway.plain_nodes:
        raise ConfigError(
            f"other nodes would reach this one over plain HTTP at {address}; use `gateway.tls`, or set "
            "`gateway.plain_nodes: true` in an encrypted network",
            place="gateway.cluster.address",
        )


def engine_nodes(
    host: Host,
    url: str | None,
    name: str | None,
    address: str | None,
    listen: tuple[str, int],
    options: Mapping[str, str | bool | None],
) -> EngineNodes | None:
    """Return the nodes of the engine that `--cluster` or the configuration names; None without one.

    Args:
        host: The host that is served.
        url: `--cluster`.
        name: `--node`.
        address: `--address`.
        listen: Address and port of this node.
        options: Values of `status.OPTIONS` on the command line.

    Raises:
        ConfigError: A setting that nodes need is missing or unsafe.
    """
    from mooring.core.value import replace

    gateway = host.config.gateway
    settings = gateway.cluster
    if url is not None:
        settings = settings_with(settings, url)
    if settings is None:
        return None
    if address is not None:
        settings = replace(settings, address=address)
    if name is not None:
        gateway = replace(gateway, node=name)
    if gateway.nodes:
        raise ConfigError("set `gateway.nodes` or `gateway.cluster`, not both", place="gateway.cluster")
    if gateway.node is None:
        raise ConfigError(
            "this node needs a name: start it with `--node NAME`, or set `gateway.node`", place="gateway.node"
        )
    return EngineNodes(host, gateway.node, settings.address or _address(gateway, listen), settings, options)


def _address(gateway: GatewaySettings, listen: tuple[str, int]) -> str:
    bind, port = listen
    if bind in ("0.0.0.0", "::", "") or not port:
        raise ConfigError(
            "the other nodes need an address of this one: start it with `--address URL`, or set "
            "`gateway.cluster.address`",
            place="gateway.cluster.address",
        )
    shown = f"[{bind}]" if ":" in bind else bind
    return f"{'http' if gateway.tls is None else 'https'}://{shown}:{port}"
