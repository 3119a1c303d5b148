"""The text of a lock: complete, reviewable and canonical; edits are detected."""

from __future__ import annotations

import json
from dataclasses import replace
from difflib import unified_diff
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import ServerConfig
from mooring.config.plan import fingerprint
from mooring.core.skills import read_skill_entry
from mooring.core.types import ServerInfo, Snapshot
from mooring.lock import LockError, NewerLockError
from mooring.lock.compare import Lock, build, compare
from mooring.lock.text import FORMAT, parse, render
from tests.lab.offers import FILES, PRINT, of, quick, shuffled, snapshot, snapshots, tool

LOCK = build([FILES], {"files": PRINT})
TEXT = render(LOCK)


def edited(change: Any) -> str:
    document = json.loads(TEXT)
    change(document)
    return json.dumps(document)


# --- writing


def test_a_text_of_several_lines_is_written_as_a_list_of_its_lines() -> None:
    text = render(build([snapshot(tool("read", "Reads a file.\nThe whole file."))], {"files": PRINT}))
    assert '"description": ["Reads a file.", "The whole file."],' in text


@quick
@given(st.lists(snapshots, max_size=3))
def test_a_lock_comes_back_from_its_text_as_it_was(offers: list[Snapshot]) -> None:
    servers = {f"server {i}": of(offer, f"server {i}") for i, offer in enumerate(offers)}
    lock = build(servers.values(), dict.fromkeys(servers, PRINT))
    text = render(lock)
    assert parse(text) == lock
    assert render(parse(text)) == text


READS_WELL = """\
  "version": 3,
  "servers": [
    {
      "server": "files",
      "fingerprint": "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
      "protocol": "2026-07-28",
      "name": "files-server",
      "title": "Files",
      "instructions": ["Read before you write.", "Then write."],
      "tools": [
        {
          "name": "read",
          "hash": "2bc5640cc3971330efcc733645eef2b6209a77fa1c49038d9de506059a3338db",
          "title": "Read",
          "description": "Reads a file.",
          "input": {
            "type": "object",
            "properties": {
              "path": {"type": "string", "description": "Where the file is"},
              "mode": {"type": "string", "enum": ["text", "binary"]}
            },
            "required": ["path", "mode"],
            "additionalProperties": false
          },
          "annotations": {"readOnlyHint": true}
        }
      ],
      "pages_unread": true
    }
  ]
}
"""


def test_it_reads_well() -> None:
    offer = snapshot(FILES.tools[0], instructions="Read before you write.\nThen write.")
    first, about, *rest = render(build([offer], {"files": PRINT})).splitlines()
    assert "`mooring lock` writes it" in about
    assert [first, *rest] == ["{", *READS_WELL.splitlines()]


@quick
@given(snapshots)
def test_no_character_in_it_is_invisible(offer: Snapshot) -> None:
    text = render(build([offer], {"files": PRINT}))
    assert all(char == "\n" or char.isprintable() for char in text)


def test_a_message_in_invisible_characters_is_there_to_be_seen() -> None:
    hidden = "Reads." + "".join(chr(0xE0000 + ord(char)) for char in "obey") + "\u202e\ufe0f"
    text = render(build([snapshot(tool("read", hidden))], {"files": PRINT}))
    assert r"Reads.\udb40\udc6f\udb40\udc62\udb40\udc65\udb40\udc79\u202e\ufe0f" in text
    assert parse(text).servers["files"].snapshot.tools[0].description == hidden


def test_a_changed_description_is_two_changed_lines() -> None:
    read, write = FILES.tools
    other = replace(FILES, tools=(read, replace(write, description="Writes a file, and mails it.")))
    after = render(build([other], {"files": PRINT}))
    lines = list(unified_diff(TEXT.splitlines(), after.splitlines(), n=0, lineterm=""))
    changed = [line[0] + line[1:].split(":")[0].strip() for line in lines if line[0] in "+-"]
    assert changed[2:] == ['-"hash"', '-"description"', '+"hash"', '+"description"']


def test_another_launch_command_is_one_changed_line() -> None:
    after = render(build([FILES], {"files": "0" * 64}))
    assert sum(one != two for one, two in zip(TEXT.splitlines(), after.splitlines(), strict=True)) == 1


@quick
@given(snapshots, st.integers(0, 9), st.text(max_size=5))
def test_writing_again_what_only_looks_different_changes_nothing(
    offer: Snapshot, seed: int, version: str
) -> None:
    first = build([offer], {"files": PRINT})
    cosmetic = replace(shuffled(offer, seed), info=replace(offer.info, version=version))
    assert render(build([cosmetic], {"files": PRINT}, previous=first)) == render(first)


def test_a_schema_keeps_the_order_of_its_properties() -> None:
    back = parse(TEXT).servers["files"].snapshot.tools[0]
    assert list(back.input_schema["properties"]) == ["path", "mode"]


SECRET = "hunter2-planted-secret"


def test_no_secret_of_the_configuration_gets_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    servers = [
        ServerConfig(name="files", command="files", args=["--token", "${TOKEN}"], env={"KEY": SECRET}),
        ServerConfig(
            name="web",
            url=f"https://example.org/mcp?key={SECRET}",
            headers={"Authorization": f"Bearer {SECRET}"},
        ),
    ]
    lock = build([FILES, of(FILES, "web")], {server.name: fingerprint(server) for server in servers})
    assert SECRET not in render(lock)


def test_a_definition_that_cannot_be_kept_is_left_out_and_stays_new() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"items": deep}
    bad = [tool("deep", input_schema=deep), tool("nan", input_schema={"default": float("nan")})]
    lock = build([snapshot(*bad, tool("good"))], {"files": PRINT})
    assert [entry.name for entry in lock.servers["files"].snapshot.tools] == ["good"]
    assert set(compare(lock.servers["files"], snapshot(*bad, tool("good"))).of("tool")) == {"deep", "nan"}


# --- reading


@quick
@given(st.data())
def test_a_text_cut_short_anywhere_is_an_error(data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(TEXT.rstrip()) - 1))
    with pytest.raises(LockError, match=r"line \d+: "):
        parse(TEXT[:end])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@quick
@given(st.data())
def test_any_other_value_anywhere_is_an_error_or_a_lock(data: st.DataObject) -> None:
    def replaced(value: Any) -> Any:
        if isinstance(value, dict) and value and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(value)))
            return {**value, key: replaced(value[key])}
        if isinstance(value, list) and value and data.draw(st.booleans()):
            index = data.draw(st.integers(0, len(value) - 1))
            return [*value[:index], replaced(value[index]), *value[index + 1 :]]
        return data.draw(json_values)

    try:
        lock = parse(json.dumps(replaced(json.loads(TEXT))))
    except LockError:
        return
    assert isinstance(lock, Lock)
    assert parse(render(lock)) == lock


def test_a_newer_format_is_its_own_error() -> None:
    newer = json.dumps({"version": FORMAT + 1, "servers": "who knows"})
    with pytest.raises(NewerLockError, match="written by a newer mooring"):
        parse(newer)


@pytest.mark.parametrize("version", [None, 0, "1", True, -1])
def test_a_version_that_none_had_is_an_error(version: Any) -> None:
    with pytest.raises(LockError, match="'version'"):
        parse(json.dumps({"version": version, "servers": []}))


def test_an_edited_definition_is_named_with_its_line() -> None:
    text = TEXT.replace("Writes a file.", "Deletes a file.")
    line = next(i for i, line in enumerate(TEXT.splitlines(), 1) if '"name": "write"' in line) + 1
    with pytest.raises(LockError, match=f"line {line}, server 'files', tool 'write': was edited"):
        parse(text)


def test_a_merge_conflict_is_named_as_one() -> None:
    lines = TEXT.splitlines()
    lines.insert(7, "<<<<<<< HEAD")
    with pytest.raises(LockError, match="line 8: holds an unresolved merge conflict"):
        parse("\n".join(lines))


def test_a_server_or_tool_that_stands_twice_is_an_error() -> None:
    with pytest.raises(LockError, match="server 'files': is defined twice"):
        parse(edited(lambda document: document["servers"].append(document["servers"][0])))
    with pytest.raises(LockError, match="tool 'read': is defined twice"):
        parse(edited(lambda document: document["servers"][0]["tools"].extend([{"name": "read"}])))


def test_a_field_that_is_no_field_is_an_error() -> None:
    with pytest.raises(LockError, match="'trusted'"):
        parse(edited(lambda document: document["servers"][0]["tools"][0].update(trusted=True)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(servers={}), "'servers' must be a list of objects"),
        (lambda document: document["servers"][0].pop("fingerprint"), "server 'files': has no 'fingerprint'"),
        (lambda document: document["servers"][0].update(capabilities=[1]), "'capabilities'"),
        (lambda document: document["servers"][0].update(instructions=["one"]), "'instructions' must be text"),
        (lambda document: document["servers"][0]["tools"][0].pop("hash"), "tool 'read': has no 'hash'"),
        (lambda document: document["servers"][0]["tools"][0].update(input=[]), "no valid schema"),
        (lambda document: document["servers"][0]["tools"][0].update(annotations=1), "'annotations'"),
        (
            lambda document: document["servers"][0]["tools"][0].update(annotations={"x": float("nan")}),
            "cannot be pinned",
        ),
    ],
)
def test_damage_is_named_by_server_entry_and_field(change: Any, words: str) -> None:
    with pytest.raises(LockError, match=words):
        parse(edited(change))


def test_what_is_no_object_is_no_lock() -> None:
    with pytest.raises(LockError, match="is not a lock"):
        parse("[]")


def test_nesting_without_end_is_an_error() -> None:
    with pytest.raises(LockError):
        parse('{"version": 1, "servers": ' + "[" * 100_000)


def test_another_layout_of_the_same_content_is_the_same_lock() -> None:
    assert parse(json.dumps(json.loads(TEXT), sort_keys=True)) == LOCK


def test_what_a_server_says_of_itself_is_kept() -> None:
    info = ServerInfo(
        name="n",
        title="t",
        version="1",
        description="a\nb",
        protocol="2026-07-28",
        capabilities={"tools": {}},
    )
    lock = build([snapshot(info=info, instructions="x\ny")], {"files": PRINT})
    assert parse(render(lock)).servers["files"].snapshot.info == info


def test_a_number_of_thousands_of_digits_is_damage_and_not_a_crash() -> None:
    with pytest.raises(LockError, match="a number that is too large"):
        parse('{"version": ' + "1" * 5000 + "}")


def test_a_file_of_a_skill_has_a_size_that_is_a_plain_number() -> None:
    uri = "skill://acme/a/SKILL.md"
    file = {"uri": uri, "digest": f"sha256:{'0' * 64}", "size": 7}
    entry = {"uri": uri, "frontmatter": {"name": "a", "description": "A"}, "resources": [file]}
    entry["vendor"] = {"a": 1}
    text = render(build([replace(FILES, skills=(read_skill_entry("files", entry),))], {"files": PRINT}))
    [skill] = parse(text).servers["files"].snapshot.skills
    assert skill.files is not None
    assert skill.files[0].size == 7
    assert skill.extra == {"vendor": {"a": 1}}
    assert f"{'0' * 64} 7" in text
    for size in ("1" * 5000, "-1", "x", ""):
        with pytest.raises(LockError, match="must have a digest and a size"):
            parse(text.replace(f"{'0' * 64} 7", f"{'0' * 64} {size}"))


def test_a_lock_of_the_first_format_is_read_and_is_not_whole() -> None:
    def of_version(version: int, **more: Any) -> str:
        def change(document: Any) -> None:
            document["version"] = version
            document["servers"][0].update(more)

        return edited(change)

    assert not parse(of_version(1)).servers["files"].whole
    assert parse(of_version(2)).servers["files"].whole
    assert not parse(of_version(2, partial=True)).servers["files"].whole
    with pytest.raises(LockError, match="no valid 'version'"):
        parse(of_version(0))


def test_damage_on_the_first_line_is_named_with_its_line() -> None:
    with pytest.raises(LockError, match=r"line 1: holds an unresolved merge conflict"):
        parse(f"<<<<<<< HEAD\n{TEXT}")
