"""Extensions: identifiers, what a peer declares, and addresses behind a gateway."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.extensions import (
    MOST,
    address_behind,
    address_through,
    check_identifier,
    common,
    declared,
    declared_by_client,
    original,
    qualified,
    qualified_file,
)
from mooring.core.types import Extension

LONGEST = "com.example/" + "a" * 188


def test_an_identifier_has_a_prefix_and_at_most_200_characters() -> None:
    assert check_identifier(LONGEST) == LONGEST
    for name in (f"{LONGEST}a", "maps", "com..example/maps", "com.example/", "/maps", "com.example/maps\n"):
        with pytest.raises(ValueError, match="is not an extension"):
            check_identifier(name)


def test_a_declaration_that_is_invalid_is_left_out() -> None:
    given: dict[Any, Any] = {
        "b.example/x": {"v": 1}, "a.example/x": {}, LONGEST: {}, f"{LONGEST}a": {}, "x": {}, 7: {},
        "c.example/x": True,
    }  # fmt: skip
    found = declared("s", {"extensions": given})
    assert [(one.name, one.server) for one in found] == [
        ("a.example/x", "s"), ("b.example/x", "s"), (LONGEST, "s"),
    ]  # fmt: skip
    assert declared_by_client({"extensions": given})["b.example/x"] == {"v": 1}
    assert declared_by_client({"extensions": ["a.example/x"]}) == {}
    assert declared_by_client({}) == {}


def test_no_more_than_the_limit_of_extensions_is_read() -> None:
    given = {f"com.example/{number}": {} for number in range(MOST + 5)}
    assert list(declared_by_client({"extensions": given})) == list(given)[:MOST]


def test_settings_that_differ_between_servers_become_empty() -> None:
    def extension(name: str, server: str, **settings: Any) -> Extension:
        return Extension(name=name, server=server, settings=settings)

    found = common(
        [extension("a/x", "1", v=1), extension("a/x", "2", v=1), extension("b/x", "1", v=1),
         extension("b/x", "2", v=2), extension("b/x", "3", v=2)]
    )  # fmt: skip
    assert {name: dict(settings) for name, settings in found.items()} == {"a/x": {"v": 1}, "b/x": {}}


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("UI://a/b", "ui://my%20server/a/b"),
        ("skill://a", "skill://my%20server/a"),
        ("ui://+a", "ui://my%20server/+/+a"),
        ("ui:a", "ui:a"),
        ("https://a/b", "https://a/b"),
        ("no address", "no address"),
    ],
)
def test_a_gateway_puts_the_server_before_ui_and_skill_addresses(uri: str, shown: str) -> None:
    assert qualified(uri, "my server") == shown


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("skill://a/b", "skill://s/a/b"),
        ("https://a/b", "skill://s/+https/a/b"),
        ("urn:a", "skill://s/+urn:/a"),
        ("skill:a", "skill://s/+skill:/a"),
        ("no address", "no address"),
    ],
)
def test_a_file_of_a_skill_gets_a_skill_address_whatever_its_scheme(uri: str, shown: str) -> None:
    assert qualified_file(uri, "s") == shown


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("ui://s/a/b", ("s", "ui://a/b")),
        ("SKILL://s/a", ("s", "skill://a")),
        ("skill://s/+https/a/b", ("s", "https://a/b")),
        ("skill://s/+urn:/a", ("s", "urn:a")),
        ("skill://s/+/+a", ("s", "skill://+a")),
        ("skill://s/+urn:", None),
        ("skill://s/+https", None),
        ("skill://s/", None),
        ("skill://s", None),
        ("skill:s/a", None),
        ("https://s/a", None),
        ("ui://%ff/a", None),
        ("ui://%73/a", None),
        ("ui://./a", None),
        ("ui://%2E%2E/a", ("..", "ui://a")),
        ("no address", None),
    ],
)
def test_only_an_address_that_a_gateway_wrote_leads_back_to_a_server(
    uri: str, found: tuple[str, str] | None
) -> None:
    assert original(uri) == found


def test_an_address_behind_several_gateways_is_found_again() -> None:
    own = "ui://maps/view"
    shown = address_through(own, ("outer", "inner"))
    assert original(shown) == ("outer", address_through(own, ("inner",)))
    assert address_behind(shown, ("outer", "inner")) == own
    assert address_behind(own, ()) == own


@pytest.mark.parametrize("servers", [("inner", "outer"), ("outer", "other"), ("outer", "inner", "more")])
def test_an_address_that_does_not_come_from_these_servers_stays_as_it_is(servers: tuple[str, ...]) -> None:
    shown = address_through("ui://maps/view", ("outer", "inner"))
    assert address_behind(shown, servers) == shown
    assert address_behind("ui://maps/view", servers) == "ui://maps/view"
