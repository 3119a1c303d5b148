"""Files edited in place: only the requested value changes, or nothing at all."""

from __future__ import annotations

import itertools
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.config import load
from mooring.config.documents import parse_document
from mooring.config.edit.text import Drop, Put, canonical_entry, edited, find, put_entry, switch
from mooring.config.files import backup_folder, save
from mooring.config.formats import read_shape
from mooring.config.models import ServerConfig
from mooring.core.names import look_alikes
from mooring.errors import ConfigError

JSON = """\
// who runs what
{
    "$schema": "x", /* a block */
    "mcpServers": {
        // the first
        "a": {"command": "a"}, // beside
        "b": {
            "command": "b" // inside
        }
        // the last
    },
    "style": "raw" // end
}
"""
TABS = '{\n\t"mcpServers": {\n\t\t"a": {"command": "a"}, // trailing comma\n\t},\n}\n'
LINE = '{"mcpServers": {"a": {"command": "a"}}}'
EMPTY = '{\n  "mcpServers": {}\n}\n'
YAML = """\
# who runs what
servers:
  # the first
  a:
    command: a   # beside
    args: [x, 'y']

  b: {command: b}   # in a line
  # the last
style: raw # end
"""
YAML_EMPTY = "servers: {}  # none yet\nstyle: raw\n"
YAML_FLOW = "mcpServers: {a: {command: a}} # all\nstyle: raw\n"
LISTED = "config:\n  servers:\n  - alias: a # one\n    command: a\n\n  # after\nid: x\n"
NESTED = "mcp:\n    enabled: true\n    servers:\n        a: # note\n            command: a\n"
TOML = """\
# who runs what
style = "raw" # beside

[servers.a]
command = "a" # inside

[servers.a.env]
X = '''
[servers.fake]
'''

# about the watch
[watch]
enabled = false # end
"""
CODEX = '[mcp_servers.a]\ncommand = "a"\n'
INLINE = '[servers]\na = {command = "a"} # one\n'
FILES = {
    "comments.json": JSON,
    "tabs.json": TABS,
    "line.json": LINE,
    "empty.json": EMPTY,
    "crlf.jsonc": JSON.replace("\n", "\r\n"),
    "block.yaml": YAML,
    "empty.yaml": YAML_EMPTY,
    "flow.yaml": YAML_FLOW,
    "listed.yaml": LISTED,
    "nested.yml": NESTED,
    "tables.toml": TOML,
    "codex.toml": CODEX,
    "inline.toml": INLINE,
}

words = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=12)
names = words.map(lambda text: text.replace("/", "").replace("\\", "").strip()).filter(
    lambda text: bool(text) and text.isprintable()
)
texts = words | st.sampled_from(["${TOKEN}", "yes", "1.10", "- a", "#x", 'a "b" c', "a: b", "null", "~", "'"])
entries = st.builds(
    lambda command, args, env: canonical_entry({"command": command, "args": args, "env": env}),
    st.sampled_from(["npx", "uvx", "/opt/x y"]),
    st.lists(texts, max_size=3),
    st.dictionaries(words.filter(lambda text: "=" not in text), texts, max_size=2),
)


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith(("#", "//"))]


def added(file: str, text: str, name: str, entry: dict[str, Any]) -> str:
    data = parse_document(text, Path(file))
    return edited(text, [put_entry(data, name, entry, own=False)], file=Path(file))


@settings(max_examples=60)
@given(file=st.sampled_from(sorted(FILES)), name=names, entry=entries)
def test_what_is_added_is_read_back_and_removing_it_leaves_the_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, file: str, name: str, entry: dict[str, Any]
) -> None:
    before = FILES[file]
    # One that is there, or looks like one that is, would be set aside.
    if any(look_alikes([*read_shape(parse_document(before, Path(file)), own=False).servers, name])) or (
        find(parse_document(before, Path(file)), name) is not None
    ):
        name += " unlike"
    after = added(file, before, name, entry)
    assert comments(after) == comments(before)
    path = tmp_path_factory.getbasetemp() / file
    path.write_bytes(after.encode())
    servers = {server.name: server for server in load([path], env={}).servers}
    assert servers[name] == ServerConfig(name=name, **entry)
    place = find(parse_document(after, Path(file)), name)
    assert place is not None
    assert edited(after, [Drop(path=place.path)], file=Path(file)) == before


@settings(max_examples=40)
@given(
    file=st.sampled_from(sorted(FILES)),
    steps=st.lists(
        st.tuples(st.sampled_from("ads"), st.sampled_from(["a", "b", "c", "x.y"]), entries), max_size=6
    ),
)
def test_any_sequence_of_edits_keeps_what_it_does_not_name(
    file: str, steps: list[tuple[str, str, dict[str, Any]]]
) -> None:
    path, text = Path(file), FILES[file]
    for step, name, entry in steps:
        data = parse_document(text, path)
        place = find(data, name)
        if step == "a":
            change: Put | Drop = put_entry(data, name, entry, own=False)
        elif place is None:
            continue
        else:
            change = Drop(path=place.path) if step == "d" else switch(place, on=False)
        text = edited(text, [change], file=path)  # refuses by itself if anything else has changed
    outer = [line for line in comments(FILES[file]) if "inside" not in line]
    assert comments(text) == outer or comments(text) == comments(FILES[file])


def test_a_switch_in_a_table_stands_before_the_comments_that_lead_to_the_next() -> None:
    text = '[mcp_servers.a]\ncommand = "npx"\n\n# about the next\n[watch]\nenabled = true\n'
    place = find(parse_document(text, Path("c.toml")), "a")
    assert place is not None
    after = edited(text, [switch(place, on=False)], file=Path("c.toml"))
    assert after.index("# about the next") > after.index("enabled = false")


gaps = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // §\n", " /* § */ ", "\n/* §\n § */\n"])


@settings(max_examples=100)
@given(around=st.lists(gaps, min_size=1, max_size=17), count=st.integers(0, 3), trailing=st.booleans())
def test_json_laid_out_in_any_way_keeps_all_its_comments(
    around: list[str], count: int, trailing: bool
) -> None:
    blank = itertools.cycle(around)

    def laid_out(members: dict[str, str]) -> str:
        items = [f'"{key}"{next(blank)}:{next(blank)}{value}{next(blank)}' for key, value in members.items()]
        end = f",{next(blank)}" if trailing and items else ""
        return f"{{{next(blank)}{f',{next(blank)}'.join(items)}{end}}}"

    servers = laid_out({f"s{n}": laid_out({"command": '"x"'}) for n in range(count)})
    text = next(blank) + laid_out({"mcpServers": servers, "z": "1"})
    file = Path("x.json")
    after = added("x.json", text, "new", {"command": "n"})
    back = edited(after, [Drop(path=("mcpServers", "new"))], file=file)
    assert after.count("§") == back.count("§") == text.count("§")
    for number in range(count):
        edited(text, [Put(path=("mcpServers", f"s{number}", "disabled"), value=True)], file=file)
        edited(text, [Drop(path=("mcpServers", f"s{number}"))], file=file)


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_server_is_switched_off_and_on_in_place(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    text = (
        FILES[file]
        if find(parse_document(FILES[file], path), "a")
        else added(file, FILES[file], "a", {"command": "a"})
    )
    for on in (False, True):
        place = find(parse_document(text, path), "a")
        assert place is not None
        text = edited(text, [switch(place, on=on)], file=path)
        path.write_bytes(text.encode())
        assert [s.disabled for s in load([path], env={}).servers if s.name == "a"] == [not on]
    assert comments(text) == comments(FILES[file])


def test_the_word_that_the_entry_uses_is_the_one_that_changes() -> None:
    text = 'mcpServers:\n  a: {command: a, enabled: "true"} # mine\n'
    place = find(parse_document(text, Path("x.yaml")), "a")
    assert place is not None
    off = edited(text, [switch(place, on=False)], file=Path("x.yaml"))
    assert off == "mcpServers:\n  a: {command: a, enabled: false} # mine\n"


@pytest.mark.parametrize("name", ["new.json", "new.yaml", "new.toml"])
def test_a_new_file_is_made_of_nothing(name: str) -> None:
    text = edited("", [Put(path=("servers", "a"), value={"command": "a"})], file=Path(name))
    assert parse_document(text, Path(name)) == {"servers": {"a": {"command": "a"}}}


def test_a_place_with_nothing_in_it_is_used() -> None:
    text = "mcp:\n  servers:\n  # none yet\n"
    assert added("x.yaml", text, "a", {"command": "a"}) == (
        "mcp:\n  servers:\n    a:\n      command: a\n  # none yet\n"
    )


def test_a_file_of_comments_alone_is_filled() -> None:
    text = edited("# mine\n", [Put(path=("servers", "a"), value={"command": "a"})], file=Path("x.yaml"))
    assert text == "# mine\nservers:\n  a:\n    command: a\n"


def test_what_cannot_be_changed_alone_is_refused() -> None:
    text = "base: &base {command: a}\nservers: &all\n  a: *base\nagain: *all\n"
    with pytest.raises(ConfigError, match="without changing other parts"):
        edited(text, [Put(path=("servers", "b"), value={"command": "b"})], file=Path("x.yaml"))


def test_an_address_gets_the_type_that_other_readers_of_the_file_need() -> None:
    change = put_entry({"mcpServers": {}}, "a", {"url": "https://x.example.com"}, own=False)
    assert change.value == {"type": "http", "url": "https://x.example.com"}
    own = put_entry({"servers": {}}, "a", {"url": "https://x.example.com"}, own=True)
    assert own.value == {"url": "https://x.example.com"}
    codex = put_entry(
        {"mcp_servers": {}}, "a", {"url": "https://x.example.com", "headers": {"A": "b"}}, own=False
    )
    assert codex.value == {"url": "https://x.example.com", "http_headers": {"A": "b"}}


def test_saving_keeps_mode_link_mark_and_what_was_there(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"\xef\xbb\xbf{}\n")
    real.chmod(0o640)
    link.symlink_to(real)
    backup = save(link, '{"a": 1}\n', before="{}\n")
    assert link.is_symlink()
    assert real.read_bytes() == b'\xef\xbb\xbf{"a": 1}\n'
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert backup is not None
    assert backup.read_bytes() == b"\xef\xbb\xbf{}\n"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("theirs")
    with pytest.raises(ConfigError, match="changed meanwhile"):
        save(file, "ours", before="before")
    assert file.read_text() == "theirs"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/x.json: cannot be written: "):
        save(tmp_path / "file" / "x.json", "{}", before=None)


def test_the_oldest_backups_go(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("0")
    for number in range(25):
        save(file, str(number + 1), before=str(number))
    kept = sorted(backup_folder(file).iterdir())
    assert [path.read_text() for path in kept] == [str(number) for number in range(5, 25)]


def test_a_new_file_of_the_user_is_private(tmp_path: Path) -> None:
    save(tmp_path / "deep" / "config.json", json.dumps({}), before=None, private=True)
    assert stat.S_IMODE((tmp_path / "deep" / "config.json").stat().st_mode) == 0o600


def test_a_toml_file_with_other_line_separators_in_a_comment_is_edited_at_the_right_lines() -> None:
    head = '[servers.a]\ncommand = "x"\n# \u2028 \u0085\n'
    text = head + '[servers.b]\ncommand = "y"\n[servers.c]\ncommand = "z"\n'
    kept = edited(text, [Drop(path=("servers", "b"))], file=Path("m.toml"))
    assert kept == head + '[servers.c]\ncommand = "z"\n'
