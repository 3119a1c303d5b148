"""Elicitation: questions of servers to the user, their forms, and the answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from mooring.core.text import clean_for_model
from mooring.core.types import EMPTY, Json
from mooring.core.value import Value

_MOST_FIELDS = 100
_KINDS = ("string", "number", "integer", "boolean", "array")
_FORMATS = {
    "email": re.compile(r"[^@\s]+@[^@\s]+"),
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?"),
}


def unfit_form(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema is not a flat form, or None."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return "it has no properties"
    fields = cast("dict[str, Any]", properties)
    if len(fields) > _MOST_FIELDS:
        return f"it has more than {_MOST_FIELDS} fields"
    for name, field in fields.items():
        kind = cast("dict[str, Any]", field).get("type") if isinstance(field, dict) else None
        if kind not in _KINDS:
            return f"{name[:80]!r} is none of {', '.join(_KINDS)}"
        if kind == "array" and choices(cast("dict[str, Any]", field)) is None:
            return f"{name[:80]!r} is a list of no known choices"
    return None


def choices(field: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the allowed values of a field, each with its title; None if any value is allowed."""
    inner = _mapping(field.get("items")) if field.get("type") == "array" else field
    titled = inner.get("oneOf", inner.get("anyOf"))
    if isinstance(titled, list):
        options = [_mapping(option) for option in cast("list[Any]", titled)]
        return {str(option.get("const")): str(option.get("title", option.get("const"))) for option in options}
    values = inner.get("enum")
    if not isinstance(values, list):
        return None
    names = [str(value) for value in cast("list[Any]", values)]
    given = inner.get("enumNames")
    titles = [str(title) for title in cast("list[Any]", given)] if isinstance(given, list) else names
    return dict(zip(names, titles if len(titles) == len(names) else names, strict=True))


def problems_of(content: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return the problems with the values of a form, field by field."""
    fields = _mapping(schema.get("properties"))
    required = schema.get("required")
    wanted = cast("list[Any]", required) if isinstance(required, list) else []
    problems = [f"{name!r} is missing" for name in wanted if name in fields and name not in content]
    for name, value in content.items():
        if name not in fields:
            problems.append(f"{name!r} was not asked for")
        elif problem := _unfit(value, _mapping(fields[name])):
            problems.append(f"{name!r} {problem}")
    return problems


def _unfit(value: object, field: Mapping[str, Any]) -> str | None:
    kind = field.get("type")
    if kind == "boolean":
        return None if isinstance(value, bool) else "must be true or false"
    if kind in ("number", "integer"):
        return _unfit_number(value, field, whole=kind == "integer")
    if kind == "array":
        if not isinstance(value, list | tuple):
            return "must be a list"
        return _unfit_list(cast("Sequence[Any]", value), field)
    return _unfit_text(value, field)


def _unfit_number(value: object, field: Mapping[str, Any], *, whole: bool) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    if value != value or value in (float("inf"), float("-inf")):
        return "must be a finite number"
    if whole and value != int(value):
        return "must be a whole number"
    return _outside(value, field, "minimum", "maximum", "")


def _unfit_list(value: Sequence[Any], field: Mapping[str, Any]) -> str | None:
    known = choices(field) or {}
    if unknown := [item for item in value if not isinstance(item, str) or item not in known]:
        return f"must be among {', '.join(map(repr, known))}, not {unknown[0]!r}"
    return _outside(len(value), field, "minItems", "maxItems", " items")


def _unfit_text(value: object, field: Mapping[str, Any]) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    known = choices(field)
    if known is not None:
        return None if value in known else f"must be one of {', '.join(map(repr, known))}"
    form = field.get("format")
    pattern = _FORMATS.get(form) if isinstance(form, str) else None
    if pattern is not None and not pattern.fullmatch(value):
        return f"must be in the format {form!r}"
    return _outside(len(value), field, "minLength", "maxLength", " characters")


def _outside(size: float, field: Mapping[str, Any], least: str, most: str, unit: str) -> str | None:
    low, high = field.get(least), field.get(most)
    if isinstance(low, int | float) and size < low:
        return f"must be at least {low:g}{unit}"
    if isinstance(high, int | float) and size > high:
        return f"must be at most {high:g}{unit}"
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


_MESSAGE = 2_000
_LONGEST_URL = 8_192
_PRIVATE = re.compile(
    r"pass(word|wd|phrase|code)|secret|token|credential|api[\s_-]?key|private[\s_-]?key|\bpin\b|\bcvv\b|\bcvc\b"
    r"|\bssn\b|social[\s_-]?security|card[\s_-]?number|\biban\b|one[\s_-]?time|\botp\b|seed[\s_-]?phrase",
    re.IGNORECASE,
)


class Answer(Value):
    """The user's answer to a question of a server."""

    action: Literal["accept", "decline", "cancel"]
    """The user's decision."""
    content: Mapping[str, Json] | None = None
    """The values of the form, when it was accepted."""


class Elicitation(Value):
    """A question of a server. Answer it with `accept`, `decline` or `cancel`.

    For a form, ask for the `properties` of `schema`. For an address, show `url` and above all `host`, and let
    the user open it. Accepting means that the user agreed to open the address, not that they completed what
    it asks for.
    """

    server: str
    """Name of the server that asks."""
    mode: Literal["form", "url"]
    """`form` for values, `url` for an address to open."""
    message: str
    """The server's message, without invisible characters."""
    schema: Mapping[str, Any] = EMPTY
    """A flat JSON Schema: every property is a string, a number, a boolean or a choice."""
    url: str | None = None
    """Address to open, in mode `url`."""
    host: str | None = None
    """The host of `url` in ASCII, so that look-alike letters are visible."""
    sensitive: tuple[str, ...] = ()
    """Fields that seem to ask for a secret. The protocol does not allow that in a form."""

    @property
    def prompt(self) -> str:
        """The question as text for the user: names the server, and warns about fields that ask for
        secrets."""
        lines = [f"The server {self.server!r} asks: {self.message}"]
        if self.url is not None:
            lines.append(f"It wants you to visit {self.host}: {self.url}")
        if self.sensitive:
            names = ", ".join(self.sensitive)
            lines.append(f"It seems to ask for a secret ({names}). Do not give it unless you are certain.")
        return "\n".join(lines)

    def accept(self, content: Mapping[str, Json] | None = None) -> Answer:
        """Return an answer that accepts, with these values.

        Raises:
            ValueError: they do not fit the form; the text names each wrong field and what it accepts.
        """
        if self.mode == "url":
            return Answer(action="accept")
        given = dict(content or {})
        if problems := problems_of(given, self.schema):
            raise ValueError("; ".join(problems))
        return Answer(action="accept", content=given)

    def decline(self) -> Answer:
        """Return the answer of a user who declined."""
        return Answer(action="decline")

    def cancel(self) -> Answer:
        """Return the answer of a user who dismissed the question without a decision."""
        return Answer(action="cancel")


URL_REQUIRED = -32042
"""Error code of protocol version 2025-11-25: the user must open addresses before the call can succeed."""
MOST_ADDRESSES = 16


def addresses_in(data: object) -> dict[str, dict[str, Any]] | None:
    """Return the addresses in the data of a `URL_REQUIRED` error as requests, each under a key of its own;
    None if there are none, or one is invalid."""
    items = _mapping(data).get("elicitations")
    found: dict[str, dict[str, Any]] = {}
    for item in cast("list[Any]", items) if isinstance(items, list) else []:
        params = _mapping(item)
        try:
            asked = question("", params)
        except ValueError:
            return None
        if asked.mode != "url" or len(found) == MOST_ADDRESSES:
            return None
        found[f"address-{len(found) + 1}"] = {"method": "elicitation/create", "params": dict(params)}
    return found or None


def question(server: str, params: Mapping[str, Any]) -> Elicitation:
    """Return the question in the parameters of `elicitation/create`.

    Raises:
    ValueError: the parameters are not a valid question, or its URL is not allowed.
    """
    mode, said = params.get("mode", "form"), params.get("message")
    message = clean_for_model(said, _MESSAGE) if isinstance(said, str) else ""
    if not message:
        raise ValueError("the question has no message")
    if mode == "url":
        url = params.get("url")
        if not isinstance(url, str):
            raise ValueError("the question has no URL")
        return Elicitation(server=server, mode="url", message=message, url=url, host=_host(url))
    if mode != "form":
        raise ValueError("the question is neither a form nor a URL")
    raw = params.get("requestedSchema")
    schema = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    if problem := unfit_form(schema):
        raise ValueError(f"the form is not flat: {problem}")
    return Elicitation(
        server=server, mode="form", message=message, schema=schema, sensitive=_sensitive(schema)
    )


def _host(url: str) -> str:
    if len(url) > _LONGEST_URL or not url.isprintable() or any(letter in url for letter in ' \\"<>'):
        raise ValueError("the URL is malformed")
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        port = parts.port
    except ValueError:
        raise ValueError("the URL is malformed") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ValueError("the URL must begin with http: or https:")
    if not host:
        raise ValueError("the URL names no host")
    if user is not None or parts.password is not None:
        raise ValueError("the URL holds a user name, which hides where it leads")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError("the URL has a malformed host") from None
    return host if port is None else f"{host}:{port}"


def _sensitive(schema: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for name, item in cast("Mapping[str, Mapping[str, Any]]", schema.get("properties", EMPTY)).items():
        words = " ".join(str(item.get(key, "")) for key in ("title", "description"))
        if item.get("format") == "password" or _PRIVATE.search(f"{name} {words}".replace("_", " ")):
            found.append(name)
    return tuple(found)
