"""Checks of addresses that come from untrusted documents (SSRF protection).

The OAuth metadata of a server contains URLs. A hostile server could name an address in the user's network.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal
from urllib.parse import SplitResult, urlsplit

__all__ = ["Realm", "RefusedAddressError", "check_url", "host_realm", "realm"]

Realm = Literal["public", "loopback", "private", "link-local", "reserved"]
"""`private` are the networks of homes, companies and carriers; `reserved` must not be used."""

# The IANA special-purpose address registries, because those of `ipaddress` depend on the Python version.
# A few of their entries are reachable globally (192.0.0.9/32); no login server is there.
_SPECIAL: Mapping[Realm, str] = {
    "loopback": "127.0.0.0/8 ::1/128",
    "link-local": "169.254.0.0/16 fe80::/10",
    "private": "10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
    "reserved": "0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 "
    "203.0.113.0/24 224.0.0.0/3 2001::/23 2001:db8::/32 2002::/16 3fff::/20",
}
_REALMS: Mapping[Realm, Sequence[IPv4Network | IPv6Network]] = {
    where: [ip_network(network) for network in networks.split()] for where, networks in _SPECIAL.items()
}
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_CARRYING = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""IPv4-compatible, IPv4-mapped, IPv4-translated and NAT64: the last 32 bits are an IPv4 address."""
_ISATAP = (0x00005EFE, 0x02005EFE)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,253})")
# No quotes, backticks, `$`, parentheses, backslashes or blanks, which are unsafe in shells and pages.
_PLAIN_URL = re.compile(r"[A-Za-z0-9\-._~:/?\[\]=&%+,@!*;]+")
_HIDDEN_CONTROL = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff])")
_LONGEST = 8_192


class RefusedAddressError(ValueError):
    """An address or document is not allowed. The message says which and why."""


def realm(address: str | IPv4Address | IPv6Address) -> Realm:
    """Return the realm of an address; for one that embeds another address, the realm of the inner one.

    Raises:
        ValueError: it is not an address.
    """
    plain = ip_address(address.partition("%")[0]) if isinstance(address, str) else address
    if isinstance(plain, IPv4Address):
        return _listed(plain) or "public"
    if plain == IPv6Address(1):
        return "loopback"
    if embedded := _embedded(plain):
        first, last = realm(embedded[0]), realm(embedded[-1])
        return last if first == "public" else first
    where = _listed(plain)
    if where is None and plain in _GLOBAL_UNICAST:
        return realm(_low(plain)) if (int(plain) >> 32) & 0xFFFFFFFF in _ISATAP else "public"
    return where or "reserved"


def _listed(address: IPv4Address | IPv6Address) -> Realm | None:
    for where, networks in _REALMS.items():
        if any(address in network for network in networks):
            return where
    return None


def _embedded(address: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses inside an address of a translation or tunnel prefix."""
    if any(address in network for network in _CARRYING):
        return [_low(address)]
    if address.sixtofour is not None:
        return [address.sixtofour]
    return [] if address.teredo is None else list(address.teredo)


def _low(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFFFFFF)


def host_realm(host: str) -> Realm | None:
    """Return the realm of an address in any notation or of a name of this machine; None for names that need
    DNS."""
    bare = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return "loopback"
    try:
        return realm(bare)
    except ValueError:
        pass
    parts = bare.split(".")
    if not _NUMBER.fullmatch(parts[-1]):
        return None
    old = _old_spelling(parts)
    # A host that ends in a number and is not an address is invalid.
    return "reserved" if old is None else realm(old)


def _old_spelling(parts: list[str]) -> IPv4Address | None:
    """Parse addresses like a C library: `2130706433`, `0x7f.1`, `0177.0.0.1`."""
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        return None
    *front, last = numbers
    if any(number > 255 for number in front) or last >= 256 ** (4 - len(front)):
        return None
    value = last
    for place, number in enumerate(front):
        value += number << (24 - 8 * place)
    return IPv4Address(value)


def _number(part: str) -> int:
    if part[:2] in ("0x", "0X"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if len(part) > 1 and part[0] == "0" else int(part)


def check_url(url: str, what: str, allowed: Collection[Realm] = ()) -> SplitResult:
    """Return the parts of a URL that may be requested or opened: https, or http on this machine.

    Args:
        url: Untrusted text.
        what: Subject of the error message, as in "its token endpoint".
        allowed: Realms besides the public one, because the configured server is in them itself.

    Raises:
        RefusedAddressError: the address is not allowed.
    """
    if len(url) > _LONGEST or not _PLAIN_URL.fullmatch(url) or _HIDDEN_CONTROL.search(url):
        raise RefusedAddressError(f"{what} contains characters that are not allowed in an address")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise RefusedAddressError(f"{what} is not a valid URL") from None
    if parts.scheme not in ("https", "http"):
        raise RefusedAddressError(f"{what} begins with {parts.scheme[:20]!r}, not with https")
    if "@" in parts.netloc:
        raise RefusedAddressError(f"{what} holds a user name before the host")
    bracketed = parts.netloc.startswith("[")
    if not host or (not bracketed and not _NAME.fullmatch(host)):
        raise RefusedAddressError(f"{what} has no valid host")
    where = host_realm(host)
    if where is not None and not bracketed and _NUMBER.fullmatch(host.rstrip(".").split(".")[-1]):
        try:
            ip_address(host)
        except ValueError:
            raise RefusedAddressError(
                f"{what} writes its host in a notation that hides its address"
            ) from None
    if where not in (None, "public", *allowed):
        raise RefusedAddressError(f"{what} is on {host!r}, {describe(where)}, and the server itself is not")
    if parts.scheme == "http" and where != "loopback":
        raise RefusedAddressError(f"{what} is on {host!r} without TLS; it must begin with https://")
    return parts


def describe(where: Realm | None) -> str:
    """Return a description of a realm."""
    article = "an address" if where != "loopback" else "a loopback address"
    return {
        "private": "an address of a private network",
        "link-local": "a link-local address",
        "reserved": "a reserved address",
    }.get(where or "", article)
