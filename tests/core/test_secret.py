"""A Secret never shows its value, however it is printed."""

from __future__ import annotations

import copy
import json
import logging
import pickle

import pytest

from mooring import ConfigError, Secret, ServerConfig
from mooring.core.events import shown_session
from mooring.core.redact import reveal

VALUE = "hunter2-and-more"


@pytest.mark.parametrize(
    "printed",
    [
        str,
        repr,
        "{}".format,
        "{:>30}".format,
        lambda s: f"{s!r} {s!s} {s!a}",
        lambda s: str.__mod__("%s %r", (s, s)),
        lambda s: s + "!",
        lambda s: "".join(["a", s]),
        lambda s: s.encode().decode(),
        lambda s: json.dumps({"token": s}),
        lambda s: repr(pickle.loads(pickle.dumps([s, {"k": s}]))),
        lambda s: pickle.dumps(s, protocol=0).decode("latin-1"),
        lambda s: repr([s, {s: s}, (s,)]),
        lambda s: repr(vars(s) if hasattr(s, "__dict__") else ""),
    ],
)
def test_every_way_to_print_a_secret_gives_stars(printed) -> None:
    assert "hunter2" not in printed(Secret(VALUE))


def test_only_reveal_gives_the_value() -> None:
    secret = Secret(VALUE)
    assert (secret.reveal(), reveal(secret), reveal("plain")) == (VALUE, VALUE, "plain")
    assert Secret(secret).reveal() == VALUE
    assert copy.deepcopy({"a": secret})["a"].reveal() == VALUE


def test_logging_a_secret_shows_stars(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("somebody").warning("the key is %s", Secret(VALUE))
    assert caplog.messages == ["the key is ***"]


def test_secrets_are_equal_by_value_and_never_to_plain_text() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") not in ("***", "a")
    assert Secret("***") != "***"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_a_secret_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Secret("a")._value = "b"  # type: ignore[misc]


def test_a_configuration_that_holds_secrets_shows_none() -> None:
    server = ServerConfig(
        name="db",
        command="db",
        args=["--key", Secret(VALUE)],
        env={"T": Secret(VALUE)},
        auth={"client_id": "me", "client_secret": Secret(VALUE)},
    )
    assert "hunter2" not in repr(server) + repr(server.args) + repr(server.env) + repr(server.auth)


def test_the_text_of_a_secret_is_checked_like_any_other() -> None:
    with pytest.raises(ConfigError, match="NUL"):
        ServerConfig(name="db", command="db", env={"T": Secret("a\0b")})
    with pytest.raises(ConfigError, match="header cannot carry") as caught:
        ServerConfig(name="db", url="https://x", headers={"T": Secret(f"{VALUE}\r\nX: 1")})
    assert "hunter2" not in str(caught.value)


def test_the_long_id_of_a_session_is_shown_in_part() -> None:
    assert shown_session("chat-1-of-a-user") == "chat-1-of-a-user"
    assert shown_session("0123456789abcdefg") == "01234567"
