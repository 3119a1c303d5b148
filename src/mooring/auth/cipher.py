"""Encryption of stored logins with a key from the configuration, and logins that nodes share."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

from mooring.config.models import ConfigSource
from mooring.config.references import MissingReferenceError, expand
from mooring.config.secrets import default_lookup
from mooring.errors import ConfigError

LEAST_KEY = 32
"""Shortest key in characters."""
_NONCE = 12


def key_secrets(references: Sequence[str]) -> list[bytes]:
    """Return the secrets of `gateway.key`. May read files or run programs.

    Raises:
        ConfigError: One has no value, or is too short.
    """
    found = [setting_secret(reference, "gateway.key") for reference in references]
    if any(len(secret) < LEAST_KEY for secret in found):
        raise ConfigError(f"must have at least {LEAST_KEY} characters", place="gateway.key")
    return [secret.encode() for secret in found]


def setting_secret(reference: str, place: str) -> str:
    """Return the secret behind the reference of a setting. May read a file or run a program.

    Raises:
        ConfigError: It has no value; the error names the setting `place`.
    """
    lookup = default_lookup(os.environ, source=ConfigSource(scope="explicit"))
    try:
        return expand(reference, lookup)
    except MissingReferenceError as problem:
        names = ", ".join(map(str, problem.references))
        [first, *_] = problem.references
        source = f"the environment variable {first.name}" if first.kind == "env" else f"the value of {first}"
        raise ConfigError(f"no value for {names}. Set {source}, and start again", place=place) from None


class LoginCipher:
    """Encrypts texts (AES-256-GCM) with the secret behind a reference, which is resolved on first use. The
    first of several references encrypts, all of them decrypt."""

    def __init__(self, *references: str) -> None:
        self._references = references
        self._keys: list[bytes] = []

    def __repr__(self) -> str:
        return f"LoginCipher({', '.join(map(repr, self._references))})"

    def seal(self, text: str, about: str) -> str:
        """Return `text` encrypted; `open` needs the same `about`.

        Raises:
            ConfigError: The key cannot be used.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        return b64encode(
            nonce + AESGCM(self.keys()[0]).encrypt(nonce, text.encode(), about.encode())
        ).decode()

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
        except ValueError:
            return None
        for key in self.keys():
            with suppress(InvalidTag, ValueError):
                return AESGCM(key).decrypt(data[:_NONCE], data[_NONCE:], about.encode()).decode()
        return None

    def keys(self) -> list[bytes]:
        """Return the keys. May read files or run programs.

        Raises:
            ConfigError: One has no value, or is too short.
        """
        if not self._keys:
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

            self._keys = [
                HKDF(SHA256(), 32, salt=None, info=b"mooring logins").derive(secret)
                for secret in key_secrets(self._references)
            ]
        return self._keys


class ClusterLogins(Protocol):
    """Logins that all nodes of a cluster share."""

    def holding(self, store: Any) -> AbstractAsyncContextManager[None]:
        """Lock the login of a token store for all nodes: the store has the newest login while the block runs,
        and the other nodes get what the block stores."""
        ...
