"""Sealed texts: ids and states that clients hold and only the gateway can make and read."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Seal", "derived"]

MAX_LENGTH = 1_000_000
"""Characters of a sealed text; longer ones are not opened."""
_NONCE, _TAG = 12, 16


def derived(secret: bytes, purpose: str) -> bytes:
    """Return a key of 32 bytes for one purpose (HKDF-SHA256)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt=None, info=f"mooring {purpose}".encode()).derive(secret)


class Seal:
    """Encrypts and authenticates (AES-256-GCM). The first key seals, all of them open: a key is changed by
    putting the new one first and keeping the old one until nothing is sealed with it any more.

    Nonces are random, so one key is for at most 2**32 texts.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)
        self._made: tuple[AESGCM, ...] = ()

    def __repr__(self) -> str:
        return f"Seal({len(self._keys)} keys)"

    def close(self, data: bytes, about: str) -> str:
        """Return `data` as text that `open` accepts for the same `about`."""
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._ciphers()[0].encrypt(nonce, data, about.encode())
        return urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, text: object, about: str) -> bytes | None:
        """Return what was sealed; None if it is forged, was sealed for something else or with another key."""
        from cryptography.exceptions import InvalidTag

        if not isinstance(text, str) or len(text) > MAX_LENGTH or not text.isascii():
            return None
        try:
            sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        if len(sealed) < _NONCE + _TAG:
            return None
        for cipher in self._ciphers():
            try:
                return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], about.encode())
            except InvalidTag:
                continue
        return None

    def _ciphers(self) -> tuple[AESGCM, ...]:
        if not self._made:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._made = tuple(AESGCM(key) for key in self._keys)
        return self._made
