"""The header of a forwarded request: a peer proves that it sent this request, once, to this node.

No clock is compared: each sender numbers its requests, and the receiver keeps a window of the numbers that it
has seen. A node that starts again has another incarnation, to which no older header is addressed.
"""

from __future__ import annotations

import hmac
import itertools
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Sequence

from mooring.gateway.nodes import Hop, NodeId

__all__ = ["HopKeys", "HopRefused"]

WINDOW = 8192
"""Numbers behind the highest one of a sender that are still accepted, each once."""
MAX_SENDERS = 4096
"""Starts of other nodes whose numbers are kept."""
MAX_LENGTH = 8000


class HopRefused(Exception):
    """The header is not accepted. `reason` is `key`, `incarnation` or `replay`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class HopKeys:
    """Makes and checks headers. The first key signs, all of them are accepted."""

    def __init__(self, me: NodeId, keys: Sequence[bytes]) -> None:
        self._me, self._keys = me, tuple(keys)
        self._numbers = itertools.count(1)
        self._seen: OrderedDict[NodeId, _Window] = OrderedDict()

    def make(self, to: NodeId, method: str, target: str, about: Hop) -> str:
        """Return the header of a request.

        Args:
            to: The node that gets it.
            method: The HTTP method.
            target: Path and query, as they are sent.
            about: What is known of the client.
        """
        given = [self._me, to, next(self._numbers), *about[1:]]
        payload = urlsafe_b64encode(json.dumps(given, separators=(",", ":")).encode())
        return f"{payload.decode()}.{_mark(self._keys[0], method, target, payload).decode()}"

    def check(self, header: str, method: str, target: str) -> Hop:
        """Return what a header says.

        Raises:
            HopRefused: It was not made for this request, or is used again.
        """
        text, _, mark = header.partition(".")
        payload, given = text.encode("latin-1", "replace"), mark.encode("latin-1", "replace")
        if len(header) > MAX_LENGTH or not any(
            hmac.compare_digest(_mark(key, method, target, payload), given) for key in self._keys
        ):
            raise HopRefused("key")
        sender, to, number, *about = json.loads(urlsafe_b64decode(payload))
        if NodeId(*to) != self._me:
            raise HopRefused("incarnation")
        if not self._is_new(NodeId(*sender), number):
            raise HopRefused("replay")
        return Hop(NodeId(*sender), *about)

    def _is_new(self, sender: NodeId, number: int) -> bool:
        window = self._seen.get(sender)
        if window is None:
            window = self._seen[sender] = _Window()
            if len(self._seen) > MAX_SENDERS:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(sender)
        return window.take(number)


class _Window:
    """The highest number so far, and which of the `WINDOW` numbers up to it were taken."""

    __slots__ = ("_bits", "_highest")

    def __init__(self) -> None:
        self._highest = 0
        self._bits = bytearray(WINDOW)

    def take(self, number: int) -> bool:
        """Take a number; False if it was taken before, or is too old to know."""
        if number > self._highest:
            for passed in range(max(self._highest + 1, number - WINDOW + 1), number):
                self._bits[passed % WINDOW] = 0
            self._highest = number
        elif number <= self._highest - WINDOW or self._bits[number % WINDOW]:
            return False
        self._bits[number % WINDOW] = 1
        return True


def _mark(key: bytes, method: str, target: str, payload: bytes) -> bytes:
    signed = b"\n".join(
        (method.encode("latin-1", "replace"), target.encode("utf-8", "surrogateescape"), payload)
    )
    return urlsafe_b64encode(hmac.digest(key, signed, "sha256"))
