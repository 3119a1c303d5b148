"""Literal secrets in an entry replaced by references, so that no file of ours gets a copy of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mooring.config.hosts.references import variable_name
from mooring.core.suspect import flag_of, is_secret, secret_parts

__all__ = ["Vault"]

_SCHEME = re.compile(r"((?:Bearer|Basic|Token|ApiKey)\s+)(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Vault:
    """Names for secrets, during one import: the same secret keeps its name, different ones never share it."""

    _names: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def scrub(self, server: str, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The fields without literal secrets, and what to do about each of them."""
        clean, notes = dict(fields), list[str]()
        for part in ("env", "headers", "auth"):
            if isinstance(clean.get(part), Mapping):
                clean[part] = self._mapping(server, part, cast("Mapping[str, Any]", clean[part]), notes)
        if isinstance(clean.get("args"), list | tuple):
            clean["args"] = self._arguments(server, list(clean["args"]), notes)
        if isinstance(clean.get("url"), str):
            for name, value in secret_parts(clean["url"]):
                clean["url"] = clean["url"].replace(value, self._reference(server, f"{server}_{name}", value))
                notes.append(self._note(f"'{name}' in the address", clean["url"]))
        return clean, notes

    def _mapping(self, server: str, part: str, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        result = dict(given)
        for name, value in given.items():
            if isinstance(value, Mapping):
                result[name] = self._mapping(server, part, cast("Mapping[str, Any]", value), notes)
            elif isinstance(value, str) and is_secret(name, value):
                wanted = name if part == "env" else f"{server}_{'token' if name == 'Authorization' else name}"
                scheme = _SCHEME.fullmatch(value)
                head, secret = (scheme[1], scheme[2]) if scheme else ("", value)
                result[name] = head + self._reference(server, wanted, secret)
                notes.append(self._note(f"{part}.{name}", result[name]))
        return result

    def _arguments(self, server: str, given: list[Any], notes: list[str]) -> list[Any]:
        result, before = list[Any](), ""
        for word in given:
            text = word if isinstance(word, str) else ""
            flag, equals, rest = text.partition("=")
            name = flag_of(flag) if equals else flag_of(before)
            value = rest if equals and name else text
            if is_secret(name or "", value) and not flag_of(text):
                reference = self._reference(server, f"{server}_{name or 'secret'}", value)
                result.append(f"{flag}={reference}" if equals and name else reference)
                notes.append(self._note(f"argument {len(result)}", reference))
            else:
                result.append(word)
            before = text
        return result

    def _reference(self, server: str, wanted: str, secret: str) -> str:
        name = variable_name(wanted)
        for candidate in (name, f"{variable_name(server)}_{name}"):
            if self._names.setdefault(candidate, secret) == secret:
                return f"${{{candidate}}}"
        number = 2
        while self._names.setdefault(f"{name}_{number}", secret) != secret:
            number += 1
        return f"${{{name}_{number}}}"

    def _note(self, place: str, written: str) -> str:
        names = re.findall(r"\$\{(\w+)\}", written)
        return f"{place} held a secret, which was not copied: set {names[-1]} in the environment"
