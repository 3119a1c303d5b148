"""`add`, `remove`, `enable` and `disable`, as a user sees them. How files are edited is in tests/config."""

import json
import re
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from mooring import demo

NOTES = demo.command("notes")
SECRET = "ghp_hunter2hunter2hunter2"

MCP = """\
{
  // shared with everybody
  "mcpServers": {
    "a": {"command": "a"} // first
  }
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    file = tmp_path / ".mcp.json"
    file.write_text(MCP)
    return file


def plain(text: str, folder: Path) -> str:
    """The text with what differs between two runs made equal."""
    text = re.sub(r"\S*/backups/\S+", "BACKUP", text)
    return text.replace(str(folder), "DIR").replace(sys.executable, "python").replace(NOTES[-1], "notes.py")


def test_add_in_a_pipe(piped, project, tmp_path) -> None:
    done = piped("add", "notes", "--", *NOTES)
    assert (done.returncode, plain(done.stdout, tmp_path), plain(done.stderr, tmp_path)) == snapshot(
        (
            0,
            """\
✓ notes: connected, protocol 2025-11-25, 3 tools, 0 resources, 0 prompts
    list_notes, read_note, write_note
""",
            "note: Added notes to ~/.mcp.json. Backup: BACKUP\n",
        )
    )
    assert plain(project.read_text(), tmp_path) == snapshot("""\
{
  // shared with everybody
  "mcpServers": {
    "a": {"command": "a"}, // first
    "notes": {
      "command": "python",
      "args": ["-S", "notes.py"]
    }
  }
}
""")


def test_add_on_a_terminal(terminal, tmp_path) -> None:
    shown = terminal("--config", "c.yaml", "add", "notes", "--", *NOTES)
    assert shown.code == 0
    assert shown.text.splitlines()[:2] == snapshot(
        [
            "✓ notes: connected, protocol 2025-11-25, 3 tools, 0 resources, 0 prompts",
            "    list_notes, read_note, write_note",
        ]
    )
    assert "note: Added notes to" in shown.text
    assert plain((tmp_path / "c.yaml").read_text(), tmp_path) == snapshot("""\
mcpServers:
  notes:
    command: python
    args:
      - -S
      - notes.py
""")


def test_add_as_json(ran, project, tmp_path) -> None:
    done = ran("add", "notes", "--json", "--env", "LEVEL=debug", "--", *NOTES)
    document = json.loads(done.stdout)
    assert json.loads(plain(json.dumps(document), tmp_path)) == snapshot(
        {
            "name": "notes",
            "command": "python",
            "args": ["-S", "notes.py"],
            "env": {"LEVEL": "debug"},
            "file": "DIR/.mcp.json",
            "scope": "project",
            "written": True,
            "probe": {
                "state": "connected",
                "transport": "stdio",
                "protocol": "2025-11-25",
                "resources": 0,
                "prompts": 0,
                "error": None,
                "tools": ["list_notes", "read_note", "write_note"],
            },
        }
    )


def test_a_server_that_fails_is_not_written(ran, project) -> None:
    done = ran("add", "bad", "--", *demo.command("broken"))
    assert done.returncode == 1
    assert "cannot read /etc/broken.conf" in done.stdout
    assert "was not added to" in done.stderr
    assert "--no-probe" in done.stderr
    assert project.read_text() == MCP


def test_a_server_that_fails_is_written_with_no_probe(ran, project) -> None:
    assert ran("add", "bad", "--no-probe", "--", "no-such-program").returncode == 0
    assert '"bad": {\n      "command": "no-such-program"\n    }' in project.read_text()


def test_a_missing_variable_is_named_and_nothing_is_written(ran, project) -> None:
    done = ran("add", "x", "--env", "TOKEN=${NO_SUCH_VARIABLE}", "--", *NOTES)
    assert done.returncode == 1
    assert "${NO_SUCH_VARIABLE}" in done.stdout
    assert project.read_text() == MCP


def test_a_name_that_is_taken_is_refused_with_the_way_out(ran, project) -> None:
    done = ran("add", "a", "--", *NOTES)
    assert done.returncode == 2
    assert "already has a server 'a'; choose another name, or use --force to replace it" in done.stderr
    assert ran("add", "a", "--force", "--", *NOTES).returncode == 0
    assert "// first" in project.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["--env", f"API_TOKEN={SECRET}", "--", "x"],
        ["--url", "https://x.example.com", "--header", f"Authorization: Bearer {SECRET}"],
        ["--url", f"https://x.example.com/?api_key={SECRET}"],
        ["--", "x", "--api-key", SECRET],
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_secret_on_the_command_line_is_warned_of_and_never_shown(ran, project, words, form) -> None:
    done = ran("add", "x", "--no-probe", *form, *words)
    assert done.returncode == 0
    assert "looks like a secret" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "x"], "Use either --url, or a program after `--`"),
        (["add", "x", "--url", "https://x.example.com", "--", "y"], "Use either --url, or a program"),
        (["add", "x", "npx", "-y", "pkg"], "Write the program and its arguments after `--`."),
        (["add", "x", "--env", SECRET, "--", "y"], "--env must be NAME=value"),
        (["add", "x", "--header", "A: b", "--", "y"], "--header cannot be used with a program"),
        (["add", "x", "--env", "A=b", "--url", "https://x.example.com"], "--env cannot be used with --url"),
        (["add", "x/y", "--", "y"], "must be a name without slashes"),
        (["add", "x", "--url", "ftp://x"], "must start with http:// or https://"),
        (["remove", "aa"], "There is no server 'aa'. Did you mean 'a'?"),
        (["enable", "aa"], "There is no server 'aa'. Did you mean 'a'?"),
    ],
)
def test_a_mistake_is_explained_and_changes_nothing(ran, project, words, message) -> None:
    done = ran(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "hunter2" not in done.stderr
    assert project.read_text() == MCP


def test_a_server_that_needs_a_login_is_written_and_said(ran, project, needs_login) -> None:
    done = ran("add", "web", "--url", needs_login)
    assert done.returncode == 0
    assert "needs-auth" in done.stdout
    assert "`mooring login web`" in done.stderr
    assert '"type": "http"' in project.read_text()


@pytest.fixture
def needs_login():
    """The URL of a server that rejects every request."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refuses)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_users_file_is_made_where_there_is_no_other(piped, tmp_path) -> None:
    done = piped("add", "a", "--no-probe", "--", "a")
    file = tmp_path / "home" / "config.yaml"  # MOORING_HOME
    assert file.read_text() == "servers:\n  a:\n    command: a\n"
    assert "Added a to ~/home/config.yaml. The file is new." in done.stderr


def test_the_scope_chooses_the_file(piped, project, tmp_path) -> None:
    assert piped("add", "b", "--no-probe", "--scope", "user", "--", "b").returncode == 0
    assert project.read_text() == MCP
    assert (tmp_path / "home/config.yaml").exists()
    assert piped("add", "a", "--no-probe", "--scope", "user", "--", "other").returncode == 0
    done = piped("remove", "a")
    assert "a is also defined in" in done.stderr


def test_remove_in_a_pipe(piped, project, tmp_path) -> None:
    piped("add", "b", "--no-probe", "--", "b")
    done = piped("remove", "b")
    assert (done.returncode, done.stdout, plain(done.stderr, tmp_path)) == snapshot(
        (0, "", "note: Removed b from ~/.mcp.json. Backup: BACKUP\n")
    )
    assert project.read_text() == MCP


def test_remove_as_json_shows_the_entry_without_its_secrets(ran, project) -> None:
    ran("add", "b", "--no-probe", "--env", f"TOKEN={SECRET}", "--", "b")
    done = ran("remove", "b", "--json")
    document = json.loads(done.stdout)
    assert document == {
        "name": "b",
        "command": "b",
        "env": {"TOKEN": "***"},
        "file": str(project),
        "scope": "project",
    }


def test_disable_and_enable_in_a_pipe(piped, project, tmp_path) -> None:
    off, again = piped("disable", "a"), piped("disable", "a")
    assert [plain(done.stderr, tmp_path) for done in (off, again)] == snapshot(
        [
            "note: Disabled a in ~/.mcp.json. Backup: BACKUP\n",
            "note: a is already disabled in ~/.mcp.json.\n",
        ]
    )
    assert '"a": {"command": "a", "disabled": true} // first' in project.read_text()
    on = piped("enable", "a", "--json")
    assert json.loads(on.stdout) == {
        "name": "a",
        "command": "a",
        "disabled": False,
        "file": str(project),
        "scope": "project",
    }


def test_disable_on_a_terminal(terminal, project) -> None:
    shown = terminal("disable", "a")
    assert shown.code == 0
    assert shown.text.startswith("note: Disabled a in")


def test_enabling_a_server_that_stays_off_says_so(ran, tmp_path) -> None:
    (tmp_path / "mooring.yaml").write_text(
        "enabled_servers: [b]\nservers:\n  a: {command: a, disabled: true}\n  b: {command: b}\n"
    )
    assert "`enabled_servers` does not list it" in ran("enable", "a").stderr


def test_a_broken_file_is_named_with_its_line(ran, tmp_path) -> None:
    (tmp_path / "mooring.toml").write_text('[servers.a]\ncommand = "a\n')
    done = ran("remove", "a")
    assert done.returncode == 2
    assert "mooring.toml: line 2" in done.stderr
