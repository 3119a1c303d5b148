"""The way of a person through a login: the address to open, and the answer that comes back.

Pure: randomness comes in as a value.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from mooring.core.egress import RefusedError
from mooring.core.grants import word
from mooring.core.oauth import AuthServer

__all__ = ["OtherLoginError", "authorization_url", "check_fit", "read_callback", "s256"]


class OtherLoginError(RefusedError):
    """An answer that belongs to no login under way: the one under way goes on waiting."""


def s256(verifier: str) -> str:
    """The challenge for a verifier (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def check_fit(server: AuthServer) -> str:
    """The page at which one logs in.

    Raises:
        RefusedError: the authorization server has none, or none that is safe.
    """
    if server.authorization_endpoint is None:
        raise RefusedError("the authorization server has no page to log in at")
    if not server.s256:
        raise RefusedError(
            "the authorization server does not say that it checks PKCE with S256; without it, a stolen code "
            "is a stolen login"
        )
    return server.authorization_endpoint


def authorization_url(
    server: AuthServer,
    *,
    client_id: str,
    redirect_uri: str,
    resource: str,
    scopes: Sequence[str],
    state: str,
    verifier: str,
) -> str:
    """The address that a person opens to log in.

    Raises:
        RefusedError: the authorization server cannot do it safely, or at all.
    """
    page = check_fit(server)
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": s256(verifier),
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    return f"{page}{'&' if '?' in page else '?'}{urlencode(query, quote_via=quote, safe='')}"


def read_callback(url: str, *, redirect_uri: str, state: str, server: AuthServer) -> str:
    """The code in the address to which the browser was sent back.

    Raises:
        OtherLoginError: it is no answer to this login.
        RefusedError: it is, and the answer is no.
    """
    try:
        here, home = urlsplit(url), urlsplit(redirect_uri)
        pairs = parse_qsl(here.query, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        raise OtherLoginError("that is no address") from None
    fields = dict(pairs)
    if (here.scheme, here.netloc, here.path) != (home.scheme, home.netloc, home.path):
        raise OtherLoginError(f"the address must begin with {redirect_uri}")
    if len(fields) != len(pairs) or not hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
        raise OtherLoginError("the address belongs to another login")
    issuer = fields.get("iss")
    if issuer is None and server.names_itself:
        raise RefusedError("the answer does not say which authorization server it is from")
    if issuer is not None and issuer != server.issuer:
        raise RefusedError("the answer is from another authorization server than was asked")
    if error := fields.get("error"):
        raise RefusedError(f"the authorization server said no: {word(error)}")
    code = fields.get("code")
    if not code:
        raise RefusedError("the answer holds no code")
    return code
