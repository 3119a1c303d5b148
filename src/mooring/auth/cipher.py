"""Encryption of stored logins with a key from the configuration."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode

from mooring.config.models import ConfigSource
from mooring.config.references import expand
from mooring.config.secrets import default_lookup
from mooring.errors import ConfigError

LEAST_KEY = 32
"""Shortest key in characters."""
_NONCE = 12


class LoginCipher:
    """Encrypts texts (AES-256-GCM) with the secret behind a reference, which is resolved on first use."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._key: bytes | None = None

    def __repr__(self) -> str:
        return f"LoginCipher({self._reference!r})"

    def seal(self, text: str, about: str) -> str:
        """Return `text` encrypted; `open` needs the same `about`.

        Raises:
            ConfigError: The key cannot be used.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        return b64encode(nonce + AESGCM(self.key()).encrypt(nonce, text.encode(), about.encode())).decode()

    def open(self, sealed: str, about: str) -> str | None:
        """Return the text that was encrypted for `about`; None if the key or the encrypted text is not the
        same.

        Raises:
            ConfigError: The key cannot be used.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = b64decode(sealed, validate=True)
            return AESGCM(self.key()).decrypt(data[:_NONCE], data[_NONCE:], about.encode()).decode()
        except (InvalidTag, ValueError):
            return None

    def key(self) -> bytes:
        """Return the key. May read a file or run a program.

        Raises:
            ConfigError: It has no value, or is too short.
        """
        if self._key is None:
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

            secret = expand(
                self._reference, default_lookup(os.environ, source=ConfigSource(scope="explicit"))
            )
            if len(secret) < LEAST_KEY:
                raise ConfigError(f"`gateway.key` must have at least {LEAST_KEY} characters")
            self._key = HKDF(SHA256(), 32, salt=None, info=b"mooring logins").derive(secret.encode())
        return self._key
