"""What the commands show that write files, on a terminal, in a pipe and as JSON: the forms that the tests
of each command leave out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

ENTRIES = {
    "a": {"command": "a", "args": ["--root", "."], "env": {"API_TOKEN": "abcdef-123456"}},
    "web": {"url": "https://example.com/mcp"},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": ENTRIES}, indent=2))
    return file


@pytest.fixture
def locked(ran, config, lab) -> str:
    """A lock, and a server that has changed since."""
    file = config({"lab": lab.entry, "clock": "clock"})
    assert ran("lock", "--config", file).returncode == 0
    lab.offers(read="Read it otherwise.", send="Send a letter.")
    return file


def plain(text: str, folder: Path) -> str:
    """The text with paths made equal; a path may be broken over two lines."""
    text = re.sub(r"\S*/backups/\S+(\n\S+\.json\b)?", "BACKUP", text)
    return re.sub(r"\n?".join(map(re.escape, str(folder))), "DIR", text)


def document(done: Any, folder: Path) -> Any:
    return json.loads(plain(done.stdout, folder))


# --- remove, enable, disable


def test_remove_on_a_terminal(terminal, project, tmp_path) -> None:
    shown = terminal("remove", "web", columns=200)
    assert (shown.code, plain(shown.text, tmp_path)) == snapshot(
        (0, "note: Removed web from ~/.mcp.json. Backup: BACKUP\n")
    )


def test_disable_and_enable_on_a_terminal(terminal, project, tmp_path) -> None:
    shown = [terminal(command, "a", columns=200) for command in ("disable", "disable", "enable")]
    assert [(one.code, plain(one.text, tmp_path)) for one in shown] == snapshot(
        [
            (0, "note: Disabled a in ~/.mcp.json. Backup: BACKUP\n"),
            (0, "note: a is already disabled in ~/.mcp.json.\n"),
            (0, "note: Enabled a in ~/.mcp.json. Backup: BACKUP\n"),
        ]
    )


def test_disable_as_json(ran, project, tmp_path) -> None:
    done = ran("disable", "web", "--json")
    assert (done.returncode, document(done, tmp_path)) == snapshot(
        (
            0,
            {
                "name": "web",
                "url": "https://example.com/mcp",
                "disabled": True,
                "file": "DIR/.mcp.json",
                "scope": "project",
            },
        )
    )


def test_add_on_a_terminal_of_50_columns(terminal, project, lab) -> None:
    shown = terminal("add", "lab", "--", lab.entry["command"], *lab.entry["args"], columns=50)
    assert (shown.code, shown.text.partition("note: ")[0]) == snapshot(
        (
            0,
            """\
✓ lab: connected, protocol 2025-11-25, 2 tools,
    0 resources, 0 prompts
    read, send
""",
        )
    )


# --- import and export


def test_import_where_nothing_is_found_on_a_terminal_of_50_columns(terminal) -> None:
    shown = terminal("import", columns=50)
    assert (shown.code, shown.text) == snapshot(
        (
            0,
            "No file of a supported program was found.\n",
        )
    )


def test_export_on_a_terminal_of_50_columns(terminal, project, tmp_path) -> None:
    shown = terminal("export", "cursor", "--dry-run", "--to", "c.json", columns=50)
    assert (shown.code, plain(shown.text, tmp_path)) == snapshot(
        (
            0,
            """\
+ a  Cursor
    env.API_TOKEN holds a secret, which is not
    copied: set it in Cursor
+ web  Cursor

--- /dev/null
+++ DIR/c.json
@@ -0,0 +1,11 @@
+{
+  "mcpServers": {
+    "a": {
+      "command": "a",
+      "args": ["--root", "."]
+    },
+    "web": {
+      "url": "https://example.com/mcp"
+    }
+  }
+}
note: Dry run: ~/c.json was not changed.
""",
        )
    )


def test_export_as_json(ran, project, tmp_path) -> None:
    done = ran("export", "cursor", "--dry-run", "--json", "--to", "c.json")
    report = document(done, tmp_path)
    assert report.pop("diff").startswith("--- /dev/null\n+++ DIR/c.json\n")
    assert (done.returncode, report) == snapshot(
        (
            0,
            {
                "program": "cursor",
                "file": "DIR/c.json",
                "written": False,
                "servers": [
                    {
                        "name": "a",
                        "action": "add",
                        "reason": None,
                        "notes": ["env.API_TOKEN holds a secret, which is not copied: set it in Cursor"],
                        "entry": {"command": "a", "args": ["--root", "."]},
                    },
                    {
                        "name": "web",
                        "action": "add",
                        "reason": None,
                        "notes": [],
                        "entry": {"url": "https://example.com/mcp"},
                    },
                ],
            },
        )
    )


# --- lock, check, approve


def test_lock_on_a_terminal(terminal, config, lab, tmp_path) -> None:
    file = config({"lab": lab.entry, "broken": "broken"})
    shown = terminal("lock", "--config", file, columns=200)
    assert (shown.code, plain(shown.text, tmp_path)) == snapshot(
        (
            11,
            """\
✗ broken  unreachable
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
+ lab     new          2 tools
note: Wrote DIR/mooring.lock: 1 server, 2 tools. 1 server could not be reached.
""",
        )
    )


def test_lock_on_a_terminal_of_50_columns(terminal, locked, tmp_path) -> None:
    shown = terminal("lock", "--check-only", "--quiet", "--config", locked, columns=50)
    assert (shown.code, plain(shown.text, tmp_path)) == snapshot(
        (
            10,
            """\
✓ clock  same     2 tools
~ lab    changed  1 change
    Tool 'read' of server 'lab' is not what was
    approved: description changed (text):
      description (text)
        - "Read a file."
        + "Read it otherwise."
""",
        )
    )


def test_check_ends_with_the_number_of_servers_that_match_or_could_not_be_reached(
    ran, config, lab, tmp_path
) -> None:
    ran("lock", "--config", config({"lab": lab.entry, "clock": "clock"}))
    done = ran("check", "--config", config({"lab": lab.entry, "clock": "clock"}))
    assert (done.returncode, plain(done.stderr, tmp_path)) == (
        0,
        "note: DIR/mooring.lock: 2 servers match.\n",
    )
    done = ran("check", "--config", config({"lab": lab.entry, "clock": "broken"}))
    assert done.returncode == 11
    assert plain(done.stderr, tmp_path).endswith(
        "note: DIR/mooring.lock: 1 server matches, 1 server could not be reached.\n"
    )


def test_check_in_a_pipe(ran, locked, tmp_path) -> None:
    done = ran("check", "--config", locked)
    assert (done.returncode, done.stdout, plain(done.stderr, tmp_path)) == snapshot(
        (
            10,
            """\
✓ clock  same     2 tools
~ lab    changed  1 change
    Tool 'read' of server 'lab' is not what was approved: description changed (text):
      description (text)
        - "Read a file."
        + "Read it otherwise."
    Accept it with `mooring approve lab/read`.
""",
            "note: DIR/mooring.lock: 1 server matches, 1 server differs. "
            "Accept one with `mooring approve SERVER`, or all with `mooring lock`.\n",
        )
    )


def test_approve_on_a_terminal(terminal, locked) -> None:
    shown = terminal("approve", "lab/read", "--yes", "--config", locked)
    assert (shown.code, shown.text) == snapshot(
        (
            0,
            """\
Tool 'read' of server 'lab' is not what was approved: description changed
(text):
  description (text)
    - "Read a file."
    + "Read it otherwise."
note: Approved 1 change of lab/read.
""",
        )
    )


# --- trust


def test_trust_on_a_terminal(terminal, project, tmp_path) -> None:
    shown = terminal("trust", "--yes", columns=200)
    assert (shown.code, plain(shown.text, tmp_path)) == snapshot(
        (
            0,
            """\
DIR/.mcp.json

server 'a' (new)
  runs     a --root .
  env      API_TOKEN=***

server 'web' (new)
  reaches  https://example.com/mcp (http)
note: DIR/.mcp.json is approved on this machine.
""",
        )
    )


def test_trust_in_a_pipe(piped, project, tmp_path) -> None:
    done = piped("trust")
    assert (done.returncode, plain(done.stdout, tmp_path), plain(done.stderr, tmp_path)) == snapshot(
        (
            3,
            """\
DIR/.mcp.json

server 'a' (new)
  runs     a --root .
  env      API_TOKEN=***

server 'web' (new)
  reaches  https://example.com/mcp (http)
""",
            "error: Nothing was approved. There is no terminal to confirm it on: "
            "review the output, then use --yes.\n",
        )
    )
    assert plain(piped("trust", "--yes").stderr, tmp_path) == snapshot(
        "note: DIR/.mcp.json is approved on this machine.\n"
    )
    assert plain(piped("trust", "--list").stdout, tmp_path) == snapshot("DIR/.mcp.json\n")
    assert plain(piped("trust", "--revoke").stderr, tmp_path) == snapshot(
        "note: DIR/.mcp.json is no longer approved.\n"
    )


def test_trust_as_json(piped, project, tmp_path) -> None:
    done = piped("trust", "--json", "--yes")
    assert (done.returncode, document(done, tmp_path)) == snapshot(
        (
            0,
            {
                "file": "DIR/.mcp.json",
                "approved": True,
                "servers": [
                    {
                        "name": "a",
                        "status": "new",
                        "transport": "stdio",
                        "command": "a",
                        "args": ["--root", "."],
                        "cwd": None,
                        "env": {"API_TOKEN": "***"},
                        "inherit_env": [],
                        "url": None,
                        "headers": {},
                        "refused": [],
                        "text": """\
server 'a'
  runs     a --root .
  env      API_TOKEN=***\
""",
                    },
                    {
                        "name": "web",
                        "status": "new",
                        "transport": "http",
                        "command": None,
                        "args": [],
                        "cwd": None,
                        "env": {},
                        "inherit_env": [],
                        "url": "https://example.com/mcp",
                        "headers": {},
                        "refused": [],
                        "text": """\
server 'web'
  reaches  https://example.com/mcp (http)\
""",
                    },
                ],
                "settings": {},
                "settings_status": None,
            },
        )
    )
    assert document(piped("trust", "--json", "--list"), tmp_path) == snapshot({"files": ["DIR/.mcp.json"]})
    assert document(piped("trust", "--json", "--revoke"), tmp_path) == snapshot(
        {"file": "DIR/.mcp.json", "approved": False, "revoked": True}
    )
