"""What servers without a lock offered the last time, kept for this user alone.

The cache belongs to mooring: what cannot be read is not there, and what cannot be written is let go.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from mooring.config.homes import cache_home
from mooring.config.kept import keep, kept
from mooring.config.logs import logger
from mooring.core import pinrows
from mooring.core.pin import Pin

__all__ = ["Recollection", "cache_path", "recall", "remember"]

_FORMAT = f"3.{pinrows.FORMAT}"
_KEPT = 512
"""Servers that the cache remembers; the longest unused go first."""

_log = logger("mooring.pincache")


class _About(NamedTuple):
    """The first line of a file: what is to be known without reading the definitions after it."""

    version: str
    server: str
    fingerprint: str
    protocol: str | None
    tools: int
    templates: int
    prompts: int


class Recollection:
    """A pin in the cache. Its definitions are read when somebody wants them."""

    def __init__(self, about: _About, body: bytes) -> None:
        self._server, self._body = about.server, body
        self.protocol = about.protocol
        self.tools, self.templates, self.prompts = about.tools, about.templates, about.prompts

    @cached_property
    def pin(self) -> Pin | None:
        """The pin; None when this mooring cannot read it."""
        try:
            return pinrows.read(self._body)
        except ValueError as error:
            _log.debug("The cache of server %r is ignored: %s", self._server, error)
            return None

    def says(self, pin: Pin) -> bool:
        """Whether it holds this very pin, to the letter; told without reading its definitions."""
        return self._body == pinrows.write(pin)


def cache_path(server: str, fingerprint: str) -> Path:
    """Return where the pin of a server without a lock is kept for this user."""
    readable = re.sub(r"[^a-z0-9]+", "-", server.lower())[:40].strip("-")
    unique = sha256(f"{server}\0{fingerprint}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return cache_home() / "servers" / f"{readable}-{unique}.lock"


def remember(pin: Pin) -> None:
    """Keep a pin for the next start; where that fails there is no cache, and nothing else is lost."""
    path = cache_path(pin.server, pin.fingerprint)
    known = pin.snapshot
    about = _About(
        _FORMAT,
        pin.server,
        pin.fingerprint,
        known.info.protocol,
        len(known.tools),
        len(known.templates),
        len(known.prompts),
    )
    try:
        keep(path, json.dumps(about).encode() + b"\n" + pinrows.write(pin), most=_KEPT)
    except OSError as error:
        _log.debug("No cache for server %r: %s", pin.server, error)


def recall(server: str, fingerprint: str) -> Recollection | None:
    """Return what was remembered of a server under this very configuration."""
    try:
        sealed = kept(cache_path(server, fingerprint))
    except OSError as error:
        _log.debug("The cache of server %r is ignored: %s", server, error)
        return None
    first, _, body = (sealed or b"").partition(b"\n")
    about = _about(first)
    if about is None or about[:3] != (_FORMAT, server, fingerprint):
        return None
    return Recollection(about, body)


def _about(line: bytes) -> _About | None:
    """What the line says; None when it is not as this mooring writes it."""
    try:
        fields: list[Any] = json.loads(line)
        version, server, mark, protocol, *counts = fields
        if isinstance(protocol, str | None) and all(isinstance(count, int) for count in counts):
            return _About(version, server, mark, protocol, *counts)
    except (ValueError, TypeError):
        pass
    return None
