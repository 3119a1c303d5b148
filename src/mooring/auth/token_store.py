"""Tokens and clients of a login, and their storage between runs."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import re
import stat
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote, urlsplit

from mooring.auth.cipher import ClusterLogins, LoginCipher
from mooring.auth.metadata import AuthServer, scopes_in
from mooring.config.files import replace_file, state_home
from mooring.config.logs import logger
from mooring.core.addresses import RefusedAddressError
from mooring.core.types import EMPTY
from mooring.core.value import Value, replace
from mooring.errors import ConfigError

EARLY = 60.0
"""Seconds before its expiry at which a token is refreshed."""
_LONGEST_LIFE = 10 * 365 * 86_400.0
_HEADER_SAFE = re.compile(r"[!-~]{1,65536}")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class OAuthClient(Value):
    """An OAuth client."""

    client_id: str
    client_secret: str | None = None
    secret_by: str = "none"
    """`none`, `client_secret_basic` or `client_secret_post`."""
    configured: bool = False
    """Whether the secret is from the configuration. Such a secret is not stored with the login."""

    def __repr__(self) -> str:
        return f"Client({self.client_id!r}, secret_by={self.secret_by!r})"


class Tokens(Value):
    """Tokens of a login. Times are seconds since the epoch; infinite when the server sent none."""

    access: str
    refresh: str | None = None
    expires_at: float = math.inf
    renew_at: float = math.inf
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Tokens(expires_at={self.expires_at!r}, scopes={self.scopes!r})"


class Grant(Value):
    """A login with everything needed to refresh and revoke it, as stored between runs."""

    issuer: str
    resource: str
    client: OAuthClient
    tokens: Tokens
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource_metadata: str | None = None
    """URL of the server's metadata, if a 401 response named it."""


def registration(redirect_uri: str, scopes: Sequence[str]) -> dict[str, Any]:
    """Return the client metadata of mooring (RFC 7591)."""
    document: dict[str, Any] = {
        "client_name": "mooring",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web" if redirect_uri.startswith("https:") else "native",
    }
    return document | ({"scope": " ".join(scopes)} if scopes else {})


def read_client(raw: object) -> OAuthClient:
    """Return the client in the response to a registration.

    Raises:
        RefusedError: It contains no client.
    """
    fields = _fields(raw)
    client_id, secret = fields.get("client_id"), fields.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        raise RefusedAddressError("the authorization server registered mooring without a client id")
    if not isinstance(secret, str) or not secret:
        return OAuthClient(client_id=client_id)
    method = fields.get("token_endpoint_auth_method")
    if method == "none":
        return OAuthClient(client_id=client_id)
    by = method if method == "client_secret_post" else "client_secret_basic"
    return OAuthClient(client_id=client_id, client_secret=secret, secret_by=by)


def known_client(client_id: str, secret: str | None, server: AuthServer) -> OAuthClient:
    """Return a pre-registered client, with the authentication method of this server."""
    if secret is None:
        return OAuthClient(client_id=client_id)
    only_post = "client_secret_basic" not in server.secrets_by and "client_secret_post" in server.secrets_by
    by = "client_secret_post" if only_post else "client_secret_basic"
    return OAuthClient(client_id=client_id, client_secret=secret, secret_by=by, configured=True)


def with_configured_secret(grant: Grant, client_id: str | None, secret: str | None) -> Grant:
    """Return a stored grant with the secret of the configuration, if its client is the configured one."""
    if secret is None or grant.client.client_id != client_id:
        return grant
    return replace(grant, client=replace(grant.client, client_secret=secret, configured=True))


def client_form(client: OAuthClient, form: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form fields and headers with which a client authenticates at its authorization server."""
    if client.secret_by == "client_secret_basic" and client.client_secret is not None:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        return dict(form), {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    full = {**form, "client_id": client.client_id}
    if client.client_secret is not None and client.secret_by == "client_secret_post":
        full["client_secret"] = client.client_secret
    return full, {}


def read_tokens(raw: object, now: float, *, asked: Sequence[str] = (), old: Tokens | None = None) -> Tokens:
    """Return the tokens in a response. Without a new refresh token, the old one stays valid.

    Raises:
        RefusedError: It has no usable token.
    """
    fields = _fields(raw)
    access, kind, refresh = fields.get("access_token"), fields.get("token_type"), fields.get("refresh_token")
    if not isinstance(access, str) or not _HEADER_SAFE.fullmatch(access):
        raise RefusedAddressError("the authorization server returned no usable access token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise RefusedAddressError("the authorization server returned a token whose type is not 'Bearer'")
    life = _life(fields.get("expires_in"))
    kept = old.refresh if old is not None else None
    before = old.scopes if old is not None else tuple(asked)
    return Tokens(
        access=access,
        refresh=refresh if isinstance(refresh, str) and refresh else kept,
        expires_at=now + life,
        renew_at=now + life - min(EARLY, life / 2) if life < math.inf else math.inf,
        scopes=scopes_in(fields.get("scope")) or before,
    )


def refusal_in(raw: object) -> str:
    """Return the error code in an error response: only codes of the standard, never free text."""
    fields = _fields(raw)
    return word(fields.get("error"))


def grant_to_json(grant: Grant) -> dict[str, Any]:
    """Return the grant as JSON; all secrets are under `secrets`. A configured client secret is left out."""
    tokens, client = grant.tokens, grant.client
    return {
        "version": 1,
        "issuer": grant.issuer,
        "resource": grant.resource,
        "token_endpoint": grant.token_endpoint,
        "revocation_endpoint": grant.revocation_endpoint,
        "resource_metadata": grant.resource_metadata,
        "client_id": client.client_id,
        "secret_by": client.secret_by,
        "expires_at": tokens.expires_at if tokens.expires_at < math.inf else None,
        "renew_at": tokens.renew_at if tokens.renew_at < math.inf else None,
        "scopes": list(tokens.scopes),
        "secrets": {
            "access": tokens.access,
            "refresh": tokens.refresh,
            "client_secret": None if client.configured else client.client_secret,
        },
    }


def grant_from_json(raw: object) -> Grant | None:
    """Return the stored grant; None when it is damaged or of another version."""
    fields = _fields(raw)
    secrets = _fields(fields.get("secrets"))
    needed = [fields.get(name) for name in ("issuer", "resource", "token_endpoint", "client_id", "secret_by")]
    access = secrets.get("access")
    if fields.get("version") != 1 or not all(isinstance(item, str) for item in (*needed, access)):
        return None
    return Grant(
        issuer=fields["issuer"],
        resource=fields["resource"],
        token_endpoint=fields["token_endpoint"],
        revocation_endpoint=_optional(fields, "revocation_endpoint"),
        resource_metadata=_optional(fields, "resource_metadata"),
        client=OAuthClient(
            client_id=fields["client_id"],
            client_secret=_optional(secrets, "client_secret"),
            secret_by=fields["secret_by"],
        ),
        tokens=Tokens(
            access=cast("str", access),
            refresh=_optional(secrets, "refresh"),
            expires_at=_time(fields.get("expires_at")),
            renew_at=_time(fields.get("renew_at")),
            scopes=scopes_in(fields.get("scopes")),
        ),
    )


def _fields(raw: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", raw) if isinstance(raw, dict) else EMPTY


def _life(value: object) -> float:
    """Return the lifetime of a token in seconds; some servers send it as text."""
    try:
        life = float(value) if isinstance(value, int | float | str) else math.inf
    except (ValueError, OverflowError):
        return math.inf
    return life if 0 < life <= _LONGEST_LIFE else math.inf


def _time(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.inf


def _optional(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None


def word(value: object) -> str:
    """Return an error code of the standard; other text is not shown."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else "an unknown error"


log = logger("mooring.tokens")


SERVICE = "mooring-oauth"
"""Not the service that `${keyring:…}` reads, so that no configuration can put a token into a header."""
LIMIT = 256 * 1024
LOCK_PATIENCE = 30.0
# Do not follow links or block on pipes. Windows has neither flag.
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_warned: set[str] = set()

Place = Literal["keyring", "file", "memory", "host"]
"""`host`: in the memory of a host, for all its connections."""


class UnsafeStoreError(Exception):
    """Other users can access the token store; the text names the path."""


class MemoryStore:
    """A grant that is never written to disk, shared by the connections of one host."""

    MOST = 4096
    """Grants that a host keeps; beyond that, those unused for longest are dropped."""

    def __init__(self) -> None:
        self.place: Place = "host"
        self._grant: Grant | None = None
        self._lock = asyncio.Lock()
        self.used_assertions: set[str] = set()
        """Ids of assertions that were presented for it."""

    @classmethod
    def shared(cls, stores: dict[str, MemoryStore], *identity: object) -> MemoryStore:
        """Return the store for an identity from those of a host."""
        key = sha256(json.dumps(identity, default=repr).encode()).hexdigest()
        store = stores.pop(key, None) or cls()
        stores[key] = store  # the newest is last
        while len(stores) > cls.MOST:
            del stores[next(iter(stores))]
        return store

    def load(self) -> Grant | None:
        return self._grant

    def save(self, grant: Grant) -> None:
        self._grant = grant

    def changed(self) -> bool:
        return False

    def delete(self) -> None:
        self._grant = None

    def locked(self) -> AbstractAsyncContextManager[None]:
        return self._lock


cluster_logins: ClusterLogins | None = None
"""Set by a cluster."""


class TokenStore:
    """The stored login for one server address and one client: of this user, or of one principal."""

    def __init__(
        self, url: str, client: str | None, principal: str | None = None, cipher: LoginCipher | None = None
    ) -> None:
        self.cipher = cipher
        whose = [url, client] if principal is None else [url, client, principal]
        unique = sha256(json.dumps(whose).encode()).hexdigest()[:32]
        readable = re.sub(r"[^a-z0-9.-]+", "-", (urlsplit(url).hostname or "").lower())[:60]
        self.key = f"{readable}-{unique}"
        self.place: Place = "memory"
        """Where the login was last read or written."""
        self._stamp = 0
        self.written = False
        """Whether it was stored or deleted; reset by a cluster."""

    # --- stored logins --------------------------------------------------------------------------

    def load(self) -> Grant | None:
        """Return the stored login, if any.

        Raises:
            UnsafeStoreError: Another user may have written the file.
        """
        self._stamp = self._now()
        raw = self._read()
        if raw is None:
            return None
        place: Place = "file"
        if raw.get("secrets") == SERVICE:
            place, raw["secrets"] = "keyring", self._from_keyring()
        sealed = _optional(_fields(raw.get("secrets")), "sealed")
        if sealed is not None:
            raw["secrets"] = self._unsealed(sealed)
        grant = grant_from_json(raw)
        if grant is not None and sealed is None and self.cipher is not None:
            self.save(grant)  # it was stored before there was a key
            return grant
        if grant is None:
            reason = "encrypted with another `gateway.key`" if sealed else "damaged, or gone from the keyring"
            log.warning("the stored login %s is %s; log in again", self._path(), reason)
        else:
            self.place = place
        return grant

    def save(self, grant: Grant) -> None:
        """Store a login for the next run. If that fails, it is kept in memory."""
        document = grant_to_json(grant)
        self.written = True
        self.place = "file"
        secrets = json.dumps(document["secrets"])
        try:
            if self.cipher is not None:
                document["secrets"] = {"sealed": self.cipher.seal(secrets, self.key)}
            elif self._to_keyring(secrets):
                self.place, document["secrets"] = "keyring", SERVICE
            self._write(json.dumps(document).encode())
            if self.place == "file" and self.cipher is None:
                _explain_file()
        except (OSError, UnsafeStoreError, ConfigError) as problem:
            self.place = "memory"
            _warn_once(f"tokens are not stored for the next run: {problem}")
        self._stamp = self._now()

    def _unsealed(self, sealed: str) -> Any:
        """Return the secrets of an encrypted login; None if the key is missing or differs."""
        try:
            text = None if self.cipher is None else self.cipher.open(sealed, self.key)
        except ConfigError as problem:
            _warn_once(f"logins of gateway clients cannot be decrypted: {problem}")
            return None
        return None if text is None else json.loads(text)

    def changed(self) -> bool:
        """Whether another process has written the store since the last read."""
        return self._now() not in (0, self._stamp)

    def _now(self) -> int:
        try:
            return self._path().lstat().st_mtime_ns
        except OSError:
            return 0

    def delete(self) -> None:
        """Delete the stored login."""
        self.written = True
        with suppress(UnsafeStoreError):
            raw = self._read()
            if raw is not None and raw.get("secrets") == SERVICE and (keyring := _keyring()) is not None:
                with suppress(Exception):  # backends raise any exception
                    keyring.delete_password(SERVICE, self.key)
        with suppress(OSError):
            self._path().unlink(missing_ok=True)

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Lock this login for all processes of this user, and for all nodes of a cluster, whose newest login
        is taken over first. Without a lock, continue: a second refresh is better than none."""
        async with self._locked_here():
            if cluster_logins is None:
                yield
                return
            async with cluster_logins.holding(self):
                yield

    @asynccontextmanager
    async def _locked_here(self) -> AsyncGenerator[None]:
        from filelock import AsyncFileLock, Timeout

        try:
            _own_folder(self._path().parent)
            lock = AsyncFileLock(
                f"{self._path()}.lock", timeout=LOCK_PATIENCE, mode=0o600, run_in_executor=False
            )
            await lock.acquire()
        except (OSError, Timeout, UnsafeStoreError) as problem:
            log.warning("a login is refreshed without a lock: %s", problem)
            yield
            return
        try:
            yield
        finally:
            await lock.release()

    # --- the file -------------------------------------------------------------------------------

    def _path(self) -> Path:
        return state_home() / "oauth" / f"{self.key}.json"

    def _read(self) -> dict[str, Any] | None:
        path = self._path()
        try:
            _check_folder(path.parent)
            descriptor = os.open(path, _OPEN)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            if path.is_symlink():
                raise UnsafeStoreError(f"{path} is a link; remove it") from None
            raise UnsafeStoreError(f"{path} cannot be read: {problem.strerror}") from None
        with os.fdopen(descriptor, "rb") as stream:
            _check_owner(os.fstat(descriptor), path)
            data = stream.read(LIMIT + 1)
        try:
            raw: object = json.loads(data) if len(data) <= LIMIT else None
        except (ValueError, RecursionError):
            raw = None
        return cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}

    def _write(self, data: bytes) -> None:
        path = self._path()
        _own_folder(path.parent)
        if path.is_symlink():
            raise UnsafeStoreError(f"{path} is a link; remove it")
        replace_file(path, data, mode=0o600)

    # --- the keyring ----------------------------------------------------------------------------

    def _from_keyring(self) -> Any:
        keyring = _keyring()
        try:
            text = keyring.get_password(SERVICE, self.key) if keyring is not None else None
            return json.loads(text) if text else None
        except Exception as problem:  # backends raise any exception
            log.warning("the keyring cannot be read: %s", type(problem).__name__)
            return None

    def _to_keyring(self, text: str) -> bool:
        keyring = _keyring()
        if keyring is None:
            return False
        try:
            keyring.set_password(SERVICE, self.key, text)
            return keyring.get_password(SERVICE, self.key) == text
        except Exception as problem:  # backends raise any exception
            log.warning("the keyring cannot store the token: %s", type(problem).__name__)
            return False


def _keyring() -> Any:
    """Return the keyring, if the extra is installed and has a real backend."""
    try:
        keyring: Any = import_module("keyring")
        return keyring if keyring.get_keyring().priority > 0 else None
    except Exception:  # not installed, or without a backend
        return None


def _own_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_folder(folder)
    if os.name == "posix" and stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def _check_folder(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeStoreError(f"{folder} is not a directory of its own; remove it")
    _check_owner(found, folder, directory=True)


def _check_owner(found: os.stat_result, path: Path, *, directory: bool = False) -> None:
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid():
        raise UnsafeStoreError(f"{path} belongs to another user; remove it")
    if not directory and (not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077):
        raise UnsafeStoreError(f"{path} can be read by others; remove it, then log in again")


def _explain_file() -> None:
    """Log once where tokens are stored. The extra is recommended only where the system has a keyring:
    elsewhere it has no effect."""
    text = "tokens are stored in a file that only you can read"
    if sys.platform in ("darwin", "win32") and find_spec("keyring") is None:
        _warn_once(f"{text}; `pip install 'mooring[keyring]'` keeps them in the keyring of the system")
    elif text not in _warned:
        _warned.add(text)
        log.info("%s", text)


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        log.warning("%s", text)
