"""`mooring call` beyond the golden output."""

import json
import sys

import pytest

from mooring import demo

NASTY = "\x1b[2Jgone\u202e\x07"


def echo_server(text: str, *, error: bool = False) -> dict:
    """A server with one tool `say` that answers with the text, and describes itself with it."""
    folder = str(demo.command("notes")[-1]).rsplit("/", 1)[0]
    code = (
        f"import sys; sys.path.insert(0, {folder!r})\n"
        "from protocol import Server, DemoTool, serve_stdio\n"
        "def say():\n"
        f"    if {error}: raise ValueError({text!r})\n"
        f"    return {text!r}, None\n"
        f"tool = DemoTool(description={text!r}, properties={{}}, handler=say)\n"
        f"serve_stdio(Server(name='echo', era='handshake', instructions='', tools={{'say': tool}}))\n"
    )
    return {"command": sys.executable, "args": ["-S", "-c", code]}


def test_arguments_come_from_a_json_document_too(ran, mixed_config) -> None:
    done = ran("call", "mcp_notes_read_note", "--args", '{"title": "welcome"}', "--config", mixed_config)
    assert done.stdout == "A mooring holds many boats.\n"


def test_arguments_come_from_standard_input_too(ran, mixed_config) -> None:
    words = ["call", "mcp_notes_read_note", "--args", "-", "--config", mixed_config]
    assert ran(*words, stdin='{"title": "welcome"}').stdout == "A mooring holds many boats.\n"


def test_an_error_of_the_tool_goes_to_stderr_with_exit_code_1(ran, mixed_config) -> None:
    done = ran("call", "mcp_notes_read_note", "title=none", "--config", mixed_config)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: read_note: there is no note 'none'; choose one of: welcome\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mcp_clock_nwo"], "There is no tool 'mcp_clock_nwo'. Did you mean 'mcp_clock_now'"),
        (["mcp_notes_read_note"], "Missing: title. It takes: title (string, required)."),
        (["mcp_notes_read_note", "titel=x"], "has no argument 'titel'. Did you mean 'title'?"),
        (["mcp_clock_now", "offset_hours=two"], "offset_hours: expected integer, not 'two'."),
        (["mcp_clock_now", "--args", "[]"], "--args must be a JSON object"),
    ],
)
def test_a_mistake_is_exit_code_2_and_says_what_is_valid(
    ran, mixed_config, words: list[str], message: str
) -> None:
    done = ran("call", *words, "--config", mixed_config)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_tool_of_a_server_that_failed_is_exit_code_1_with_the_reason(ran, mixed_config) -> None:
    for command in ("call", "tool"):
        done = ran(command, "mcp_broken_fix", "--config", mixed_config)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Server 'broken' is not connected: " in done.stderr
        assert "cannot read /etc/broken.conf" in done.stderr
    document = json.loads(ran("call", "mcp_broken_fix", "--json", "--config", mixed_config).stdout)
    assert (document["error"]["exit_code"], document["error"]["server"]) == (1, "broken")


def test_a_tool_of_a_server_that_does_not_connect_in_time_is_exit_code_1(ran, config) -> None:
    done = ran("call", "mcp_silent_say", "--timeout", "1", "--config", config({"silent": "silent"}))
    assert (done.returncode, done.stdout) == (1, "")
    assert "silent" in done.stderr


def test_a_tool_of_a_disabled_server_is_exit_code_2(ran, mixed_config) -> None:
    done = ran("call", "mcp_spare_list_notes", "--config", mixed_config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "mooring enable spare" in done.stderr


def test_a_server_that_hangs_is_not_waited_for(ran, config) -> None:
    file = config({"clock": "clock", "silent": "silent"})
    assert ran("call", "mcp_clock_now", "--config", file).returncode == 0
    assert ran("call", "mcp_clock_later", "--config", file).returncode == 2


def test_a_lazy_server_is_started_for_the_call(ran, config) -> None:
    file = config({"clock": {"bundled": "clock", "start": "lazy"}})
    assert ran("call", "mcp_clock_now", "--config", file).returncode == 0
    assert ran("ping", "--config", file).returncode == 0
    assert ran("tools", "--config", file).stdout.startswith("mcp_clock_convert\t")
    assert json.loads(ran("list", "--json", "--config", file).stdout)["servers"][0]["state"] == "pending"


def test_text_of_a_server_is_cleaned_for_a_terminal(terminal, config) -> None:
    file = config({"echo": echo_server(NASTY)})
    for words in (
        ["call", "mcp_echo_say"],
        ["tools"],
        ["call", "mcp_echo_say", "--json"],
    ):
        shown = terminal(*words, "--config", file, NO_COLOR="1", TERM="dumb")
        assert shown.code == 0
        assert not set(shown.raw) & set(NASTY[:1] + NASTY[-2:])
        assert "gone" in shown.text


def test_an_error_text_of_a_server_is_cleaned(terminal, config) -> None:
    shown = terminal(
        "call", "mcp_echo_say", "--config", config({"echo": echo_server(NASTY, error=True)}), TERM="dumb"
    )
    assert shown.code == 1
    assert "\x1b" not in shown.raw
    assert r"\x1b[2Jgone\u202e\x07" in shown.text


def test_text_of_a_server_reaches_a_pipe_without_control_characters(ran, config) -> None:
    said = "a\tb\r\nc \x1b[2J\x1b]0;t\x07 \x9b31m \x7f \x00 \u200cد 👩\u200d💻"
    done = ran("call", "mcp_echo_say", "--config", config({"echo": echo_server(said)}))
    assert done.stdout == ("a\tb\nc \\x1b[2J\\x1b]0;t\\x07 \\x9b31m \\x7f \\x00 \u200cد 👩\u200d💻\n")


def test_json_holds_the_text_of_a_server_unchanged(ran, config) -> None:
    done = ran("call", "mcp_echo_say", "--json", "--config", config({"echo": echo_server(NASTY)}))
    assert json.loads(done.stdout)["text"] == NASTY
    assert "\u202e" not in done.stdout


# --- where arguments come from


@pytest.fixture
def echo(config) -> str:
    return config({"notes": "notes"})


def test_a_value_is_taken_from_a_file(ran, echo, tmp_path) -> None:
    (tmp_path / "title.txt").write_text("welcome")
    done = ran("call", "--config", echo, "mcp_notes_read_note", "title=@title.txt")
    assert (done.returncode, done.stdout) == (0, "A mooring holds many boats.\n")


def test_a_value_is_taken_from_standard_input(ran, echo) -> None:
    done = ran("call", "--config", echo, "mcp_notes_read_note", "title=@-", stdin="welcome")
    assert (done.returncode, done.stdout) == (0, "A mooring holds many boats.\n")


def test_two_at_signs_are_one(ran, echo) -> None:
    done = ran("call", "--config", echo, "mcp_notes_read_note", "title=@@home")
    assert done.returncode == 1
    assert "@home" in done.stderr


def test_a_file_that_is_not_there_is_named(ran, echo) -> None:
    done = ran("call", "--config", echo, "mcp_notes_read_note", "title=@nowhere.txt")
    assert done.returncode == 2
    assert "@nowhere.txt: No such file or directory" in done.stderr


def test_on_a_terminal_what_is_missing_is_asked_for(terminal, echo) -> None:
    shown = terminal("call", "--config", echo, "mcp_notes_read_note", typed="welcome\n")
    assert shown.code == 0
    assert "title" in shown.text
    assert shown.text.rstrip().endswith("A mooring holds many boats.")


def test_without_a_terminal_what_is_missing_is_an_error(piped, echo) -> None:
    done = piped("call", "--config", echo, "mcp_notes_read_note")
    assert done.returncode == 2
    assert "Missing: title" in done.stderr
