"""The network that an address belongs to, in any notation."""

from __future__ import annotations

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.addresses import RefusedAddressError, check_url, host_realm, realm

INTERNAL_HOSTS = [
    # this machine
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1", "017700000001",
    "0177.0.0.1", "0177.0.0.01", "127.0.0.1.", "0.0.0.0", "0", "localhost", "LOCALHOST", "localhost.",
    "app.localhost", "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[::ffff:0:7f00:1]", "[::ffff:0:127.0.0.1]",
    # the network around it
    "10.0.0.1", "10.1", "167772161", "0xa000001", "012.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "0xc0a80101", "3232235777", "100.64.0.1", "100.127.255.254", "[fc00::1]", "[fd12:3456::1]", "[fec0::1]",
    "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::1]", "[2002:c0a8:101::]",
    # link-local: where clouds keep their secrets
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "[fe80::1]",
    "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]",
    "[2001:db8::5efe:169.254.169.254]",
    "[64:ff9b:1::a9fe:a9fe]",
    # reserved
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1", "[ff02::1]", "1.2.3.4.5",
    "1.2.3.256", "[5f00::1]", "[3fff::1]", "[100::1]", "[2001:2::1]", "[4000::1]",
    "08.0.0.1", "0x", "999999999999", "1.2.3.4.0", "[2600::5efe:a9fe:a9fe]",
]  # fmt: skip


@pytest.mark.parametrize("host", INTERNAL_HOSTS)
def test_TH07_an_internal_host_is_known_in_every_spelling(host: str) -> None:
    assert host_realm(host) not in (None, "public")
    for scheme in ("http", "https"):
        with pytest.raises(RefusedAddressError):
            check_url(f"{scheme}://{host}/token", "its token endpoint")
        with pytest.raises(RefusedAddressError):
            check_url(f"{scheme}://{host}:8080/latest/meta-data?x=1", "its token endpoint")


def test_there_are_at_least_forty_spellings() -> None:
    assert len(set(INTERNAL_HOSTS)) >= 40


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("::ffff:8.8.8.8", "public"),
        ("64:ff9b::8.8.8.8", "public"),
        ("2002:808:808::1", "public"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("100.63.255.255", "public"),
        ("100.64.0.0", "private"),
        ("100.128.0.0", "public"),
        ("172.15.255.255", "public"),
        ("172.32.0.0", "public"),
        ("fe80::1%eth0", "link-local"),
        ("febf::1", "link-local"),
    ],
)
def test_the_borders_of_the_networks(address: str, expected: str) -> None:
    assert realm(address) == expected


SPECIAL = {
    # IPv4: https://www.iana.org/assignments/iana-ipv4-special-registry
    "0.0.0.0/8": "reserved", "10.0.0.0/8": "private", "100.64.0.0/10": "private", "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local", "172.16.0.0/12": "private", "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "reserved", "192.88.99.0/24": "reserved", "192.168.0.0/16": "private",
    "198.18.0.0/15": "reserved", "198.51.100.0/24": "reserved", "203.0.113.0/24": "reserved",
    "224.0.0.0/4": "reserved", "240.0.0.0/4": "reserved", "255.255.255.255/32": "reserved",
    # IPv6: https://www.iana.org/assignments/iana-ipv6-special-registry
    "::1/128": "loopback", "::/128": "reserved", "64:ff9b:1::/48": "reserved", "100::/64": "reserved",
    "100:0:0:1::/64": "reserved", "2001:1::/32": "reserved", "2001:2::/48": "reserved",
    "2001:3::/32": "reserved", "2001:4:112::/48": "reserved", "2001:10::/28": "reserved",
    "2001:20::/28": "reserved", "2001:30::/28": "reserved", "2001:db8::/32": "reserved",
    "3fff::/20": "reserved", "5f00::/16": "reserved", "fc00::/7": "private", "fe80::/10": "link-local",
    "fec0::/10": "private", "ff00::/8": "reserved", "4000::/3": "reserved", "e000::/4": "reserved",
    # forms of an internal IPv4 address inside IPv6
    "::7f00:0/104": "loopback", "::ffff:7f00:0/104": "loopback", "::ffff:0:7f00:0/104": "loopback",
    "::ffff:0:a9fe:0/112": "link-local", "64:ff9b::a00:0/104": "private", "2002:7f00::/24": "loopback",
    "2002:a9fe::/32": "link-local", "2001:0:7f00::/40": "loopback",
}  # fmt: skip


@pytest.mark.parametrize("network", SPECIAL)
def test_TH07_no_special_purpose_network_is_public_on_any_version_of_python(network: str) -> None:
    whole = ipaddress.ip_network(network)
    for address in (whole[0], whole[-1], whole[whole.num_addresses // 2]):
        assert realm(address) == SPECIAL[network], address


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_what_is_public_is_public_for_the_standard_library_too(address: ipaddress.IPv6Address) -> None:
    if realm(address) == "public":
        inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
        low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        carried = address.version == 6 and int(address) >> 48 == 0
        assert (inner or (low if carried else address)).is_global
        assert not address.is_multicast


@pytest.mark.parametrize("address", ["fe80::5efe:8.8.8.8", "fd00::200:5efe:8.8.8.8", "3fff::5efe:8.8.8.8"])
def test_TH07_a_public_address_inside_does_not_make_an_internal_one_public(address: str) -> None:
    assert realm(address) not in ("public", "loopback")


@given(st.ip_addresses(v=4))
def test_an_address_within_another_counts_as_itself(address: ipaddress.IPv4Address) -> None:
    expected = realm(address)
    number = int(address)
    for outer in (
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0xFFFF << 48) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ):
        assert realm(outer) == expected
        assert host_realm(f"[{outer}]") == expected


@given(st.ip_addresses(v=4))
def test_an_old_spelling_means_the_same_address(address: ipaddress.IPv4Address) -> None:
    a, b, c, d = address.packed
    for text in (
        str(address),
        str(int(address)),
        hex(int(address)),
        f"0{int(address):o}",
        f"{a}.{(b << 16) | (c << 8) | d}",
        f"{a}.{b}.{(c << 8) | d}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
    ):
        assert host_realm(text) == realm(address), text


@given(st.text(max_size=60))
def test_no_text_makes_the_check_fall_over(text: str) -> None:
    for url in (text, f"https://{text}", f"https://h.example/{text}"):
        with contextlib.suppress(RefusedAddressError):
            check_url(url, "it")


def test_a_name_is_resolved_by_the_proxy() -> None:
    assert host_realm("auth.example.com") is None
    assert check_url("https://auth.example.com/authorize?a=b", "it").hostname == "auth.example.com"


def test_a_realm_that_the_server_is_in_itself_is_allowed_and_no_other() -> None:
    check_url("http://127.0.0.1:9/token", "it", allowed=("loopback",))
    check_url("https://10.0.0.1/token", "it", allowed=("private",))
    for url in ("https://10.0.0.1/", "https://169.254.169.254/"):
        with pytest.raises(RefusedAddressError, match="server itself is not"):
            check_url(url, "it", allowed=("loopback",))
    with pytest.raises(RefusedAddressError, match="without TLS"):
        check_url("http://10.0.0.1/token", "it", allowed=("private",))
    with pytest.raises(RefusedAddressError, match=r"on '127.0.0.1', a loopback address, and"):
        check_url("https://127.0.0.1/", "it")
    with pytest.raises(RefusedAddressError, match=r"on '10.0.0.1', an address of a private network, and"):
        check_url("https://10.0.0.1/", "it")


HOSTILE_URLS = [
    "javascript:alert(1)", "JavaScript://a.example/%0aalert(1)", "data:text/html,<script>1</script>",
    "file:///etc/passwd", "file://a.example/c$/x", "vbscript:x", "ms-msdt:/id", "smb://a.example/x",
    "ftp://a.example/", "ldap://a.example/", "gopher://a.example/", "about:blank", "chrome://settings",
    "view-source:https://a.example", "blob:https://a.example/1", "ssh://a.example", "tel:+123", "mailto:a@b",
    "-https://a.example", "--help", "-a Calculator", "/usr/bin/id", "C:\\Windows\\system32\\calc.exe",
    "calc.exe",
    "", " ", "https://", "https:///path", "https:a.example", "//a.example/x", "http://a.example/",
    "http://login.example.com/authorize", "https://user@a.example/", "https://user:pw@a.example/",
    "https://good.example@evil.example/", "https://a.example\\@evil.example/", "https://a.example/`id`",
    "https://a.example/$(id)", "https://a.example/${IFS}", "https://a.example/;'id'", 'https://a.example/"&calc',
    "https://a.example/x|calc", "https://a.example/<x>", "https://a.example/^x", "https://a.example/{x}",
    "https://a.example/ x", "https://a.example/\nx", "https://a.example/\tx", "https://a.example/\r\nHost: x",
    "https://a.example/\x00", "https://a.example/%00", "https://a.example/%0d%0aX", "https://a.example/%1b[2J",
    "https://a.example/%7f", "https://a.example/\u202egpj.exe", "https://аpple.example/", "https://１２７.0.0.1/",
    "https://a.example:99999/", "https://a.example:port/", "https://[::1", "https://[evil]/", "https://a_b%2f.example/",
    "https://127%2e0%2e0%2e1/", "https://a.example/#fragment", "https://a.example/" + "x" * 9000, "https://.example/",
    "https://169.254.169.254/", "https://0x7f.1/", "http://127.0.0.1.evil.example/",
]  # fmt: skip


@pytest.mark.parametrize("url", HOSTILE_URLS, ids=range(len(HOSTILE_URLS)))
def test_TH10_a_hostile_address_is_never_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    from mooring.cli.login import open_in_browser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with pytest.raises(RefusedAddressError):
        open_in_browser(url)
    assert opened == []


def test_TH10_there_are_at_least_sixty_of_them() -> None:
    assert len(set(HOSTILE_URLS)) >= 60


@pytest.mark.parametrize("host", ["1.2.3.4.5", "0.0.0.0.127.1", "a.b.1", "x.0x7f"])
def test_what_ends_in_a_number_but_is_no_address_is_refused_like_a_reserved_one(host: str) -> None:
    assert host_realm(host) == "reserved"
