"""Servers with `placement: cluster`: one node runs each of them, the others reach it through that node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import aiohttp

from mooring.cluster.coordinator import Coordinator, NotPlaced
from mooring.cluster.fencing import clock
from mooring.cluster.forward import MOVED, NODE, REFUSED
from mooring.cluster.nodes import peer_target
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.sections import ProfileSettings
from mooring.core.catalog import merge
from mooring.core.value import replace
from mooring.errors import ConfigError, ConnectError, MooringError
from mooring.gateway.clients import Principal
from mooring.gateway.nodes import Hop, NodeId
from mooring.gateway.profiles import Profile, ProfileCatalog
from mooring.gateway.web import Denied, Response, WebRequest, document
from mooring.host import runtime_of
from mooring.servers.state import Elsewhere, Place, ServerLease

if TYPE_CHECKING:
    from mooring.cluster.engine_nodes import EngineNodes
    from mooring.core.types import Snapshot, Tool
    from mooring.host import Host
    from mooring.servers.connection import Connection

__all__ = ["SessionLease", "SharedOnce", "check_once"]

PATH = "/peer/mcp/"
PLACE = "/peer/place/"
ASK_TIMEOUT, ASK_INTERVAL = 2.0, 0.1
CHECK_INTERVAL = 0.5
"""Seconds between two checks whether the nodes of servers elsewhere still answer."""


def check_once(config: HostConfig) -> None:
    """Check the servers that run once.

    Raises:
        ConfigError: Names a server that cannot run once.
    """
    for server in config.active:
        if server.placement != "cluster":
            continue
        if server.isolation == "session":
            raise ConfigError(
                f"server {server.name!r} has `placement: cluster` and `isolation: session`, which contradict "
                "each other: remove one of them. Private servers run once for each client by themselves"
            )
        if server.start == "eager":
            raise ConfigError(
                f"server {server.name!r} has `placement: cluster`, so it starts after this node has joined "
                "the cluster; remove `start: eager`"
            )


class ServerProfile(Profile):
    """One server as it is, for other nodes: they apply their names, transforms, policy, guards and logs."""

    inner = True

    def __init__(self, host: Host, server: str) -> None:
        super().__init__(host, ProfileSettings(style="raw"), f"server:{server}")
        self.server = server
        self._raw: Snapshot | None = None

    @property
    def connection(self) -> Connection:
        return self._runtime.servers.connection(self.server)

    @property
    def contents(self) -> ProfileCatalog:
        snapshot = self.connection.snapshot
        if self._contents is None or self._raw is not snapshot:
            self._raw = snapshot
            catalog = merge(
                [replace(snapshot, prompts=())], style="raw", configured=frozenset((self.server,))
            )
            self._contents = ProfileCatalog(
                catalog=catalog,
                prompts={one.name: one for one in snapshot.prompts},
                resources={one.uri: one for one in snapshot.resources},
                templates={one.uri_template: one for one in snapshot.templates},
            )
        return self._contents

    def admits(self, server: str) -> bool:
        return server == self.server

    def allows(self, tool: Tool) -> bool:
        return True

    async def permit(self, tool: Tool, arguments: Mapping[str, Any], context: Any, timeout: Any) -> None:
        return

    def shown_to(self, session: Any, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        return tools

    @property
    def by_caller(self) -> bool:
        return False

    @property
    def guards(self) -> None:
        return None

    @property
    def audit(self) -> None:
        return None


class SessionLease:
    """Permission of one principal's private servers to run on this node."""

    def __init__(self, coordinator: Coordinator, key: str) -> None:
        self._coordinator, self._key = coordinator, key

    def problem(self) -> str | None:
        if self._coordinator.may_send(self._key) is not None:
            return None
        return (
            f"node {self._coordinator.me.name!r} does not own this session any more, because its lease in "
            "the cluster ended. Send the request again"
        )

    def started(self, pid: int) -> None:
        self._coordinator.watchdog.add(pid)

    def ended(self, pid: int | None) -> None:
        if pid is not None:
            self._coordinator.watchdog.remove(pid)


class OnceLease:
    """Permission of one server to run on this node."""

    def __init__(self, coordinator: Coordinator, server: str, key: str) -> None:
        self._coordinator, self._server, self._key = coordinator, server, key
        self.closed = asyncio.Event()
        """Set when its transport has closed."""

    def problem(self) -> str | None:
        if self._coordinator.may_send(self._key) is not None:
            return None
        return (
            f"node {self._coordinator.me.name!r} does not run server {self._server!r} any more, because its "
            "lease in the cluster ended. Send the request again"
        )

    def started(self, pid: int) -> None:
        self._coordinator.watchdog.add(pid)

    def ended(self, pid: int | None) -> None:
        if pid is not None:
            self._coordinator.watchdog.remove(pid)
        self.closed.set()


class SharedOnce:
    """Places the servers with `placement: cluster`, and serves those of this node to the others.

    Args:
        host: The host that is served. It must not have been entered.
        nodes: The nodes of the cluster.
        key: Returns the placement key of a server.
    """

    def __init__(self, host: Host, nodes: EngineNodes, key: Any) -> None:
        check_once(host.config)
        self._host, self._nodes, self._key = host, nodes, key
        self._joined = asyncio.Event()
        self._here: dict[str, OnceLease] = {}
        """Leases by key."""
        self._names: dict[str, str] = {}
        """Servers by key."""
        self._elsewhere: dict[str, NodeId] = {}
        """Nodes by server."""
        self._checking: asyncio.Task[None] | None = None
        self._leaving = self._stopped = False
        runtime_of(host).servers.place_of = self._place_of

    def joined(self) -> None:
        """Called when this node has a lease."""
        self._joined.set()
        self._checking = asyncio.create_task(self._check())

    def leave(self) -> None:
        """Run no more servers: requests of other nodes are for the next owner."""
        self._leaving = True

    def stop(self) -> None:
        self._stopped = True
        if self._checking is not None:
            self._checking.cancel()

    def __contains__(self, key: str) -> bool:
        return key in self._names

    # --- connections of this node ---------------------------------------------------------------

    def _place_of(self, server: ServerConfig) -> Place:
        async def place() -> ServerLease | Elsewhere:
            await self._joined.wait()
            if self._stopped:
                raise ConnectError("this node is shutting down; another one runs it", server=server.name)
            node, key = await self._owner(server.name), self._key("server", server.name)
            if node == self._nodes.me:
                self._elsewhere.pop(server.name, None)
                lease = self._here[key] = OnceLease(self._nodes.coordinator, server.name, key)
                return lease
            self._elsewhere[server.name] = node
            return await self._at(server, node)

        return place

    async def _owner(self, server: str) -> NodeId:
        """Return the node that runs a server, after it said so itself.

        Raises:
            ConnectError: There is none in time.
        """
        coordinator, key = self._nodes.coordinator, self._key("server", server)
        self._names[key] = server
        until = clock() + coordinator.rules.ttl + 2
        while True:
            try:
                node = await coordinator.place(key, {"server": server}, max(until - clock(), 0.0))
            except NotPlaced as problem:
                raise ConnectError(str(problem), server=server) from None
            if node == self._nodes.me:
                return node
            owns = await self._says_it_owns(node, server)
            if owns:
                return node
            coordinator.forget(node, gone=owns is None)
            if clock() >= until:
                raise ConnectError(f"node {node.name!r}, which should run it, does not", server=server)
            await asyncio.sleep(ASK_INTERVAL)

    async def _says_it_owns(self, node: NodeId, server: str) -> bool | None:
        """Ask a node whether it runs a server; it becomes the owner if there is none. None: no answer."""
        peer = self._nodes.peers.get(node.name)
        if peer is None:
            return None
        path = f"{PLACE}{quote(server, safe='')}"
        with suppress(aiohttp.ClientError, OSError, ValueError, TimeoutError):
            async with asyncio.timeout(ASK_TIMEOUT), self._nodes.ask(peer, "POST", path) as response:
                if response.status == 200:
                    return (await response.json()).get("owns") is True
                if response.headers.get(REFUSED) == "incarnation":
                    return None
                return False
        return None

    async def _at(self, server: ServerConfig, node: NodeId) -> Elsewhere:
        """Return the endpoint of another node for a server."""
        peer = self._nodes.peers.get(node.name)
        if peer is None:
            raise ConnectError(
                f"node {node.name!r}, which runs it, is not known here yet", server=server.name
            )
        path = f"{self._nodes.settings.base_path}{PATH}{quote(server.name, safe='')}"
        reach, target = await peer_target(self._host.config, peer.url + path, server.name)
        reach = replace(reach, max_message=server.max_message, shutdown_grace=server.shutdown_grace)
        return Elsewhere(
            config=reach, target=replace(target, proxy=None, sign=self._nodes.signer(node, path))
        )

    async def _check(self) -> None:
        """Connect servers again whose node does not answer for the time of a lease."""
        coordinator = self._nodes.coordinator
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            for server, node in list(self._elsewhere.items()):
                peer = self._nodes.peers.get(node.name)
                # A node that has ended refuses the next request by itself: only silence must be noticed here.
                known = node.name in coordinator.members
                if peer is None or not known or peer.silence > coordinator.rules.ttl:
                    coordinator.forget(node, gone=True)
                    self._drop(server, f"node {node.name!r}, which ran it, does not answer")

    def _drop(self, server: str, reason: str) -> None:
        """Close the connection to a server; its supervisor finds the next node."""
        self._elsewhere.pop(server, None)
        connection = runtime_of(self._host).servers.connections.get(server)
        if connection is not None and connection.supervisor.live is not None:
            connection.supervisor.live.channel.mark_closed(reason)

    async def give_up(self, key: str, *, wait: bool) -> None:
        """End a server of this node and release its key; running requests end before if `wait`."""
        coordinator, server = self._nodes.coordinator, self._names.get(key, "")
        connection = runtime_of(self._host).servers.connections.get(server)
        with coordinator.closing(key):
            while wait and connection is not None and connection.load().running:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            lease = self._here.pop(key, None)
            self._drop(server, "its node is shutting down; another one runs it")
            if lease is not None and connection is not None and connection.supervisor.lease is lease:
                await lease.closed.wait()
            await coordinator.release(key)

    def fenced(self, key: str) -> None:
        """Connect a server of a lost lease again; its process is dead already."""
        self._here.pop(key, None)
        self._drop(self._names.get(key, ""), "the lease of this node in the cluster ended")

    # --- requests of other nodes ----------------------------------------------------------------

    async def placed(self, path: str) -> Response:
        """Answer whether this node runs a server; it becomes its owner if there is none."""
        server, me = unquote(path.removeprefix(PLACE)), self._nodes.me
        key = self._key("server", server)
        known = server in runtime_of(self._host).servers.configs
        if not known or not self._joined.is_set() or self._leaving:
            return document({"owns": False}, 200, {NODE: me.incarnation})
        self._names[key] = server
        try:
            node = await self._nodes.coordinator.place(key, {"server": server}, ASK_TIMEOUT / 2)
        except NotPlaced:
            node = None
        return document({"owns": node == me}, 200, {NODE: me.incarnation})

    async def serve(self, request: WebRequest, path: str, hop: Hop) -> Response | None:
        """Answer a request of another node to a server that this one runs.

        Raises:
            Denied: 421 if another node runs it.
        """
        server = unquote(path.removeprefix(PATH))
        me = self._nodes.coordinator.me
        if self._leaving or self._nodes.coordinator.may_send(self._key("server", server)) is None:
            raise Denied(
                421,
                f"node {me.name!r} does not run server {server!r}",
                {NODE: me.incarnation, REFUSED: MOVED},
            )
        routes = self._nodes.routes
        gateway = routes.gateway
        profile = gateway.inner.get(server)
        if not isinstance(profile, ServerProfile):
            profile = gateway.inner[server] = ServerProfile(self._host, server)
            gateway.subscriptions.follow(profile)
        if server in self._elsewhere:  # another node ran it until now
            self._drop(server, "this node runs it now")
        try:
            config = profile.connection.config
            await profile.connection.supervisor.connected(config.connect_timeout)
        except MooringError as problem:
            raise Denied(503, str(problem), {"Retry-After": "2"}) from None
        return await routes.endpoint.serve(request, profile, Principal(name=f"node:{hop.sender.name}"), {})
