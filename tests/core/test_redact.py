"""Known secrets are removed from text, in every encoding."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.core.redact import LEAST, Redactor, is_secret_name, secrets_in

SECRET = 'p@ss/wörd+"1"'

plain = st.text(
    st.characters(exclude_characters="*", exclude_categories=["Cs"]), min_size=LEAST, max_size=40
).filter(lambda text: len(text.strip()) >= LEAST)
few = settings(max_examples=40)


@few
@given(plain, st.text(), st.text())
def test_a_known_secret_never_survives_in_any_spelling(secret: str, before: str, after: str) -> None:
    redact = Redactor([secret])
    raw = secret.encode()
    for spelling in (
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        base64.b64encode(b"user:" + raw).decode(),
        base64.b64encode(b"x" + raw + b"yz").decode(),
        base64.b64encode(b"xy" + raw + b"y").decode(),
    ):
        assert spelling not in redact(f"{before}{spelling}{after}")


@few
@given(st.lists(plain, max_size=8), st.data())
def test_of_many_secrets_none_survives_and_the_longest_wins(secrets: list[str], data: st.DataObject) -> None:
    redact = Redactor(secrets)
    for secret in secrets:
        assert redact(f" {secret} ") == " *** "
        assert redact(f" {secret}{secret} ") == " ****** "


@given(st.text(max_size=5), st.text())
def test_short_values_are_no_secrets(short: str, text: str) -> None:
    assert Redactor([short])(text) is text


@few
@given(plain, st.text(alphabet="abc ", max_size=60))
def test_other_text_is_left_alone(secret: str, text: str) -> None:
    if secret not in text and Redactor([secret])(text) != text:
        raise AssertionError("other text than the secret was redacted")


def test_a_key_of_many_lines_is_known_by_each_of_them() -> None:
    key = (
        "-----BEGIN KEY-----\n"
        + "\n".join(f"line{n:02}{'x' * 40}" for n in range(5))
        + "\n-----END KEY-----\n"
    )
    redact = Redactor([key])
    assert redact(key.strip()) == "***"
    assert redact(f"stderr: line03{'x' * 40}") == "stderr: ***"


def test_a_huge_secret_is_found_by_its_pieces() -> None:
    huge = "".join(f"{n:06}" for n in range(2_000))
    assert not any(f"{n:06}" in Redactor([huge])(huge) for n in range(0, 2_000, 100))


def test_json_values_are_cleaned_all_the_way_down_and_untouched_without_secrets() -> None:
    value = {"a": [SECRET, {"b": f"x {SECRET}"}], SECRET: 1, "n": None}
    assert Redactor([SECRET]).within(value) == {"a": ["***", {"b": "x ***"}], "***": 1, "n": None}
    assert Redactor().within(value) is value


def test_a_value_nested_beyond_reason_is_dropped() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert Redactor([SECRET]).within(deep) == "***"


def test_it_learns_while_it_works_and_shows_nothing_of_it() -> None:
    redact = Redactor()
    assert (redact(SECRET), bool(redact)) == (SECRET, False)
    redact.learn([SECRET])
    assert (redact(SECRET), bool(redact), repr(redact)) == ("***", True, "Redactor(1 secrets)")


def test_only_the_newest_thousand_are_remembered() -> None:
    redact = Redactor(f"secret-number-{n}" for n in range(1_200))
    assert repr(redact) == "Redactor(1000 secrets)"
    assert redact("secret-number-1199 of many") == "*** of many"


def test_renewed_tokens_do_not_displace_configured_secrets() -> None:
    redact = Redactor([SECRET])
    for n in range(1_200):
        redact.learn_tokens([f"token-number-{n}"])
    assert repr(redact) == "Redactor(1001 secrets)"
    assert redact(f"{SECRET} token-number-1199") == "*** ***"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "GITHUB_TOKEN",
            "githubToken",
            "API_KEY",
            "apiKey",
            "apikey",
            "X-Api-Key",
            "Authorization",
            "Cookie",
        ),
        *("DB_PASSWORD", "passwd", "client_secret", "clientSecret", "AWS_SECRET_ACCESS_KEY", "PRIVATE_KEY"),
        *("--token", "--api-key", "KEY", "SENTRY_DSN", "GH_PAT", "Proxy-Authorization", "sig"),
        *("DB_PASS", "smtpPass", "--pass", "pw", "root_pw", "pwd1", "AWS_CREDS", "cred"),
        *("otp", "PIN", "card_pin", "passcode", "cvv", "AZURE_CONNECTION_STRING", "connectionString"),
    ],
)
def test_names_that_mean_a_secret_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "PORT",
        "LOG_LEVEL",
        "keyboard",
        "monkey",
        "PATTERN",
        "opinion",
        "ping",
        "bypass",
        "compass",
        "passed",
    ],
)
def test_names_that_mean_none_are_left_alone(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_secret_by_the_name_of_their_place() -> None:
    values = {
        "args[0]": "--token=from-equals",
        "args[1]": "--api-key",
        "args[2]": "from-next",
        "args[3]": "plain",
        "env.DB_PASSWORD": "from-env",
        "env.DATABASE_URL": "postgres://me:from-userinfo@host/db",
        "env.LEVEL": "debug",
        "env.DB_PASSPHRASE": "Bearer in mind",
        "headers.Authorization": "Bearer from-header",
        "auth.client_secret": "from-auth",
        "url": "https://x/mcp?api_key=from-query&page=2",
    }
    found = set(secrets_in(values))
    assert found == {
        *("from-equals", "from-next", "from-env", "from-userinfo", "from-header"),
        *("from-auth", "from-query", "in mind"),
    }


@pytest.mark.parametrize("before", [b"", b"x", b"xy"])
def test_of_a_secret_in_base64_at_most_the_letters_at_its_ends_remain(before: bytes) -> None:
    secret = "correct horse battery staple"
    encoded = base64.b64encode(before + secret.encode() + b"after").decode()
    shown = Redactor([secret])(encoded)
    start, _, end = shown.partition("***")
    assert len(start) <= len(before) + 2
    assert len(end) <= 10


def test_nothing_of_a_secret_remains_in_any_spelling_of_text() -> None:
    secret = 'é p@ss/wörd+"1"é'
    escaped = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    spellings = {secret, *escaped, *(one.lower() for one in escaped)}
    for spelling in (*spellings, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert Redactor([secret])(f"<{spelling}>") == "<***>"


@pytest.mark.parametrize("length", [16, 17, 18])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_of_a_secret_in_base64_one_letter_remains_at_each_end(before: int, length: int) -> None:
    secret = "abcdefghijklmnopqr"[:length]
    encoded = base64.b64encode(b"\0" * before + secret.encode()).decode().rstrip("=")
    start, _, end = Redactor([secret])(encoded).partition("***")
    assert len(start) == -(-8 * before // 6)
    assert len(end) == (8 * (before + length) % 6 > 0)


def test_each_piece_of_a_huge_secret_is_removed_alone() -> None:
    huge = "".join(f"{n:06}" for n in range(2_000))
    assert Redactor([huge])(f"<{huge[:256]}>") == "<***>"
    assert Redactor([huge])(f"<{huge[256:512]}>") == "<***>"
