"""Changes of shared servers: each node runs a copy, and clients of all nodes are notified when one changes.

Each node tells the others which resources its clients are subscribed to, so that every copy is subscribed to
them, and passes on what its copies announce.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from mooring.cluster.forward import NODE, PeerNode
from mooring.concurrency import end_tasks
from mooring.config.logs import logger
from mooring.core.events import ResourceUpdated
from mooring.errors import MooringError
from mooring.gateway.web import Denied, Response, WebRequest, document
from mooring.host import runtime_of

if TYPE_CHECKING:
    from mooring.cluster.nodes import NodeCluster
    from mooring.servers.connection import Connection

__all__ = ["PATH", "NodeChanges"]

log = logger("mooring.cluster")

PATH = "/peer/changes"
MAX_WATCHED = 10_000
"""Resources that one node can have watched by the others."""
MAX_BODY = 8 * 2**20
SEND_TIMEOUT = 3.0
SYNC_INTERVAL = 1.0
Watched = frozenset[tuple[str, str]]
"""Servers and URIs."""


class NodeChanges:
    """Passes on changes between nodes.

    Args:
        nodes: The nodes; their gateway must have been started.
    """

    def __init__(self, nodes: NodeCluster) -> None:
        self._nodes = nodes
        self._gateway = nodes.routes.gateway
        self._host = self._gateway.host
        self._servers = runtime_of(self._host).servers
        self._wanted: dict[str, Watched] = {}
        """What the clients of each other node are subscribed to."""
        self._sent: dict[str, tuple[str | None, Watched]] = {}
        """What each node got last, and which start of it."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        self._servers.announce = self._lists_changed
        self._spawn(self._follow())
        self._spawn(self._keep_sending())

    async def stop(self) -> None:
        self._servers.announce = None
        await end_tasks(self._tasks)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what this node announces ---------------------------------------------------------------

    async def _follow(self) -> None:
        async for event in self._host.events(ResourceUpdated):
            if isinstance(event, ResourceUpdated) and event.session is None and self._runs(event.server):
                await self._send_all({"server": event.server, "uri": event.uri})

    def _lists_changed(self, server: str) -> None:
        if self._runs(server):
            self._spawn(self._send_all({"server": server}))

    def _runs(self, server: str) -> bool:
        """Whether each node has a copy of a server."""
        connection = self._servers.connections.get(server)
        return connection is not None and connection.supervisor.place is None

    async def _send_all(self, change: dict[str, Any]) -> None:
        await asyncio.gather(*(self._send(peer, change) for peer in self._nodes.peers.values() if peer.up))

    async def _send(self, peer: PeerNode, change: dict[str, Any]) -> bool:
        with suppress(aiohttp.ClientError, OSError, ValueError, TimeoutError):
            body = json.dumps(change).encode()
            async with (
                asyncio.timeout(SEND_TIMEOUT),
                self._nodes.ask(peer, "POST", PATH, data=body) as response,
            ):
                return response.status == 200
        return False

    # --- subscriptions --------------------------------------------------------------------------

    async def watched(self) -> None:
        """Tell the other nodes what the clients of this one are subscribed to, where that changed."""
        mine = self._gateway.era_bridge.watched_shared()
        if len(mine) > MAX_WATCHED:
            log.warning("more subscribed resources than other nodes can watch count=%d", len(mine))
            mine = frozenset(sorted(mine)[:MAX_WATCHED])
        late = [
            peer
            for peer in self._nodes.peers.values()
            if peer.up and self._sent.get(peer.name) != (peer.incarnation, mine)
        ]

        async def tell(peer: PeerNode) -> None:
            known = (peer.incarnation, mine)
            if await self._send(peer, {"watched": sorted(mine)}):
                self._sent[peer.name] = known

        await asyncio.gather(*map(tell, late))

    async def _keep_sending(self) -> None:
        while True:
            await self.watched()
            for name in self._wanted.keys() - self._nodes.peers.keys():
                await self._want(name, frozenset())
            await asyncio.sleep(SYNC_INTERVAL)

    def wants(self, server: str, uri: str) -> bool:
        """Whether clients of another node are subscribed to a resource."""
        return any((server, uri) in one for one in self._wanted.values())

    async def _want(self, node: str, wanted: Watched) -> None:
        """Watch what the clients of a node are subscribed to, and no longer what they were."""
        before, self._wanted[node] = self._wanted.get(node, frozenset()), wanted
        if not wanted:
            del self._wanted[node]
        here = self._gateway.era_bridge.watched_shared()
        for server, uri in wanted - before - here:
            if (connection := self._copy(server)) is not None:
                with suppress(MooringError):
                    await connection.watch(uri, SEND_TIMEOUT)
        for server, uri in before - wanted - here:
            if not self.wants(server, uri) and (connection := self._copy(server)) is not None:
                with suppress(MooringError):
                    await connection.unwatch(uri, SEND_TIMEOUT)

    def _copy(self, server: str) -> Connection | None:
        return self._servers.connections.get(server) if self._runs(server) else None

    # --- what other nodes announce --------------------------------------------------------------

    async def received(self, request: WebRequest, sender: str) -> Response:
        """Apply what another node says.

        Raises:
            Denied: It cannot be read.
        """
        try:
            given: object = json.loads(await request.read(MAX_BODY, SEND_TIMEOUT))
            said = cast("dict[str, Any]", given)
            if "watched" in said:
                pairs = frozenset((str(server), str(uri)) for server, uri in said["watched"][:MAX_WATCHED])
                await self._want(sender, pairs)
            elif "uri" in said:
                self._updated(str(said["server"]), str(said["uri"]))
            elif (connection := self._copy(str(said["server"]))) is not None:
                connection.supervisor.notices.missed()
        except (ValueError, KeyError, TypeError):
            raise Denied(400, "the change cannot be read") from None
        return document({}, 200, {NODE: self._nodes.me.incarnation})

    def _updated(self, server: str, uri: str) -> None:
        self._servers.forget(server, uri)
        self._gateway.subscriptions.updated(server, uri, None)
