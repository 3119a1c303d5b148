"""The way to a server: its TLS context and its proxy, made once for all who have the same settings."""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mooring.core.checks import shown
from mooring.core.config import ServerConfig, Target
from mooring.core.tls import DIRECT, check_proxy
from mooring.core.values import Value
from mooring.errors import ConfigError

__all__ = ["Way", "Ways", "proxy_refusal", "reason_of", "system_reason"]

MOST_FILES = 1_000
_PEM = (".pem", ".crt", ".cer")
_Stamp = tuple[tuple[str, int, int], ...]


class Way(Value):
    """How one server, and whoever logs us in to it, is reached."""

    ssl: ssl.SSLContext | bool = True
    """True: what the system trusts, and no certificate of our own."""
    proxy: str | None = None
    """None: what the environment says."""
    identified: bool = False
    """Whether we have a certificate to show."""

    def proxy_for(self, url: str) -> str | None:
        """The proxy for this address, if any: the configured one, or that of the environment."""
        if self.proxy is not None:
            return None if self.proxy == DIRECT else self.proxy
        parts = urlsplit(url)
        if urllib.request.proxy_bypass(parts.hostname or ""):
            return None
        return urllib.request.getproxies().get(parts.scheme)

    def secrets(self, url: str) -> Iterator[str]:
        """What of the proxy's address must not be shown."""
        parts = urlsplit(self.proxy_for(url) or "")
        if known := parts.password or parts.username:
            yield from {known, unquote(known)}


class Ways:
    """The ways of one host. A TLS context takes 20 ms to make: those with the same files share one, until
    a file is another."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[tuple[str, str], ...], tuple[_Stamp, ssl.SSLContext]] = {}

    async def to(self, server: ServerConfig, target: Target) -> Way:
        """The way to a server.

        Raises:
            ConfigError: a file cannot be used, or there is no way through such a proxy.
        """
        context: ssl.SSLContext | bool = True
        try:
            if target.tls:
                from anyio import to_thread

                context = await to_thread.run_sync(self._context, target.tls)
            way = Way(ssl=context, proxy=target.proxy, identified="cert" in target.tls)
            _check_proxy(way, target.url or "")
        except ValueError as problem:
            raise ConfigError(str(problem), file=server.file, place=f"server {shown(server.name)}") from None
        return way

    def _context(self, tls: Mapping[str, str]) -> ssl.SSLContext:
        key = tuple(sorted(tls.items()))
        stamp = _stamp(tls)
        known = self._contexts.get(key)
        if known is None or known[0] != stamp:
            known = self._contexts[key] = (stamp, _made(tls))
        return known[1]


def _check_proxy(way: Way, url: str) -> None:
    proxy = way.proxy_for(url)
    try:
        if proxy is not None:
            check_proxy(proxy)
    except ValueError as problem:
        source = "'proxy'" if way.proxy is not None else "the proxy that the environment names for it"
        raise ValueError(f"{source} {problem}") from None


def _made(tls: Mapping[str, str]) -> ssl.SSLContext:
    """A context that verifies.

    Raises:
        ValueError: a file cannot be used; the text names the field and the next step.
    """
    context = ssl.create_default_context()
    if "ca" in tls:
        for path in _authorities(tls["ca"]):
            try:
                context.load_verify_locations(path)
            except ssl.SSLError:
                raise ValueError(f"'tls.ca': {str(path)!r} holds no certificate in PEM form") from None
    if "cert" in tls:
        _identify(context, tls)
    return context


def _identify(context: ssl.SSLContext, tls: Mapping[str, str]) -> None:
    """Have the context speak with our own certificate."""
    cert = _file("cert", tls["cert"])
    key = _file("key", tls["key"]) if "key" in tls else cert
    text = key.read_bytes()
    if b"PRIVATE KEY-----" not in text:
        where = "name the file of the key in 'tls.key'" if "key" not in tls else "is it the right file?"
        raise ValueError(
            f"'tls.{'key' if 'key' in tls else 'cert'}': {str(key)!r} holds no private key; {where}"
        )
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key, password=tls.get("key_password", ""))
    except ssl.SSLError as problem:
        if problem.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(
                f"'tls.key': the key in {str(key)!r} does not belong to the certificate in {str(cert)!r}"
            ) from None
        if b"ENCRYPTED" in text:
            wrong = "does not open it" if "key_password" in tls else "is missing"
            raise ValueError(
                f"'tls.key': {str(key)!r} is encrypted, and 'tls.key_password' {wrong}"
            ) from None
        raise ValueError(f"'tls.cert': {str(cert)!r} holds no certificate in PEM form") from None


def _authorities(place: str) -> list[Path]:
    if not os.path.isdir(place):
        return [_file("ca", place)]
    found = sorted(path for path in Path(place).iterdir() if path.suffix in _PEM)[:MOST_FILES]
    if not found:
        raise ValueError(f"'tls.ca': there is no file {' or '.join(_PEM)} in {place!r}")
    return [_file("ca", str(path)) for path in found]


def _file(field: str, place: str) -> Path:
    """A file that is there and can be read."""
    path = Path(place)
    try:
        if not path.is_file():
            raise ValueError(f"'tls.{field}': there is no file {place!r}")
        with path.open("rb"):
            return path
    except OSError as problem:
        raise ValueError(f"'tls.{field}': {place!r} cannot be read: {problem.strerror}") from None


def _stamp(tls: Mapping[str, str]) -> _Stamp:
    """What tells whether a file was replaced: certificates are renewed while hosts run."""
    places = [tls[name] for name in ("ca", "cert", "key") if name in tls]
    files = [Path(place) for place in places]
    files += [path for folder in files if folder.is_dir() for path in sorted(folder.iterdir())[:MOST_FILES]]
    found: list[tuple[str, int, int]] = []
    for path in files:
        try:
            about = path.stat()
        except OSError:
            continue
        found.append((str(path), about.st_mtime_ns, about.st_size))
    return tuple(found)


def reason_of(problem: Exception) -> str | None:
    """What a fault of TLS or of a proxy means, and what to do; None when it is another fault."""
    import aiohttp

    if isinstance(problem, aiohttp.ClientProxyConnectionError):
        return f"the proxy {problem.host}:{problem.port} cannot be reached: {system_reason(problem.os_error)}"
    if isinstance(problem, aiohttp.ClientHttpProxyError):
        return proxy_refusal(problem.status)
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        fault = problem.certificate_error
        why = getattr(fault, "verify_message", "") or str(fault)
        return f"the certificate of {problem.host}:{problem.port} is not trusted: {why}; {_advice(why)}"
    return None


def proxy_refusal(status: int) -> str:
    """What it means that a proxy answered in the place of the server."""
    if status == 407:
        return "the proxy wants a login (HTTP 407): write `proxy` as http://user:password@host:port"
    return f"the proxy did not connect to it (HTTP {status})"


def system_reason(problem: OSError) -> str:
    """What the system says. asyncio puts words of its own in the place of "Connection refused"."""
    if problem.errno is not None and 0 < problem.errno < 200 and not isinstance(problem, ssl.SSLError):
        return os.strerror(problem.errno)
    return problem.strerror or str(problem)


def _advice(why: str) -> str:
    if "mismatch" in why.lower():
        return "reach it by a name that its certificate is for"
    if "expired" in why.lower():
        return "whoever runs it has to renew it"
    return "if it is signed by an authority of your own, name that in `tls.ca`"
