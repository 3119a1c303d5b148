# ruff: noqa: E501 (files and output stand here as they are)
"""`import` and `export`, as a user sees them. What each program's file means is in tests/config."""

import json
import re
from pathlib import Path

import pytest
from inline_snapshot import snapshot

SECRET = "hunter2-very-secret"
CURSOR = """\
{"mcpServers": {
  "github": {"url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer hunter2-very-secret"}},
  "files": {"command": "npx", "args": ["-y", "fs"], "env": {"ROOT": "${env:ROOT}"}, "envFile": ".env"}
}}
"""
OWN = "# mine\nservers:\n  files: {command: other, env: {API_KEY: hunter2-very-secret}}\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A home with a configuration of ours, and a few of other programs."""
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(CURSOR)
    zed = tmp_path / "config" / "zed" / "settings.json"
    zed.parent.mkdir(parents=True)
    zed.write_text('{"theme": "dark", "context_servers": {')
    claude = tmp_path / ".claude.json"
    claude.write_text(
        '{"mcpServers": {"gh": {"type": "http", "url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}}}}'
    )
    (tmp_path / "mooring.yaml").write_text(OWN)
    return tmp_path


def plain(text: str, folder: Path) -> str:
    text = re.sub(r"\S*/backups/\S+", "BACKUP", text)
    return text.replace(str(folder), "DIR")


def test_import_in_a_pipe_shows_everything_and_writes_nothing(piped, machine) -> None:
    done = piped("import")
    assert done.returncode == 3
    assert plain(done.stdout, machine) == snapshot("""\
Claude Code  1 server   ~/.claude.json
Cursor       2 servers  ~/.cursor/mcp.json
Zed          ?          ~/config/zed/settings.json
    DIR/config/zed/settings.json: line 1, column 39: is not valid JSON: the file ends inside the "{" of line 1; add the missing "}"

+ gh  Claude Code
· github  Cursor
    is already configured as 'gh'
· files  Cursor
    another server of that name is configured already; --rename imports it as 'files-cursor', --force replaces the other

--- DIR/mooring.yaml
+++ DIR/mooring.yaml
@@ -2,2 +2,6 @@
 servers:
   files: {command: other, env: {API_KEY: ***}}
+  gh:
+    url: https://api.example.com/mcp
+    headers:
+      Authorization: Bearer ${GITHUB_TOKEN}
""")
    assert done.stderr == snapshot(
        "error: Nothing was written. There is no terminal to confirm it on: review the output, then use --yes.\n"
    )
    assert (machine / "mooring.yaml").read_text() == OWN


def test_import_with_yes_writes_and_finds_nothing_new_afterwards(piped, machine) -> None:
    done = piped("import", "--yes", "--rename")
    assert done.returncode == 0
    assert (machine / "mooring.yaml").read_text() == snapshot("""\
# mine
servers:
  files: {command: other, env: {API_KEY: hunter2-very-secret}}
  gh:
    url: https://api.example.com/mcp
    headers:
      Authorization: Bearer ${GITHUB_TOKEN}
  files-cursor:
    command: npx
    args:
      - -y
      - fs
    env:
      ROOT: ${ROOT}
""")
    assert (machine / ".cursor/mcp.json").read_text() == CURSOR
    assert "Nothing to write." in piped("import", "--yes", "--rename").stderr


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 3)])
def test_import_on_a_terminal_asks(terminal, machine, typed: str, code: int) -> None:
    shown = terminal("import", "cursor", "--server", "github", typed=typed)
    assert shown.code == code
    assert "Write 1 server into" in shown.text
    assert "+  github:" in shown.text
    assert "hunter2" not in shown.raw
    assert ("github" in (machine / "mooring.yaml").read_text()) == (code == 0)


def test_import_on_a_terminal_of_80_columns(terminal, machine) -> None:
    shown = terminal("import", "cursor", "--dry-run", HOME=str(machine))
    assert plain(shown.text, machine).splitlines()[:9] == snapshot(
        [
            "Cursor  2 servers  ~/.cursor/mcp.json",
            "",
            "+ github  Cursor",
            "    headers.Authorization held a secret, which was not copied: set GITHUB_TOKEN",
            "    in the environment",
            "· files  Cursor",
            "    another server of that name is configured already; --rename imports it as",
            "    'files-cursor', --force replaces the other",
            "",
        ]
    )


def test_import_as_json(piped, machine) -> None:
    done = piped("import", "cursor", "--dry-run", "--json")
    document = json.loads(plain(done.stdout, machine))
    diff = document.pop("diff")
    assert diff.startswith("--- DIR/mooring.yaml\n+++ DIR/mooring.yaml\n@@")
    assert document == snapshot(
        {
            "file": "DIR/mooring.yaml",
            "scope": "project",
            "written": False,
            "found": [{"program": "cursor", "file": "DIR/.cursor/mcp.json", "servers": 2, "error": None}],
            "servers": [
                {
                    "name": "github",
                    "program": "cursor",
                    "file": "DIR/.cursor/mcp.json",
                    "action": "add",
                    "reason": None,
                    "notes": [
                        "headers.Authorization held a secret, which was not copied: set GITHUB_TOKEN in the environment"
                    ],
                    "entry": {
                        "url": "https://api.example.com/mcp",
                        "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
                    },
                },
                {
                    "name": "files",
                    "program": "cursor",
                    "file": "DIR/.cursor/mcp.json",
                    "action": "skip",
                    "reason": "another server of that name is configured already; --rename imports it as 'files-cursor', --force replaces the other",
                    "notes": [
                        "'envFile' is ignored; write the variables under 'env', as ${VAR} where they are secret"
                    ],
                    "entry": {"command": "npx", "args": ["-y", "fs"], "env": {"ROOT": "${ROOT}"}},
                },
            ],
        }
    )


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "words", [["import", "--dry-run"], ["import", "--force", "--yes"], ["export", "cursor", "--dry-run"]]
)
def test_no_secret_is_shown_or_copied(piped, machine, words, form) -> None:
    done = piped(*words, *form)
    assert "hunter2" not in done.stdout + done.stderr
    assert (machine / "mooring.yaml").read_text().count("hunter2") <= 1  # the one that was there


def test_an_unapproved_project_file_does_not_keep_a_server_from_being_imported(ran, tmp_path) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"theirs": {"command": "gizmo"}}}')
    (tmp_path / "other.json").write_text('{"mine": {"command": "gizmo"}}')
    done = ran("import", "--from", "other.json", "--yes", "--json")
    assert json.loads(done.stdout)["servers"][0]["action"] == "add"
    assert "mine" in ran("list").stdout


def test_import_from_a_file_of_no_known_program(ran, tmp_path) -> None:
    (tmp_path / "other.json").write_text('{"a": {"command": "a", "env": {"K": "${env:K}"}}}')
    done = ran("import", "--from", "other.json", "--yes", "--config", "new.json")
    assert done.returncode == 0
    assert json.loads((tmp_path / "new.json").read_text()) == {
        "mcpServers": {"a": {"command": "a", "env": {"K": "${K}"}}}
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "curser"], "'curser' is not a program whose files mooring knows. Did you mean 'cursor'"),
        (["import", "cursor", "--from", "none.json"], "none.json: there is no such file"),
        (["import", "cursor", "--from", "empty.json"], "has no servers in the format of Cursor"),
        (["export", "docker"], "Docker MCP cannot be exported to"),
        (["export", "claude-desktop", "--scope", "project"], "Claude Desktop has no project file"),
        (["export", "cursor", "--server", "x"], "There is no server 'x'"),
        (["export", "cursor", "--gateway", "ftp://x"], "must start with http:// or https://"),
        (["export"], "Missing: PROGRAM"),
    ],
)
def test_a_mistake_is_explained(ran, tmp_path, words, message) -> None:
    (tmp_path / "empty.json").write_text('{"other": 1}')
    done = ran(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_import_where_nothing_is_found(ran) -> None:
    done = ran("import")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "No file of a supported program was found.",
    )


def test_export_in_a_pipe(piped, machine) -> None:
    (machine / "mooring.yaml").write_text(
        "servers:\n"
        "  web: {url: 'https://w.example.com/mcp', headers: {Authorization: 'Bearer ${W}'}}\n"
        "  old: {transport: sse, url: 'https://o.example.com', call_timeout: 5}\n"
        "  files: {command: x, env: {K: '${keyring:k}'}}\n"
    )
    done = piped("export", "cursor", "--yes")
    assert done.returncode == 0
    assert plain(done.stdout, machine) == snapshot("""\
+ web  Cursor
+ old  Cursor
    not carried over: call_timeout
· files  Cursor
    Cursor has a different entry with this name; --force replaces it

--- DIR/.cursor/mcp.json
+++ DIR/.cursor/mcp.json
@@ -1,4 +1,13 @@
 {"mcpServers": {
   "github": {"url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer ***"}},
-  "files": {"command": "npx", "args": ["-y", "fs"], "env": {"ROOT": "${env:ROOT}"}, "envFile": ".env"}
+  "files": {"command": "npx", "args": ["-y", "fs"], "env": {"ROOT": "${env:ROOT}"}, "envFile": ".env"},
+  "web": {
+    "url": "https://w.example.com/mcp",
+    "headers": {
+      "Authorization": "Bearer ${env:W}"
+    }
+  },
+  "old": {
+    "url": "https://o.example.com"
+  }
 }}
""")
    assert plain(done.stderr, machine) == snapshot("note: Wrote ~/.cursor/mcp.json. Backup: BACKUP\n")
    assert '"github"' in (machine / ".cursor/mcp.json").read_text()


def test_export_on_a_terminal_asks(terminal, machine) -> None:
    (machine / "mooring.yaml").write_text("servers:\n  a: {command: a}\n")
    shown = terminal("export", "claude-code", typed="n\n")
    assert shown.code == 3
    assert "Nothing was written." in shown.text
    shown = terminal("export", "claude-code", typed="y\n")
    assert shown.code == 0
    assert json.loads((machine / ".claude.json").read_text())["mcpServers"]["a"] == {
        "command": "a",
        "args": [],
    }


def test_export_of_the_gateway_runs_mooring_with_the_named_files(ran, tmp_path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text("{}")
    done = ran(
        "export", "claude-code", "--gateway", "--yes", "--json", "--config", str(config), "--to", "c.json"
    )
    assert done.returncode == 0
    entry = json.loads((tmp_path / "c.json").read_text())["mcpServers"]["mooring"]
    assert entry["args"][-4:] == ["serve", "--stdio", "--config", str(config)]
    assert json.loads(done.stdout)["servers"][0]["entry"] == entry


def test_export_of_the_gateway_by_its_address(ran, tmp_path) -> None:
    assert (
        ran(
            "export", "vscode", "--gateway", "http://127.0.0.1:8000/mcp", "--yes", "--to", "v.json"
        ).returncode
        == 0
    )
    assert json.loads((tmp_path / "v.json").read_text()) == {
        "servers": {"mooring": {"type": "http", "url": "http://127.0.0.1:8000/mcp"}}
    }
