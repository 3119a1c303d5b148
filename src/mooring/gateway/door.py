"""Who may come in: the checks that every HTTP request passes before anything reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from aiohttp import web

from mooring.core.gateway import GatewaySettings
from mooring.gateway.checks import Denied, check_host, check_origin, check_single, is_loopback
from mooring.gateway.client import ANONYMOUS, Principal
from mooring.gateway.tokens import LONGEST, FixedTokens, SignedTokens

__all__ = ["METADATA", "Door"]

METADATA = "/.well-known/oauth-protected-resource"
_CORS = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
    "Access-Control-Expose-Headers": "Mcp-Session-Id, WWW-Authenticate",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin",
}


class Door:
    """Host, Origin, repeated headers, and the token."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        bind: str,
        url: str,
        tokens: Sequence[tuple[str, str, Sequence[str]]] = (),
        fetch: Callable[[str], Awaitable[bytes]],
    ) -> None:
        self._settings = settings
        self._local = is_loopback(bind)
        self.url = (settings.url or url).rstrip("/")
        self._fixed = FixedTokens(tokens)
        self._named = bool(tokens)
        oauth = settings.oauth
        audience = () if oauth is None else oauth.audience or (f"{self.url}/mcp", self.url)
        self._signed = None if oauth is None else SignedTokens(oauth, audience, fetch)

    @property
    def open(self) -> bool:
        """Whether nobody is asked who they are."""
        return not self._named and self._signed is None

    def keeps(self, principal: Principal, old: Door) -> bool:
        """Whether somebody whom the old door let in may stay: what they showed is as good here."""
        if principal == ANONYMOUS:
            return self.open
        if shown := old._fixed.of(principal):
            return shown <= self._fixed.of(principal)
        return self._settings.oauth == old._settings.oauth and self.url == old.url

    def check(self, request: web.BaseRequest) -> dict[str, str]:
        """Headers that the answer needs.

        Raises:
            Denied: the request goes no further.
        """
        headers = request.headers
        check_single(request.raw_headers)
        hosts, origins = self._settings.allowed_hosts, self._settings.allowed_origins
        check_host(headers.get("Host"), local=self._local, allowed=hosts)
        origin = headers.get("Origin")
        if origin is None:
            return {}
        check_origin(origin, local=self._local, allowed=origins)
        asked = headers.get("Access-Control-Request-Headers")
        return {
            **_CORS,
            "Access-Control-Allow-Origin": origin,
            **({"Access-Control-Allow-Headers": asked} if asked else {}),
        }

    async def principal(self, request: web.BaseRequest, scopes: Sequence[str]) -> Principal:
        """Who asks, as the token says.

        Raises:
            Denied: there is no good token, or it is not good for this.
        """
        if self.open:
            return ANONYMOUS
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > LONGEST:
            raise Denied(401, "a bearer token is needed", self._challenge(request, scopes))
        found = self._fixed.find(token)
        if found is None and self._signed is not None:
            found = await self._signed.find(token)
        if found is None:
            raise Denied(401, "the token is not good", self._challenge(request, scopes, "invalid_token"))
        if missing := [scope for scope in scopes if scope not in found.scopes]:
            raise Denied(
                403,
                f"the token lacks the scope {missing[0]!r}",
                self._challenge(request, scopes, "insufficient_scope"),
            )
        return found

    def metadata(self, path: str, scopes: Sequence[str]) -> Mapping[str, object]:
        """What this resource is and whose tokens it takes (RFC 9728)."""
        assert self._settings.oauth is not None
        return {
            "resource": self.url + path,
            "authorization_servers": [self._settings.oauth.issuer],
            "scopes_supported": list(scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "mooring gateway",
        }

    def _challenge(
        self, request: web.BaseRequest, scopes: Sequence[str], error: str | None = None
    ) -> dict[str, str]:
        parts = ['realm="mooring"']
        if error is not None:
            parts.append(f'error="{error}"')
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        if self._signed is not None:
            parts.append(f'resource_metadata="{self.url}{METADATA}{request.path}"')
        return {"WWW-Authenticate": "Bearer " + ", ".join(parts)}
