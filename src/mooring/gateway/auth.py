"""Checks of HTTP requests before they are read: headers, origins, hosts, tokens."""

from __future__ import annotations

import hmac
import json
import re
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from mooring.auth.subject import Subject
from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings, OAuthSettings
from mooring.errors import ConfigError
from mooring.gateway.clients import ANONYMOUS, Principal
from mooring.gateway.protocol import HEADER_MISMATCH, VERSION, Refusal, fields
from mooring.gateway.tokens import CreatedTokens
from mooring.gateway.web import Denied, WebRequest

NAMED: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_SINGLE = frozenset(
    (
        *(b"host", b"origin", b"authorization", b"content-type", b"content-length", b"last-event-id"),
        *(b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"),
    )
)
_ENCODED = re.compile(r"=\?base64\?([A-Za-z0-9+/]*={0,2})\?=")

log = logger("mooring.gateway")


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether an address or name is loopback."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def check_host(header: str | None, *, local: bool, allowed: Sequence[str]) -> None:
    """Reject a request whose `Host` header could result from DNS rebinding.

    An IP address cannot be rebound: it is accepted unless the gateway listens on loopback only.
    """
    host = _host_of(header)
    if host is None:
        raise Denied(403, "the Host header is missing or malformed")
    if is_loopback(host) or host in allowed or (not local and _is_address(host)):
        return
    raise Denied(403, "this Host is not allowed; add it to `gateway.allowed_hosts`")


def check_origin(origin: str | None, *, local: bool, allowed: Sequence[str]) -> None:
    """Reject requests that a browser sends for a web page of another origin."""
    if origin is None or origin in allowed:
        return
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        host = None
    if not (local and host and is_loopback(host)):
        raise Denied(403, "this Origin is not allowed; add it to `gateway.allowed_origins`")


@lru_cache(maxsize=1024)
def _host_of(header: str | None) -> str | None:
    if not header or any(letter in header for letter in "/@?#\\ "):
        return None
    try:
        parts = urlsplit(f"//{header}")
        return parts.hostname if parts.port is None or parts.port else None
    except ValueError:
        return None


def check_single(raw_headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Reject repeated headers: a proxy and the gateway could each read a different one."""
    seen: set[bytes] = set()
    for name, _ in raw_headers:
        lower = name.lower()
        if lower in seen and (lower in _SINGLE or lower.startswith(b"mcp-")):
            raise Denied(400, f"the header {lower.decode('latin-1')[:60]!r} is repeated")
        seen.add(lower)


def check_agreement(headers: Mapping[str, str], message: Mapping[str, Any]) -> None:
    """Check that the headers of a 2026 request match its body.

    Raises:
        Refusal: They differ, or a header is missing.
    """
    method, params = message.get("method"), fields(message.get("params"))
    version = fields(params.get("_meta")).get(VERSION)
    if version is not None:
        _must_say(headers, "MCP-Protocol-Version", version)
    _must_say(headers, "Mcp-Method", method)
    named = NAMED.get(str(method))
    if named is not None and isinstance(params.get(named), str):
        _must_say(headers, "Mcp-Name", params[named], encoded=True)


def check_parameters(headers: Mapping[str, str], wanted: Mapping[tuple[str, ...], str], given: Any) -> None:
    """Check that the `Mcp-Param-…` headers of a call match its arguments.

    Args:
        headers: The headers of the request.
        wanted: The path and the header name of each argument that must be sent as a header.
        given: The arguments.

    Raises:
        Refusal: A header differs, is missing, or cannot be decoded.
    """
    for path, name in wanted.items():
        value: Any = given
        for key in path:
            value = fields(value).get(key)
        header = f"Mcp-Param-{name}"
        if value is None:
            if header in headers:
                raise _mismatch(header, "is present, but the body has no such argument")
        else:
            _must_say(headers, header, _as_text(value), encoded=True)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _must_say(headers: Mapping[str, str], name: str, expected: object, *, encoded: bool = False) -> None:
    said = headers.get(name)
    if said is None:
        raise _mismatch(name, "is missing")
    value: str | None = said.strip(" \t")
    if encoded:
        value = _decoded(value or "")
    if value is None or value != expected:
        raise _mismatch(name, "does not match the body")


def _decoded(value: str) -> str | None:
    """Return the decoded value of a header; None if it cannot be decoded."""
    if not (value.startswith("=?base64?") and value.endswith("?=") and len(value) > len("=?base64?=")):
        # Text without both marks is literal. Non-ASCII text must be encoded: its charset is unknown.
        return value if value.isascii() and value.isprintable() else None
    found = _ENCODED.fullmatch(value)
    try:
        return b64decode(found[1], validate=True).decode() if found else None
    except ValueError:
        return None


def _mismatch(name: str, problem: str) -> Refusal:
    return Refusal(HEADER_MISMATCH, f"the header {name} {problem}")


LEEWAY = 30.0
"""Tolerated clock difference in seconds."""
KEYS_TTL = 600.0
"""Seconds for which fetched keys are cached."""
REFETCH_INTERVAL = 30.0
"""Shortest time in seconds between two fetches for unknown keys."""
MAX_TOKEN_LENGTH = 8192


class FixedTokens:
    """Tokens of the configuration, each with its principal. Only hashes are kept."""

    def __init__(self, known: Sequence[tuple[str, str, Sequence[str]]]) -> None:
        self._known = [
            (sha256(token.encode()).digest(), Principal(name=f"token:{name}", scopes=frozenset(scopes)))
            for name, token, scopes in known
        ]

    def of(self, principal: Principal) -> set[bytes]:
        """Return the hashes of this principal's tokens."""
        return {digest for digest, whose in self._known if whose == principal}

    def find(self, token: str) -> Principal | None:
        given = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = None
        for digest, principal in self._known:  # constant time: compare with all of them
            if hmac.compare_digest(digest, given):
                found = principal
        return found


class SignedTokens:
    """JWTs of one issuer for this gateway."""

    def __init__(
        self,
        settings: OAuthSettings,
        audience: Sequence[str],
        fetch: Callable[[str], Awaitable[bytes]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._audience, self._fetch, self._clock = settings, list(audience), fetch, clock
        self._keys: Any = None
        self._until = self._again = 0.0
        self._fixed = None if settings.key_file is None else _key_file(settings.key_file)

    async def find(self, token: str) -> Principal | None:
        """Return the principal of a token; None if it is invalid."""
        import jwt

        try:
            key = self._fixed_key(token) if self._fixed is not None else await self._fetched_key(token)
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=list(self._settings.algorithms),
                audience=self._audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as problem:
            log.info("token rejected reason=%s", type(problem).__name__)
            return None
        name = f"{claims['iss']}#{claims['sub']}"
        return Principal(
            name=name, scopes=_scopes(claims), subject=Subject(name, token, float(claims["exp"]))
        )

    def _fixed_key(self, token: str) -> Any:
        import jwt

        if not isinstance(self._fixed, jwt.PyJWKSet):
            return self._fixed
        return _chosen(self._fixed, token)

    async def _fetched_key(self, token: str) -> Any:
        now = self._clock()
        if self._keys is None or now >= self._until:
            await self._refresh(now)
        found = None if self._keys is None else _chosen(self._keys, token)
        if found is None and now >= self._again:
            await self._refresh(now)
            found = None if self._keys is None else _chosen(self._keys, token)
        return found

    async def _refresh(self, now: float) -> None:
        import jwt

        self._again = now + REFETCH_INTERVAL
        assert self._settings.jwks_url is not None
        try:
            document = json.loads(await self._fetch(self._settings.jwks_url))
            self._keys = jwt.PyJWKSet.from_dict(document)
            self._until = now + KEYS_TTL
        except Exception as problem:
            # The old keys stay in use while the issuer is unavailable.
            issuer, reason = self._settings.issuer, type(problem).__name__
            log.warning("signing keys could not be fetched issuer=%s reason=%s", issuer, reason)


def _chosen(keys: Any, token: str) -> Any:
    """Return the key that the token names; None if the set lacks it."""
    import jwt

    name = jwt.get_unverified_header(token).get("kid")
    for key in keys.keys:
        if key.key_id == name or (name is None and len(keys.keys) == 1):
            return key
    return None


def _key_file(path: str) -> Any:
    import jwt

    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as problem:
        raise ConfigError(f"The key file {path!r} cannot be read: {problem.strerror}") from None
    try:
        if data.lstrip().startswith(b"{"):
            return jwt.PyJWKSet.from_dict(json.loads(data))
        return data.decode()
    except (ValueError, jwt.PyJWTError) as problem:
        raise ConfigError(f"The key file {path!r} holds no keys: {type(problem).__name__}") from None


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    said = claims.get("scope", claims.get("scp", ""))
    words = (
        said.split()
        if isinstance(said, str)
        else cast("list[object]", said)
        if isinstance(said, list)
        else []
    )
    return frozenset(word for word in words if isinstance(word, str))


METADATA = "/.well-known/oauth-protected-resource"
_CORS = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
    "Access-Control-Expose-Headers": "Mcp-Session-Id, WWW-Authenticate",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin",
}


class Authenticator:
    """Checks of a request before its body is read: Host, Origin, repeated headers, and the token."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        bind: str,
        url: str,
        tokens: Sequence[tuple[str, str, Sequence[str]]] = (),
        created: CreatedTokens,
        fetch: Callable[[str], Awaitable[bytes]],
    ) -> None:
        self._settings = settings
        self._created = created
        tls = settings.tls
        self._certificates = tls is not None and tls.client_ca is not None
        self._local = is_loopback(bind)
        self.url = (settings.url or url).rstrip("/")
        hosts, origins = settings.allowed_hosts, settings.allowed_origins
        # Pages that the gateway itself serves at its public address.
        own = [urlsplit(one) for one in (settings.url, settings.public_url) if one]
        self._hosts = (*hosts, *(one.hostname for one in own if one.hostname))
        self._origins = (*origins, *(f"{one.scheme}://{one.netloc}".lower() for one in own))
        self._fixed = FixedTokens(tokens)
        self._named = bool(tokens)
        oauth = settings.oauth
        audience = () if oauth is None else oauth.audience or (f"{self.url}/mcp", self.url)
        self._signed = None if oauth is None else SignedTokens(oauth, audience, fetch)

    @property
    def open(self) -> bool:
        """Whether no token is required."""
        return not (self._named or self._signed is not None or self._created.required or self._certificates)

    def still_valid(self, principal: Principal, old: Authenticator) -> bool:
        """Whether the token of a principal that `old` accepted is still valid."""
        if principal == ANONYMOUS:
            return self.open
        if shown := old._fixed.of(principal):
            return shown <= self._fixed.of(principal)
        if principal.name.startswith("cert:"):
            return self._settings.tls == old._settings.tls
        if principal.name.startswith("token:"):
            return self._created is old._created and principal.name in self._created.generations()
        return self._settings.oauth == old._settings.oauth and self.url == old.url

    def check(self, request: WebRequest) -> dict[str, str]:
        """Return the CORS headers of the response.

        Raises:
            Denied: The request is rejected.
        """
        headers = request.headers
        local = self._local if request.local is None else request.local
        check_single(request.raw_headers)
        hosts, origins = self._hosts, self._origins
        check_host(request.host, local=local, allowed=hosts)
        origin = headers.get("Origin")
        if origin is None:
            return {}
        check_origin(origin, local=local, allowed=origins)
        asked = headers.get("Access-Control-Request-Headers")
        return {
            **_CORS,
            "Access-Control-Allow-Origin": origin,
            **({"Access-Control-Allow-Headers": asked} if asked else {}),
        }

    async def principal(
        self, request: WebRequest, scopes: Sequence[str], profile: str | None = None
    ) -> Principal:
        """Return the principal of the token, or of the client certificate if there is no token. The request
        gets its name.

        Args:
            request: The request.
            scopes: Scopes that the principal must have.
            profile: The profile that is asked for; None if the request is for none.

        Raises:
            Denied: There is neither, or the token is invalid, lacks a scope or is for another profile.
        """
        if self.open and "Authorization" in request.headers:
            with suppress(ConfigError):  # reported by the task that watches the file
                self._created.load()  # the client knows of a token that this process has not seen yet
        if self.open:
            if request.local is False:
                raise Denied(403, "no token is required, so only clients of this machine are served")
            request.principal = ANONYMOUS.name
            return ANONYMOUS
        found = await self._found(request, scopes)
        request.principal = found.name  # also in the log of a request that is refused below
        if missing := [scope for scope in scopes if scope not in found.scopes]:
            raise Denied(
                403,
                f"the token lacks the scope {missing[0]!r}",
                self._challenge(request, scopes, "insufficient_scope"),
            )
        elsewhere = "admin" not in found.scopes if profile is None else profile not in (found.profiles or ())
        if found.profiles is not None and elsewhere:
            paths = ", ".join(f"/mcp/{name}" for name in sorted(found.profiles))
            raise Denied(403, f"the token is for other profiles: {paths}")
        return found

    async def _found(self, request: WebRequest, scopes: Sequence[str]) -> Principal:
        given = request.headers.get("Authorization")
        if given is None and request.certificate is not None and self._settings.tls is not None:
            return Principal(name=request.certificate, scopes=frozenset(self._settings.tls.client_scopes))
        kind, _, token = (given or "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > MAX_TOKEN_LENGTH:
            raise Denied(401, "a bearer token is required", self._challenge(request, scopes))
        found = await self.identify(token)
        if found is None:
            raise Denied(401, "the token is invalid", self._challenge(request, scopes, "invalid_token"))
        return found

    async def identify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if it is invalid."""
        if not token or len(token) > MAX_TOKEN_LENGTH:
            return None
        found = self._fixed.find(token) or await self._created.find(token)
        if found is None and self._signed is not None:
            found = await self._signed.find(token)
        return found

    def metadata(self, path: str, scopes: Sequence[str]) -> Mapping[str, object]:
        """Return the protected resource metadata (RFC 9728)."""
        assert self._settings.oauth is not None
        return {
            "resource": self.url + path,
            "authorization_servers": [self._settings.oauth.issuer],
            "scopes_supported": list(scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "mooring gateway",
        }

    def _challenge(
        self, request: WebRequest, scopes: Sequence[str], error: str | None = None
    ) -> dict[str, str]:
        parts = ['realm="mooring"']
        if error is not None:
            parts.append(f'error="{error}"')
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        if self._signed is not None:
            parts.append(f'resource_metadata="{self.url}{METADATA}{request.path}"')
        return {"WWW-Authenticate": "Bearer " + ", ".join(parts)}
