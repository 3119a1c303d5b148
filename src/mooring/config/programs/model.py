"""Description of another program: its files, its format of a server entry, and what it can express."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from mooring.config.load import folders_up
from mooring.config.references import Kind, Reference, references, unknown
from mooring.config.secret_scan import flag_of, is_secret, secret_parts

SiteScope = Literal["managed", "project", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts that determine the paths of files."""

    home: Path
    cwd: Path
    env: Mapping[str, str]
    platform: str

    @classmethod
    def this(cls) -> Machine:
        return cls(home=Path.home(), cwd=Path.cwd(), env=os.environ, platform=sys.platform)

    @property
    def places(self) -> dict[str, str]:
        """The directories for the placeholders in `Site.template`."""
        roaming = self.env.get("APPDATA") or str(self.home / "AppData" / "Roaming")
        config = self.env.get("XDG_CONFIG_HOME") or str(self.home / ".config")
        match self.platform:
            case "win32":
                support, config, shared = roaming, roaming, self.env.get("PROGRAMDATA", "C:/ProgramData")
            case "darwin":
                support = str(self.home / "Library" / "Application Support")
                shared = "/Library/Application Support"
            case _:
                support, shared = config, "/etc"
        homes = {
            "codex": self.env.get("CODEX_HOME") or str(self.home / ".codex"),
            "copilot": self.env.get("COPILOT_HOME") or str(self.home / ".copilot"),
        }
        return {"home": str(self.home), "config": config, "support": support, "shared": shared, **homes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One file that a program reads. `template` is relative to a project, or begins with a placeholder."""

    template: str
    scope: SiteScope = "user"
    platforms: tuple[str, ...] = ()
    """Platforms that have the file; empty for all."""

    def path(self, machine: Machine) -> Path | None:
        """Return the path, whether or not the file exists; None on other platforms."""
        if self.platforms and machine.platform not in self.platforms:
            return None
        if self.scope != "project":
            return Path(self.template.format(**machine.places))
        found = (folder / self.template for folder in folders_up(machine.cwd))
        return next((path for path in found if os.path.isfile(path)), machine.cwd / self.template)


def user(template: str, *platforms: str) -> Site:
    return Site(template=template, platforms=platforms)


def project(template: str) -> Site:
    return Site(template=template, scope="project")


def managed(template: str, *platforms: str) -> Site:
    return Site(template=template, scope="managed", platforms=platforms)


Syntax = Literal["shell", "env", "brace", "dollar", "none"]
"""How a program writes a variable: ${X}, ${env:X}, {env:X}, $X or ${X}, not at all."""
Unit = Literal["s", "ms"]
_EVERYWHERE = frozenset({"command", "args", "env", "url", "headers", "cwd"})


class UnfitError(ValueError):
    """A server cannot be converted; the text is the reason."""


@dataclass(slots=True, kw_only=True)
class ImportedEntry:
    """An entry during its conversion, with notes on what was lost."""

    name: str
    raw: dict[str, Any]
    document: Mapping[str, Any]
    """The whole content of its file."""
    notes: list[str] = field(default_factory=list[str])


Adapt = Callable[[ImportedEntry], None]
"""Converts fields of one program to fields that mooring reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The format in which a program reads a server."""

    site: Mapping[str, Site]
    """The file to write, by scope."""
    root: tuple[str, ...] = ("mcpServers",)
    stdio: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fixed fields of every entry that runs a program."""
    http: Mapping[str, Any] | None = field(default_factory=dict[str, Any])
    """Fixed fields of every entry with a URL; None if the program does not support URLs."""
    sse: Mapping[str, Any] | None = None
    """The same for the SSE transport."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its names of our fields. Fields that are neither here nor common to all programs are not written."""
    expands: frozenset[str] = _EVERYWHERE
    """Fields in which the program resolves references."""
    joined: bool = False
    """Whether program and arguments are one list."""
    named: bool = False
    """Whether the entry contains its name."""
    sse_url: str | None = None
    """Key of the URL for the SSE transport, if it differs."""
    variable_headers: bool = False
    """Whether headers can name variables, under separate keys."""
    switch: Literal["disabled", "enabled"] | None = None
    call_timeout: tuple[str, Unit] | None = None
    connect_timeout: tuple[str, Unit] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Another program with MCP servers in a configuration file."""

    name: str
    title: str
    sites: tuple[Site, ...] = ()
    roots: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    per_folder: tuple[str, str] | None = None
    """Keys before and after the folder, if a user's file has servers for single folders."""
    bare: bool = False
    """Whether the whole file may be the mapping of servers."""
    syntax: Syntax = "shell"
    looks_up: frozenset[Kind] = frozenset({"env"})
    """Kinds of references that the program resolves. Others are plain text there, and are escaped here."""
    adapt: Adapt | None = None
    timeout: tuple[Literal["call_timeout", "connect_timeout"], Unit] | None = None
    """Meaning and unit of its `timeout`."""
    drops: frozenset[str] = frozenset()
    """Its keys without a meaning in mooring."""
    out: Outbound | None = None


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ENV = re.compile(rf"\$\{{env:({_NAME})((?::-[^}}]*)?)\}}")
_BRACE = re.compile(rf"(?<!\$)\{{env:({_NAME})\}}")
_BRACE_FILE = re.compile(r"(?<!\$)\{file:([^}]+)\}")
_DOLLAR = re.compile(rf"\$({_NAME})")
_INPUT = re.compile(r"\$\{input:([^}]+)\}")
_TEMPLATE = re.compile(r"\$\{\{\s*(?:secrets|inputs)\.([^}\s]+)\s*\}\}")
_PER_USER = re.compile(r"\{\{[^}]*\}\}")


class InexpressibleError(ValueError):
    """A text has a reference that the program cannot express."""


def inward(imported: ImportedEntry, program: Program, file: Path) -> None:
    """Convert every reference in an entry to mooring's syntax, with a note where something is lost."""

    def change(text: str) -> str:
        return _inward(text, imported, program, file)

    imported.raw = _each(imported.raw, change)


def outward(text: str, syntax: Syntax) -> str:
    """Return `text` with its references in a program's syntax.

    Raises:
    InexpressibleError: the program cannot express a reference; the text names it.
    """
    for reference in references(text):
        written = _written(reference, syntax)
        spelled = re.escape(str(reference)[:-1]).replace(r"\$\{", r"\$\{(?:env:)?")
        text = re.sub(rf"{spelled}(?::-[^}}]*)?\}}", lambda _, new=written: new, text)
    return text.replace("$${", "${")


def variable_name(text: str) -> str:
    """Return a valid name of a variable, made from any text."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "VALUE"
    return f"_{name}" if name[0].isdigit() else name


def _written(reference: Reference, syntax: Syntax) -> str:
    if reference.kind == "file" and syntax == "brace":
        return f"{{file:{reference.name}}}"
    if reference.kind != "env" or syntax == "none":
        raise InexpressibleError(str(reference))
    match syntax:
        case "shell":
            default = "" if reference.default is None else f":-{reference.default}"
            return f"${{{reference.name}{default}}}"
        case "env":
            return f"${{env:{reference.name}}}"
        case "brace":
            return f"{{env:{reference.name}}}"
        case "dollar":
            return f"${{{reference.name}}}"


def _inward(text: str, imported: ImportedEntry, program: Program, file: Path) -> str:
    for kind in {reference.kind for reference in references(text)} - program.looks_up:
        text = text.replace(f"${{{kind}:", f"$${{{kind}:")
        imported.notes.append(f"${{{kind}:…}} is plain text in {program.title}, and here")
    text = _TEMPLATE.sub(lambda found: f"${{{variable_name(found[1])}}}", text)
    text = _INPUT.sub(lambda found: _input(found[1], imported), text)
    text = _ENV.sub(r"${\1\2}", text)
    if program.syntax == "brace":
        text = _BRACE_FILE.sub(r"${file:\1}", _BRACE.sub(r"${\1}", text))
    if program.syntax == "dollar":
        text = _DOLLAR.sub(r"${\1}", text)
    text = text.replace("${userHome}", "${HOME}").replace("${pathSeparator}", "/").replace("${/}", "/")
    if "${workspaceFolder}" in text and file.parent.name in (".vscode", ".cursor"):
        text = text.replace("${workspaceFolder}", str(file.parent.parent))
    if program.syntax == "none" and references(text):
        imported.notes.append(f"{program.title} takes ${{…}} literally; here it is a reference")
    if _PER_USER.search(text):
        imported.notes.append("has a {{…}} for a value of each user; write a reference instead")
    imported.notes.extend(
        f"{found} is not a reference in mooring, and is kept as text" for found in unknown(text)
    )
    return text


def _input(name: str, imported: ImportedEntry) -> str:
    given = imported.document.get("inputs")
    described = ""
    for item in cast("list[Any]", given) if isinstance(given, list) else []:
        if isinstance(item, Mapping) and cast("Mapping[str, Any]", item).get("id") == name:
            text = cast("Mapping[str, Any]", item).get("description")
            described = f" ({text})" if isinstance(text, str) else ""
    variable = variable_name(name)
    imported.notes.append(
        f"was asked for as {name!r}{described}: set {variable} in the environment, "
        f"or write ${{keyring:{name}}} and keep it there"
    )
    return f"${{{variable}}}"


def _each(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _each(item, change) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_each(item, change) for item in cast("list[Any]", value)]
        case _:
            return value


_SCHEME = re.compile(r"((?:Bearer|Basic|Token|ApiKey)\s+)(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Vault:
    """Names of variables for secrets during one import: one name per secret, never shared."""

    _names: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def scrub(self, server: str, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the fields with references in place of literal secrets, and a note about each of them."""
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
