"""Which files are read, in which order, and the effect of one wrong entry on the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mooring.config import found_files, load
from mooring.config.models import HostConfig
from mooring.config.trust import Approval
from mooring.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


def write(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def read(path: Path, data: Any, **options: Any) -> HostConfig:
    return load([write(path, data)], env={}, **options)


def approved(file: str) -> Approval:
    return Approval(everything=True)


def commands(host: HostConfig) -> dict[str, str | None]:
    return {server.name: server.command for server in host.servers}


def test_no_file_at_all_is_an_empty_configuration(project: Path, user: Path) -> None:
    assert load(cwd=project, env={}, user_dir=user) == HostConfig()


def test_an_approved_project_wins_over_the_user_by_server_name(project: Path, user: Path) -> None:
    write(user / "config.yaml", "servers: {a: {command: user-a}, b: {command: user-b}}")
    write(project / "mooring.yaml", "servers: {b: {command: project-b}, c: {command: project-c}}")
    host = load(cwd=project, env={}, user_dir=user, approval=approved)
    assert commands(host) == {"a": "user-a", "b": "project-b", "c": "project-c"}
    assert {server.name: server.scope for server in host.servers} == {
        "a": "user",
        "b": "project",
        "c": "project",
    }
    assert host.servers[0].file == str(user / "config.yaml")


def test_the_first_name_that_exists_is_the_project_file(project: Path, user: Path) -> None:
    for name in (".mcp.json", "mooring.json", "mooring.toml", "mooring.yaml"):
        write(project / name, "")
        assert [found.path.name for found in found_files(cwd=project, env={}, user_dir=user)] == [name]


def test_the_project_file_is_looked_for_up_to_the_repository_root_and_no_further(
    project: Path, user: Path
) -> None:
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    write(project.parent / "mooring.yaml", "servers: {outside: {command: x}}")
    assert found_files(cwd=inner, env={}, user_dir=user) == ()
    write(project / ".mcp.json", {"mcpServers": {"root": {"command": "x"}}})
    assert commands(load(cwd=inner, env={}, user_dir=user)) == {"root": "x"}
    write(project / "a" / "mooring.json", {"servers": {"nearer": {"command": "y"}}})
    assert commands(load(cwd=inner, env={}, user_dir=user)) == {"nearer": "y"}


def test_outside_a_repository_only_the_working_directory_is_looked_at(tmp_path: Path, user: Path) -> None:
    write(tmp_path / "plain" / "mooring.yaml", "servers: {}")
    inner = tmp_path / "plain" / "inner"
    inner.mkdir()
    assert found_files(cwd=inner, env={}, user_dir=user) == ()
    assert len(found_files(cwd=inner.parent, env={}, user_dir=user)) == 1


def test_explicit_files_are_read_in_order_and_nothing_else_is(project: Path, user: Path) -> None:
    write(user / "config.yaml", "servers: {u: {command: x}}")
    write(project / "mooring.yaml", "servers: {p: {command: x}}")
    one = write(project / "one.json", {"mcpServers": {"a": {"command": "1"}, "b": {"command": "1"}}})
    two = write(project / "two.json", {"mcpServers": {"b": {"command": "2"}}})
    host = load([one, two], cwd=project, env={}, user_dir=user)
    assert commands(host) == {"a": "1", "b": "2"}
    assert {server.scope for server in host.servers} == {"explicit"}


def test_the_environment_names_explicit_files(project: Path, user: Path) -> None:
    write(project / "one.json", {"mcpServers": {"a": {"command": "1"}}})
    write(project / "two.json", {"mcpServers": {"b": {"command": "2"}}})
    host = load(cwd=project, env={"MOORING_CONFIG": f"one.json{os.pathsep}two.json"}, user_dir=user)
    assert commands(host) == {"a": "1", "b": "2"}


def test_a_missing_explicit_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: there is no such file"):
        load([tmp_path / "gone.yaml"], env={})


def test_a_wrong_entry_is_set_aside_with_a_warning_and_the_rest_loads(tmp_path: Path) -> None:
    data = {"mcpServers": {"bad": {"command": "x", "args": "hunter2-secret"}, "good": {"command": "y"}}}
    host = read(tmp_path / "mcp.json", data)
    assert commands(host) == {"good": "y"}
    [warning] = host.warnings
    assert (warning.file, warning.server, warning.field) == (str(tmp_path / "mcp.json"), "bad", "args")
    assert "hunter2" not in str(warning)


def test_a_wrong_entry_of_the_project_leaves_the_users_own_server(project: Path, user: Path) -> None:
    write(user / "config.yaml", "servers: {a: {command: user-a}}")
    write(project / "mooring.yaml", "servers: {a: {command: x, args: y}}")
    host = load(cwd=project, env={}, user_dir=user, approval=approved)
    assert commands(host) == {"a": "user-a"}
    assert [(warning.server, warning.field) for warning in host.warnings] == [("a", "args")]


def test_strict_lists_every_problem_on_its_own_line(tmp_path: Path) -> None:
    data = {"mcpServers": {"a": {"comand": "x"}, "b": {"command": "x", "cwd": 5}}}
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "mcp.json", data, strict=True)
    first, *rest = str(caught.value).splitlines()
    assert first == "the configuration has 2 problems:"
    assert len(rest) == 2
    assert "server 'a', field 'comand'" in rest[0]
    assert "server 'b', field 'cwd'" in rest[1]


def test_wrong_values_beside_a_misspelt_field_are_reported_at_once(tmp_path: Path) -> None:
    entry = {"comand": "x", "start": "layz", "call_timeout": "5 parsecs", "auth": {"client_idd": "x"}}
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "mcp.json", {"mcpServers": {"a": entry}}, strict=True)
    lines = str(caught.value).splitlines()[1:]
    fields = ["comand", "start", "call_timeout", "auth.client_idd"]
    assert [line.split("field ")[1].split(":")[0] for line in lines] == [repr(field) for field in fields]
    assert "did you mean 'lazy'?" in lines[1]
    assert not any("'command' or 'url'" in line for line in lines), "it was misspelt, not left out"


def test_strict_does_not_mind_what_was_merely_ignored(tmp_path: Path) -> None:
    data = {"mcpServers": {"a": {"command": "x", "quarantined": True}}, "sampling": {"enabled": True}}
    host = read(tmp_path / "mcp.json", data, strict=True)
    assert [warning.field for warning in host.warnings] == ["sampling", "quarantined"]


def test_host_wide_settings_fill_what_a_server_leaves_out(tmp_path: Path) -> None:
    text = """
    call_timeout: 5s
    max_message: 1MiB
    start: lazy
    servers:
      a: {command: x}
      b: {command: x, call_timeout: 9, start: eager}
    """
    a, b = read(tmp_path / "mooring.yaml", text, strict=True).servers
    assert (a.call_timeout, a.max_message, a.start) == (5, 2**20, "lazy")
    assert (b.call_timeout, b.max_message, b.start) == (9, 2**20, "eager")


def test_a_wrong_host_wide_setting_is_left_at_its_default(tmp_path: Path) -> None:
    text = (
        "{style: dubble, call_timeout: soon, watch: {enabled: true, bounce: 1}, servers: {a: {command: x}}}"
    )
    host = read(tmp_path / "mooring.yaml", text)
    assert (host.style, host.watch.enabled, host.servers[0].call_timeout) == ("mcp", False, 600)
    assert {warning.field for warning in host.warnings} == {"style", "call_timeout", "watch.bounce"}
    with pytest.raises(ConfigError):
        read(tmp_path / "mooring.yaml", text, strict=True)


@pytest.mark.parametrize("name", ["mooring.yaml", ".mcp.json", "settings.json", "evva.yaml", "x.toml"])
@pytest.mark.parametrize(
    ("key", "meant"),
    [
        *(("gatway", "gateway"), ("gatewy", "gateway"), ("gateWay", "gateway"), ("agteway", "gateway")),
        *(("polciy", "policy"), ("plicy", "policy"), ("audti", "audit"), ("stlye", "style")),
        *(("resource_uri_alowlist", "resource_uri_allowlist"), ("strictRootPath", "strict_root_paths")),
        *(("artefacts", "artifacts"), ("discovry", "discovery"), ("enabledServer", "enabled_servers")),
    ],
)
def test_a_misspelled_setting_is_reported_in_every_file(
    tmp_path: Path, name: str, key: str, meant: str
) -> None:
    file = tmp_path / name
    data = {"mcpServers": {"a": {"command": "x"}}, key: "x"}
    text = f'{key} = "x"\n[mcpServers.a]\ncommand = "x"\n' if name.endswith("toml") else json.dumps(data)
    [warning] = read(file, text).warnings
    assert f"{key!r} is not a known setting; did you mean {meant!r}?" in str(warning)
    assert (warning.file, warning.field) == (str(file), key)
    with pytest.raises(ConfigError, match="did you mean"):
        read(file, text, strict=True)


def test_keys_of_other_programs_are_not_taken_for_misspellings(tmp_path: Path) -> None:
    keys = (
        "inputs $schema permissions hooks env model theme version name description resources projects "
        "apiKeyHelper enabledMcpjsonServers disabledMcpjsonServers enableAllProjectMcpServers disabled tts "
        "statusLine plugins match batch patch state stats output outputStyle telemetry tools timeout editor"
    )
    data = {"mcpServers": {"a": {"command": "x"}}, **dict.fromkeys(keys.split(), "x")}
    assert read(tmp_path / "settings.json", data, strict=True).warnings == ()
    assert (
        len(read(tmp_path / "mooring.json", data).warnings) == len(keys.split()) - 1
    )  # $schema is no setting


@pytest.mark.parametrize(
    "section", [{"gateway": {"tokns": []}}, {"policy": {"dney": ["*"]}}, {"audit": {"path": "x", "kep": 3}}]
)
@pytest.mark.parametrize("name", ["mooring.json", "settings.json"])
def test_an_unknown_key_inside_a_setting_that_protects_is_an_error_in_every_file(
    tmp_path: Path, section: dict[str, Any], name: str
) -> None:
    data = {"mcpServers": {"a": {"command": "x"}}, **section}
    [warning] = read(tmp_path / name, data).warnings
    assert "is not a known field" in str(warning)
    with pytest.raises(ConfigError, match="is not a known field"):
        read(tmp_path / name, data, strict=True)


def test_a_foreign_setting_that_only_shares_our_name_is_no_error(tmp_path: Path) -> None:
    data = {"mcpServers": {"a": {"command": "x"}}, "context": {"fileName": "GEMINI.md"}, "start": "npm run x"}
    host = read(tmp_path / "settings.json", data, strict=True)
    assert commands(host) == {"a": "x"}
    assert {(warning.field or "").split(".")[0] for warning in host.warnings} == {"context", "start"}


def test_settings_merge_key_by_key_and_the_later_file_wins(project: Path, user: Path) -> None:
    write(user / "config.toml", 'style = "raw"\nsession_ttl = "1h"')
    write(project / "mooring.toml", 'style = "double"')
    host = load(cwd=project, env={}, user_dir=user, strict=True, approval=approved)
    assert (host.style, host.session_ttl) == ("double", 3600)


def test_enabled_servers_names_what_runs_and_an_unknown_name_is_reported(tmp_path: Path) -> None:
    text = "{enabled_servers: [a, zz], servers: {a: {command: x}, b: {command: y}}}"
    host = read(tmp_path / "mooring.yaml", text)
    assert [server.name for server in host.active] == ["a"]
    assert "names 'zz', which is not configured" in str(host.warnings[0])


def test_syntax_that_is_no_reference_is_reported_with_its_place(tmp_path: Path) -> None:
    host = read(
        tmp_path / "mooring.yaml", 'servers: {a: {command: x, env: {T: "${TOKEN%hunter2}"}}}', strict=True
    )
    [warning] = host.warnings
    assert (warning.server, warning.field) == ("a", "env.T")
    assert "${TOKEN…}" in warning.message
    assert "hunter2" not in str(warning)


def test_a_name_twice_in_a_list_keeps_the_first(tmp_path: Path) -> None:
    host = read(tmp_path / "m.yaml", "config: {servers: [{alias: a, command: x}, {alias: a, command: y}]}")
    assert commands(host) == {"a": "x"}
    assert "server 'a': is defined twice in this file; keep one" in str(host.warnings[0])


TWICE = {
    "json": """{"mcpServers": {
        "a": {"command": "first"},
        "b": {"command": "other"},
        // the next one is the copy
        "a": {"command": "second", "env": {"T": "1"}},
        "c": {"command": "x", "command": "y"},
        "d": {"command": "last"}}}""",
    "yaml": """servers:
  a: {command: first}
  b: {command: other}
  a:
    command: second
    env: {T: 1}
  c: {command: x, command: y}
  d: {command: last}
""",
    "toml": """[servers.a]
command = "first"
args = ['''
[servers.d]
''']
[servers.b]
command = "other"
[servers."a"]  # the copy
command = "second"
[servers.a.env]
T = "1"
[servers.c]
command = "x"
command = "y"
[servers.d]
command = "last"
""",
}


@pytest.mark.parametrize("kind", TWICE)
def test_a_name_twice_in_a_mapping_keeps_the_first_and_every_other_server(kind: str, tmp_path: Path) -> None:
    host = read(tmp_path / f"m.{kind}", TWICE[kind])
    assert commands(host) == {"a": "first", "b": "other", "d": "last"}
    assert [server.env for server in host.servers if server.name == "a"] == [{}]
    twice, inside = host.warnings
    assert (twice.server, twice.field) == ("a", None)
    assert "is defined twice, on line" in twice.message
    assert (inside.server, inside.field) == ("c", "command")


def test_an_inline_table_twice_in_toml_keeps_the_first(tmp_path: Path) -> None:
    text = '[servers]\na = { command = "x" }\n"b.c" = { command = "y" }\na = { command = "z" }\n'
    host = read(tmp_path / "m.toml", text)
    assert commands(host) == {"a": "x", "b.c": "y"}
    assert "server 'a': is defined twice, on line 2 and on line 4" in str(host.warnings[0])


CLASHES = {
    "Windows line ends": '[servers.a]\r\ncommand = "x"\r\n[servers.a]\r\ncommand = "z"\r\n',
    "a table after an inline table": 'servers.a = {command = "x"}\n[servers.a]\ncommand = "z"\n',
    "a table after dotted keys": 'servers.a.command = "x"\n[servers.a]\ncommand = "z"\n',
    "a name with an escape": '[servers.a]\ncommand = "x"\n[servers."\\u0061"]\ncommand = "z"\n',
    "an array of tables": '[servers.a]\ncommand = "x"\n[[servers.a]]\ncommand = "z"\n',
    "a separator of lines in a text": '[servers.a]\ncommand = "x"\n#\u2028\n[servers.a]\ncommand = "z"\n',
}
TWICE_INSIDE = {
    "args": '[servers.a]\ncommand = "x"\nargs = [\n  "1",\n]\nargs = [\n  "2",\n]\n',
    "command": '[servers]\na = {command = "x", command = "z"}\n',
    "env.T": '[servers.a]\ncommand = "x"\nenv = {T = "1", T = "2"}\n',
}


@pytest.mark.parametrize("case", CLASHES)
def test_in_toml_a_name_may_stand_twice_in_any_spelling(case: str, tmp_path: Path) -> None:
    host = read(tmp_path / "m.toml", CLASHES[case] + '[servers.b]\ncommand = "y"\n')
    assert commands(host) == {"a": "x", "b": "y"}
    assert "server 'a': is defined twice, on line" in str(host.warnings[0])


@pytest.mark.parametrize("field", TWICE_INSIDE)
def test_in_toml_a_field_twice_leaves_out_its_entry_only(field: str, tmp_path: Path) -> None:
    host = read(tmp_path / "m.toml", TWICE_INSIDE[field] + '[servers.b]\ncommand = "y"\n')
    assert commands(host) == {"b": "y"}
    assert (host.warnings[0].server, host.warnings[0].field) == ("a", field)


def test_in_toml_a_field_twice_in_an_array_of_tables_leaves_out_its_entry_only(tmp_path: Path) -> None:
    text = '[[servers]]\nname = "b"\ncommand = "y"\n[[servers]]\nname = "a"\ncommand = "x"\ncommand = "z"\n'
    host = read(tmp_path / "m.toml", text)
    assert commands(host) == {"b": "y"}
    assert (host.warnings[0].server, host.warnings[0].field) == ("a", "command")


def test_a_second_section_of_servers_in_toml_keeps_the_tables_after_it(tmp_path: Path) -> None:
    text = '[servers]\na = {command = "x"}\n[servers]\nc = {command = "z"}\n[servers.b]\ncommand = "y"\n'
    host = read(tmp_path / "m.toml", text)
    assert commands(host) == {"a": "x", "b": "y"}


def test_in_yaml_a_server_may_be_named_null(tmp_path: Path) -> None:
    host = read(tmp_path / "m.yaml", "servers:\n  null: {command: x}\n  b: {command: y}\n")
    assert commands(host) == {"null": "x", "b": "y"}


def test_one_section_of_servers_after_another_is_reported_and_the_first_is_used(tmp_path: Path) -> None:
    host = read(tmp_path / "m.json", '{"mcpServers": {"a": {"command": "x"}}, "mcpServers": {}}')
    assert commands(host) == {"a": "x"}
    assert "field 'mcpServers': is defined twice, on line 1 and on line 1" in str(host.warnings[0])


def test_a_key_twice_in_an_entry_of_a_list_leaves_out_this_entry(tmp_path: Path) -> None:
    text = "config: {servers: [{alias: a, command: x}, {alias: b, command: x, deny: ['*'], deny: []}]}"
    host = read(tmp_path / "m.yaml", text)
    assert commands(host) == {"a": "x"}
    assert (host.warnings[0].server, host.warnings[0].field) == ("b", "deny")


def test_a_toml_file_with_many_repeated_tables_is_refused_in_bounded_time(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "x"\n[servers.b]\ncommand = "x"\n' * 1000
    with pytest.raises(ConfigError, match="too many keys that are defined twice"):
        read(tmp_path / "m.toml", text)


@pytest.mark.parametrize("place", ["servers", "mcpServers", "config.servers"])
def test_an_entry_of_a_list_that_is_no_mapping_is_skipped_and_the_others_are_used(
    place: str, tmp_path: Path
) -> None:
    entries = [
        {"name": "a", "command": "x"},
        None,
        3,
        "uvx x",
        {"command": "y"},
        {"name": "b", "command": "z"},
    ]
    data: Any = {"servers": entries} if place == "config.servers" else entries
    host = read(tmp_path / "mcp.json", {place.partition(".")[0]: data})
    assert commands(host) == {"a": "x", "b": "z"}
    found = [f"{warning.field}: {warning.message}" for warning in host.warnings]
    assert [text for text in found if "must be a mapping" in text] == [
        f"{place}: entry 2 must be a mapping, not nothing",
        f"{place}: entry 3 must be a mapping, not a number",
        f"{place}: entry 4 must be a mapping, not text",
    ]
    assert len(found) == 4


def test_a_byte_order_mark_is_no_hindrance(tmp_path: Path) -> None:
    assert commands(read(tmp_path / "mcp.json", '\ufeff{"servers": {"a": {"command": "x"}}}')) == {"a": "x"}


def test_a_disabled_server_is_loaded_but_not_active(tmp_path: Path) -> None:
    host = read(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": "x", "disabled": True}}}, strict=True)
    assert commands(host) == {"a": "x"}
    assert host.active == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.json", '{"discovery": "never"}'),
        ("team.yaml", "discovery: never\n"),
        ("any.toml", 'discovery = "never"\n'),
        ("more.yaml", "mcp:\n  discovery: never\n"),
    ],
)
def test_a_file_with_settings_alone_counts(tmp_path: Path, name: str, text: str) -> None:
    servers = tmp_path / "mcp.json"
    servers.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    settings = tmp_path / name
    settings.write_text(text)
    for files in ([servers, settings], [settings, servers]):
        config = load(files)
        assert config.discovery == "never"
        assert [server.name for server in config.servers] == ["a"]
        assert config.warnings == ()


def test_a_file_without_servers_says_so(tmp_path: Path) -> None:
    [warning] = read(tmp_path / "package.json", {"name": "x"}).warnings
    assert "names no servers" in str(warning)
    assert "did you mean" not in str(warning)


def test_a_misspelt_name_of_the_servers_is_reported_with_the_right_one(tmp_path: Path) -> None:
    [warning] = read(tmp_path / "other.json", {"mcpServer": {"a": {"command": "x"}}}).warnings
    assert str(warning).endswith("has entries; did you mean 'mcpServers'?")


def test_a_command_that_is_a_list_of_one_word_has_the_arguments_of_args(tmp_path: Path) -> None:
    config = read(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": ["x"], "args": ["y"]}}})
    assert [(one.command, one.args) for one in config.servers] == [("x", ("y",))]


@pytest.mark.parametrize("order", [("command", "args"), ("args", "command")])
def test_arguments_in_two_places_are_reported_with_both_names(tmp_path: Path, order: tuple[str, str]) -> None:
    entry = {"command": ["x", "y"], "args": ["z"]}
    written = {"mcpServers": {"a": {name: entry[name] for name in order}}}
    [warning] = read(tmp_path / "mcp.json", written).warnings
    first, second = order
    assert f"field {second!r}: differs from {first!r}; keep one of them" in str(warning)


@pytest.mark.parametrize(("name", "problems"), [("mooring.yaml", 1), ("settings.yaml", 0)])
def test_a_setting_with_a_unit_in_its_name_must_be_a_number(tmp_path: Path, name: str, problems: int) -> None:
    text = "{call_timeout_ms: soon, servers: {a: {command: x}}}"
    [warning] = read(tmp_path / name, text).warnings
    assert warning.field == "call_timeout_ms"
    if problems:
        with pytest.raises(ConfigError, match="must be a number of milliseconds"):
            read(tmp_path / name, text, strict=True)
    else:
        assert read(tmp_path / name, text, strict=True).warnings == (warning,)


def test_no_server_takes_the_name_of_the_hosts_own_tools(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"mooring": {"command": "a"}, "other": {"command": "b"}}}')
    config = load([file])
    assert [server.name for server in config.servers] == ["other"]
    assert "choose another name" in str(config.warnings[0])


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize(
    ("table", "key"), [("guards", "secrets"), ("gateway", "access_log"), ("scripts", "enabled")]
)
def test_a_truth_value_in_the_place_of_a_table_means_the_same_in_yaml_and_json(
    table: str, key: str, value: str, tmp_path: Path
) -> None:
    (tmp_path / "mooring.json").write_text(f'{{"{table}": {{"{key}": {value}}}}}')
    (tmp_path / "mooring.yaml").write_text(f"{table}: {{{key}: {value}}}")
    first, second = (load([tmp_path / f"mooring.{kind}"], env={}, strict=True) for kind in ("json", "yaml"))
    assert getattr(getattr(first, table), key) == getattr(getattr(second, table), key)
