"""Nodes that know each other: hops, health checks, and the fixed table of `gateway.nodes`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from mooring import __version__
from mooring.auth.cipher import key_secrets
from mooring.cluster.changes import PATH as CHANGES
from mooring.cluster.changes import NodeChanges
from mooring.cluster.forward import MOVED, NODE, REFUSED, SILENT_AFTER, PeerNode, PeerRefused, address
from mooring.cluster.hops import HopKeys, HopRefused
from mooring.concurrency import end_tasks
from mooring.config.logs import logger
from mooring.errors import ConfigError
from mooring.gateway.auth import is_loopback
from mooring.gateway.nodes import HOP, Cluster, Hop, NodeId, OwnerGone, OwnerMoved
from mooring.gateway.seal import Seal, derived
from mooring.gateway.web import Denied, Response, WebRequest, document

if TYPE_CHECKING:
    from mooring.config.models import HostConfig, ServerConfig, Target
    from mooring.config.sections import GatewaySettings, ProfileSettings
    from mooring.gateway.clients import Principal
    from mooring.gateway.profiles import Profile
    from mooring.gateway.routes import Routes
    from mooring.host import Host

__all__ = ["NodeCluster", "StaticNodes", "new_incarnation", "static_nodes"]

log = logger("mooring.cluster")

PROBE_INTERVAL = 1.0
PROBE_TIMEOUT = 3.0
ELSEWHERE, ELSEWHERE_WAIT = 10, 0.2
"""How often all other nodes are asked to answer a request while this one shuts down, and seconds between."""
_REASONS = {
    "key": "it has another `gateway.key`",
    "replay": "it has seen the header of this request before",
    "name": "another node with this name answers there",
}


def new_incarnation() -> str:
    return os.urandom(8).hex()


class NodeCluster(Cluster):
    """Nodes that reach each other over HTTP. Subclasses say which ones there are."""

    def __init__(self, me: NodeId, secrets: Sequence[bytes]) -> None:
        self.me = me
        self.seal = Seal([derived(one, "ids") for one in secrets])
        self._hops = HopKeys(me, [derived(one, "hops") for one in secrets])
        self.peers: dict[str, PeerNode] = {}
        """The other nodes by name."""
        self._routes: Routes | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._left: set[asyncio.Task[None]] = set()
        self._news: NodeChanges | None = None

    @property
    def settings(self) -> GatewaySettings:
        return self.routes.gateway.settings

    @property
    def routes(self) -> Routes:
        assert self._routes is not None
        return self._routes

    async def start(self, routes: Routes) -> None:
        self._routes = routes
        for peer in self.peers.values():
            self.watch(peer)
        self._news = NodeChanges(self)
        self._news.start()

    def watch(self, peer: PeerNode) -> None:
        """Check from now on whether a node answers."""
        self._tasks[peer.name] = asyncio.create_task(self._watch(peer))

    def unwatch(self, peer: PeerNode) -> None:
        """End the checks of a node that has left. It may have lost only the engine, so requests that wait for
        it go on until it counts as silent."""
        if (task := self._tasks.pop(peer.name, None)) is not None:
            task.cancel()
        leaving = asyncio.create_task(self._end(peer))
        self._left.add(leaving)
        leaving.add_done_callback(self._left.discard)

    async def _end(self, peer: PeerNode) -> None:
        try:
            while peer.awaited and peer.silence <= SILENT_AFTER:
                await self.probe(peer)
                await asyncio.sleep(PROBE_INTERVAL)
        finally:
            peer.give_up()
            await peer.close()

    async def leave(self) -> None:
        """Wait up to half of `drain` for answers of clients to calls of this node: no other node can resume
        them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain / 2):
                await self.routes.gateway.era_bridge.answered()

    async def stop(self) -> None:
        if self._news is not None:
            await self._news.stop()
        await end_tasks((*self._tasks.values(), *self._left))
        for peer in self.peers.values():
            await peer.close()

    # --- health ---------------------------------------------------------------------------------

    async def _watch(self, peer: PeerNode) -> None:
        while True:
            await self.probe(peer)
            if peer.silence > SILENT_AFTER:
                peer.give_up()
            await asyncio.sleep(PROBE_INTERVAL)

    async def probe(self, peer: PeerNode) -> None:
        """Ask a node who it is. Its state is in `peer` afterwards."""
        before = peer.problem
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                reason = await self._hello(peer)
                if reason == "incarnation":  # it has said which one it is now
                    reason = await self._hello(peer)
                peer.refuses = reason is not None
                peer.problem = None if reason is None else _REASONS.get(reason, f"it refuses: {reason}")
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as problem:
            if isinstance(problem, aiohttp.ClientConnectorError):
                peer.incarnation = None
            peer.problem = f"it does not answer ({type(problem).__name__})"
        if peer.problem != before:
            say = log.info if peer.problem is None else log.warning
            shown = "answers" if peer.problem is None else f"is not used: {peer.problem}"
            say("node %s node=%s url=%s", shown, peer.name, peer.url)

    async def _hello(self, peer: PeerNode) -> str | None:
        """Ask once; return why the node refused the hop, None if it accepted it."""
        async with self.ask(peer, "GET", "/peer/hello") as response:
            incarnation, reason = response.headers.get(NODE), response.headers.get(REFUSED)
            if incarnation is None:
                raise ValueError(f"HTTP {response.status}")
            peer.heard(incarnation)
            if reason == "incarnation" and incarnation == self.me.incarnation:
                return None  # this node itself
            return reason

    def ask(self, peer: PeerNode, method: str, path: str, **options: Any) -> Any:
        """Send a request of this node itself, to `/peer/…`. Use it as an async context manager."""
        target = self.settings.base_path + path
        to = NodeId(peer.name, peer.incarnation or "")
        return peer.session().request(
            method,
            address(peer.url + target),
            headers=self.signer(to, target)(method),
            allow_redirects=False,
            **options,
        )

    def signer(self, to: NodeId, target: str) -> Callable[[str], dict[str, str]]:
        """Return a function that returns the headers of a request of this node itself, with this method."""

        def sign(method: str) -> dict[str, str]:
            about = Hop(self.me, None, "localhost", "", None, True)
            return {HOP: self._hops.make(to, method, target, about), "Host": "localhost"}

        return sign

    # --- requests -------------------------------------------------------------------------------

    async def forward(
        self, request: WebRequest, owner: NodeId, body: bytes | None, *, counted: bool = False
    ) -> Response | None:
        peer, settings = self.peers.get(owner.name), self.settings
        if peer is None:
            raise OwnerGone(owner)
        if body is None and request.method == "POST":
            body = await request.read(settings.max_body, settings.body_timeout)
        query = f"?{request.query_string}" if request.query_string else ""
        target = f"{settings.base_path}{request.raw_path}{query}"
        base = request.base.removesuffix(settings.base_path)
        about = Hop(self.me, request.remote, request.host, base, request.certificate, counted)
        hop = self._hops.make(owner, request.method, target, about)
        try:
            return await peer.forward(request, owner, target, hop, body)
        except PeerRefused as refused:
            if refused.reason == MOVED:
                raise OwnerMoved(owner) from None
            reason = _REASONS.get(refused.reason, refused.reason)
            log.warning("request not accepted by node %s: %s", peer.name, reason)
            raise Denied(502, f"node {peer.name!r} did not accept the request: {reason}") from None

    async def elsewhere(self, request: WebRequest) -> Response | None:
        body: bytes | None = None
        if request.method == "POST":
            body = await request.read(self.settings.max_body, self.settings.body_timeout)
        for _ in range(ELSEWHERE):
            for peer in sorted(self.peers.values(), key=lambda one: (not one.up, one.silence)):
                if not peer.up:  # it may have started since it was checked
                    await self.probe(peer)
                if peer.up and peer.incarnation is not None:
                    with suppress(OwnerGone):
                        return await self.forward(request, NodeId(peer.name, peer.incarnation), body)
            # Each of them refused it before it was run: none has become the owner of its session yet.
            await asyncio.sleep(ELSEWHERE_WAIT)
        raise Denied(503, "the gateway is shutting down", {"Retry-After": "5", "Connection": "close"})

    async def found(self, request: WebRequest) -> Response | None:
        for peer in self.peers.values():
            if peer.incarnation is not None:
                with suppress(Denied):
                    answer = await self.forward(request, NodeId(peer.name, peer.incarnation), None)
                    if answer is not None and answer.status != 400:
                        return answer
        request.forwarded = False
        return None

    def admit(self, request: WebRequest, header: str) -> Hop:
        query = f"?{request.query_string}" if request.query_string else ""
        try:
            return self._hops.check(header, request.method, f"{request.raw_path}{query}")
        except HopRefused as refused:
            raise Denied(
                421,
                f"node {self.me.name!r} did not accept the hop",
                {NODE: self.me.incarnation, REFUSED: refused.reason},
            ) from None

    def moved(self) -> Denied:
        return Denied(
            421,
            f"node {self.me.name!r} does not own this session",
            {NODE: self.me.incarnation, REFUSED: MOVED},
        )

    async def peer(self, request: WebRequest, path: str) -> Response | None:
        if path == "/peer/hello":
            about = {"name": self.me.name, "version": __version__}
            return document(about, 200, {NODE: self.me.incarnation})
        if path == CHANGES and self._news is not None and request.hop is not None:
            return await self._news.received(request, request.hop.sender.name)
        raise Denied(404, "unknown path")

    async def watched(self) -> None:
        if self._news is not None:
            await self._news.watched()

    def wants(self, server: str, uri: str) -> bool:
        return self._news is not None and self._news.wants(server, uri)

    async def home(
        self, profile: Profile, principal: Principal, server: str | None, message: Mapping[str, Any]
    ) -> NodeId | None:
        return None

    # --- state ----------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """A node whose key differs from those of more than half of the nodes that answer is not ready."""
        refusing = [peer.name for peer in self.peers.values() if peer.problem == _REASONS["key"]]
        accepting = 1 + sum(peer.up for peer in self.peers.values())
        if len(refusing) <= accepting:
            return []
        return [f"another `gateway.key` than the nodes {', '.join(sorted(refusing))}"]

    def document(self) -> Mapping[str, Any]:
        nodes: dict[str, Any] = {self.me.name: {"incarnation": self.me.incarnation, "state": "here"}}
        for name, peer in sorted(self.peers.items()):
            state = "up" if peer.up else "down"
            nodes[name] = {"incarnation": peer.incarnation, "state": state, "url": peer.url}
            if peer.problem is not None:
                nodes[name]["problem"] = peer.problem
        return {"node": self.me.name, "nodes": nodes, "problems": self.problems()}


class StaticNodes(NodeCluster):
    """The nodes of `gateway.nodes`.

    Args:
        config: The configuration.
        name: Name of this node; None: `gateway.node`.
        ssl: Returns the TLS settings for a URL.

    Raises:
        ConfigError: A setting that nodes need is missing or unsafe.
    """

    def __init__(self, config: HostConfig, name: str | None, ssl: Mapping[str, Any]) -> None:
        settings = config.gateway
        mine = _my_name(settings, name)
        if not settings.key:
            raise ConfigError(
                "`gateway.nodes` needs a `gateway.key` that all nodes share", place="gateway.key"
            )
        super().__init__(NodeId(mine, new_incarnation()), key_secrets(settings.key))
        self._nodes = settings.nodes
        _check_plain(settings)
        _check_addresses(settings.nodes)
        self.peers = {
            name: PeerNode(name, url, ssl=ssl.get(name, True))
            for name, url in settings.nodes.items()
            if name != mine
        }
        self._myself = PeerNode(mine, settings.nodes[mine], ssl=ssl.get(mine, True))

    def check(self, config: HostConfig, default_profile: ProfileSettings) -> None:
        settings = config.gateway
        if settings.nodes != self._nodes:
            raise ConfigError("the nodes cannot change while they run; restart", place="gateway.nodes")
        found = [
            f"server {one.name!r} has `isolation: session`: clients of 2026 have no session id, so their "
            "requests would start it on every node"
            for one in config.active
            if one.isolation == "session"
        ]
        found += [
            f"server {one.name!r} has `placement: cluster`: the nodes cannot agree which of them runs it"
            for one in config.active
            if one.placement == "cluster"
        ]
        profiles = [("`--discovery`", default_profile)]
        profiles += [(f"profile {name!r}", one) for name, one in settings.profiles.items()]
        found += [
            f"{name} has `discovery: {one.discovery}`: what a client of 2026 selects is known to one node"
            for name, one in profiles
            if one.discovery != "never"
        ]
        if found:
            lines = [
                "These settings do not work with `gateway.nodes` alone; use `--cluster nats://…`:",
                *found,
            ]
            raise ConfigError("\n  ".join(lines))

    async def start(self, routes: Routes) -> None:
        self._routes = routes
        await self.probe(self._myself)
        if self._is_taken():
            raise ConfigError(
                f"A node with the name {self.me.name!r} runs already at {self._myself.url}; give this one "
                "another name with `--node`, or end the other",
                place="gateway.nodes",
            )
        await super().start(routes)
        self.watch(self._myself)

    async def stop(self) -> None:
        await super().stop()
        await self._myself.close()

    def _is_taken(self) -> bool:
        return self._myself.incarnation not in (None, self.me.incarnation)

    def problems(self) -> list[str]:
        found = super().problems()
        if self._is_taken():
            found.append(f"another node with the name {self.me.name!r} answers at {self._myself.url}")
        return found


def _my_name(settings: GatewaySettings, name: str | None) -> str:
    mine = name or settings.node
    if mine is None:
        raise ConfigError(
            "this node needs a name of `gateway.nodes`: start it with `--node NAME`, or set `gateway.node`",
            place="gateway.node",
        )
    if mine not in settings.nodes:
        names = ", ".join(sorted(settings.nodes))
        raise ConfigError(f"{mine!r} is not in `gateway.nodes`; it has {names}", place="gateway.node")
    return mine


def _check_plain(settings: GatewaySettings) -> None:
    """Refuse plain HTTP between machines: requests carry the tokens of clients."""
    for name, url in settings.nodes.items():
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not settings.plain_nodes:
            raise ConfigError(
                f"node {name!r} would get tokens of clients over plain HTTP; use https, or set "
                "`gateway.plain_nodes: true` if the network between the nodes is encrypted",
                place=f"gateway.nodes.{name}",
            )


def _check_addresses(nodes: Mapping[str, str]) -> None:
    """Refuse a URL that two nodes have: requests for one of them would reach the other."""
    known: dict[tuple[str | None, int | None], str] = {}
    for name, url in nodes.items():
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        first = known.setdefault((parts.hostname, port), name)
        if first != name:
            raise ConfigError(
                f"nodes {first!r} and {name!r} have the same URL ({url}). Give each node its own",
                place="gateway.nodes",
            )


async def static_nodes(host: Host, name: str | None) -> StaticNodes | None:
    """Return the nodes of the configuration; None if it has none.

    Raises:
        ConfigError: A setting that nodes need is missing or unsafe.
    """
    config = host.config
    if not config.gateway.nodes:
        if name is not None:
            raise ConfigError("`--node` needs `gateway.nodes`, or `--cluster`")
        return None
    return StaticNodes(
        config, name, {name: await peer_tls(config, url) for name, url in config.gateway.nodes.items()}
    )


async def peer_tls(config: HostConfig, url: str) -> Any:
    """Return the TLS context for a node: with the authorities and the client certificate of `tls`."""
    if not url.startswith("https:"):
        return True
    from mooring.transport.pool import HttpRoutes

    return (await HttpRoutes().to(*await peer_target(config, url))).ssl


async def peer_target(config: HostConfig, url: str, name: str = "node") -> tuple[ServerConfig, Target]:
    """Return a URL of a node as a server, which is reached with the host's `tls` settings."""
    from mooring.config import default_lookup
    from mooring.config.models import ConfigSource, ServerConfig
    from mooring.config.plan import reached
    from mooring.config.secrets import resolve_within

    server = ServerConfig(name=name, url=url, source=ConfigSource(scope="explicit"))
    lookup = default_lookup(os.environ, source=server.source)
    return server, await resolve_within(10, reached(server, config), lookup, slow=False)
