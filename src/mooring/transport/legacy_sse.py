"""The old HTTP+SSE wire (2024-11-05): answers come on one long GET stream, requests go by POST to the
address that the stream names first.

Not the SDK's client: there one failed POST ends the connection for everyone, and no message may exceed
a megabyte.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import aiohttp
import anyio

from mooring.transport.duplex import DuplexTransport, Waiter
from mooring.transport.endpoint import HttpEndpoint, message_in
from mooring.transport.limits import cost
from mooring.transport.message import WireError

POST_TIMEOUT = 30.0


class SseTransport(DuplexTransport):
    """One stream in, POSTs out."""

    kind = "sse"

    def __init__(self, server: str, endpoint: HttpEndpoint) -> None:
        super().__init__(server, endpoint.max_message)
        self._stream = endpoint
        self._inbox: HttpEndpoint | None = None
        self._opened = anyio.Event()
        self._refusal: WireError | None = None

    async def pump(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear)
            await super().pump()
            tasks.cancel_scope.cancel()  # the stream may well be alive when the session is not

    async def opened(self) -> None:
        """Until the server has named the address for requests.

        Raises:
            WireError: it does not offer this transport, or cannot be reached.
        """
        await self._opened.wait()
        if self._refusal is not None:
            raise self._refusal

    async def close(self, grace: float) -> None:
        self.die("the connection was closed")

    def die(self, reason: str) -> None:
        super().die(reason)
        self._opened.set()

    def send(self, body: bytes, waiter: Waiter | None) -> None:
        if self.death is None:
            self.spawn(self._post, body, waiter)

    async def _post(self, body: bytes, waiter: Waiter | None) -> None:
        assert self._inbox is not None
        try:
            async with (
                asyncio.timeout(POST_TIMEOUT),
                self._inbox.open("POST", body, {"Content-Type": "application/json"}) as response,
            ):
                if response.status >= 300:
                    raise await self._inbox.refused(response, session=True)
        except TimeoutError:
            pass  # the waiting request has a deadline of its own
        except WireError as fault:
            if waiter is not None:
                waiter.fail(fault)

    async def _hear(self) -> None:
        try:
            async with self._stream.open("GET", None, {"Accept": "text/event-stream"}) as response:
                kind = response.headers.get("Content-Type", "")
                if response.status >= 300:
                    raise await self._stream.refused(response, session=False)
                if not kind.lower().startswith("text/event-stream"):
                    raise WireError(
                        f"the answer is of type {kind!r}, not a stream", kind="invalid", outcome="not sent"
                    )
                async for event in self._stream.events(response, self.charge):
                    if event.event == "endpoint":
                        self._inbox = self._stream.at(event.data.decode("utf-8", "replace"))
                        self._opened.set()
                        continue
                    began = perf_counter()
                    if not self.take(message_in(event.data), len(event.data), began):
                        self.dropped += bool(event.data)
                        self.charge(len(event.data), cost(began))
            self.die("the server ended the stream")
        except (WireError, aiohttp.ClientError, ConnectionError) as problem:
            fault = problem if isinstance(problem, WireError) else None
            if not self._opened.is_set():
                self._refusal = fault or WireError(str(problem), kind="closed", outcome="not sent")
            if fault is not None and fault.kind == "too-large":
                self.cut(str(fault))
            self.die(f"the stream broke off: {problem}")
