"""The documents of OAuth: which fields are read, and which documents are refused."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.auth.flow import OtherLoginError, authorization_url, read_callback, s256
from mooring.auth.metadata import (
    AuthServer,
    Challenge,
    issuer_urls,
    metadata_urls,
    read_auth_server,
    read_challenge,
    read_resource,
)
from mooring.auth.token_store import (
    Grant,
    OAuthClient,
    Tokens,
    client_form,
    grant_from_json,
    grant_to_json,
    read_client,
    read_tokens,
)
from mooring.config.network import AuthConfig, read_auth
from mooring.core.addresses import RefusedAddressError
from tests.core.test_addresses import HOSTILE_URLS, INTERNAL_HOSTS

ISSUER = "https://as.example/tenant"
DOCUMENT = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://as.example/authorize",
    "token_endpoint": "https://as.example/token",
    "code_challenge_methods_supported": ["S256"],
}
SERVER = read_auth_server(DOCUMENT, {ISSUER}, ())
NAMED = read_auth_server({**DOCUMENT, "authorization_response_iss_parameter_supported": True}, {ISSUER}, ())
BACK = "http://127.0.0.1:4711/callback"
anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ('Basic realm="x"', None),
        ("Bearer", Challenge()),
        (
            'Bearer realm="a, b", error="insufficient_scope", scope="a b a"',
            Challenge(error="insufficient_scope", scopes=("a", "b")),
        ),
        (
            'Basic realm="x", bearer scope=one, resource_metadata="https://h/m"',
            Challenge(scopes=("one",), resource_metadata="https://h/m"),
        ),
        (r'Bearer error="a\"b"', Challenge(error='a"b')),
    ],
)
def test_a_challenge_is_read(header: str | None, expected: Challenge | None) -> None:
    assert read_challenge(header) == expected


@given(st.text())
def test_no_challenge_is_too_odd_to_read(header: str) -> None:
    read_challenge(header)
    read_challenge(f"Bearer {header}")


def test_metadata_is_looked_for_where_the_standards_say() -> None:
    assert metadata_urls("https://h.example/a/mcp/?x=1") == (
        "https://h.example/.well-known/oauth-protected-resource/a/mcp",
        "https://h.example/.well-known/oauth-protected-resource",
    )
    assert issuer_urls(ISSUER) == (
        "https://as.example/.well-known/oauth-authorization-server/tenant",
        "https://as.example/.well-known/openid-configuration/tenant",
        "https://as.example/tenant/.well-known/openid-configuration",
    )
    assert len(issuer_urls("https://as.example")) == 2


@pytest.mark.parametrize(
    ("resource", "fits"),
    [
        ("https://h.example/mcp", True),
        ("https://H.example:443/mcp/", True),
        ("https://h.example/", True),
        ("https://h.example", True),
        ("https://h.example/mc", False),
        ("https://h.example/mcp/more", False),
        ("https://other.example/mcp", False),
        ("http://h.example/mcp", False),
        ("https://h.example:8443/mcp", False),
        ("https://h.example/mcp#x", False),
        (None, False),
    ],
)
def test_metadata_must_be_for_this_very_server(resource: str | None, fits: bool) -> None:
    document = {"resource": resource, "authorization_servers": [ISSUER]}
    if fits:
        assert read_resource(document, "https://h.example/mcp").issuers == (ISSUER,)
    else:
        with pytest.raises(RefusedAddressError, match="another server"):
            read_resource(document, "https://h.example/mcp")


@pytest.mark.parametrize("issuer", ["https://as.example", ISSUER + "/", "HTTPS://as.example/tenant", None, 7])
def test_TH11_an_authorization_server_must_call_itself_exactly_as_announced(issuer: object) -> None:
    with pytest.raises(RefusedAddressError, match="calls itself"):
        read_auth_server({**DOCUMENT, "issuer": issuer}, {ISSUER}, ())


@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"]
)
def test_TH07_every_address_in_the_metadata_is_checked(name: str) -> None:
    for url in ("https://169.254.169.254/x", "http://as.example/x", "javascript:alert(1)"):
        with pytest.raises(RefusedAddressError, match=name.replace("_", " ")):
            read_auth_server({**DOCUMENT, name: url}, {ISSUER}, ())


@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"]
)
def test_TH10_no_hostile_address_passes_in_any_field(name: str) -> None:
    hostile = [*filter(None, HOSTILE_URLS), *(f"https://{host}/x" for host in INTERNAL_HOSTS)]
    assert len(hostile) > 100
    for url in hostile:
        with pytest.raises(RefusedAddressError):
            read_auth_server({**DOCUMENT, name: url}, {ISSUER}, ())


@given(anything)
def test_no_document_makes_a_reader_fall_over(raw: object) -> None:
    for read in (
        lambda: read_resource(raw, "https://h.example/mcp"),
        lambda: read_auth_server(raw, {ISSUER}, ()),
        lambda: read_client(raw),
        lambda: read_tokens(raw, 0.0),
    ):
        with contextlib.suppress(RefusedAddressError):
            read()
    assert grant_from_json(raw) is None


def address(server: AuthServer = SERVER) -> str:
    return authorization_url(
        server,
        client_id="me & you",
        redirect_uri=BACK,
        resource="https://h.example/mcp",
        scopes=["a", "b"],
        state="st",
        verifier="v" * 43,
    )


def test_the_address_to_open_carries_pkce_state_resource_and_scopes() -> None:
    url = address()
    for part in (
        "https://as.example/authorize?response_type=code",
        "client_id=me%20%26%20you",
        "code_challenge_method=S256",
        f"code_challenge={s256('v' * 43)}",
        "resource=https%3A%2F%2Fh.example%2Fmcp",
        "scope=a%20b",
        "state=st",
    ):
        assert part in url


def test_the_challenge_is_that_of_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert s256(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_TH12_without_s256_there_is_no_address(methods: object) -> None:
    server = read_auth_server({**DOCUMENT, "code_challenge_methods_supported": methods}, {ISSUER}, ())
    with pytest.raises(RefusedAddressError, match="S256"):
        address(server)


@pytest.mark.parametrize(
    "query",
    [
        "", "code=c", "code=c&state=", "code=c&state=ST", "code=c&state=st&state=st",
        "code=c&code=d&state=st",
        "error=access_denied", "&".join(f"a{n}=1" for n in range(40)),
    ],
)  # fmt: skip
def test_TH13_an_answer_to_another_login_leaves_this_one_waiting(query: str) -> None:
    with pytest.raises(OtherLoginError):
        read_callback(f"{BACK}?{query}", redirect_uri=BACK, state="st", server=SERVER)


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:4711/callback", "http://127.0.0.1:1/callback", f"{BACK}/x"]
)
def test_TH13_an_answer_at_another_address_is_none(url: str) -> None:
    with pytest.raises(OtherLoginError):
        read_callback(f"{url}?code=c&state=st", redirect_uri=BACK, state="st", server=SERVER)


@pytest.mark.parametrize(
    ("server", "query", "reason"),
    [
        (SERVER, "code=c&state=st&iss=https://evil.example", "another authorization server"),
        (NAMED, "code=c&state=st&iss=https://as.example/tenant/", "another authorization server"),
        (NAMED, "code=c&state=st", "does not name its authorization server"),
        (NAMED, "error=access_denied&state=st", "does not name its authorization server"),
        (SERVER, "error=access_denied&state=st", "access_denied"),
        (SERVER, "error=<script>&state=st", "unknown error"),
        (SERVER, "state=st", "no code"),
    ],
)
def test_TH11_an_answer_from_elsewhere_or_a_no_ends_the_login(
    server: AuthServer, query: str, reason: str
) -> None:
    with pytest.raises(RefusedAddressError, match=reason) as caught:
        read_callback(f"{BACK}?{query}", redirect_uri=BACK, state="st", server=server)
    assert not isinstance(caught.value, OtherLoginError)


def test_a_good_answer_gives_its_code() -> None:
    for server, query in ((SERVER, "code=c&state=st"), (NAMED, f"code=c&state=st&iss={ISSUER}")):
        assert read_callback(f"{BACK}?{query}", redirect_uri=BACK, state="st", server=server) == "c"


@pytest.mark.parametrize(
    ("life", "renew", "expires"),
    [(3600, 3540, 3600), ("3600", 3540, 3600), (30, 15, 30), (0, math.inf, math.inf),
     ("soon", math.inf, math.inf),
     (None, math.inf, math.inf), (1e30, math.inf, math.inf), (-5, math.inf, math.inf)],
)  # fmt: skip
def test_a_token_is_renewed_a_minute_early_or_after_half_its_life(
    life: object, renew: float, expires: float
) -> None:
    tokens = read_tokens({"access_token": "t", "token_type": "bearer", "expires_in": life}, 1000.0)
    assert (tokens.renew_at - 1000, tokens.expires_at - 1000) == (renew, expires)


def test_the_old_refresh_token_stays_where_no_new_one_is_sent() -> None:
    old = Tokens(access="a", refresh="r", scopes=("x",))
    kept = read_tokens({"access_token": "b", "token_type": "Bearer"}, 0.0, old=old)
    assert (kept.refresh, kept.scopes) == ("r", ("x",))
    new = {"access_token": "b", "token_type": "Bearer", "refresh_token": "s", "scope": "y"}
    assert read_tokens(new, 0.0, old=old).refresh == "s"


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"access_token": "a"},
        {"access_token": "a", "token_type": "mac"},
        {"access_token": "a\r\nX: y", "token_type": "Bearer"},
        {"access_token": "é", "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
    ],
)
def test_a_token_that_no_header_can_carry_is_refused(raw: object) -> None:
    with pytest.raises(RefusedAddressError):
        read_tokens(raw, 0.0)


def test_a_secret_goes_where_the_server_wants_it() -> None:
    form = {"grant_type": "x"}
    basic = OAuthClient(client_id="a:b", client_secret="s/ü", secret_by="client_secret_basic")
    assert client_form(basic, form) == (form, {"Authorization": "Basic YSUzQWI6cyUyRiVDMyVCQw=="})
    post = OAuthClient(client_id="a", client_secret="s", secret_by="client_secret_post")
    assert client_form(post, form) == ({**form, "client_id": "a", "client_secret": "s"}, {})
    assert client_form(OAuthClient(client_id="a"), form) == ({**form, "client_id": "a"}, {})


texts = st.text(min_size=1, max_size=10)
times = st.floats(min_value=0, allow_nan=False, allow_infinity=True)


@given(texts, texts, st.none() | texts, times, st.none() | texts)
def test_what_is_kept_comes_back_as_it_was(
    issuer: str, access: str, refresh: str | None, expires: float, secret: str | None
) -> None:
    grant = Grant(
        issuer=issuer,
        resource="https://h.example/mcp",
        client=OAuthClient(client_id="c", client_secret=secret, secret_by="client_secret_basic"),
        tokens=Tokens(access=access, refresh=refresh, expires_at=expires, renew_at=expires, scopes=("a",)),
        token_endpoint="https://as.example/token",
    )
    assert grant_from_json(grant_to_json(grant)) == grant


def test_no_value_shows_its_secrets() -> None:
    client = OAuthClient(client_id="c", client_secret="planted", secret_by="client_secret_post")
    tokens = Tokens(access="planted", refresh="planted")
    grant = Grant(issuer="i", resource="r", client=client, tokens=tokens, token_endpoint="t")
    config = AuthConfig(client_id="c", client_secret="planted")
    assert "planted" not in f"{client!r} {tokens!r} {grant!r} {config!r}"


# --- the field `auth` -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_auth", "expected"),
    [
        ("oauth", {"type": "oauth"}),
        ("none", {"type": "none"}),
        ({}, {}),
        ({"clientId": "a", "clientSecret": "${S}"}, {"client_id": "a", "client_secret": "${S}"}),
        ({"scope": "a b"}, {"scopes": ("a", "b")}),
        ({"grant_type": "authorization_code"}, {"type": "oauth"}),
        ({"callbackPort": "8090"}, {"callback_port": 8090}),
    ],
)
def test_auth_is_read_under_the_names_that_others_use(given_auth: object, expected: object) -> None:
    read = read_auth(given_auth)
    assert read is not None
    assert dict(read) == expected


@pytest.mark.parametrize(
    ("given_auth", "problem"),
    [
        ("basic", "'type' must be one of"),
        ({"client_idd": "x"}, "did you mean 'client_id'"),
        ({"password": "x"}, "'password' is not a known field"),
        ({"client_secret": "planted"}, "no 'client_id'"),
        ({"type": "client_credentials", "client_id": "x"}, "needs 'client_id' and 'client_secret'"),
        ({"issuer": "http://as.example"}, "without TLS"),
        ({"client_metadata_url": "ftp://x"}, "https"),
        ({"client_metadata_url": "https://app.example/"}, "with a path"),
        ({"callback_port": 0}, "at least 1"),
        ({"scopes": ["a b"]}, "each one word"),
        (5, "mapping of settings or a text"),
    ],
)
def test_auth_that_cannot_be_used_is_reported_without_its_values(given_auth: object, problem: str) -> None:
    with pytest.raises(Exception, match=problem) as caught:
        read_auth(given_auth)
    assert "planted" not in str(caught.value)
