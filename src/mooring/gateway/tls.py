"""TLS of the gateway: certificates from files or references, renewed while it runs; client certificates."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mooring.config import default_lookup
from mooring.config.logs import logger
from mooring.config.models import ConfigSource
from mooring.config.operation import GatewayTls
from mooring.config.references import expand, is_reference, references
from mooring.errors import ConfigError

__all__ = ["Certificates", "certificate_principal"]

log = logger("mooring.gateway")

RECHECK = 10.0
"""Seconds between two looks at the files."""


class Certificates:
    """The certificates of one gateway. `context()` loads them."""

    def __init__(self, settings: GatewayTls) -> None:
        self.settings = settings
        self.expires: float | None = None
        """When the certificate in use expires, in seconds since 1970."""
        self.seen: tuple[object, ...] = ()
        """The files as they were when they were loaded."""

    def context(self) -> ssl.SSLContext:
        """Return a context with the certificates as they are now.

        Raises:
            ConfigError: A file or reference cannot be used; the text never holds a key.
        """
        settings = self.settings
        self.seen = self._state()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        password = None if settings.key_password is None else _resolved("key_password", settings.key_password)
        cert, key = _pem("cert", settings.cert), None if settings.key is None else _pem("key", settings.key)
        try:
            self.expires = _load_chain(context, cert, key, password)
        except (ssl.SSLError, OSError) as problem:
            reason = "wrong password" if password and "decrypt" in str(problem).lower() else _reason(problem)
            raise ConfigError(
                f"the certificate and key of `gateway.tls` cannot be used: {reason}", place="gateway.tls"
            ) from None
        if settings.client_ca is not None:
            try:
                context.load_verify_locations(cadata=_pem("client_ca", settings.client_ca))
            except (ssl.SSLError, ValueError) as problem:
                raise ConfigError(
                    f"`client_ca` holds no certificates: {_reason(problem)}", place="gateway.tls"
                ) from None
            required = settings.client == "required"
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        return context

    async def watch(self, renew: Callable[[], Awaitable[None]]) -> None:
        """Call `renew` when a file was replaced. If that fails, the old certificate stays in use."""
        failed: tuple[object, ...] = ()
        while True:
            await asyncio.sleep(RECHECK)
            state = await asyncio.to_thread(self._state)
            if state in (self.seen, failed):
                continue
            try:
                await renew()
                log.info("certificate renewed expires=%s", self.expiry_date())
            except ConfigError as problem:
                failed = state
                log.error("certificate not renewed, the old one stays in use: %s", problem)

    def expiry_date(self) -> str:
        return "unknown" if self.expires is None else time.strftime("%Y-%m-%d", time.gmtime(self.expires))

    def _state(self) -> tuple[object, ...]:
        settings, found = self.settings, list[object]()
        for value in (settings.cert, settings.key, settings.client_ca, settings.key_password):
            for path in _files(value):
                try:
                    about = os.stat(path)
                    found.append((path, about.st_mtime_ns, about.st_size, about.st_ino))
                except OSError:
                    found.append((path, None))
        return tuple(found)


def _files(value: str | None) -> list[str]:
    if value is None:
        return []
    if not is_reference(value):
        return [os.path.expanduser(value)]
    return [os.path.expanduser(one.name) for one in references(value) if one.kind == "file"]


def _resolved(name: str, value: str) -> str:
    try:
        return expand(value, default_lookup(os.environ, source=ConfigSource(scope="explicit")))
    except ConfigError as problem:
        raise ConfigError(f"`{name}`: {problem}", place="gateway.tls") from None


def _pem(name: str, value: str) -> str:
    """Return the PEM text of a path or a reference. A reference may also name the path."""
    text = _resolved(name, value) if is_reference(value) else value
    if "-----BEGIN" in text:
        return text
    if is_reference(value) and "\n" in text.strip():
        raise ConfigError(f"`{name}` is not PEM text", place="gateway.tls")
    try:
        return Path(text.strip()).expanduser().read_text("ascii")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not a PEM file"
        raise ConfigError(f"the file of `{name}` cannot be read: {reason}", place="gateway.tls") from None


def _load_chain(context: ssl.SSLContext, cert: str, key: str | None, password: str | None) -> float | None:
    """Load a chain and its key; return when the certificate expires. The ssl module reads files only, so the
    texts are in a private file for a moment."""
    with tempfile.TemporaryDirectory(prefix="mooring-tls-") as folder:
        chain = os.path.join(folder, "chain.pem")
        _write_private(chain, cert)
        key_file = None
        if key is not None:
            key_file = os.path.join(folder, "key.pem")
            _write_private(key_file, key)
        # Without a function, OpenSSL would ask for the password of a key on the terminal.
        context.load_cert_chain(chain, key_file, password=lambda: password or "")
        return _expiry(chain)


def _write_private(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _expiry(path: str) -> float | None:
    from cryptography import x509

    with suppress(ValueError):
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())[0]
        if found.not_valid_after_utc.timestamp() < time.time():
            log.warning("the certificate of the gateway has expired")
        return found.not_valid_after_utc.timestamp()
    return None


def _reason(problem: BaseException) -> str:
    return getattr(problem, "reason", None) or getattr(problem, "strerror", None) or type(problem).__name__


@lru_cache(maxsize=4096)
def _subject(der: bytes) -> tuple[str | None, float]:
    """Return the principal of a certificate, and when it expires."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        found = x509.load_der_x509_certificate(der)
    except ValueError:
        return None, 0.0
    subject, expires = found.subject, found.not_valid_after_utc.timestamp()
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    text = str(names[0].value) if len(names) == 1 else subject.rfc4514_string()
    return (f"cert:{text}" if text and text.isprintable() and len(text) <= 256 else None), expires


def certificate_principal(tls: Any) -> str | None:
    """Return the principal of a verified client certificate: `cert:` and its common name, or its whole
    subject if it has none. None without a certificate, and if it expired while the connection was open."""
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    if der is None:
        return None
    name, expires = _subject(der)
    return name if time.time() < expires else None
