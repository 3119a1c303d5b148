"""Resources, prompts and questions on the command line: terminal, pipe and JSON, to the letter."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.lab.libraries import SCRIPT

DATA = bytes(range(256))
SCRIPTED = {
    "resources": {
        "memo:///shopping": "milk\nbread\x1b[2J\n",
        "memo:///logo": {"blob": base64.b64encode(DATA).decode(), "mimeType": "image/png"},
    },
    "templates": ["memo:///{title}"],
    "prompts": [
        {
            "name": "greet",
            "description": "Say hello to somebody.",
            "arguments": [{"name": "who", "required": True}, {"name": "tone"}],
        }
    ],
}


@pytest.fixture
def library(config: Any) -> str:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(SCRIPT), json.dumps(SCRIPTED)]}
    return config({"lib": entry, "notes": "notes", "broken": "broken"})


def test_resources_on_a_terminal(terminal: Any, library: str) -> None:
    shown = terminal("resources", "--config", library)
    assert shown.code == 0
    assert shown.text == snapshot("""\
warning: Server 'broken' is missing: the server exited with code 1; its last
lines on stderr: broken: cannot read /etc/broken.conf: no such file
lib
  memo:///logo      logo
  memo:///shopping  shopping
  memo:///{title}   any
""")


def test_resources_on_a_terminal_of_40_columns(terminal: Any, library: str) -> None:
    assert terminal("resources", "--config", library, "-q", columns=40).text == snapshot("""\
lib
  memo:///logo
    logo
  memo:///shopping
    shopping
  memo:///{title}
    any
""")


def test_resources_in_a_pipe(ran: Any, library: str) -> None:
    done = ran("resources", "--server", "lib", "--config", library)
    assert (done.returncode, done.stdout, done.stderr) == snapshot(
        (
            0,
            """\
memo:///logo	lib	logo
memo:///shopping	lib	shopping
memo:///{title}	lib	any
""",
            "",
        )
    )


def test_resources_as_json(ran: Any, library: str) -> None:
    done = ran("resources", "--json", "--config", library)
    assert json.loads(done.stdout) == snapshot(
        {
            "resources": [
                {
                    "uri": "memo:///logo",
                    "server": "lib",
                    "name": "logo",
                    "title": None,
                    "description": "",
                    "mime_type": None,
                    "size": None,
                },
                {
                    "uri": "memo:///shopping",
                    "server": "lib",
                    "name": "shopping",
                    "title": None,
                    "description": "",
                    "mime_type": None,
                    "size": None,
                },
            ],
            "templates": [
                {
                    "uri_template": "memo:///{title}",
                    "server": "lib",
                    "name": "any",
                    "title": None,
                    "description": "",
                    "mime_type": None,
                }
            ],
            "errors": {
                "broken": """\
the server exited with code 1
its last lines on stderr:
broken: cannot read /etc/broken.conf: no such file\
"""
            },
        }
    )


def test_read_on_a_terminal_shows_text_and_nothing_that_acts(terminal: Any, library: str) -> None:
    shown = terminal("read", "memo:///shopping", "--config", library)
    assert (shown.code, shown.text) == snapshot(
        (
            0,
            """\
milk
bread\\x1b[2J
""",
        )
    )


def test_read_in_a_pipe_gives_the_text_without_terminal_escapes(ran: Any, library: str) -> None:
    done = ran("read", "memo:///shopping", "--config", library)
    assert (done.returncode, done.stdout) == (0, "milk\nbread\\x1b[2J\n")


def test_read_into_a_file_gives_the_text_as_it_was_sent(ran: Any, library: str, tmp_path: Path) -> None:
    assert ran("read", "memo:///shopping", "--output", "x", "--config", library).returncode == 0
    assert (tmp_path / "x").read_text() == "milk\nbread\x1b[2J\n"


def test_read_as_json(ran: Any, library: str) -> None:
    done = ran("read", "memo:///shopping", "--config", library, "--json")
    assert json.loads(done.stdout) == snapshot(
        {
            "uri": "memo:///shopping",
            "server": "lib",
            "contents": [
                {
                    "uri": "memo:///shopping",
                    "mime_type": "text/plain",
                    "text": """\
milk
bread\x1b[2J
""",
                }
            ],
        }
    )


def test_bytes_never_reach_a_terminal(terminal: Any, library: str) -> None:
    shown = terminal("read", "memo:///logo", "--config", library)
    assert (shown.code, shown.text) == snapshot(
        (
            2,
            """\
error: memo:///logo is binary (image/png, 256 bytes). Write it to a file with
`--output FILE`, or to a pipe.
""",
        )
    )


def test_bytes_go_into_a_pipe_as_they_are(tmp_path: Path, environment: dict[str, str], library: str) -> None:
    import subprocess

    words = [sys.executable, "-m", "mooring", "read", "memo:///logo", "--config", library]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, DATA)


def test_output_writes_a_file_and_says_how_much(ran: Any, library: str, tmp_path: Path) -> None:
    done = ran("read", "memo:///logo", "--output", "logo.png", "--config", library)
    assert (done.returncode, done.stdout, done.stderr) == snapshot(
        (0, "", "note: Wrote 256 bytes to logo.png.\n")
    )
    assert (tmp_path / "logo.png").read_bytes() == DATA
    failed = ran("read", "memo:///logo", "--output", "no/such/logo.png", "--config", library)
    assert (failed.returncode, failed.stderr) == snapshot(
        (2, "error: Cannot write 'no/such/logo.png': No such file or directory.\n")
    )


@pytest.mark.parametrize(
    "words",
    [
        ("read", "memo:///x/y"),
        ("read", "memo:///shopping", "--server", "lob"),
        ("prompt", "lib", "gret"),
        ("prompt", "lib", "greet"),
        ("prompt", "lib", "greet", "who"),
        ("prompt", "lib", "greet", "who=a", "when=now"),
    ],
)
def test_a_wrong_name_or_argument_is_misuse_and_says_what_is_right(
    ran: Any, library: str, words: tuple[str, ...]
) -> None:
    done = ran(*words, "--config", library)
    assert (done.returncode, done.stdout) == (2, "")
    assert any(
        hint in done.stderr for hint in ("Did you mean", "needs 'who'", "key=value", "it takes", "lists")
    )


def test_a_misspelt_argument_of_a_prompt_is_answered_with_the_nearest_one(ran: Any, library: str) -> None:
    done = ran("prompt", "lib", "greet", "wo=a", "--config", library)
    assert done.returncode == 2
    assert "it has no argument 'wo' (did you mean 'who'?); it takes 'who', 'tone'." in done.stderr


@pytest.mark.parametrize("kind", ["resources", "prompts"])
def test_an_empty_list_says_so(ran: Any, config: Any, kind: str) -> None:
    file = config({"notes": "notes"})
    done = ran(kind, "--config", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"note: No server has {kind}.\n")
    done = ran(kind, "--server", "notes", "--config", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"note: notes has no {kind}.\n")


def test_doctor_and_check_agree_about_a_server_with_two_listings(ran: Any, config: Any) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(SCRIPT), json.dumps(SCRIPTED)]}
    file = config({"lib": entry})
    ran("lock", "--config", file)
    assert ran("check", "--config", file).returncode == 0
    codes = [one["code"] for one in json.loads(ran("doctor", "--json", "--config", file).stdout)]
    assert "changed" not in codes


def test_the_cost_in_the_style_in_use_is_the_total(ran: Any, library: str) -> None:
    cost = json.loads(ran("cost", "--json", "--config", library).stdout)
    assert "mooring" in [one["name"] for one in cost["servers"]]
    assert cost["styles"]["mcp"] == cost["total"]


def test_a_named_server_that_is_down_is_a_failure(ran: Any, library: str) -> None:
    for words in (["resources", "--server", "broken"], ["prompts", "--server", "broken"]):
        done = ran(*words, "--config", library)
        assert done.returncode == 1
        assert "Server 'broken' is missing" in done.stderr
    done = ran("prompt", "broken", "x", "--config", library)
    assert done.returncode == 1
    assert "cannot be listed" in done.stderr


def test_prompts_on_a_terminal(terminal: Any, library: str) -> None:
    assert terminal("prompts", "--config", library, "-q").text == snapshot("""\
lib
  greet who [tone]  Say hello to somebody.
""")


def test_prompts_in_a_pipe_and_as_json(ran: Any, library: str) -> None:
    assert ran("prompts", "--config", library, "-q").stdout == snapshot(
        "greet who [tone]\tlib\tSay hello to somebody.\n"
    )
    assert json.loads(ran("prompts", "--config", library, "--json").stdout)["prompts"] == snapshot(
        [
            {
                "name": "greet",
                "server": "lib",
                "title": None,
                "description": "Say hello to somebody.",
                "arguments": [
                    {"name": "who", "description": None, "required": True},
                    {"name": "tone", "description": None, "required": False},
                ],
            }
        ]
    )


def test_prompt_on_a_terminal(terminal: Any, library: str) -> None:
    assert terminal("prompt", "lib", "greet", "who=Ana", "--config", library).text == snapshot("""\
user:
greet {"who": "Ana"}
assistant:
Yes.
""")


def test_prompt_in_a_pipe_and_as_json(ran: Any, library: str) -> None:
    words = ("prompt", "lib", "greet", "who=Ana", "tone=warm", "--config", library)
    assert ran(*words).stdout == snapshot("""\
user:
greet {"tone": "warm", "who": "Ana"}
assistant:
Yes.
""")
    assert json.loads(ran(*words, "--json").stdout) == snapshot(
        {
            "server": "lib",
            "name": "greet",
            "messages": [
                {"role": "user", "content": {"type": "text", "text": 'greet {"tone": "warm", "who": "Ana"}'}},
                {"role": "assistant", "content": {"type": "text", "text": "Yes."}},
            ],
        }
    )


QUESTION = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "minLength": 2},
            "age": {"type": "integer", "description": "In years"},
            "password": {"type": "string"},
        },
        "required": ["name"],
    },
}


def test_a_question_is_asked_on_a_terminal(terminal: Any, library: str) -> None:
    arguments = json.dumps({"params": QUESTION})
    typed = "A\nAna\n40\n\ny\n"
    shown = terminal("call", "mcp_lib_ask", "--args", arguments, "--config", library, typed=typed)
    assert shown.code == 0
    assert '{"action": "accept", "content": {"name": "Ana", "age": 40}}' in shown.text.replace("\n", "")
    assert "The server 'lib' asks: Who are you?" in shown.text
    assert "seems to ask for a secret (password)" in shown.text.replace("\n", " ")
    assert "'name' must be at least 2 characters" in shown.text


def test_an_address_is_shown_and_never_opened(terminal: Any, library: str) -> None:
    link = {"mode": "url", "message": "Sign in.", "url": "https://login.example/x"}
    arguments = json.dumps({"params": link})
    words = ("call", "mcp_lib_ask", "--args", arguments, "--config", library)
    agreed = terminal(*words, typed="y\n", BROWSER="false")
    assert "login.example" in agreed.text
    assert '{"action": "accept"}' in agreed.text.replace("\n", "")
    assert '{"action": "decline"}' in terminal(*words, typed="\n").text.replace("\n", "")


def test_in_a_pipe_a_question_is_declined_with_a_note(ran: Any, library: str) -> None:
    done = ran("call", "mcp_lib_ask", "--args", json.dumps({"params": QUESTION}), "--config", library)
    assert (done.returncode, done.stdout) == (0, '{"action": "decline"}\n')
    assert "Who are you?" in done.stderr
    assert "Declined" in done.stderr


def test_resources_and_arguments_of_prompts_are_completed_from_the_lock(ran: Any, library: str) -> None:
    assert ran("--config", library, "lock").returncode == 11  # one server is broken, the others are written

    def ask(*typed: str) -> list[str]:
        return ran("completion", "--words", "--", "--config", library, *typed).stdout.split()

    assert sorted(ask("read", "memo:")) == ["memo:///", "memo:///logo", "memo:///shopping"]
    assert ask("prompt", "lib", "") == ["greet"]
    assert ask("prompt", "lib", "greet", "") == ["who=", "tone="]
    assert ask("prompt", "lib", "greet", "who=Ana", "") == ["tone="]


def test_the_tools_that_add_shows_are_the_tools_of_the_server(ran: Any, tmp_path: Path) -> None:
    shown = ran(
        "add", "lib", "--json", "--", sys.executable, "-I", "-S", str(SCRIPT), json.dumps(SCRIPTED)
    ).stdout
    probe = json.loads(shown)["probe"]
    assert (probe["resources"], probe["prompts"], "echo" in probe["tools"]) == (2, 1, True)
    assert not {"greet", "list_mcp_resources", "read_mcp_resource"} & set(probe["tools"])
