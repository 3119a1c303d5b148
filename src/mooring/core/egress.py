"""Where a request may go that somebody else's document asks us to make.

A server's OAuth metadata names hosts. Without a guard, a hostile server could name an address of the
user's own network and have us knock there. Pure: spelled hosts and addresses in, verdicts out.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal
from urllib.parse import SplitResult, urlsplit

__all__ = ["Realm", "RefusedError", "check_url", "host_realm", "realm"]

Realm = Literal["public", "loopback", "private", "link-local", "reserved"]
"""`private` are the networks of homes, companies and carriers; `reserved` is what nobody should talk to."""

_PRIVATE = [
    ip_network(net)
    for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")
]
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_ISATAP = (0x00005EFE, 0x02005EFE)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,253})")
# No quotes, backticks, `$`, parentheses, backslashes or blanks: all that a shell or a page could trip over.
_PLAIN_URL = re.compile(r"[A-Za-z0-9\-._~:/?\[\]=&%+,@!*;]+")
_HIDDEN_CONTROL = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff])")
_LONGEST = 8_192


class RefusedError(ValueError):
    """A document or an address cannot be used; the text says which and why."""


def realm(address: str | IPv4Address | IPv6Address) -> Realm:
    """Whose network an address belongs to; of an address that carries another one, the inner one counts.

    Raises:
        ValueError: it is no address.
    """
    plain = ip_address(address.partition("%")[0]) if isinstance(address, str) else address
    if isinstance(plain, IPv6Address):
        if plain == IPv6Address(1):
            return "loopback"
        if plain in _LOCAL_NAT64:
            return "reserved"
        if carried := _carried(plain):
            first, last = realm(carried[0]), realm(carried[-1])
            return last if first == "public" else first
    if plain.is_loopback:
        return "loopback"
    if plain.is_link_local:
        return "link-local"
    if any(plain in network for network in _PRIVATE):
        return "private"
    return "public" if plain.is_global and not plain.is_multicast else "reserved"


def _carried(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses inside: mapped, 6to4, Teredo, NAT64, ISATAP and compatible forms."""
    low = IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return list(address.teredo)
    if address in _NAT64 or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return [low]
    return [low] if address in _COMPATIBLE else []


def host_realm(host: str) -> Realm | None:
    """The realm of a host that is an address in any spelling, or a name of this machine; None for a name
    that has to be looked up."""
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
    # What ends in a number and is no address is a trick, or at best a mistake.
    return "reserved" if old is None else realm(old)


def _old_spelling(parts: list[str]) -> IPv4Address | None:
    """`2130706433`, `0x7f.1`, `0177.0.0.1`: what C libraries take for addresses."""
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
    """The parts of an address that may be asked or opened: https, or http on this very machine.

    Args:
        url: Somebody else's text.
        what: How a refusal names it, as in "its token endpoint".
        allowed: Realms besides the public one, because the configured server is in them itself.

    Raises:
        RefusedError: it may not, and why.
    """
    if len(url) > _LONGEST or not _PLAIN_URL.fullmatch(url) or _HIDDEN_CONTROL.search(url):
        raise RefusedError(f"{what} holds characters that do not belong into an address")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise RefusedError(f"{what} is no valid address") from None
    if parts.scheme not in ("https", "http"):
        raise RefusedError(f"{what} begins with {parts.scheme[:20]!r}, not with https")
    if "@" in parts.netloc:
        raise RefusedError(f"{what} holds a user name before the host")
    bracketed = parts.netloc.startswith("[")
    if not host or (not bracketed and not _NAME.fullmatch(host)):
        raise RefusedError(f"{what} names no proper host")
    where = host_realm(host)
    if where is not None and not bracketed and _NUMBER.fullmatch(host.rstrip(".").split(".")[-1]):
        try:
            ip_address(host)
        except ValueError:
            raise RefusedError(f"{what} names its host in a spelling that hides where it is") from None
    if where not in (None, "public", *allowed):
        raise RefusedError(f"{what} is on {host!r}, {describe(where)}, and the server itself is not")
    if parts.scheme == "http" and where != "loopback":
        raise RefusedError(f"{what} is on {host!r} without TLS; it must begin with https://")
    return parts


def describe(where: Realm | None) -> str:
    """A realm in words."""
    article = "an address" if where != "loopback" else "a loopback address"
    return {
        "private": "an address of a private network",
        "link-local": "a link-local address",
        "reserved": "a reserved address",
    }.get(where or "", article)
