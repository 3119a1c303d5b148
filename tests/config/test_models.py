"""Configuration as values: accepted values, error messages, and the effect of changes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.models import ConfigSource, ConfigWarning, HostConfig, ServerConfig, Target
from mooring.config.plan import fingerprint, plan
from mooring.config.validate import InvalidEntryError
from mooring.errors import ConfigError
from mooring.results.pipeline import Rules, rules_for

SECRET = "hunter2-secret"


def server(**fields: Any) -> ServerConfig:
    return ServerConfig.from_fields({"name": "db", "command": "db-mcp", **fields})


def remote(**fields: Any) -> ServerConfig:
    return ServerConfig(**{"name": "db", "url": "https://example.com/mcp", **fields})


def test_a_command_means_stdio_and_a_url_means_http() -> None:
    assert server().transport == "stdio"
    assert remote().transport == "http"
    assert remote(transport="sse").transport == "sse"


def test_the_defaults_are_the_documented_ones() -> None:
    given = server()
    assert (given.connect_timeout, given.call_timeout, given.idle_timeout) == (30, 600, None)
    assert (given.list_timeout, given.probe_timeout, given.shutdown_grace) == (30, 5, 2)
    assert (given.start, given.isolation, given.max_message) == ("background", "shared", 16 * 2**20)
    assert (given.max_concurrency, given.disabled, given.allow, given.deny) == (None, False, ("*",), ())


def test_a_server_cannot_be_changed() -> None:
    given = server(args=["a"], env={"A": "1"}, auth={"client_id": "x"})
    with pytest.raises(FrozenInstanceError):
        given.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    assert given.args == ("a",)
    for mapping in (given.env, given.headers, given.auth):
        with pytest.raises(TypeError):
            mapping["A"] = "2"  # pyright: ignore


def test_numbers_and_flags_in_env_and_args_become_text() -> None:
    given = server(args=["--port", 8080], env={"PORT": 8080, "DEBUG": True, "RATE": 0.5})
    assert given.args == ("--port", "8080")
    assert given.env == {"PORT": "8080", "DEBUG": "true", "RATE": "0.5"}


def test_durations_and_sizes_may_be_written_with_units() -> None:
    given = server(connect_timeout="1m", call_timeout="500ms", max_message="1MiB")
    assert (given.connect_timeout, given.call_timeout, given.max_message) == (60, 0.5, 2**20)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"args": SECRET}, '\'args\' must be a list such as ["first", "second"], never a shell string'),
        ({"args": 5}, '\'args\' must be a list such as ["first", "second"], not a number'),
        ({"args": [{"a": SECRET}]}, "'args' must be a list of texts; one item must be text, not a mapping"),
        ({"url": "https://x"}, "has both 'command' and 'url'"),
        ({"command": None}, "has neither 'command'"),
        ({"command": " "}, "'command' must name a program"),
        ({"command": f"npx -y {SECRET}"}, "'command' looks like a shell line"),
        ({"transport": SECRET}, "'transport' must be one of 'stdio', 'http', 'streamable-http' or 'sse'"),
        ({"transport": "http"}, "has transport 'http', which needs 'url'"),
        ({"comand": SECRET}, "'comand' is not a known field; did you mean 'command'?"),
        ({"zzz": SECRET}, "'zzz' is not a known field; remove it"),
        ({"cwd": 5}, "'cwd' must be text, not a number"),
        ({"env": [SECRET]}, "'env' must be a mapping of names to texts, not a list"),
        ({"env": {"A": {"b": SECRET}}}, "'env' 'A' must be text, not a mapping"),
        ({"env": {f"A={SECRET}": "1"}}, "'env' must be a mapping of names to texts; one name is empty"),
        ({"disabled": SECRET}, "'disabled' must be true or false"),
        ({"start": SECRET}, "'start' must be one of 'background', 'lazy' or 'eager'"),
        ({"connect_timeout": 601}, "'connect_timeout' must be at most 600"),
        ({"connect_timeout": 0}, "'connect_timeout' must be more than 0"),
        ({"call_timeout": SECRET}, "'call_timeout' is not a duration"),
        ({"max_concurrency": 0}, "'max_concurrency' must be at least 1"),
        ({"max_concurrency": SECRET}, "'max_concurrency' must be a whole number"),
        ({"auth": 5}, "'auth' must be a mapping of settings or a text"),
        ({"name": ""}, "'name' must not be empty"),
        ({"name": "a/b"}, "'name' must be a name without slashes"),
        ({"name": "a\nb"}, "'name' must be a name without slashes and control characters"),
        ({"name": "x" * 200}, "'name' must be a name of at most 128 characters"),
    ],
)
def test_a_wrong_program_entry_is_refused_in_words(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server(**fields)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"url": f"ws://{SECRET}"}, "'url' must start with http:// or https://"),
        ({"url": f"https://user:{SECRET}@host/mcp"}, 'Authorization: "Bearer ${VAR}"'),
        ({"url": "https://${USER}:${PASSWORD}@host/mcp"}, "'url' must not hold a user name"),
        ({"url": f"https://host:{SECRET}/mcp"}, "'url' is not a valid URL"),
        ({"url": f"https://[{SECRET}/mcp"}, "'url' is not a valid URL"),
        ({"url": "https:///mcp"}, "'url' names no host"),
        ({"url": "https://host/a b"}, "'url' must not hold spaces"),
        ({"headers": {f"Bearer {SECRET}": "x"}}, "'headers' has an invalid header name"),
        (
            {"headers": {"X-Key": f"{SECRET}\r\nHost: x"}},
            "'headers' has a value for 'X-Key' that a header cannot",
        ),
        ({"headers": {"X-Key": f"{SECRET}é"}}, "only visible ASCII, on one line"),
    ],
)
def test_a_wrong_remote_entry_is_refused_in_words(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        remote(**fields)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Mcp-Session-Id",
            "mcp-protocol-version",
            "MCP-Method",
            "Mcp-Name",
            "Mcp-Param-City",
            "Last-Event-ID",
        ),
        *("Accept", "content-type", "Content-Length", "Transfer-Encoding", "HOST", "Connection"),
    ],
)
def test_headers_of_the_protocol_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="belongs to the protocol; remove it"):
        remote(headers={name: "x"})


@pytest.mark.parametrize(
    "url", ["${MCP_URL}", "${BASE}/mcp", "https://${HOST}:${PORT}/mcp?k=${KEY}", "HTTP://h"]
)
def test_a_url_may_hold_references_anywhere(url: str) -> None:
    assert remote(url=url).url == url


@pytest.mark.parametrize(
    "command", ["/opt/my tools/run", "./my server", "C:\\Program Files\\x.exe", "~/a b", "${BIN} x"]
)
def test_a_path_with_spaces_is_no_shell_line(command: str) -> None:
    assert server(command=command).command == command


def test_everything_wrong_with_an_entry_is_reported_at_once() -> None:
    with pytest.raises(InvalidEntryError) as caught:
        server(args="x", cwd=5)
    assert {problem.field for problem in caught.value.problems} == {"args", "cwd"}
    assert caught.value.place == "server 'db'"


def test_no_repr_shows_a_value_of_env_headers_query_or_auth() -> None:
    one = server(env={"TOKEN": SECRET}, args=["--token", SECRET])
    two = remote(
        url=f"https://h/p?key={SECRET}",
        headers={"Authorization": SECRET},
        auth={"client_id": "x", "client_secret": SECRET},
    )
    target = Target(
        command=SECRET,
        args=(SECRET,),
        env={"TOKEN": SECRET},
        cwd=SECRET,
        url=SECRET,
        headers={"Authorization": SECRET},
        secrets=(SECRET,),
    )
    for value in (one, two, replace(target, command=None), target, HostConfig(servers=(one,))):
        assert "hunter2" not in f"{value!r} {value!s}"
    assert "TOKEN" in repr(one)
    assert "TOKEN" in repr(target)


def test_where_an_entry_was_written_changes_neither_equality_nor_fingerprint() -> None:
    one, two = (
        server(source=ConfigSource(file="/a", scope="user")),
        server(source=ConfigSource(file="/b", scope="project")),
    )
    assert one == two
    assert fingerprint(one) == fingerprint(two)
    assert (one.file, one.scope, server().file, server().scope) == ("/a", "user", None, "python")


def test_a_source_cannot_be_forged_from_plain_data() -> None:
    with pytest.raises(ConfigError):
        server(source={"scope": "explicit", "file": "/x"})


def test_a_fingerprint_is_of_what_is_run_or_reached() -> None:
    base = fingerprint(server())
    for fields in (
        {"command": "x"},
        {"args": ["a"]},
        {"cwd": "/"},
        {"env": {"A": "1"}},
        {"inherit_env": ["A"]},
    ):
        assert fingerprint(server(**fields)) != base
    for fields in ({"call_timeout": 5}, {"allow": ["a"]}, {"disabled": True}, {"description": "x"}):
        assert fingerprint(server(**fields)) == base
    assert fingerprint(remote(url="https://a/mcp")) != fingerprint(remote(url="https://b/mcp"))
    assert fingerprint(server(env={"T": "${A}"})) != fingerprint(server(env={"T": "${B}"}))


@given(st.text(min_size=1).filter(lambda t: "${" not in t and "\0" not in t), st.sampled_from("ehqa"))
def test_a_fingerprint_reveals_nothing_of_a_literal_value(value: str, where: str) -> None:
    def made(secret: str) -> ServerConfig:
        match where:
            case "e":
                return server(env={"TOKEN": secret})
            case "h":
                visible = secret.encode("unicode_escape").decode("ascii")
                return remote(headers={"Authorization": visible})
            case "q":
                return remote(url=f"https://h/mcp?key={secret.encode().hex()}")
            case _:
                return remote(auth={"client_id": "x", "client_secret": secret})

    assert fingerprint(made(value)) == fingerprint(made("something else"))


def test_a_warning_reads_as_a_sentence_with_its_place() -> None:
    warning = ConfigWarning(file="a.yaml", server="db", field="args", message="must be a list")
    assert str(warning) == "a.yaml: server 'db', field 'args': must be a list"
    assert str(ConfigWarning(message="odd")) == "odd"


def test_only_servers_that_are_wanted_are_active() -> None:
    servers = (server(name="a"), server(name="b", disabled=True), server(name="c"))
    assert [s.name for s in HostConfig(servers=servers).active] == ["a", "c"]
    assert [s.name for s in HostConfig(servers=servers, enabled_servers=("c", "b")).active] == ["c"]
    assert HostConfig(servers=servers, enabled=False).active == ()


def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="several servers named 'db'"):
        HostConfig(servers=(server(), server(command="other")))


entries = st.builds(
    server,
    name=st.sampled_from("abcd"),
    command=st.sampled_from(["x", "y"]),
    env=st.sampled_from([{}, {"T": "1"}, {"T": "2"}]),
    call_timeout=st.sampled_from([1, 2]),
    disabled=st.booleans(),
)
hosts = st.builds(
    HostConfig,
    servers=st.lists(entries, unique_by=lambda s: s.name, max_size=4).map(tuple),
    enabled=st.sampled_from([True, True, True, False]),
)


@given(hosts, hosts)
def test_a_plan_applied_to_the_old_servers_gives_the_new_ones(old: HostConfig, new: HostConfig) -> None:
    steps = plan(old, new)
    running = {s.name: s for s in old.active}
    for name in steps.stop:
        del running[name]
    for changed in (*steps.restart, *steps.keep):
        assert changed.name in running
        running[changed.name] = changed
    for added in steps.start:
        assert added.name not in running
        running[added.name] = added
    assert running == {s.name: s for s in new.active}


@given(hosts)
def test_nothing_changed_means_nothing_to_do(host: HostConfig) -> None:
    steps = plan(host, host)
    assert (steps.start, steps.stop, steps.restart) == ((), (), ())
    assert steps.keep == host.active


def test_a_changed_literal_value_restarts_although_the_fingerprint_is_the_same() -> None:
    old, new = server(env={"T": "1"}), server(env={"T": "2"})
    assert fingerprint(old) == fingerprint(new)
    assert plan(HostConfig(servers=(old,)), HostConfig(servers=(new,))).restart == (new,)


def test_a_changed_filter_or_timeout_keeps_the_connection_and_carries_the_new_entry() -> None:
    old, new = server(allow=["a"]), server(allow=["b"], call_timeout=5)
    assert plan(HostConfig(servers=(old,)), HostConfig(servers=(new,))).keep == (new,)


@pytest.mark.parametrize(("written", "meant"), [(0, 0), ("100", 100), (25_000, 25_000)])
def test_a_budget_is_none_or_large_enough_for_its_notice(written: object, meant: int) -> None:
    assert HostConfig(result_budget=written).result_budget == meant


@pytest.mark.parametrize("written", [1, 99, -1, "many"])
def test_a_budget_without_room_for_a_notice_is_refused(written: object) -> None:
    with pytest.raises(InvalidEntryError, match="result_budget"):
        HostConfig(result_budget=written)


def test_the_rules_of_a_server_are_the_hosts_where_it_has_none_of_its_own() -> None:
    plain = ServerConfig(name="a", command="a")
    own = ServerConfig(
        name="b", command="b", result_budget=0, output_schema="off", context={"passthrough": False}
    )
    host = HostConfig(output_schema="strict", context={"passthrough": True})
    assert rules_for(host, plain) == rules_for(host, None)
    assert rules_for(host, plain) == Rules(budget=25_000, output_schema="strict", passthrough=True)
    assert rules_for(host, own) == Rules(budget=0, output_schema="off", passthrough=False)
