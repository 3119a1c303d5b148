"""References are resolved when connecting, and no message contains a value."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.config import default_lookup, resolve
from mooring.config.models import ConfigSource, Scope, ServerConfig, Target
from mooring.config.references import Reference
from mooring.config.secrets import resolve_within
from mooring.core.redact import Secret
from mooring.errors import ConfigError

SECRET = "hunter2-secret"


def server(*, file: Path | None = None, scope: Scope = "python", **fields: Any) -> ServerConfig:
    source = ConfigSource(file=None if file is None else str(file), scope=scope)
    return ServerConfig(**{"name": "db", "command": "db-mcp", **fields}, source=source)


def resolved(given: ServerConfig, **env: str) -> Target:
    return resolve(given, default_lookup(env, source=given.source))


def refused(given: ServerConfig, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(given, **env)
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


def test_references_are_filled_in_everywhere_and_no_argument_splits() -> None:
    given = server(command="${BIN}", args=["${TWO}", "--x=${TWO}"], env={"T": "a ${T}"}, cwd="${DIR}")
    target = resolved(given, BIN="run me", TWO="a b; rm -rf /", T=SECRET, DIR="/srv")
    assert (target.command, target.cwd) == ("run me", "/srv")
    assert target.args == ("a b; rm -rf /", "--x=a b; rm -rf /")
    assert target.env == {"T": f"a {SECRET}"}


def test_urls_and_headers_are_filled_in() -> None:
    given = server(command=None, url="${BASE}/mcp", headers={"Authorization": "Bearer ${T}"})
    target = resolved(given, BASE="https://example.com", T=SECRET)
    assert target.url == "https://example.com/mcp"
    assert target.headers == {"Authorization": f"Bearer {SECRET}"}


def test_the_values_are_kept_for_redaction_longest_first_and_never_shown() -> None:
    given = server(env={"A": "${A}", "B": "${B} literal", "C": "${C:-default}", "D": "${E}"})
    target = resolved(given, A="short", B=SECRET, E="")
    assert target.secrets == (SECRET, "short")
    assert "hunter2" not in repr(target)


def test_all_missing_references_are_reported_with_server_field_and_name() -> None:
    message = refused(server(args=["${PRESENT}", "${X}"], env={"T": "${Y} ${Z}"}), PRESENT=SECRET)
    assert message.startswith("server 'db': field 'args[1]': no value for ${X}")
    assert "field 'env.T': no value for ${Y}, ${Z}" in message


def test_the_applications_secrets_come_before_the_environment() -> None:
    known = {"A": "from the application", "EMPTY": ""}
    lookup = default_lookup({"A": "environment", "B": "environment", "EMPTY": "x"}, known.get)
    target = resolve(server(args=["${A}", "${B}", "${EMPTY}"]), lookup)
    assert target.args == ("from the application", "environment", "")


@pytest.mark.parametrize("content", [SECRET, f"{SECRET}\n", f"{SECRET}\r\n", f"\ufeff{SECRET}\n"])
def test_a_file_is_read_beside_the_configuration_without_its_last_line_end(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "token").write_bytes(content.encode())
    given = server(file=tmp_path / "mooring.yaml", env={"T": "${file:./token}"})
    assert resolved(given).env == {"T": SECRET}


def test_only_one_line_end_is_taken_off(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"a\n\n")
    assert resolved(server(file=tmp_path / "c.yaml", env={"T": "${file:token}"})).env == {"T": "a\n"}


def test_a_file_that_cannot_serve_as_a_secret_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "mooring.yaml"
    assert "no value for ${file:gone}" in refused(server(file=config, env={"T": "${file:gone}"}))
    assert "no value for ${file:.}" in refused(server(file=config, env={"T": "${file:.}"}))
    (tmp_path / "large").write_bytes(b"x" * (2**20 + 1))
    assert "larger than 1 MiB" in refused(server(file=config, env={"T": "${file:large}"}))
    (tmp_path / "binary").write_bytes(SECRET.encode() + b"\xff")
    assert "is not UTF-8 text" in refused(server(file=config, env={"T": "${file:binary}"}))


def test_a_value_that_does_not_fit_its_place_is_refused_without_being_shown() -> None:
    header = server(command=None, url="https://x/mcp", headers={"X-Key": "${T}"})
    assert "field 'headers.X-Key': has a value" in refused(header, T=f"{SECRET}\r\nX-Evil: 1")
    url = server(command=None, url="${T}")
    assert "field 'url': must start with" in refused(url, T=SECRET)
    assert "must not hold a user name" in refused(url, T=f"https://{SECRET}@host/")
    assert "NUL" in refused(server(env={"T": "${T}"}), T=f"{SECRET}\0")


@pytest.mark.parametrize("scope", ["user", "explicit"])
def test_a_program_is_run_for_a_file_that_the_user_wrote_or_named_without_a_shell(
    tmp_path: Path, scope: Scope
) -> None:
    code = "import sys; print(sys.argv[1])"
    given = server(
        file=tmp_path / "c.yaml", scope=scope, env={"T": f"${{cmd:{sys.executable} -c '{code}' 'a; $HOME'}}"}
    )
    assert resolved(given).env == {"T": "a; $HOME"}


@pytest.mark.parametrize("scope", ["project", "python"])
def test_a_program_is_not_run_for_a_file_that_was_merely_found_nor_for_python(
    tmp_path: Path, scope: Scope
) -> None:
    trace = tmp_path / "ran"
    given = server(file=tmp_path / "c.yaml", scope=scope, env={"T": f"${{cmd:touch {trace} {SECRET}}}"})
    assert "${cmd:touch …} is run only for the user's own file" in refused(given)
    assert not trace.exists()


def test_a_program_that_fails_is_reported_without_its_arguments_or_output(tmp_path: Path) -> None:
    def failing(command: str) -> str:
        return refused(server(file=tmp_path / "c.yaml", scope="user", env={"T": f"${{cmd:{command}}}"}))

    assert "failed with exit code 3" in failing(f"{sys.executable} -c 'print(\"{SECRET}\"); exit(3)'")
    assert "${cmd:/no/such …} cannot be run: No such file" in failing(f"/no/such {SECRET}")
    assert "cannot be run: a wrong quote" in failing(f"x 'open {SECRET}")


def test_a_missing_keyring_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "pip install 'mooring[keyring]'" in refused(server(env={"T": "${keyring:db}"}))


def test_the_keyring_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {("mooring", "db"): SECRET}
    fake = SimpleNamespace(
        get_password=lambda service, name: entries.get((service, name)),
        get_keyring=lambda: SimpleNamespace(priority=5),
    )
    monkeypatch.setitem(sys.modules, "keyring", fake)
    assert resolved(server(env={"T": "${keyring:db}"})).env == {"T": SECRET}
    assert "no value for ${keyring:other}" in refused(server(env={"T": "${keyring:other}"}))


def test_a_system_without_a_keyring_is_not_reported_as_a_missing_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    null = SimpleNamespace(get_password=lambda *_: None, get_keyring=lambda: SimpleNamespace(priority=-1))
    monkeypatch.setitem(sys.modules, "keyring", null)
    message = refused(server(env={"T": "${keyring:db}"}))
    assert "${keyring:db} cannot be read: this system has no keyring" in message


def test_a_keyring_package_that_cannot_be_imported_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keyring.py").write_text("raise RuntimeError('no session bus')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)
    assert "${keyring:db} cannot be read: RuntimeError" in refused(server(env={"T": "${keyring:db}"}))


def test_a_relative_working_directory_is_relative_to_the_file(tmp_path: Path) -> None:
    assert resolved(server(file=tmp_path / "c.yaml", cwd="sub")).cwd == str(tmp_path / "sub")
    assert resolved(server(file=tmp_path / "c.yaml", cwd="/srv")).cwd == "/srv"
    assert resolved(server(cwd="sub")).cwd == "sub"


def test_a_program_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.config.secrets._COMMAND_TIMEOUT", 0.05)
    command = f"${{cmd:{sys.executable} -c 'while True: pass'}}"
    message = refused(server(file=tmp_path / "c.yaml", scope="user", env={"T": command}))
    assert "did not respond within 0.05 s" in message


def test_a_keyring_that_fails_is_reported_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(service: str, name: str) -> str:
        raise RuntimeError(SECRET)

    monkeypatch.setitem(sys.modules, "keyring", SimpleNamespace(get_password=locked))
    assert "${keyring:db} cannot be read: RuntimeError" in refused(server(env={"T": "${keyring:db}"}))


def test_a_secret_of_the_application_is_filled_in_as_it_is_and_remembered() -> None:
    given = server(args=["--x", Secret("${NOT_A_REFERENCE}")], env={"T": Secret(SECRET)})
    target = resolved(given)
    assert (target.args[1], target.env) == ("${NOT_A_REFERENCE}", {"T": SECRET})
    assert set(target.secrets) == {"${NOT_A_REFERENCE}", SECRET}


def test_values_that_are_secret_by_name_are_remembered_though_they_are_written_out() -> None:
    given = server(
        env={"API_KEY": SECRET, "LEVEL": "debug-level"},
        auth={"client_id": "me", "client_secret": "from-auth"},
    )
    assert set(resolved(given).secrets) == {SECRET, "from-auth"}


def test_what_everybody_knows_is_no_secret() -> None:
    given = server(args=["${HOME}/data", "${ACCOUNT}"])
    assert resolved(given, HOME="/home/me", ACCOUNT="me-and-you").secrets == ("me-and-you",)


@pytest.mark.anyio
@pytest.mark.parametrize("problem", [SystemExit, StopIteration])
async def test_a_lookup_of_the_application_that_ends_unusually_fails_at_once(
    problem: type[BaseException],
) -> None:
    def lookup(_: Reference) -> str | None:
        raise problem

    server = ServerConfig(name="s", command="c", env={"A": "${SECRET}"})
    with pytest.raises(RuntimeError, match=problem.__name__):
        await resolve_within(20, server, lookup, slow=True)
