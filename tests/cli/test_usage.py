"""Commands that start no server: help, versions, mistakes."""

import json

import pytest

import mooring
from mooring.cli.app import COMMANDS, main


def test_no_command_shows_what_there_is(ran) -> None:
    done = ran()
    assert done.returncode == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in done.stdout] == []


@pytest.mark.parametrize("command", list(COMMANDS))
def test_each_command_has_help_with_an_example_within_80_columns(ran, command: str) -> None:
    done = ran(command, "--help")
    assert done.returncode == 0
    assert f"usage: mooring {command}" in done.stdout
    assert f"examples:\n  mooring {command}" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_fits_a_narrow_terminal_except_for_examples(ran, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    text = ran("call", "--help").stdout.partition("\nexamples:")[0]
    assert max(map(len, text.splitlines()[1:])) <= 50
    assert "Call one tool.\n\nA value is converted to the type in the tool's\nschema;" in text


def test_help_is_found_wherever_it_stands(ran) -> None:
    assert ran("--help", "tools").stdout == ran("tools", "-h").stdout == ran("--quiet", "tools", "-h").stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("rotate", "ana", "--scope", "read"), "`mooring token rotate` has no --scope"),
        (("rotate", "ana", "--profile", "p"), "`mooring token rotate` has no --profile"),
        (("revoke", "ana", "--grace", "1h"), "`mooring token revoke` has no --grace"),
        (("create", "ana", "--grace", "1h"), "`mooring token create` has no --grace"),
        (("list", "--expires", "1h"), "`mooring token list` has no --expires"),
        (("list", "ana"), "`mooring token list` lists all tokens"),
        (("create", "ana", "--scope", "read admin"), "'read admin' is not a scope"),
    ],
)
def test_an_option_that_an_action_on_tokens_does_not_have_is_not_ignored(ran, words, problem: str) -> None:
    done = ran("token", *words)
    assert (done.returncode in (1, 2), done.stdout, problem in done.stderr) == (True, "", True), done.stderr


def test_the_version(ran) -> None:
    assert ran("--version").stdout == f"mooring {mooring.__version__}\n"
    assert json.loads(ran("--version", "--json").stdout) == {"version": mooring.__version__}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serch"], "Unknown command 'serch'. Did you mean 'search'? See `mooring --help`."),
        (["tools", "--sever", "x"], "Unknown option '--sever'. Did you mean '--server'? "),
        (["--jsn", "list"], "Unknown option '--jsn'."),
        (["serch", "--help"], "Unknown command 'serch'. Did you mean 'search'? See `mooring --help`."),
        (["list", "extra"], "Unknown argument 'extra'. See `mooring list --help`."),
        (["list", "--timeout", "soon"], "expected seconds, such as 10 or 0.5, not 'soon'"),
        (["list", "--timeout", "-1"], "expected"),
        (["list", "--config"], "--config needs a value"),
        (["call"], "Missing: TOOL"),
        (["tools", "--style", "loud"], "--style must be mcp, double, server or raw, not 'loud'"),
        (["cluster", "statu"], "ACTION must be status, not 'statu'. Did you mean 'status'?"),
        (["list", "--config", "."], "is a directory; name a file in it"),
        (["list", "--foo"], "Unknown option '--foo'. See `mooring list --help`."),
        (["token", "revoke", "ana"], "There is no token named 'ana'. See `mooring token list`."),
    ],
)
def test_a_mistake_is_one_paragraph_on_stderr_and_exit_code_2(ran, words: list[str], message: str) -> None:
    done = ran(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_skill_that_does_not_exist_is_exit_code_2(ran, config) -> None:
    done = ran("skill", "refunds", "--config", config({"notes": "notes"}))
    assert done.returncode == 2
    assert done.stderr == (
        "error: Skill 'refunds' was not read: there is no such skill; no server has skills. "
        "See `mooring skills`.\n"
    )


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"mcpServers": 7}', '{"mcpServers": {"a": {"command": 7}}}', '{"mcpServers": {"a": }}'],
)
def test_a_configuration_that_cannot_be_read_is_exit_code_2_and_names_the_file(
    ran, tmp_path, text: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    done = ran("list", "--config", "bad.json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "bad.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_configuration_that_is_not_there_is_exit_code_2_and_names_the_file(ran) -> None:
    done = ran("--config", "none.json", "tools")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "none.json" in done.stderr


def test_a_defect_is_a_sentence_and_its_traceback_is_shown_on_request(monkeypatch, capsys) -> None:
    def broken(*words: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("mooring.cli.app._dispatch", broken)
    assert main(["list"]) == 1
    assert "ZeroDivisionError: oops. This is a bug in mooring" in capsys.readouterr().err
    monkeypatch.setenv("MOORING_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["list"])


@pytest.mark.parametrize("words", [("call", "mcp_notes_read_note"), ("prompt", "lib", "greet")])
@pytest.mark.parametrize("option", [["--title", "welcome"], ["--title=welcome"]])
def test_an_argument_that_is_written_as_an_option_is_shown_as_key_value(ran, words, option) -> None:
    done = ran(*words, *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Unknown option '--title'. Arguments are written key=value, such as title=welcome." in done.stderr
    assert "Did you mean '--style'" not in done.stderr


def test_a_misspelt_option_of_call_still_gets_the_nearest_one(ran) -> None:
    assert "Did you mean '--style'?" in ran("call", "mcp_notes_read_note", "--stile", "raw").stderr


def test_arguments_as_a_json_word_or_a_file_are_answered_with_how_args_takes_them(ran, config) -> None:
    file = config({"notes": "notes"})
    done = ran("call", "mcp_notes_read_note", '{"title": "welcome"}', "--config", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "use --args for a JSON object" in done.stderr
    done = ran("call", "mcp_notes_read_note", "--args", "@x.json", "--config", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--args - < x.json" in done.stderr
    done = ran("call", "mcp_notes_read_note", "--args", "-", "--config", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --args: the JSON object is empty.\n"


def test_a_server_that_is_named_and_cannot_be_used_is_exit_code_1(ran, config) -> None:
    for words in (["--", "no-such-program"], ["--url", "http://127.0.0.1:9/mcp"]):
        done = ran("tools", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "is missing: " in done.stderr
    file = config({"notes": "notes", "broken": "broken"})
    assert ran("tools", "--server", "broken", "--config", file).returncode == 1
    assert ran("tools", "--config", file).returncode == 0
