"""`serve` does not start while a setting that protects something may have been ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mooring import Host
from mooring.config import load
from mooring.config.audit import AuditSettings
from mooring.config.operation import (
    AccessLogSettings,
    ForwardedSettings,
    GatewayTls,
    LogSettings,
    MetricsSettings,
)
from mooring.config.sections import GatewaySettings, OAuthSettings, ProfileSettings, TokenSettings
from mooring.config.validate import InvalidEntryError
from mooring.errors import ConfigError
from mooring.gateway.serve import serve_http, serve_stdio

pytestmark = pytest.mark.anyio


def host(folder: Path, name: str = "mcp.json", **settings: Any) -> Host:
    file = folder / name
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "x", "disabled": True}}, **settings}))
    return Host.from_config(file)


TOKENS = {"tokens": [{"name": "me", "token": "${MY_TOKEN}"}]}


@pytest.mark.parametrize(
    "settings",
    [
        {"gatway": TOKENS},
        TOKENS,
        {"allowedHosts": ["gateway.example"]},
        {"gateways": TOKENS},
        {"polcy": {"deny": ["*"]}},
        {"policies": {"deny": ["*"]}},
        {"audti": "x.jsonl"},
        {"audit_log": "x.jsonl"},
        {"gateway": {"token": []}},
        {"gateway": {"profiles": {"x": {"alow": ["*"]}}}},
        {"policy": {"dney": ["*"]}},
        {"audit": {"path": "x", "argumnets": "none"}},
        {"gateway": {"max_sessions": 5}, "access": {"deny": ["*"]}},
        {"policy": {"deny": ["*"]}, "tokens": ["${MY_TOKEN}"]},
    ],
)
@pytest.mark.parametrize("name", ["mcp.json", "mooring.json"])
async def test_an_unknown_key_next_to_or_under_a_protecting_setting_refuses_the_start(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    async with host(tmp_path, name, **settings) as running:
        with pytest.raises(ConfigError) as caught:
            async with serve_http(running):
                pass
        assert caught.value.file == str(tmp_path / name)
        with pytest.raises(ConfigError):
            await serve_stdio(running)


@pytest.mark.parametrize("settings", [{"gateway": TOKENS}, {"policy": {"deny": ["*"]}}, {"gatway": TOKENS}])
@pytest.mark.parametrize("shape", ["mcp", "config", "mcp_servers", "context_servers"])
async def test_a_protecting_setting_where_none_is_read_refuses_the_start(
    tmp_path: Path, shape: str, settings: dict[str, Any]
) -> None:
    entry = {"alias": "a", "command": "x", "disabled": True}
    servers = {"servers": [entry]} if shape in ("mcp", "config") else {"a": entry}
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({shape: servers, **settings}))
    async with Host.from_config(file) as running:
        with pytest.raises(ConfigError, match="no settings are read") as caught:
            async with serve_http(running):
                pass
        assert (caught.value.file, caught.value.place) == (str(file), *settings)
    with pytest.raises(ConfigError):
        load([file], strict=True)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"settings": {"gateway": TOKENS}}, "settings.gateway"),
        ({"settings": {"gatway": TOKENS}}, "settings.gatway"),
        ({"mooring": {"audit": "calls.jsonl"}}, "mooring.audit"),
        ({"agent": {"tools": {"policy": {"deny": ["*"]}}}}, "agent.tools.policy"),
        ({"mcp": {"settings": {"gateway": TOKENS}}}, "mcp.settings.gateway"),
        ({"config": {"gateway": {"allowedHosts": ["a.example"]}}}, "config.gateway"),
    ],
)
async def test_a_protecting_setting_in_a_section_of_another_program_refuses_the_start(
    tmp_path: Path, settings: dict[str, Any], place: str
) -> None:
    async with host(tmp_path, "agent.json", **settings) as running:
        with pytest.raises(ConfigError, match="this section is not read") as caught:
            async with serve_http(running):
                pass
        assert (caught.value.file, caught.value.place) == (str(tmp_path / "agent.json"), place)
    with pytest.raises(ConfigError):
        load([tmp_path / "agent.json"], strict=True)


async def test_sections_of_other_programs_with_the_same_names_do_not(tmp_path: Path) -> None:
    theirs = {
        "security": {"policy": "strict", "audit": True},
        "network": {"gateway": "10.0.0.1"},
        "telemetry": {"audit": {"level": 3}},
        "mcp": {"gateway": {"max_sessions": 5}},
    }
    async with host(tmp_path, "agent.json", **theirs) as running, serve_http(running):
        assert running.config.gateway.max_sessions == 5
        assert not running.config.warnings


async def test_two_names_for_one_token_refuse_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The principal of the token, and with it the scopes, would be one of the two."""
    monkeypatch.setenv("MY_TOKEN", "a-token-of-twenty-letters")
    names = [{"name": name, "token": "${MY_TOKEN}"} for name in ("ana", "root")]
    with pytest.raises(ConfigError, match="the tokens of 'ana' and 'root' have the same value"):
        async with (
            host(tmp_path, gateway={"tokens": names}) as running,
            serve_http(running, "127.0.0.1", 0),
        ):
            pass


async def test_any_unknown_setting_in_a_file_of_ours_refuses_the_start(tmp_path: Path) -> None:
    async with host(tmp_path, "mooring.json", acces={"deny": ["*"]}) as running:
        with pytest.raises(ConfigError, match="is not a known setting"):
            async with serve_http(running):
                pass


async def test_an_unapproved_project_file_cannot_keep_the_gateway_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    wrong = {"gatway": TOKENS, "gateway": {"tokns": 1}, "policy": 5, "audit": {}, "mcp": {"audti": 1}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {}, **wrong}))
    async with Host.from_config() as running, serve_http(running):
        assert running.config.warnings


async def test_keys_of_other_programs_and_bad_entries_do_not(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    bad = {"command": "x", "policy": {"dney": ["*"]}}
    file.write_text(json.dumps({"mcpServers": {"bad": bad}, "inputs": [], "permissions": {}, "stlye": "x"}))
    async with Host.from_config(file) as running, serve_http(running):
        assert len(running.config.warnings) == 2


NOT_ANY = [{"nonsense": 1}, [["x"]], [{}], -1, "\0nonsense", None]
"""Values that are wrong for every setting of the gateway. Texts are tried below."""
INSIDE: dict[str, tuple[type[Any], Any]] = {
    "access_log": (AccessLogSettings, {}),
    "audit": (AuditSettings, {"path": "audit.jsonl"}),
    "forwarded": (ForwardedSettings, {"proxies": ["10.0.0.1"]}),
    "log": (LogSettings, {}),
    "metrics": (MetricsSettings, {}),
    "oauth": (
        OAuthSettings,
        {"issuer": "https://a.example", "audience": "x", "jwks_url": "https://a.example/k"},
    ),
    "tls": (GatewayTls, {"cert": "cert.pem", "client_ca": "ca.pem"}),
}
TEXTS = {
    "access_log",
    "audit",
    "access_log.path",
    "audit.path",
    "token_file",
    "oauth.issuer",
    "oauth.audience",
}
TEXTS |= {"oauth.key_file", "oauth.jwks_url", "tls.cert", "tls.key", "tls.client_ca"}
"""Settings for which any text is valid, or is checked by its use."""


def wrong_values() -> list[Any]:
    found = [
        pytest.param({name: value}, name, id=f"{name}-{value!r}")
        for name in sorted(GatewaySettings.field_names())
        for value in NOT_ANY
        if not (isinstance(value, str) and name in TEXTS)
    ]
    for name, (settings, base) in INSIDE.items():
        for inner in sorted(settings.field_names()):
            found += [
                pytest.param({name: {**base, inner: value}}, name, id=f"{name}.{inner}-{value!r}")
                for value in NOT_ANY
                if not (isinstance(value, str) and f"{name}.{inner}" in TEXTS)
                and not (value is None and settings.field_defaults().get(inner, "") is None)
            ]
    for inner in sorted(ProfileSettings.field_names() - {"style"}):
        values = [value for value in NOT_ANY if value is not None and value != "\0nonsense"]
        found += [
            pytest.param({"profiles": {"x": {inner: value}}}, "profiles", id=f"profiles.x.{inner}-{value!r}")
            for value in values
        ]
    for inner in sorted(TokenSettings.field_names()):
        found += [
            pytest.param(
                {"tokens": [{"name": "me", "token": "${T}", inner: value}]}, "tokens", id=f"{inner}-{value!r}"
            )
            for value in ({"nonsense": 1}, [["x"]], -1, None)
        ]
    return found


@pytest.mark.parametrize(("settings", "name"), wrong_values())
async def test_no_wrong_value_under_gateway_starts_a_gateway_with_a_default(
    tmp_path: Path, settings: dict[str, Any], name: str
) -> None:
    async with host(tmp_path, gateway=settings) as running:
        with pytest.raises(ConfigError) as caught:
            async with serve_http(running):
                pass
        assert str(caught.value.place).startswith(f"gateway.{name}"), caught.value
        assert running.config.warnings, "reported when it is read, not only when it is used"
        with pytest.raises(ConfigError):
            await serve_stdio(running)


@pytest.mark.parametrize(
    "value", ["", "tools.example.com", "ftp://tools.example.com", "https://", "https://a b"]
)
@pytest.mark.parametrize("name", ["url", "public_url"])
def test_a_public_address_that_is_none_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidEntryError, match="must be an address"):
        GatewaySettings(**{name: value})
