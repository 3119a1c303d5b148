"""Whose token it is. Fixed tokens are compared in constant time; signed ones are checked for who made
them, for whom, and until when."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from mooring.config.logs import logger
from mooring.core.gateway import OAuthSettings
from mooring.errors import ConfigError
from mooring.gateway.client import Principal

__all__ = ["FixedTokens", "SignedTokens", "Verify"]

log = logger("mooring.gateway")

Verify = Callable[[str], Awaitable[Principal | None]]
LEEWAY = 30.0
KEYS_FOR = 600.0
"""Seconds for which fetched keys are good."""
AGAIN_AFTER = 30.0
"""An unknown key makes us look again, but not more often than this."""
LONGEST = 8192


class FixedTokens:
    """Tokens that the configuration names, each with whose it is."""

    def __init__(self, known: Sequence[tuple[str, str, Sequence[str]]]) -> None:
        self._known = [
            (sha256(token.encode()).digest(), Principal(name=f"token:{name}", scopes=frozenset(scopes)))
            for name, token, scopes in known
        ]

    def of(self, principal: Principal) -> set[bytes]:
        """What tells this principal's tokens from others, without being them."""
        return {digest for digest, whose in self._known if whose == principal}

    def find(self, token: str) -> Principal | None:
        given = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = None
        for digest, principal in self._known:  # all of them: the time tells nothing of which
            if hmac.compare_digest(digest, given):
                found = principal
        return found


class SignedTokens:
    """JWTs of one issuer, made for us."""

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
        """Who the token is of; None when it is not good."""
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
            log.info("a token was refused: %s", type(problem).__name__)
            return None
        return Principal(name=f"{claims['iss']}#{claims['sub']}", scopes=_scopes(claims))

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

        self._again = now + AGAIN_AFTER
        assert self._settings.jwks_url is not None
        try:
            document = json.loads(await self._fetch(self._settings.jwks_url))
            self._keys = jwt.PyJWKSet.from_dict(document)
            self._until = now + KEYS_FOR
        except Exception as problem:
            # The old ones stay good: a hiccup of the issuer must not lock everybody out.
            log.warning("the keys of %s cannot be read: %s", self._settings.issuer, type(problem).__name__)


def _chosen(keys: Any, token: str) -> Any:
    """The key of the set that the token names."""
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
        raise ConfigError(f"the key file {path!r} cannot be read: {problem.strerror}") from None
    try:
        if data.lstrip().startswith(b"{"):
            return jwt.PyJWKSet.from_dict(json.loads(data))
        return data.decode()
    except (ValueError, jwt.PyJWTError) as problem:
        raise ConfigError(f"the key file {path!r} holds no keys: {type(problem).__name__}") from None


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
