"""Detection of values that look like secrets. False positives are preferred."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from mooring.config.references import expand, references

__all__ = ["MASK", "flag_of", "is_secret", "masked", "masked_text", "secret_parts", "without_credentials"]

MASK = "***"
_WORDS = frozenset(
    (
        *("apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "dsn", "jwt"),
        *("key", "pass", "passphrase", "passwd", "password", "pat", "pwd", "secret", "secrets", "signature"),
        *("token", "tokens"),
    )
)
_PLAIN_VALUES = frozenset(
    {"true", "false", "yes", "no", "on", "off", "none", "null", "oauth", "basic", "bearer"}
)
_KNOWN = (
    r"(?:gh[pousr]_|github_pat_|sk-|sk_live_|sk_test_|rk_live_|xox[abeoprs]-|glpat-|npm_|pypi-|hf_|AKIA|ASIA|AIza"
    r"|ya29\.|shpat_|dop_v1_|lin_api_|ntn_|secret_|SG\.|mooring_[0-9a-f]{8}_"
    # The header of a JWT: of any length where a word begins, else short, or `eyJeyJ…` takes quadratic time.
    r"|(?:(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+|eyJ[A-Za-z0-9_-]{8,120}+)\.)[A-Za-z0-9_\-.=/+]{8,}"
)
_PRIVATE_KEY = r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?:.*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|.*)"
_RANDOM = r"[A-Za-z0-9_+/=.-]{20,}"
_SCHEME = r"(?i)(Bearer|Basic|Token|ApiKey)\s+(?=\S)"


def is_secret(name: str, value: str) -> bool:
    """Whether the literal `value` of `name` looks like a secret."""
    literal = _literal(value).strip()
    literal = re.sub(_SCHEME, "", literal).strip()
    if not literal or literal.lower() in _PLAIN_VALUES:
        return False
    if re.search(_KNOWN, literal) or _has_password(literal):
        return True
    if len(literal) < 6 and literal.isdigit():
        return False
    is_place = literal.startswith(("/", "./", "~/", "../")) or re.match(r"[a-z+]+://|[A-Za-z]:\\", literal)
    if is_place:
        return False
    words = _words(name)
    if words[-2:] == ["env", "var"]:  # the name of a variable
        return False
    if any(word in _WORDS for word in words):
        return True
    return bool(re.fullmatch(_RANDOM, literal)) and _looks_random(literal)


def flag_of(word: str) -> str | None:
    """Return the name in an option such as `--api-key`, or None."""
    found = re.fullmatch(r"--?([A-Za-z][\w-]*)", word)
    return found[1] if found else None


def secret_parts(text: str) -> Iterator[tuple[str, str]]:
    """Return the secret values in the query of a URL, with their names."""
    try:
        query = urlsplit(text).query
    except ValueError:
        return
    for name, value in parse_qsl(query):
        if is_secret(name, value):
            yield name, value


def masked(value: Any, name: str = "") -> Any:
    """Return JSON-like data with values that look like secrets replaced by `***`."""
    match value:
        case Mapping():
            return {key: masked(item, str(key)) for key, item in cast("Mapping[str, Any]", value).items()}
        case list() | tuple():
            return _masked_list([*cast("list[Any]", value)], name)
        case str() if is_secret(name, value):
            scheme = re.match(_SCHEME, value)
            return f"{scheme[0] if scheme else ''}{MASK}"
        case str():
            return masked_text(value, [value])
        case _:
            return value


def masked_text(text: str, values: list[Any]) -> str:
    """Return `text` without the secrets in `values` (JSON-like data) and without tokens of known forms."""
    secrets = {found for value in values for found in _found(value, "")}
    forms = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1]) if form}
    for form in sorted(forms, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])", MASK, text)
    return re.sub(_KNOWN, MASK, text)


def without_credentials(text: str) -> str:
    """Return `text` without tokens of known forms and private keys."""
    return re.sub(_PRIVATE_KEY, MASK, re.sub(_KNOWN, MASK, text))


def _found(value: Any, name: str) -> Iterator[str]:
    match value:
        case Mapping():
            for key, item in cast("Mapping[str, Any]", value).items():
                yield from _found(item, str(key))
        case list() | tuple():
            before = ""
            for item in cast("list[Any]", value):
                yield from _found(item, flag_of(before) or name if isinstance(item, str) else name)
                before = item if isinstance(item, str) else ""
        case str():
            flag, equals, rest = value.partition("=")
            if equals and (inner := flag_of(flag)) and is_secret(inner, rest):
                yield rest
            elif is_secret(name, value):
                yield re.sub(_SCHEME, "", _longest_literal(value)).strip()
            yield from (part for _, part in secret_parts(value))
        case _:
            pass


def _masked_list(items: list[Any], name: str) -> list[Any]:
    shown: list[Any] = []
    before = ""
    for item in items:
        if isinstance(item, str):
            flag, equals, rest = item.partition("=")
            inner = flag_of(flag)
            if equals and inner and is_secret(inner, rest):
                shown.append(f"{flag}={MASK}")
            else:
                shown.append(masked(item, flag_of(before) or name))
            before = item
        else:
            shown.append(masked(item, name))
            before = ""
    return shown


def _literal(value: str) -> str:
    """Return the literal parts of a text, including defaults of references."""
    return expand(value, lambda reference: reference.default or "")


def _longest_literal(value: str) -> str:
    for reference in references(value):
        value = value.replace(str(reference), "\0")
    return max(value.split("\0"), key=len)


def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]


def _has_password(text: str) -> bool:
    return re.search(r"://[^/\s:@]*:[^/\s@]+@", text) is not None


def _looks_random(text: str) -> bool:
    if not (any(c.isdigit() for c in text) and any(c.isalpha() for c in text)):
        return False
    counts = Counter(text)
    entropy = -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())
    return entropy > 3.3 and not re.fullmatch(r"[a-z]+(?:[-_.][a-z0-9]+)*", text)
