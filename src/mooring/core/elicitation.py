"""Questions that a server puts to the user, and the answers: read, checked, and named after the server.

The message, the fields and the address are the server's words: whoever shows them says whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from mooring.core.forms import problems_of, unfit_form
from mooring.core.types import EMPTY, Json
from mooring.core.untrusted import clean
from mooring.core.values import Value

__all__ = ["Answer", "Elicitation", "question"]

_MESSAGE = 2_000
_LONGEST_URL = 8_192
_PRIVATE = re.compile(
    r"pass(word|wd|phrase|code)|secret|token|credential|api[\s_-]?key|private[\s_-]?key|\bpin\b|\bcvv\b|\bcvc\b"
    r"|\bssn\b|social[\s_-]?security|card[\s_-]?number|\biban\b|one[\s_-]?time|\botp\b|seed[\s_-]?phrase",
    re.IGNORECASE,
)


class Answer(Value):
    """What the user made of a question."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Json] | None = None
    """The values of the form, when it was accepted."""


class Elicitation(Value):
    """A question of a server. Answer it with `accept`, `decline` or `cancel`.

    For a form, ask for the `properties` of `schema`. For an address, show `url` and above all `host`, and
    let the user open it: accepting means that they agreed to go there, not what happened there.
    """

    server: str
    mode: Literal["form", "url"]
    message: str
    """The server's words, without anything invisible."""
    schema: Mapping[str, Any] = EMPTY
    """A flat JSON Schema: every property is a text, a number, a yes or no, or a choice."""
    url: str | None = None
    host: str | None = None
    """The host of `url` in ASCII, so that no letter passes for another."""
    sensitive: tuple[str, ...] = ()
    """Fields that seem to ask for a secret, which no honest server asks for in a form."""

    @property
    def prompt(self) -> str:
        """The question as it may be shown: it says who asks, and warns of what looks wrong."""
        lines = [f"The server {self.server!r} asks: {self.message}"]
        if self.url is not None:
            lines.append(f"It wants you to visit {self.host}: {self.url}")
        if self.sensitive:
            names = ", ".join(self.sensitive)
            lines.append(f"It seems to ask for a secret ({names}). Do not give it unless you are certain.")
        return "\n".join(lines)

    def accept(self, content: Mapping[str, Json] | None = None) -> Answer:
        """The answer with these values.

        Raises:
            ValueError: they do not fit the form; the text names each field and what it takes.
        """
        if self.mode == "url":
            return Answer(action="accept")
        given = dict(content or {})
        if problems := problems_of(given, self.schema):
            raise ValueError("; ".join(problems))
        return Answer(action="accept", content=given)

    def decline(self) -> Answer:
        """The user said no."""
        return Answer(action="decline")

    def cancel(self) -> Answer:
        """The user went away without a word."""
        return Answer(action="cancel")


def question(server: str, params: Mapping[str, Any]) -> Elicitation:
    """The question in the parameters of `elicitation/create`.

    Raises:
        ValueError: it is none that may be put to a user.
    """
    mode, said = params.get("mode", "form"), params.get("message")
    message = clean(said, _MESSAGE) if isinstance(said, str) else ""
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
