"""What a gateway asks about other nodes. One process alone has none; `mooring.cluster` has the others.

A node is one gateway process. It has a name, and an incarnation that is random for each start. What a client
holds between two requests (a session id, a request state, a login link) is sealed with the node that keeps
the thing behind it, so that every node can forward a request to its owner.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from mooring.gateway.web import Denied

if TYPE_CHECKING:
    from mooring.config.models import HostConfig
    from mooring.config.sections import ProfileSettings
    from mooring.gateway.clients import Principal, SessionCounts
    from mooring.gateway.profiles import Profile
    from mooring.gateway.routes import Limits, Routes
    from mooring.gateway.seal import Seal
    from mooring.gateway.web import Response, WebRequest

__all__ = ["Cluster", "Hop", "NodeId", "OwnerGone", "OwnerMoved", "home_server", "is_private"]

HOP = "Mooring-Hop"
"""Header of a request that another node forwards."""


ID = "id"
"""What a sealed id is sealed for."""


class NodeId(NamedTuple):
    """One start of one node."""

    name: str
    incarnation: str
    """16 hexadecimal digits."""


class Hop(NamedTuple):
    """What the forwarding node knows of the client, in the sealed header of a forwarded request."""

    sender: NodeId
    remote: str | None
    host: str | None
    base: str
    certificate: str | None
    counted: bool
    """Whether the sender counted the request for the limits of the client."""


class Cluster(ABC):
    """The other nodes. `Gateway.cluster` is None if there are none."""

    me: NodeId
    grace: float = 1.0
    """Seconds for which open connections are served by other nodes when this one shuts down."""
    socket: str | None = None
    """Path of a Unix socket on which the gateway listens for the other nodes; they share the port then."""
    seal: Seal
    """Seals ids and states. All nodes open what one of them sealed."""

    def new_id(self) -> str:
        """Return a new id of something that this node keeps for a client, such as a session."""
        name, incarnation = self.me
        return self.seal.close(name.encode() + bytes.fromhex(incarnation) + os.urandom(16), ID)

    def owner(self, sealed: object) -> NodeId | None:
        """Return the node that made an id; None if no node of this cluster did."""
        data = self.seal.open(sealed, ID)
        return None if data is None else NodeId(data[:-24].decode(), data[-24:-16].hex())

    @abstractmethod
    def check(self, config: HostConfig, default_profile: ProfileSettings) -> None:
        """Check a configuration at the start and at each reload.

        Raises:
            ConfigError: Names every setting that does not work with these nodes.
        """

    @abstractmethod
    async def start(self, routes: Routes) -> None:
        """Called before the gateway listens.

        Raises:
            ConfigError: The node cannot take part.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Called when the gateway has drained."""

    @abstractmethod
    async def home(
        self, profile: Profile, principal: Principal, server: str | None, message: Mapping[str, Any]
    ) -> NodeId | None:
        """Return the node that keeps what requests of a principal share without an id (2026 era); None for
        any node.

        Args:
            profile: The profile of the request.
            principal: Who asks.
            server: The server that has the state; None for state of the gateway itself, such as the tools
                that the principal selected.
            message: The request.

        Raises:
            Denied: No node can be found now.
        """

    def serving(self, profile: Profile, principal: Principal) -> AbstractContextManager[None]:
        """Return a context in which this node answers a request of a principal, after `home` or `arrived`: it
        does not give up meanwhile what the request uses."""
        return nullcontext()

    async def arrived(
        self, profile: Profile, principal: Principal, server: str | None, message: Mapping[str, Any]
    ) -> None:
        """Check that a request which another node forwarded belongs here; see `home`.

        Raises:
            Denied: 421 if another node is its home by now.
        """
        return

    @abstractmethod
    def moved(self) -> Denied:
        """Return the response to a request of another node that this one does not answer any more, because it
        gives up what it owns. The other node finds the next owner."""

    async def watched(self) -> None:
        """Called when clients of this node are subscribed to another resource of a shared server."""
        return

    def wants(self, server: str, uri: str) -> bool:
        """Whether clients of another node are subscribed to a resource of a shared server."""
        return False

    async def leave(self) -> None:
        """Called when the gateway shuts down, while it still serves."""
        return

    @abstractmethod
    async def forward(
        self, request: WebRequest, owner: NodeId, body: bytes | None, *, counted: bool = False
    ) -> Response | None:
        """Have the owner answer a request. The response is returned, or was written as a stream (None).

        Args:
            request: The request of the client.
            owner: The node.
            body: The body if it was read before.
            counted: Whether the request counts for the limits of the client already.

        Raises:
            Denied: 404 if the owner is gone; 502, 503 or 504 if it does not answer.
        """

    @abstractmethod
    async def elsewhere(self, request: WebRequest) -> Response | None:
        """Have any other node answer a request that needs no owner, because this one is shutting down.

        Raises:
            Denied: No other node is there.
        """

    @abstractmethod
    async def found(self, request: WebRequest) -> Response | None:
        """Return the response of the node that knows a request without a body; None if none does. A node that
        does not know it answers with the status 400 and does nothing."""

    @abstractmethod
    def admit(self, request: WebRequest, header: str) -> Hop:
        """Return what the header of a forwarded request says.

        Raises:
            Denied: It was not made by a node for this request and this node, or it was used before.
        """

    @abstractmethod
    async def peer(self, request: WebRequest, path: str) -> Response | None:
        """Answer a request of another node to `/peer/…`. Its hop was checked.

        Raises:
            Denied: The path is unknown.
        """

    def limits(self, **settings: Any) -> Limits | None:
        """Return limits of clients that all nodes share; None to count per node."""
        return None

    async def admit_client(self, client: str) -> None:
        """Count a request for limits that need the other nodes.

        Raises:
            Denied: 429 beyond a limit.
        """
        return

    def session_counts(self) -> SessionCounts | None:
        """Return the numbers of sessions that all nodes share; None to count per node."""
        return None

    async def make_room(self, account: str, asking: str) -> bool:
        """End the longest idle session of an account on any node, for one that `asking` opens.

        Args:
            account: Whose limit is reached; `*`: that of all clients, then another account that has more than
                half of all sessions loses one, or else `asking`.
            asking: The account that opens a session.
        """
        return False

    async def admin(self, request: WebRequest, body: bytes | None) -> list[Any]:
        """Return the answers of the other workers to an admin request; those that refuse it are left out."""
        return []

    async def metrics(self, own: str) -> str:
        """Return the metrics to report, from those of this node."""
        return own

    def problems(self) -> list[str]:
        """Return why this node should get no requests; empty if it is ready."""
        return []

    async def status(self) -> Mapping[str, Any]:
        """Return `nodes` and `owners` as JSON, for the admin API and the console."""
        about = self.document().get("nodes", {})
        return {"nodes": [{"name": name, **one} for name, one in about.items()], "owners": []}

    def document(self) -> Mapping[str, Any]:
        """Return the state of the nodes as JSON, for `/ready` and the admin API."""
        return {}


class OwnerGone(Denied):
    """The node that kept a session or a suspended call has ended; a new start of it knows nothing of them."""

    def __init__(self, owner: NodeId) -> None:
        super().__init__(404, f"Session not found: node {owner.name!r}, which kept it, is gone")


class OwnerMoved(OwnerGone):
    """The node is there, but does not own the session any more."""


_ANYWHERE = frozenset(
    ("server/discover", "ping", "resources/list", "resources/templates/list", "prompts/list")
)


def home_server(profile: Profile, method: object, params: Mapping[str, Any]) -> str | None:
    """Return the server whose state a request of the 2026 era uses without an id; empty for state of the
    gateway itself, or if several servers may be meant; None if any node may answer."""
    if method in _ANYWHERE:
        return None
    if profile.settings.discovery != "never":
        return ""  # the tools that the principal selected
    if method == "tools/list":
        return None
    tool = profile.catalog.tools.get(str(params.get("name"))) if method == "tools/call" else None
    if tool is not None:
        return tool.server if is_private(profile, tool.server) else None
    return "" if any(is_private(profile, one.name) for one in profile.host.config.active) else None


def is_private(profile: Profile, server: str) -> bool:
    """Whether each client has a connection of its own to this server."""
    return profile.admits(server) and not profile.shares(server)
