"""`tls`, `proxy` and `auth` in files: the servers they apply to, relative paths, and invalid combinations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mooring import HostConfig, ServerConfig
from mooring.config import load
from mooring.config.plan import fingerprint, reached
from mooring.config.secrets import default_lookup, resolve
from mooring.config.trust import describe, mark

URL = "https://mcp.example.org/mcp"


def target(config: HostConfig, name: str, env: dict[str, str] | None = None) -> Any:
    (server,) = [server for server in config.servers if server.name == name]
    server = reached(server, config)
    return resolve(server, default_lookup(env or {}, source=server.source))


@pytest.fixture
def files(tmp_path: Path) -> Any:
    """Writes the user's own file and that of a project, and loads both."""

    def write(user: dict[str, Any], project: dict[str, Any]) -> HostConfig:
        (tmp_path / "user").mkdir(exist_ok=True)
        (tmp_path / "project").mkdir(exist_ok=True)
        (tmp_path / "user" / "config.json").write_text(json.dumps(user))
        (tmp_path / "project" / "mooring.json").write_text(json.dumps(project))
        return load(cwd=tmp_path / "project", user_dir=tmp_path / "user", env={})

    return write


def test_the_users_own_settings_hold_for_all_servers_with_paths_beside_the_file_that_names_them(
    files: Any, tmp_path: Path
) -> None:
    config = files(
        {"proxy": "http://proxy:3128", "tls": {"ca": "ca.pem"}, "servers": {"mine": {"url": URL}}},
        {
            "servers": {
                "theirs": {"url": URL},
                "own": {"url": URL, "proxy": "none", "tls": {"ca": "other.pem"}},
            }
        },
    )
    assert config.warnings == ()
    for name in ("mine", "theirs"):
        assert target(config, name).proxy == "http://proxy:3128"
        assert target(config, name).tls == {"ca": str(tmp_path / "user" / "ca.pem")}
    assert target(config, "own").proxy == "none"
    assert target(config, "own").tls == {"ca": str(tmp_path / "project" / "other.pem")}


def test_a_file_that_was_merely_found_says_nothing_of_other_files_servers(files: Any, tmp_path: Path) -> None:
    config = files(
        {"servers": {"mine": {"url": URL}}},
        {
            "proxy": "http://evil:1",
            "tls": {"ca": "evil.pem"},
            "servers": {"theirs": {"url": URL}, "program": {"command": "run"}},
        },
    )
    assert (config.proxy, config.tls) == (None, None)
    assert target(config, "mine").proxy is None
    assert target(config, "mine").tls == {}
    assert target(config, "theirs").proxy == "http://evil:1"
    assert target(config, "theirs").tls == {"ca": str(tmp_path / "project" / "evil.pem")}
    assert config.warnings == ()


def test_another_proxy_or_authority_needs_another_approval_and_the_users_own_do_not(files: Any) -> None:
    def marks(user: dict[str, Any], project: dict[str, Any]) -> str:
        servers = {server.name: server for server in files(user, project).servers}
        return mark(servers["web"])

    plain: dict[str, Any] = {"servers": {"web": {"url": URL}}}
    first = marks({}, plain)
    assert marks({"proxy": "http://mine:1", "tls": {"ca": "a"}}, plain) == first
    changed = [
        marks({}, {**plain, "proxy": "http://evil:1"}),
        marks({}, {**plain, "tls": {"ca": "evil.pem"}}),
        marks({}, {"servers": {"web": {"url": URL, "proxy": "http://evil:2"}}}),
        marks({}, {"servers": {"web": {"url": URL, "proxy": "none"}}}),
    ]
    assert len({first, *changed}) == 5


def test_what_is_approved_shows_the_proxy_and_the_files_but_no_password() -> None:
    server = ServerConfig(
        name="web",
        url=URL,
        proxy="http://me:hunter2-and-more@proxy:3128",
        tls={"ca": "ca.pem", "cert": "me.pem", "key": "me.key", "key_password": "another-password"},
    )
    text = "\n".join(describe(server))
    assert "proxy:3128" in text
    assert "me.key" in text
    assert "hunter2" not in text
    assert "another-password" not in text


def test_the_lock_does_not_depend_on_how_a_server_is_reached() -> None:
    plain = ServerConfig(name="web", url=URL)
    other = ServerConfig(name="web", url=URL, proxy="http://proxy:1", tls={"ca": "a"})
    assert fingerprint(plain) == fingerprint(other)


@pytest.mark.parametrize("wrong", [{"proxy": "socks5://h:1"}, {"tls": {"verify": False}}])
def test_where_the_way_for_all_is_wrong_no_one_is_reached_by_another_one(
    files: Any, wrong: dict[str, Any]
) -> None:
    config = files({**wrong, "servers": {"mine": {"url": URL}, "run": {"command": "run"}}}, {})
    assert [server.name for server in config.servers] == ["run"]
    assert any("for all servers is invalid" in str(warning) for warning in config.warnings)


def test_secrets_of_the_way_are_known_as_such_when_they_are_resolved() -> None:
    server = ServerConfig(
        name="web",
        url=URL,
        proxy="http://me:${PROXY_PASSWORD}@proxy:3128",
        tls={"cert": "${DIR}/me.pem", "key_password": "${KEY_PASSWORD}"},
    )
    env = {"PROXY_PASSWORD": "p%40ss-word", "DIR": "/certs", "KEY_PASSWORD": "key-word"}
    found = resolve(server, default_lookup(env))
    assert found.tls == {"cert": "/certs/me.pem", "key_password": "key-word"}
    assert {"p@ss-word", "key-word"} <= set(found.secrets)
    assert "ss-word" not in repr(found)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("auth", {"client_id": "me"}),
        ("oauth", {"clientId": "me"}),
        ("headers", {"X-Key": "1"}),
        ("tls", {"ca": "ca.pem"}),
        ("proxy", "http://proxy:1"),
    ],
)
def test_what_a_program_has_no_use_for_is_named(tmp_path: Path, field: str, value: Any) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"run": {"command": "run", field: value}}}))
    config = load([file])
    (warning,) = config.warnings
    assert (warning.server, warning.field) == ("run", field)
    assert "is a program" in warning.message
    assert [server.name for server in config.servers] == ["run"]
