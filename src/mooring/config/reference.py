"""Every setting with type, default, unit and meaning, and the JSON Schema of configuration files.

Both are derived from the models, so that a new field is documented and completed by editors at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import unwrap
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mooring.config import audit, models, network, sections, shaping
from mooring.config.formats import DEFAULTS, FOREIGN_FIELDS, SHAPES, UNITS_IN_SECTIONS
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.network import AuthConfig, ClientSettings, ExchangeSettings, IdentityProvider, TlsSettings
from mooring.config.validate import Settings, seconds, size
from mooring.core.value import UNSET, Value, meanings

SCHEMA_DIALECT = "http://json-schema.org/draft-07/schema#"
"""The newest dialect that the editors of JSON, YAML and TOML support."""
DURATION = (
    r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|msec|millis|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)\s*)+$"
)
SIZE = r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgG]i?)?[bB]?\s*$"
INTERNAL = frozenset(("servers", "warnings", "project_policy", "withheld", "source"))
"""Fields that the loader sets."""
_SECTIONS: Mapping[tuple[str, str], type[Settings]] = {
    ("ServerConfig", "auth"): AuthConfig,
    ("ServerConfig", "tls"): TlsSettings,
    ("HostConfig", "tls"): TlsSettings,
    ("AuthConfig", "idp"): IdentityProvider,
    ("AuthConfig", "exchange"): ExchangeSettings,
}
"""Settings that are kept as mappings, with the class of their fields."""
_SHORT = {
    "access_log": ("text: the path, or true: standard error", ["string", "boolean"]),
    "audit": ("text: the path", "string"),
    "auth": ("text: the type", "string"),
    "cluster": ("text: the address", "string"),
    "secrets": ("true or false", "boolean"),
    "budget": ("number: the limit", "number"),
}
"""Sections that may also be written as one value, with its meaning and type."""
_EXAMPLES: Mapping[str, object] = {
    "name": "github",
    "command": "npx",
    "args": ["-y", "@modelcontextprotocol/server-everything@2026.1.14"],
    "env": {"API_KEY": "${API_KEY}"},
    "cwd": "~/project",
    "url": "https://example.com/mcp",
    "headers": {"Authorization": "Bearer ${TOKEN}"},
    "allow": ["read_*"],
    "deny": ["delete_*"],
    "ask": ["*/write_*"],
    "idempotent": ["get_*"],
    "approve": ["write_*"],
    "always": ["search"],
    "min_protocol": "2025-06-18",
    "protocol": "2025-11-25",
    "proxy": "http://proxy.example.com:3128",
    "description": "Issues and pull requests",
    "inherit_env": ["SSL_CERT_FILE"],
    "enabled_servers": ["github"],
    "artifacts": "runs/today",
    "path": "audit.jsonl",
    "resource_uri_allowlist": ["file", "https"],
    "roots": ["~/project"],
    "resources": ["file:///notes/*"],
    "client_id": "my-client",
    "client_secret": "${CLIENT_SECRET}",
    "issuer": "https://login.example.com",
    "scopes": ["mcp:read"],
    "client_metadata_url": "https://example.com/client.json",
    "callback_port": 8765,
    "ca": "ca.pem",
    "cert": "client.pem",
    "key": "client.key",
    "key_password": "${KEY_PASSWORD}",
    "token": "${GATEWAY_TOKEN}",
    "audience": ["https://gateway.example.com"],
    "jwks_url": "https://login.example.com/jwks.json",
    "key_file": "issuer.pem",
    "algorithms": ["ES256"],
    "allowed_hosts": ["gateway.example.com"],
    "allowed_origins": ["https://app.example.com"],
    "servers": ["github", "files"],
    "max_concurrency": 4,
    "max_starting": 4,
    "rate": 5,
    "result_budget": 10_000,
    "value": "acme",
    "default": "open",
    "enum": ["open", "closed"],
    "annotations": {"readOnlyHint": True},
    "title": "Issues",
    "when": 'tool == "delete" && principal != "token:ana"',
    "then": "deny",
    "reason": "only ana deletes",
    "timezone": "Europe/Berlin",
    "per_day": 1_000,
    "costs": {"images/*": 25},
    "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
    "client_ca": "clients.pem",
    "client_scopes": ["mcp:read"],
    "proxies": ["10.0.0.0/8"],
    "base_path": "/tools",
    "levels": {"mooring.connection": "debug"},
    "token_file": "tokens.json",
    "private_key": "${file:client.pem}",
    "key_id": "2026-11",
    "algorithm": "ES256",
    "assertion": "${file:/var/run/token}",
    "subject_token": "${file:id_token}",
    "subject_token_type": "id_token",
    "token_endpoint": "https://login.example.com/token",
    "public_url": "https://gateway.example.com",
    "node": "a",
    "nodes": {"a": "https://a.example:8080", "b": "https://b.example:8080"},
    "address": "https://a.example:8080",
    "user": "mooring",
    "password": "${NATS_PASSWORD}",
    "nkey": "${NATS_NKEY}",
    "credentials": "/etc/mooring/nats.creds",
}
"""Examples for settings whose type says too little."""
_TEXT_OR_LIST = (("GatewaySettings", "key"), ("ClusterSettings", "url"))


class SettingReference(Value):
    """One setting as the reference shows it."""

    path: str
    """Name with the sections that it is in, such as `gateway.rate`."""
    kind: str
    """Type in words."""
    unit: str | None
    default: str
    """Default as JSON; empty for a required setting."""
    required: bool
    example: object
    meaning: str
    schema: Mapping[str, Any]
    section: type[Settings] | None
    """The class of its fields, for a section."""


def references_of(cls: type[Settings], prefix: str = "") -> Iterator[SettingReference]:
    """Yield the settings of a class in the order of their declaration, each section before its fields."""
    texts, types, defaults = _meanings(cls), _types(cls), cls.field_defaults()
    for name, annotation in types.items():
        if name in INTERNAL and cls in (HostConfig, ServerConfig):
            continue
        default = defaults.get(name, UNSET)
        inner = _section(cls, name, annotation)
        kind, unit, schema = _described(cls, name, annotation, inner)
        path = f"{prefix}{name}"
        yield SettingReference(
            path=path,
            kind=kind,
            unit=unit,
            default="" if default is UNSET or isinstance(default, Settings) else _json(default),
            required=default is UNSET,
            example=_example(name, annotation, unit, default, inner),
            meaning=" ".join(texts.get(name, "").split()),
            schema=schema,
            section=inner,
        )
        if inner is not None:
            step = {"list of sections": "[]", "sections by name": ".NAME"}.get(kind, "")
            yield from references_of(inner, f"{path}{step}.")


_meanings = cache(meanings)
"""The docstrings of the fields, read from the source of the class."""


@cache
def _types(cls: type[Settings]) -> dict[str, Any]:
    """The types of the fields, also those that are imported only for type checkers."""
    known = {**vars(audit), **vars(network), **vars(shaping), **vars(sections), **vars(models)}
    hints = get_type_hints(cls, localns=known)
    return {name: hints[name] for name in _declared(cls)}


def _declared(cls: type[Settings]) -> list[str]:
    """The fields in the order of the source, those of base classes first."""
    return [
        name
        for base in reversed(cls.__mro__)
        for name in vars(base).get("__annotations__", ())
        if name in cls.field_names()
    ]


def _plain(annotation: Any) -> Any:
    """The type without `None`."""
    if get_origin(annotation) in (Union, UnionType):
        rest = [one for one in get_args(annotation) if one is not NoneType]
        return rest[0] if len(rest) == 1 else annotation
    return annotation


def _section(cls: type[Settings], name: str, annotation: Any) -> type[Settings] | None:
    """The class of the fields if the setting is a section, a list of sections or a mapping to sections."""
    if (known := _SECTIONS.get((cls.__name__, name))) is not None:
        return known
    plain = _plain(annotation)
    for one in (plain, *get_args(plain)):
        if isinstance(one, type) and issubclass(one, Settings):
            return one
    return None


def _described(
    cls: type[Settings], name: str, annotation: Any, inner: type[Settings] | None
) -> tuple[str, str | None, dict[str, Any]]:
    """Type in words, unit and JSON Schema of a setting."""
    plain = _plain(annotation)
    reader = unwrap(cls.readers()[name])
    nested: dict[str, Any] = {"$ref": f"#/definitions/{inner.__name__}"} if inner is not None else {}
    if inner is not None and get_origin(plain) is tuple:
        return "list of sections", None, {"type": "array", "items": nested}
    if inner is not None and get_args(plain) and (cls.__name__, name) not in _SECTIONS:
        schema = {"type": "object", "additionalProperties": {"anyOf": [nested, {"type": "null"}]}}
        return "sections by name", None, schema
    if inner is not None:
        short = _SHORT.get(name)
        schema = {"anyOf": [nested, {"type": short[1]}]} if short else nested
        return f"section, or {short[0]}" if short else "section", None, schema
    if get_origin(plain) is tuple and Any in get_args(plain):
        several = len(get_args(plain)) > 1
        return ("list of values", None, {"type": "array"}) if several else ("any value", None, {})
    if reader is seconds:
        return "duration", "seconds", {"anyOf": [_limited(cls, name, "number"), _text(DURATION)]}
    if reader is size:
        return "size", "bytes", {"anyOf": [_limited(cls, name, "integer"), _text(SIZE)]}
    words, schema = _basic(cls, name, plain)
    return words, None, schema


def _basic(cls: type[Settings], name: str, plain: Any) -> tuple[str, dict[str, Any]]:
    """Type in words and JSON Schema of a value without a unit."""
    origin, inside = get_origin(plain), get_args(plain)
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inside), {"enum": list(inside)}
    if plain is bool:
        return "true or false", {"type": "boolean"}
    if plain is int:
        return "whole number", _limited(cls, name, "integer")
    if plain is float:
        return "number", _limited(cls, name, "number")
    if origin is tuple and get_origin(inside[0]) is tuple:  # pairs, written as a mapping
        words, values = _basic(cls, name, get_args(inside[0])[1])
        return f"{words}, by name", {"type": "object", "additionalProperties": values}
    texts = {"type": "array", "items": {"type": "string"}}
    if origin is tuple and (cls.__name__, name) in _TEXT_OR_LIST:
        return "text or list of texts", {"anyOf": [{"type": "string"}, texts]}
    if origin is tuple:
        return "list of texts", {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = {"type": ["string", "number", "boolean"]} if str in inside[1:] else {}
        return "texts by name" if values else "mapping", {
            "type": "object",
            "additionalProperties": values or True,
        }
    return "text", {"type": "string"}


def _limited(cls: type[Settings], name: str, kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind}
    read: Any = cls.readers()[name]
    while read is not None:
        limits: dict[str, float | None] = getattr(read, "limits", {})
        schema |= {keyword: limit for keyword, limit in limits.items() if limit is not None}
        read = getattr(read, "__wrapped__", None)
    return schema


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def _example(
    name: str, annotation: Any, unit: str | None, default: Any, inner: type[Settings] | None
) -> object:
    """A value that differs from the default."""
    plain = _plain(annotation)
    if inner is not None:
        return None
    if plain is bool:
        return default is not True
    if name in _EXAMPLES:
        return _EXAMPLES[name]
    if get_origin(plain) is Literal:
        return next(one for one in get_args(plain) if one != default)
    if unit == "seconds":
        return "90s"
    if unit == "bytes":
        return "32MiB"
    if plain in (int, float) and isinstance(default, int | float):
        return type(default)(max(default * 2, 1))
    return None


def _json(value: Any) -> str:
    match value:
        case Mapping():
            value = dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case float() if value.is_integer():
            value = int(value)
        case _:
            pass
    return json.dumps(value, ensure_ascii=False)


# --- the schema ----------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file.

    It accepts every spelling that the loader accepts and no other key, so that editors mark misspellings.
    """
    definitions = {
        cls.__name__: _object(cls)
        for cls in _all_sections((HostConfig, ServerConfig))
        if cls not in (HostConfig, ServerConfig)
    }
    definitions["ServerConfig"] = _server()
    entry = {"$ref": "#/definitions/ServerConfig"}
    by_name = {"type": "object", "additionalProperties": entry, "description": "Servers by name."}
    as_list = {"type": "array", "items": entry, "description": "Servers, each with a `name` or an `alias`."}
    settings = {
        **_properties(HostConfig),
        **{name: _properties(ServerConfig)[name] for name in sorted(DEFAULTS)},
    }
    servers = {"anyOf": [by_name, as_list], "description": "Servers by name, or a list of them."}
    shapes = {path[0]: servers for path in SHAPES if len(path) == 1}
    inside = {
        "type": "object",
        "properties": {"servers": servers, **settings},
        "patternProperties": _other_spellings(settings),
    }
    return {
        "$schema": SCHEMA_DIALECT,
        "title": "mooring configuration",
        "description": "MCP servers and settings of the host.",
        "type": "object",
        "properties": {
            "$schema": {"type": "string", "description": "Address of this schema, for editors."},
            **shapes,
            "mcp": {**inside, "description": "Servers and settings, in files of several programs."},
            "config": {**inside, "description": "Servers of an extension manifest."},
            "inputs": {"type": "array", "description": "Inputs of VS Code; ignored."},
            **settings,
        },
        "patternProperties": _other_spellings(settings),
        "additionalProperties": False,
        "definitions": definitions,
    }


def _all_sections(roots: tuple[type[Settings], ...]) -> list[type[Settings]]:
    found: dict[type[Settings], None] = {}
    for root in roots:
        found |= {root: None}
        found |= {one.section: None for one in references_of(root) if one.section is not None}
    return list(found)


def _own(cls: type[Settings]) -> list[SettingReference]:
    """The settings of a class without those of its sections."""
    return [one for one in references_of(cls) if one.path.isidentifier()]


def _properties(cls: type[Settings]) -> dict[str, Any]:
    return {one.path: _property(one) for one in _own(cls)}


def _property(one: SettingReference) -> dict[str, Any]:
    schema: dict[str, Any] = dict(one.schema)
    if not one.required:
        schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    if one.meaning:
        schema["description"] = one.meaning
    if one.default not in ("", "null"):
        schema["default"] = json.loads(one.default)
    if one.example is not None:
        schema["examples"] = [one.example]
    return schema


def _object(cls: type[Settings]) -> dict[str, Any]:
    required = [one.path for one in _own(cls) if one.required]
    open_ended = issubclass(cls, ClientSettings)  # other programs spell its fields in many ways
    fields = _properties(cls)
    schema = {"type": "object", "properties": fields, "additionalProperties": open_ended}
    if with_unit := {name: fields[name] for name in UNITS_IN_SECTIONS & fields.keys()}:
        schema["patternProperties"] = _other_spellings(with_unit)
    return {**schema, **({"required": required} if required else {})}


def _server() -> dict[str, Any]:
    fields = _properties(ServerConfig)
    for name in (
        "command",
        "transport",
        "protocol",
        "min_protocol",
    ):  # also written as a list, mapping or date
        fields[name] = {"description": fields[name]["description"]}
    named = {"name": {"type": "string", "description": "Name, where servers are a list."}}
    foreign = {name: {"description": "Accepted from files of other programs."} for name in FOREIGN_FIELDS}
    known = {**named, "alias": named["name"], **fields, **dict(sorted(foreign.items()))}
    return {
        "type": "object",
        "description": "One server.",
        "properties": known,
        "patternProperties": _other_spellings(known),
        "additionalProperties": False,
    }


def _other_spellings(names: Mapping[str, Any]) -> dict[str, Any]:
    """A pattern for `connectTimeout`, `connect-timeout` and `connect_timeout_ms`."""
    words = "|".join(_any_spelling(name) for name in sorted(names) if name.isidentifier())
    return {f"^({words})([_-]?([mM]s|[sS]econds|[sS]ecs?))?$": {}}


def _any_spelling(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(f"[_-]?[{word[0]}{word[0].upper()}]{word[1:]}" for word in rest)
