"""Secret values, and their redaction from text in common encodings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Never, cast
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

MASK = "***"


class Secret(str):
    """A value for `env`, `headers`, `args` or `auth` that never prints.

    Its string value is `***`, so every library prints, formats, logs, pickles and encodes it as `***`. Only
    `reveal()` returns the value. Two secrets are equal if their values are; a secret never equals a plain
    string.
    """

    __slots__ = ("_value",)
    _value: str

    def __new__(cls, value: str) -> Secret:
        made = super().__new__(cls, MASK)
        object.__setattr__(made, "_value", value.reveal() if isinstance(value, Secret) else value)
        return made

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a Secret does not change")

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return str, (MASK,)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self


def reveal(text: str) -> str:
    """Return the value of a secret, or any other text unchanged."""
    return text.reveal() if isinstance(text, Secret) else text


LEAST = 6
"""Least length of a value that is redacted. Redacting values such as `1` or `true` would make messages
unreadable."""
_KEPT = 1_000
"""Most secrets, and most tokens, that are remembered; the oldest are dropped."""
_LONGEST = 1_024
_PIECE = 256
_MOST_PIECES = 64
_LINE = 16

_SECRET_NAME = (
    r"token|secret|passw|passphrase|\b(?:pass|pw|pwd|creds?)\d*\b|credential|authorization|cookie|bearer|signature|\bjwt\b|\bdsn\b"
    r"|\bauth\b|\bpat\b|\bsig\b|(?:api|access|private|secret|signing|encryption|session|master|account)key"
    r"|\bkey\b|\b(?:otp|totp|pin|pincode|passcode|cvv|cvc)\b|connectionstring"
)
_SCHEME = r"(?i)(?:bearer|basic|token|digest|apikey)\s+"
"""Schemes before a token: servers may repeat the token without them."""
_USERINFO = r"://[^/\s:@]*:([^/\s@]+)@"


class Redactor:
    """Replaces known secrets by `***`."""

    __slots__ = ("__weakref__", "_pattern", "_secrets", "_tokens")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: dict[str, None] = {}
        self._tokens: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add configured values to redact. Values of fewer than six characters are ignored."""
        self._add(self._secrets, secrets)

    def learn_tokens(self, tokens: Iterable[str]) -> None:
        """Add tokens to redact. They are renewed, and do not displace configured values."""
        self._add(self._tokens, tokens)

    def _add(self, known: dict[str, None], values: Iterable[str]) -> None:
        new = [value for value in values if len(value.strip()) >= LEAST and value not in known]
        if not new:
            return
        known |= dict.fromkeys(new)
        for old in list(known)[:-_KEPT]:
            del known[old]
        self._pattern = None  # servers start together: build one expression for all of them

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        if not self:
            return text
        pattern = self._pattern
        if pattern is None:
            pattern = _pattern(
                {form for secret in [*self._secrets, *self._tokens] for form in _forms(secret)}
            )
            self._pattern = pattern
        return pattern.sub(MASK, text)

    def within(self, value: Any) -> Any:
        """Return a JSON value without secrets in its texts; the same object if nothing changed."""
        if not self:
            return value
        try:
            return self._within(value)
        except RecursionError:  # nested too deeply: drop it
            return MASK

    def _within(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list):
            return [self._within(item) for item in cast("list[Any]", value)]
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self(key) if isinstance(key, str) else key: self._within(item) for key, item in items}
        return value

    def __bool__(self) -> bool:
        return bool(self._secrets or self._tokens)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets) + len(self._tokens)} secrets)"


def is_secret_name(name: str) -> bool:
    """Whether a variable, header, option or parameter of this name probably contains a secret."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = re.sub(r"[^a-z0-9]+", " ", spaced.lower()).strip()
    return (
        re.search(_SECRET_NAME, words) is not None
        or re.search(_SECRET_NAME, words.replace(" ", "")) is not None
    )


def secrets_in(values: Mapping[str, str]) -> Iterator[str]:
    """Return the values that are secret by the name of their field: `env.NAME`, `headers.NAME`, `auth.NAME`,
    `args[N]`, `url`, `proxy`, `tls.key_password`."""
    option = ""
    for place, text in values.items():
        kind, _, name = place.partition(".")
        if place == "url":
            yield from (value for key, value in parse_qsl(urlsplit(text).query) if is_secret_name(key))
        elif place == "proxy":
            parts = urlsplit(text)
            yield from {unquote(word) for word in (parts.password or parts.username,) if word}
        elif (kind in ("env", "headers", "auth") and is_secret_name(name)) or place == "tls.key_password":
            yield re.sub(_SCHEME, "", text)
        elif place.startswith("args["):
            flag, _, given = text.partition("=")
            if flag.startswith("-") and given and is_secret_name(flag):
                yield given
            elif option and not text.startswith("-"):
                yield text
            option = flag if flag.startswith("-") and not given and is_secret_name(flag) else ""
        yield from re.findall(_USERINFO, text)


def _pattern(forms: set[str]) -> re.Pattern[str]:
    """Return one expression for all, grouped by first letter: the engine tries alternatives in order."""
    by_letter: dict[str, list[str]] = {}
    # The longer alternative is tried first.
    for form in sorted(forms, key=lambda form: (-len(form), form)):
        by_letter.setdefault(form[0], []).append(re.escape(form[1:]))
    return re.compile(
        "|".join(f"{re.escape(head)}(?:{'|'.join(tails)})" for head, tails in by_letter.items())
    )


def _forms(secret: str) -> Iterator[str]:
    """Return every encoding of a secret to search for."""
    whole = [secret] if len(secret) <= _LONGEST else _pieces(secret)
    # Programs print line by line: each line of a multi-line key is a secret.
    lines = [line.strip() for line in secret.splitlines() if len(line.strip()) >= _LINE]
    for text in {*whole, secret.strip()[:_LONGEST], *lines[:_MOST_PIECES]}:
        if len(text) >= LEAST:
            yield from _spellings(text)


def _pieces(secret: str) -> list[str]:
    starts = range(0, len(secret), _PIECE)[:_MOST_PIECES]
    return [secret[start : start + _PIECE] for start in starts]


def _spellings(text: str) -> Iterator[str]:
    from base64 import b64encode  # lazy: only with secrets

    yield text
    for escaped in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield escaped
        yield re.sub("%..", lambda code: code[0].lower(), escaped)
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    raw = text.encode("utf-8", "surrogatepass")
    for shift in range(3):
        code = b64encode(bytes(shift) + raw).decode()
        # The first and last letter depend on the text around the secret: leave them out.
        core = code[-(-8 * shift // 6) : 8 * (shift + len(raw)) // 6]
        yield core
        yield core.replace("+", "-").replace("/", "_")
