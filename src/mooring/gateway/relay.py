"""Between a client and the server that its request went to: what either says meanwhile reaches the other."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from mooring.gateway.client import Client
from mooring.gateway.protocol import METHOD_NOT_FOUND, Refusal
from mooring.net.passage import PASSAGE, Passage

__all__ = ["Relay"]


class Relay:
    """All requests that are under way, by server."""

    def __init__(self) -> None:
        self._under_way: dict[str, list[Passage]] = {}

    @contextmanager
    def under_way(self, server: str, passage: Passage) -> Generator[None]:
        """While the block runs, what `server` says in answer belongs to `passage`."""
        passages = self._under_way.setdefault(server, [])
        passages.append(passage)
        token = PASSAGE.set(passage)
        try:
            yield
        finally:
            PASSAGE.reset(token)
            passages.remove(passage)

    def capabilities_of(self, client: Client) -> Mapping[str, Any]:
        """What a server may ask of the client, as far as it goes through us."""
        known = ("elicitation", "sampling", "roots")
        return {key: client.capabilities[key] for key in known if key in client.capabilities}

    def incoming(self, client: Client, server: str, about: str, params: dict[str, Any]) -> dict[str, Any]:
        """Further parameters of a request, as its server may have them."""
        return params

    def outgoing(self, client: Client, server: str, about: str, result: dict[str, Any]) -> dict[str, Any]:
        """A result, as the client may have it."""
        return result

    async def ask(
        self, client: Client, server: str, method: str, params: dict[str, Any], about: str
    ) -> dict[str, Any]:
        """The raw result of a request that is no call.

        Raises:
            MooringError: there is none.
            Refusal: this provider answers nothing but calls.
        """
        provider: Any = client.view.provider(server)
        if not hasattr(provider, "ask"):
            raise Refusal(METHOD_NOT_FOUND, f"{server!r} does not do {method!r}")
        timeout = client.view.settings.call_timeout
        return cast("dict[str, Any]", await provider.ask(method, params, about=about, timeout=timeout))

    async def watch(self, client: Client, uri: str) -> None:
        raise Refusal(METHOD_NOT_FOUND, "subscriptions to resources are not offered")

    async def unwatch(self, client: Client, uri: str) -> None:
        raise Refusal(METHOD_NOT_FOUND, "subscriptions to resources are not offered")

    async def watch_all(self, client: Client, uris: list[str]) -> list[str]:
        """Have the changes of resources told; those that are."""
        return []

    async def unwatch_all(self, client: Client, uris: list[str]) -> None:
        """Have them told no longer."""
