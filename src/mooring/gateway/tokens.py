"""Tokens that `mooring token` creates: stored as scrypt hashes, read again when the file changes."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import secrets
import time
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import scrypt, sha256
from pathlib import Path
from typing import Any, cast

from anyio import to_thread

from mooring.config.files import replace_file, state_home
from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings
from mooring.core.text import did_you_mean
from mooring.core.value import Value, field, replace
from mooring.errors import ConfigError, MooringError
from mooring.gateway.clients import Principal
from mooring.gateway.web import Denied

__all__ = ["CreatedTokens", "StoredToken", "TokenFile", "UnknownToken", "token_path"]

log = logger("mooring.gateway")

PREFIX = "mooring_"
"""Tokens begin with it, so that secret scanners can find them."""
TOKEN = re.compile(r"mooring_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")
SCRYPT = {"n": 2**14, "r": 8, "p": 1}
"""Cost of one verification: 16 MiB and about 40 ms."""
MAX_CACHED = 10_000
MAX_VERIFYING = 2
"""Verifications at the same time."""
MAX_WAITING = 64
"""Requests that wait for a verification; further ones are refused."""
POLL = 0.5
"""Seconds between two looks at the file."""
FIRST_SAVE, SAVE = 1.0, 30.0
"""Seconds until the first use of each token is written to disk, and between two writes of later uses."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
SCOPE = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,200}")
"""One scope (RFC 6749, section 3.3)."""
_VERSION = 1
_MAX_SIZE = 16 * 2**20


class Hash(Value):
    """A salted scrypt hash."""

    id: str
    """Part of the token that is not secret."""
    salt: str = field(shown=False)
    digest: str = field(shown=False)
    until: float | None = None
    """When it ends, after a rotation with a grace period."""

    def matches(self, token: str) -> bool:
        """Whether this is the hash of `token`. Slow on purpose; run it in a thread."""
        made = scrypt(token.encode(), salt=b64decode(self.salt), **SCRYPT, maxmem=2**26)
        return hmac.compare_digest(made, b64decode(self.digest))


class StoredToken(Value):
    """A token as it is stored: without its secret."""

    name: str
    hashes: tuple[Hash, ...] = field(shown=False)
    """The newest is the last one."""
    profiles: tuple[str, ...] = ()
    """Profiles for which it is valid; empty: every one, and the default."""
    scopes: tuple[str, ...] = ()
    created: float = 0.0
    expires: float | None = None
    revoked: float | None = None
    generation: int = 0
    """Changes when sessions of the token must end: at a revocation, or a rotation without grace."""
    last_used: float | None = field(default=None, compare=False)

    def valid(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def state(self, now: float) -> str:
        return "revoked" if self.revoked else "valid" if self.valid(now) else "expired"

    def document(self, now: float) -> dict[str, Any]:
        """Return the row for lists; it holds no secret."""
        return {
            "name": self.name,
            "id": self.hashes[-1].id,
            "state": self.state(now),
            "profiles": list(self.profiles),
            "scopes": list(self.scopes),
            "created": self.created,
            "expires": self.expires,
            "revoked": self.revoked,
            "last_used": self.last_used,
        }

    @property
    def principal(self) -> Principal:
        profiles = frozenset(self.profiles) if self.profiles else None
        return Principal(name=f"token:{self.name}", scopes=frozenset(self.scopes), profiles=profiles)


def token_path(settings: GatewaySettings) -> Path:
    """Return the file of the tokens."""
    if settings.token_file is not None:
        return Path(settings.token_file).expanduser()
    return state_home() / "gateway-tokens.json"


def _new_secret() -> tuple[str, Hash]:
    key = secrets.token_hex(4)
    token = f"{PREFIX}{key}_{secrets.token_urlsafe(32)}"
    salt = secrets.token_bytes(16)
    digest = scrypt(token.encode(), salt=salt, **SCRYPT, maxmem=2**26)
    return token, Hash(id=key, salt=b64encode(salt).decode(), digest=b64encode(digest).decode())


class UnknownToken(ConfigError):
    """There is no token with this name."""


class TokenFile:
    """The tokens in one file. Changes hold a lock, so that processes do not overwrite each other's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._used = path.with_name(path.name + ".used")

    def read(self) -> tuple[StoredToken, ...]:
        """Return all tokens, with their last use.

        Raises:
            ConfigError: The file cannot be read, belongs to another user, or others may write it.
        """
        try:
            with self.path.open("rb") as file:
                if os.name == "posix":
                    about = os.fstat(file.fileno())
                    if about.st_uid not in (os.geteuid(), 0) or about.st_mode & 0o022:
                        raise self._bad("belongs to another user, or others may write it")
                data = json.loads(file.read(_MAX_SIZE))
        except FileNotFoundError:
            return ()
        except OSError as problem:
            raise self._bad(f"cannot be read: {problem.strerror}") from None
        except ValueError:
            raise self._bad("is not JSON") from None
        try:
            if data["version"] != _VERSION:
                raise self._bad("was written by a newer version of mooring")
            used = self._read_used()
            return tuple(_decoded(item, used) for item in data["tokens"])
        except (KeyError, TypeError, AttributeError):
            raise self._bad("does not hold tokens") from None

    def create(
        self,
        name: str,
        *,
        profiles: Sequence[str] = (),
        scopes: Sequence[str] = (),
        lifetime: float | None = None,
    ) -> tuple[str, StoredToken]:
        """Create a token and return it; it cannot be read again.

        Raises:
            MooringError: The name is taken or invalid, or a scope is.
        """
        if wrong := [scope for scope in scopes if not SCOPE.fullmatch(scope)]:
            raise MooringError(
                f"{wrong[0][:80]!r} is not a scope: it must not hold spaces; name each one alone"
            )
        if not NAME.fullmatch(name):
            raise MooringError(
                f"{name[:80]!r} is not a valid name for a token: use letters, digits and . _ @ - (at most 64)"
            )
        token, made = _new_secret()
        now = time.time()
        entry = StoredToken(
            name=name,
            hashes=(made,),
            profiles=tuple(profiles),
            scopes=tuple(scopes),
            created=now,
            expires=None if lifetime is None else now + lifetime,
        )
        with self._changing() as tokens:
            taken = tokens.get(name)
            if taken is not None and taken.valid(now):
                raise MooringError(
                    f"There is a token named {name!r}. Take another name, or replace it: "
                    f"`mooring token rotate {name}`."
                )
            # A name that is used again is not the old one's owner: its sessions end.
            generation = 0 if taken is None else taken.generation + 1
            tokens[name] = replace(entry, generation=generation)
        return token, entry

    def rotate(
        self, name: str, *, grace: float = 0.0, lifetime: float | None = None
    ) -> tuple[str, StoredToken]:
        """Replace the secret of a token and return the new one. The old one is valid for `grace` seconds."""
        token, made = _new_secret()
        now = time.time()
        with self._changing() as tokens:
            old = self._known(tokens, name)
            if old.revoked is not None:
                raise MooringError(
                    f"The token {name!r} is revoked. Create it again: `mooring token create {name}`."
                )
            kept = [one for one in old.hashes if one.until is not None and one.until > now] if grace else []
            if grace:
                kept.append(replace(old.hashes[-1], until=now + grace))
            expires = old.expires
            if lifetime is not None:
                expires = now + lifetime
            elif old.expires is not None:  # the same lifetime again
                expires = now + (old.expires - old.created)
            entry = tokens[name] = replace(
                old,
                hashes=(*kept, made),
                created=now,
                expires=expires,
                generation=old.generation + (0 if grace else 1),
            )
        return token, entry

    def revoke(self, name: str) -> StoredToken:
        """End a token now."""
        with self._changing() as tokens:
            old = self._known(tokens, name)
            if old.revoked is None:
                old = replace(old, revoked=time.time(), generation=old.generation + 1)
            tokens[name] = old
        return old

    def save_use(self, used: Mapping[str, float]) -> None:
        """Write when tokens were last used, beside the file of the tokens."""
        with self._locked():
            known = self._read_used()
            for name, at in used.items():
                known[name] = max(at, known.get(name, 0.0))
            replace_file(self._used, json.dumps(known).encode(), mode=0o600)

    def _known(self, tokens: Mapping[str, StoredToken], name: str) -> StoredToken:
        found = tokens.get(name)
        if found is None:
            near = did_you_mean(name, tokens)
            hint = "" if near is None else f" Did you mean {near!r}?"
            raise UnknownToken(f"There is no token named {name[:80]!r}.{hint} See `mooring token list`.")
        return found

    @contextmanager
    def _changing(self) -> Generator[dict[str, StoredToken]]:
        with self._locked():
            tokens = {token.name: token for token in self.read()}
            yield tokens
            data = {"version": _VERSION, "tokens": [_encoded(token) for token in tokens.values()]}
            replace_file(self.path, json.dumps(data, indent=1).encode() + b"\n", mode=0o600)

    @contextmanager
    def _locked(self) -> Generator[None]:
        from filelock import FileLock, Timeout

        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(self.path.with_name(self.path.name + ".lock"), timeout=10, mode=0o600):
                yield
        except Timeout:
            raise self._bad("is locked by another process") from None

    def _read_used(self) -> dict[str, float]:
        with suppress(OSError, ValueError, AttributeError):
            known = json.loads(self._used.read_text()).items()
            return {str(name): float(at) for name, at in known}
        return {}

    def _bad(self, problem: str) -> ConfigError:
        return ConfigError(f"The file of the tokens, {str(self.path)!r}, {problem}.")


def _encoded(token: StoredToken) -> dict[str, Any]:
    kept = ("name", "profiles", "scopes", "created", "expires", "revoked", "generation")
    hashes = [
        {"id": one.id, "salt": one.salt, "scrypt": one.digest, "until": one.until} for one in token.hashes
    ]
    return {name: getattr(token, name) for name in kept} | {"hashes": hashes}


def _decoded(item: Mapping[str, Any], used: Mapping[str, float]) -> StoredToken:
    hashes = tuple(
        Hash(id=str(one["id"]), salt=str(one["salt"]), digest=str(one["scrypt"]), until=one.get("until"))
        for one in item["hashes"]
    )
    return StoredToken(
        name=str(item["name"]),
        hashes=hashes,
        profiles=tuple(map(str, item["profiles"])),
        scopes=tuple(map(str, item["scopes"])),
        created=float(item["created"]),
        expires=item.get("expires"),
        revoked=item.get("revoked"),
        generation=int(item.get("generation", 0)),
        last_used=used.get(str(item["name"])),
    )


class CreatedTokens:
    """Verifies the tokens of one file for a running gateway.

    The first use of a token costs a scrypt hash, in a thread. Later ones are found by a keyed digest in
    memory. Changes of the file are noticed within `POLL` seconds; an unknown token is looked for at once.
    """

    def __init__(self, file: TokenFile) -> None:
        self.file = file
        self._key = secrets.token_bytes(32)
        self._tokens: dict[str, StoredToken] = {}
        self._by_id: dict[str, tuple[StoredToken, Hash]] = {}
        self._cache: OrderedDict[bytes, tuple[str, str]] = OrderedDict()
        """Keyed digests of verified tokens: name and id."""
        self._state: object = None
        self._required = False
        self._waiting = 0
        self._verifying = asyncio.Semaphore(MAX_VERIFYING)
        self._used: dict[str, float] = {}
        self._written: frozenset[str] = frozenset()
        """Tokens whose use is on disk."""
        self._saved = self._first = 0.0
        self._problem = ""
        """Why the file could not be read; logged once."""

    @property
    def required(self) -> bool:
        """Whether a token is required: the file holds one, valid or not, or held one since the start."""
        return self._required

    def tokens(self) -> list[StoredToken]:
        """Return all tokens with their last use, also what is not on disk yet."""
        return [
            replace(token, last_used=max(self._used.get(token.name, 0.0), token.last_used or 0.0) or None)
            for token in self._tokens.values()
        ]

    def load(self) -> None:
        """Read the file if it changed.

        Raises:
            ConfigError: It cannot be used.
        """
        state = self._stat()
        if state == self._state:
            return
        tokens = self.file.read()
        self._state = state
        self._tokens = {token.name: token for token in tokens}
        self._by_id = {one.id: (token, one) for token in tokens for one in token.hashes}
        self._required = self._required or bool(tokens)

    def _stat(self) -> object:
        try:
            about = os.stat(self.file.path)
        except OSError as problem:
            return problem.errno
        return about.st_mtime_ns, about.st_size, about.st_ino

    def generations(self) -> dict[str, int]:
        """Return the generation of each valid token by its principal, to compare with a later one."""
        now = time.time()
        return {token.principal.name: token.generation for token in self._tokens.values() if token.valid(now)}

    async def find(self, token: str) -> Principal | None:
        """Return the principal of a token; None if it is not valid.

        Raises:
            Denied: Too many tokens are being verified.
        """
        shape = TOKEN.fullmatch(token)
        if shape is None:
            return None
        digest = hmac.digest(self._key, token.encode(), sha256)
        known = self._cache.get(digest)
        if known is None:
            known = await self._verified(token, shape[1], digest)
            if known is None:
                return None
        name, key = known
        entry = self._by_id.get(key)
        now = time.time()
        if entry is None or entry[0].name != name or not entry[0].valid(now):
            return None
        if (until := entry[1].until) is not None and now >= until:
            return None
        self._used[name] = now
        return entry[0].principal

    async def _verified(self, token: str, key: str, digest: bytes) -> tuple[str, str] | None:
        if key not in self._by_id:
            await self._reload()
        if key not in self._by_id:
            return None
        if self._waiting >= MAX_WAITING:
            raise Denied(503, "too many new tokens are being verified", {"Retry-After": "1"})
        self._waiting += 1
        try:
            async with self._verifying:
                found = self._by_id.get(key)
                if found is None or not await to_thread.run_sync(found[1].matches, token):
                    return None
        finally:
            self._waiting -= 1
        self._cache[digest] = (found[0].name, key)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return self._cache[digest]

    async def _reload(self) -> None:
        try:
            await to_thread.run_sync(self.load)
        except ConfigError as problem:
            if str(problem) != self._problem:
                log.error("tokens not read again, the old ones stay in use: %s", problem)
            self._problem = str(problem)
        else:
            self._problem = ""

    async def watch(self, changed: Callable[[Mapping[str, int]], Any]) -> None:
        """Read the file again when it changes, and write the last uses. `changed` is awaited with the
        generations before whenever a token ended."""
        before = self.generations()
        try:
            while True:
                await asyncio.sleep(POLL)
                await self._reload()
                after = self.generations()
                if any(after.get(name) != generation for name, generation in before.items()) or (
                    after and not before
                ):
                    await changed(before)
                before = after
                await self._save_soon()
        finally:
            if self._used:
                with suppress(OSError, MooringError):
                    self.file.save_use(self._used)

    async def _save_soon(self) -> None:
        now = time.monotonic()
        if self._used.keys() <= self._written and (not self._used or now - self._saved < SAVE):
            return
        self._first = self._first or now
        if now - self._first < FIRST_SAVE:
            return
        used, self._saved, self._first = dict(self._used), now, 0.0
        try:
            await to_thread.run_sync(self.file.save_use, used)
            self._written = frozenset(used)
        except (OSError, MooringError) as problem:
            log.warning("last use of tokens not written reason=%s", type(problem).__name__)


def lifetime(text: str) -> float:
    """Return the seconds of a duration such as `90d`, `12h` or `30m`.

    Raises:
        ValueError: It is none.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,4})([smhdwy])", text)
    if found is None:
        raise ValueError(f"expected a duration such as 90d, 12h or 30m, not {text!r}")
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
    return cast("float", int(found[1]) * units[found[2]])
