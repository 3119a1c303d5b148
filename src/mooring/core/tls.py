"""How a server is reached over the network: whom TLS trusts, as whom we speak, through which proxy.

Certificates are always verified: there is no setting that turns it off, since whoever needs one can name
the authority that signed the certificate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlsplit

from mooring.core.checks import sample_url
from mooring.core.durations import kind
from mooring.core.settings import Settings, optional, setting, some_text

__all__ = ["DIRECT", "PATHS", "TlsSettings", "check_proxy", "read_proxy", "read_tls"]

DIRECT = "none"
"""In the place of a proxy: none, whatever the environment or the host's own settings say."""
PATHS = ("ca", "cert", "key")
"""Fields of `tls` that name files."""
_VERIFY = r"(?i)(?:ssl|tls)?_?(?:no_?|skip_?)?(?:verify|insecure|reject_?unauthorized).*"
_WAY_TO_PRIVATE = "certificates are always verified; name the authority that signed it in 'ca'"


class TlsSettings(Settings):
    """`tls` of a server, or of all. Texts may hold references until the moment of connecting."""

    ca: str | None = setting(optional(some_text), default=None)
    """Authorities that are trusted beside those of the system: a PEM file, or a directory of them."""
    cert: str | None = setting(optional(some_text), default=None)
    """Our own certificate (PEM), for servers that want to see one."""
    key: str | None = setting(optional(some_text), default=None)
    """Its private key, where that does not stand in the same file."""
    key_password: str | None = setting(optional(some_text), default=None)

    def _check(self) -> None:
        for name in ("key", "key_password"):
            if getattr(self, name) is not None and self.cert is None:
                raise ValueError(f"has a {name!r} and no 'cert'; add the certificate that it belongs to")


def read_tls(value: object) -> Mapping[str, str]:
    """The fields that are given.

    Raises:
        ValueError: one is wrong or unknown.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of 'ca', 'cert', 'key' and 'key_password', not {kind(value)}")
    given = {str(name): item for name, item in cast("Mapping[object, Any]", value).items()}
    for name in given:
        if re.fullmatch(_VERIFY, name):
            raise ValueError(f"{name[:40]!r} is not offered: {_WAY_TO_PRIVATE}")
    read = TlsSettings(**given)
    return MappingProxyType({name: text for name in given if (text := getattr(read, name)) is not None})


def read_proxy(value: object) -> str:
    """The address of a proxy, or `DIRECT`.

    Raises:
        ValueError: it is neither.
    """
    if value is False or value == DIRECT:
        return DIRECT
    if not isinstance(value, str):
        raise ValueError(f"must be the address of a proxy, or 'none', not {kind(value)}")
    check_proxy(sample_url(value))
    return value


def check_proxy(text: str) -> None:
    """Raises ValueError, without the value, unless it is the address of a proxy that can be used."""
    if not re.match(r"https?://", text, re.IGNORECASE):
        raise ValueError("must start with http:// or https://: other proxies, such as SOCKS, cannot be used")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("http://")
    odd = (
        re.search(r"[\s\x00-\x1f\x7f]", text) or parts.path not in ("", "/") or parts.query or parts.fragment
    )
    if not host or odd:
        raise ValueError(
            "must be of the form http://user:password@host:port; "
            "characters such as / and @ in a password are written as %2F and %40"
        )
