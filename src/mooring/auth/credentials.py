"""Credentials for one HTTP server: its token, refreshed in time, and new logins."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from mooring.auth.metadata import Challenge, read_challenge
from mooring.auth.subject import SUBJECT, Subject, subject_of
from mooring.auth.token_store import (
    Grant,
    MemoryStore,
    TokenStore,
    UnsafeStoreError,
    with_configured_secret,
)
from mooring.config.models import ServerConfig, Target
from mooring.config.network import AuthConfig, ExchangeSettings
from mooring.core.addresses import RefusedAddressError
from mooring.core.redact import Redactor
from mooring.errors import AuthNeeded, ConfigError, ConnectError
from mooring.transport.message import WireError
from mooring.transport.pool import HttpRoute

if TYPE_CHECKING:
    from mooring.auth.cipher import LoginCipher
    from mooring.auth.flow import Found
    from mooring.auth.guarded_http import GuardedHttp
    from mooring.auth.login import Login

PROBE = 2.0
"""Seconds to wait for the metadata of a server that requires a login."""

REFRESH_GRACE = 3.0
"""Seconds that a running token refresh may take when the host is closed."""


MOST_CALLERS = 16
"""Tokens of one gateway client for which a connection keeps exchanged tokens: it may renew its own."""


class _Slot:
    """The tokens of one identity at the server."""

    __slots__ = ("grant", "loaded", "renewal", "store", "subject")

    def __init__(self, store: TokenStore | MemoryStore, subject: Subject | None = None) -> None:
        self.store, self.subject = store, subject
        self.grant: Grant | None = None
        self.loaded = False
        self.renewal: asyncio.Task[bool] | None = None


class Credentials:
    """The credentials for one server. Requests with a valid token do not wait for each other."""

    def __init__(
        self,
        server: str,
        url: str,
        auth: AuthConfig,
        way: HttpRoute,
        *,
        on_wanted: Callable[[str], None],
        redact: Redactor,
        principal: str | None = None,
        stores: dict[str, MemoryStore] | None = None,
        fresh: Callable[[], Awaitable[Target]] | None = None,
        cipher: LoginCipher | None = None,
    ) -> None:
        self.server = server
        self.url = url
        self.auth = auth
        self.way = way
        self.redact = redact
        """For the texts of authorization servers: they can repeat what a request contained."""
        self.principal = principal
        """Principal of the login; None for the user who runs the host."""
        self.hopeless = False
        """Whether the server denies access and a login in a browser cannot change that."""
        self.wanted: str | None = None
        """The reason to log in; None when a login is not needed."""
        self.challenge: Challenge | None = None
        self.caller: Subject | None = None
        """The gateway client that used the connection last, for requests that belong to no call."""
        self._stores, self._fresh = {} if stores is None else stores, fresh
        lasting = auth.type in ("oauth", "client_credentials")
        store = TokenStore(url, auth.client_id, principal, cipher if principal is not None else None)
        self._own = _Slot(store if lasting else self._shared(None))
        self._for_callers = principal is not None and auth.service is not None
        self._callers: dict[bytes, _Slot] = {}
        self._on_wanted = on_wanted
        self._beginning = asyncio.Lock()
        self._pending: Login | None = None

    @property
    def store(self) -> TokenStore | MemoryStore:
        return self._own.store

    @property
    def grant(self) -> Grant | None:
        """The tokens of the current caller, or of the host."""
        return self._slot().grant

    def _slot(self) -> _Slot:
        subject = subject_of(self.principal, self.caller) if self._for_callers else None
        if subject is None:
            return self._own
        key = subject.digest
        slot = self._callers.pop(key, None) or _Slot(self._shared(key), subject)
        self._callers[key] = slot  # the newest is last
        if len(self._callers) > MOST_CALLERS:
            del self._callers[next(iter(self._callers))]
        return slot

    def _shared(self, key: bytes | None) -> MemoryStore:
        """The store that all connections of the host with this identity use."""
        whose = (self.principal, None if key is None else key.hex())
        return MemoryStore.shared(self._stores, self.url, _lasting(self.auth), *whose)

    def look_again(self) -> None:
        """Read the stored login again if another process has written it."""
        self._own.loaded = self._own.loaded and not self.news()

    def news(self) -> bool:
        """Whether another process has stored a login since the last read."""
        return self._own.loaded and self._own.store.changed()

    def http(self) -> GuardedHttp:
        from mooring.auth.guarded_http import GuardedHttp

        return GuardedHttp(self.url, self.way)

    def secrets(self) -> tuple[str, ...]:
        """Secrets to redact, longest first."""
        known = {self.auth.client_secret}
        if self.grant is not None:
            tokens = self.grant.tokens
            known |= {tokens.access, tokens.refresh, self.grant.client.client_secret}
        return tuple(sorted((text for text in known if text), key=len, reverse=True))

    # --- for requests ---------------------------------------------------------------------------

    async def bearer(self) -> str | None:
        """Return the token to send, refreshed if it is about to expire; None when there is none.

        Raises:
            WireError: it has expired and cannot be refreshed now, or the caller's own token could not be
            exchanged. Nothing is sent then.
        """
        slot = self._slot()
        if not slot.loaded:
            await self._load(slot)
        if slot.grant is None:
            if not (self._for_callers or self.auth.type == "exchange"):
                return None
            if not await self._renew(slot, None):
                raise WireError(self.wanted or "no token could be obtained", kind="auth", outcome="not sent")
        if slot.grant is None:
            return None
        tokens, now = slot.grant.tokens, time.time()
        due = now >= tokens.renew_at and not (now < tokens.expires_at and slot.renewal is not None)
        if due and self._renewable(slot):  # otherwise the server's 401 decides
            try:
                await self._renew(slot, tokens.access)
            except WireError:
                if now >= tokens.expires_at:
                    raise
        return self._token(slot)

    def _token(self, slot: _Slot) -> str | None:
        """Return the token to send. The identities at the server are recorded with the request, for the audit
        log."""
        if slot.grant is None:
            return None
        current = SUBJECT.get()
        if self._for_callers and current is not None and current.principal == self.principal:
            from mooring.auth.grants import chain

            current.chains[self.server] = chain(current.principal, self.auth, slot.grant)
        return slot.grant.tokens.access

    async def another(self, status: int, header: str | None, sent: str | None) -> bool:
        """Whether to send a request with this response again, because there is another token.

        Raises:
            WireError: There is no other token now.
        """
        if status not in (401, 403):
            return False
        challenge = read_challenge(header)
        if status == 403:
            if challenge is None or not challenge.wants_more:
                return False
            return await self._more(challenge)
        self.challenge = challenge or self.challenge
        return await self._renew(self._slot(), sent)

    async def _more(self, challenge: Challenge) -> bool:
        """Require more scopes for a valid login: from a user, or by a new grant."""
        slot = self._slot()
        held = set(slot.grant.tokens.scopes if slot.grant else ())
        if not set(challenge.scopes) - held:
            return False  # it already has these scopes: asking again would never end
        self.challenge = challenge
        if self.auth.unattended:
            return await self._renew(slot, slot.grant.tokens.access if slot.grant else None)
        scopes = ", ".join(map(repr, challenge.scopes))
        self.wanted = self.redact(f"it requires more rights than the login has: {scopes} (HTTP 403)")
        self._on_wanted(self.wanted)
        return False

    # --- renewal --------------------------------------------------------------------------------

    async def _load(self, slot: _Slot) -> None:
        store = slot.store
        try:
            in_memory = isinstance(store, MemoryStore)
            slot.grant = store.load() if in_memory else await to_thread.run_sync(store.load)
        except UnsafeStoreError as problem:
            text = f"its stored login is not safe: {problem}"
            raise WireError(text, kind="status", outcome="not sent") from None
        if slot.grant is not None and self.auth.issuer not in (None, slot.grant.issuer):
            slot.grant = None
        if slot.grant is not None:
            slot.grant = with_configured_secret(slot.grant, self.auth.client_id, self.auth.client_secret)
        slot.loaded = True

    def _renewable(self, slot: _Slot) -> bool:
        refresh = slot.grant.tokens.refresh if slot.grant else None
        return refresh is not None or self.auth.unattended

    async def _renew(self, slot: _Slot, stale: str | None) -> bool:
        """Whether there is a token other than `stale` now. Concurrent callers share one request; a cancelled
        caller does not cancel it."""
        if slot.renewal is None:
            if slot.grant is not None and slot.grant.tokens.access != stale:
                return True
            if not self._renewable(slot):
                return False

            def renewed(task: asyncio.Task[bool]) -> None:
                slot.renewal = None
                if not task.cancelled():
                    task.exception()  # retrieved even if no caller waits any more

            slot.renewal = asyncio.create_task(self._renew_once(slot, stale))
            slot.renewal.add_done_callback(renewed)
        return await asyncio.shield(slot.renewal)

    async def _renew_once(self, slot: _Slot, stale: str | None) -> bool:
        from mooring.auth.guarded_http import UnreachableError

        try:
            async with slot.store.locked():
                if slot.store.place != "memory":
                    await self._load(slot)
                grant = slot.grant
                if grant is not None and grant.tokens.access != stale and time.time() < grant.tokens.renew_at:
                    return True  # another process or connection was quicker
                new = await self._new_grant(slot)
                if new is not None:
                    slot.grant, slot.loaded = new, True
                    await to_thread.run_sync(slot.store.save, new)
                return new is not None
        except UnreachableError as problem:
            text = f"its login cannot be renewed now: {problem}"
            raise WireError(text, kind="refused", outcome="not sent") from None
        except RefusedAddressError as problem:
            self.wanted = str(problem)
            return False

    async def _new_grant(self, slot: _Slot) -> Grant | None:
        from mooring.auth.flow import DeniedError, refreshed

        if self.auth.unattended:
            new = await self._granted(slot)
            self.satisfied()
            return new
        if slot.grant is None or slot.grant.tokens.refresh is None:
            return None
        try:
            async with self.http() as http:
                return await refreshed(http, slot.grant)
        except DeniedError as denied:
            if denied.error in ("invalid_grant", "invalid_client"):
                await self.forget()  # it cannot be refreshed any more
            raise

    async def _granted(self, slot: _Slot) -> Grant:
        """Return a new grant that needs no login in a browser."""
        from mooring.auth import grants
        from mooring.auth.guarded_http import GuardedHttp

        auth, service = self.auth, self.auth.service
        if service is not None:
            subject = await self._subject(slot)
            # The address of the service is configured, so that its own network is allowed.
            where = service.token_endpoint or service.issuer or ""
            async with GuardedHttp(where, self.way) as there:
                if isinstance(service, ExchangeSettings):
                    more = self.challenge.scopes if self.challenge and self.challenge.wants_more else ()
                    return await grants.by_exchange(there, service, self.url, more, subject)
                async with self.http() as http:
                    found = await self.found(http)
                    used = slot.store.used_assertions if isinstance(slot.store, MemoryStore) else set[str]()
                    return await grants.by_enterprise(
                        (http, there), auth, found, self.scopes(found), subject, used
                    )
        async with self.http() as http:
            found = await self.found(http)
            if auth.type == "workload":
                return await grants.by_workload(http, auth, found, self.scopes(found), self._reread)
            return await grants.by_credentials(http, auth, found, self.scopes(found))

    async def _subject(self, slot: _Slot) -> tuple[str, str]:
        """Return the user's token to exchange, and its type: the gateway client's, or the operator's."""
        service = self.auth.service
        assert service is not None
        usual = "id_token" if self.auth.type == "enterprise" else "access_token"
        kind = service.subject_token_type or usual
        if self.principal is not None:
            if slot.subject is None:
                raise RefusedAddressError(
                    f"{self.principal!r} has no token that could be exchanged: the gateway must accept "
                    "signed tokens (`gateway.oauth`), and the client's must not have expired"
                )
            return slot.subject.token, kind
        service = (await self._reread()).service
        if service is None or service.subject_token is None:
            raise RefusedAddressError(
                "without a gateway client there is no token to exchange; for listing its tools, give a token "
                "of your own as `subject_token`"
            )
        return service.subject_token.strip(), kind

    async def _reread(self) -> AuthConfig:
        """Return the settings with all references resolved again: files and programs may have newer
        tokens."""
        if self._fresh is None:
            return self.auth
        try:
            return AuthConfig(**(await self._fresh()).auth)
        except (ConfigError, ConnectError) as problem:
            raise RefusedAddressError(f"its token could not be read again: {problem}") from None

    async def found(self, http: GuardedHttp) -> Found:
        """Return the authorization server, compared with that of the last login.

        Raises:
            NoOAuthError, RefusedError, UnreachableError: No authorization server can be used.
        """
        from mooring.auth.flow import discover

        if not self._own.loaded:
            await self._load(self._own)
        hint = self.grant.resource_metadata if self.grant is not None else None
        found = await discover(http, self.auth, self.challenge, hint)
        bound = self.auth.client_secret is not None and self.auth.issuer is None and self.grant is not None
        if bound and self.grant is not None and self.grant.issuer != found.server.issuer:
            raise RefusedAddressError(
                f"its client was used with {self.grant.issuer!r} and it now names {found.server.issuer!r}; "
                "if that is right, set `issuer` in `auth`"
            )
        return found

    def scopes(self, found: Found) -> tuple[str, ...]:
        """Return the scopes to request: those configured or offered, and those required since."""
        asked = self.challenge.scopes if self.challenge else ()
        more = self.challenge is not None and self.challenge.wants_more
        held = self.grant.tokens.scopes if self.grant is not None and more else ()
        base = self.auth.scopes or (() if asked else found.protected.scopes)
        return tuple(dict.fromkeys((*base, *held, *asked)))

    # --- logins ---------------------------------------------------------------------------------

    def keep(self, grant: Grant) -> None:
        """Use this login from now on."""
        self._own.grant, self._own.loaded = grant, True

    def satisfied(self) -> None:
        """Clear the reasons to log in."""
        self.wanted = self.challenge = None
        self.hopeless = False

    def accepted(self) -> None:
        """Record that the server accepted a request; scopes that are still missing stay required."""
        self.hopeless = False
        if self.challenge is None or not self.challenge.wants_more:
            self.wanted = None

    async def forget(self) -> None:
        self._own.grant = None
        await to_thread.run_sync(self.store.delete)

    async def explain(self, problem: str) -> AuthNeeded:
        """Return why the server denies access, and what to do; `wanted` says whether a login would help."""
        from mooring.auth.flow import NoOAuthError
        from mooring.auth.guarded_http import UnreachableError

        said, self.wanted = self.wanted, None
        if self.auth.unattended:
            self.hopeless = True
            why = self.redact(problem if said in (None, problem) else f"{problem}; {said}")
            return AuthNeeded(f"{self.server!r}: {why}", server=self.server, login=False)
        whose = "" if self.principal is None else f" --principal {shlex.quote(self.principal)}"
        how = f"log in: `mooring login {self.server}{whose}`"
        try:
            async with asyncio.timeout(PROBE), self.http() as http:
                await self.found(http)
        except NoOAuthError:
            how = "it offers no OAuth login: give it a token in `headers`"
            said = None
        except RefusedAddressError as refused:
            how = f"its OAuth login cannot be used: {refused}"
        except (UnreachableError, TimeoutError, WireError) as fault:
            how = f"{how} (where to is not known yet: {str(fault) or 'no response in time'})"
            self.wanted = problem
        else:
            self.wanted = problem
        self.hopeless = self.wanted is None
        middle = f" ({said})" if said and said != problem and self.wanted else ""
        text = self.redact(f"{self.server!r}: {problem}{middle}; {how}")
        return AuthNeeded(text, server=self.server, login=not self.hopeless)

    async def begin(self, redirect_uri: str | None = None) -> Login:
        """Return the pending login or a new one; always a new one with a redirect address of the application.

        Raises:
            AuthNeeded: A login is not possible.
        """
        from mooring.auth.login import begin

        async with self._beginning:
            old, wanted = self._pending, self.challenge.scopes if self.challenge else ()
            same = old is not None and redirect_uri is None and not old.remote
            if same and old is not None and not old.over and set(wanted) <= set(old.scopes):
                return old
            if old is not None:
                await old.close()
            self._pending = await begin(self, redirect_uri)
            return self._pending

    async def logout(self) -> bool | None:
        """Remove the login and revoke it. Return whether that succeeded; None if it is not supported
        or there was no login."""
        from mooring.auth.flow import revoke
        from mooring.auth.guarded_http import UnreachableError

        async with self.store.locked():
            try:
                await self._load(self._own)
            except WireError:
                self._own.grant = None
            grant = self._own.grant
            await self.forget()
        if grant is None:
            return None
        try:
            async with self.http() as http:
                return await revoke(http, grant)
        except (RefusedAddressError, UnreachableError):
            return False

    async def close(self) -> None:
        running = {slot.renewal for slot in (self._own, *self._callers.values()) if slot.renewal is not None}
        if running:
            await asyncio.wait(running, timeout=REFRESH_GRACE)
        if self._pending is not None:
            await self._pending.close()


def access_for(
    config: ServerConfig,
    target: Target,
    way: HttpRoute,
    old: Credentials | None,
    on_wanted: Callable[[str], None],
    redact: Redactor,
    principal: str | None = None,
    stores: dict[str, MemoryStore] | None = None,
    fresh: Callable[[], Awaitable[Target]] | None = None,
    cipher: LoginCipher | None = None,
) -> Credentials | None:
    """Return the credentials of an HTTP server without an Authorization header; None for others.
    `on_wanted` is called when the server requires more scopes than the login has. Client credentials and
    workload identities belong to the configuration, for every caller: a principal has none of its own."""
    auth = AuthConfig(**target.auth)
    if target.url is None or auth.type == "none" or any(n.lower() == "authorization" for n in target.headers):
        return None
    if old is not None and (old.url, _lasting(old.auth)) == (target.url, _lasting(auth)):
        old.way = way
        old.look_again()
        return old
    whose = principal if auth.personal else None
    return Credentials(
        config.name,
        target.url,
        auth,
        way,
        on_wanted=on_wanted,
        redact=redact,
        principal=whose,
        stores=stores,
        fresh=fresh,
        cipher=cipher,
    )


def _lasting(auth: AuthConfig) -> dict[str, Any]:
    """Return the settings without tokens that are read again for each use."""
    fields = {name: value for name, value in vars(auth).items() if name != "assertion"}
    for name in ("idp", "exchange"):
        if fields[name] is not None:
            fields[name] = {key: value for key, value in fields[name].items() if key != "subject_token"}
    return fields
