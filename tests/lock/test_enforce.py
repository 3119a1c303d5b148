"""The pins of one host: which lock covers a server, what it hides, and what an approval changes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mooring import ServerConfig
from mooring.config.load import FoundFile
from mooring.config.plan import fingerprint
from mooring.core.skills import read_skill_entry
from mooring.core.types import Page, Prompt, Resource, ResourceTemplate, Skill, Snapshot
from mooring.lock import LockError
from mooring.lock.cache import load_lock, own_lock_path, save_lock
from mooring.lock.compare import build, decide, pin_of
from mooring.lock.enforce import ApprovedListing, LockEnforcer, PinSource, memory_of
from tests.lab.offers import FILES, snapshot, tool


def server(scope: str = "project", **more: Any) -> ServerConfig:
    config = ServerConfig(name="files", command="files", **more)
    return replace(config, source=replace(config.source, scope=scope))


def lock_of(config: ServerConfig, offer: Snapshot = FILES) -> Any:
    return build([offer], {"files": fingerprint(config)})


def changed_offer() -> Snapshot:
    read, write = FILES.tools
    return replace(FILES, tools=(replace(read, description="Mails a file."), write, tool("new", "New.")))


def enforcer(memory: PinSource) -> LockEnforcer:
    return LockEnforcer(memory, lambda name: None)


# --- coverage


def test_only_a_tool_in_a_lock_is_pinned() -> None:
    config = server()
    pins = enforcer(PinSource(lock=lock_of(config)))
    pins.known(config)
    assert pins.is_pinned(FILES.tools[0])
    assert not pins.is_pinned(tool("other"))
    assert not pins.is_pinned(replace(FILES.tools[0], server="unknown"))


def test_the_private_cache_is_no_lock() -> None:
    config = server()
    pins = enforcer(PinSource(cache=True))
    pins.known(config)
    pins.evaluate(FILES)
    pins.close()
    assert not pins.is_pinned(FILES.tools[0])
    assert pins.changes(config, changed_offer()) == ()


def test_a_users_server_is_covered_by_the_users_lock_alone() -> None:
    user, project = server("user"), server("project")
    pins = enforcer(PinSource(lock=lock_of(project), own=None, cache=False))
    pins.known(user)
    assert not pins.is_pinned(FILES.tools[0])
    pins.known(project)
    assert pins.is_pinned(FILES.tools[0])


def test_changes_are_those_from_the_lock() -> None:
    config = server()
    pins = enforcer(PinSource(lock=lock_of(config)))
    pins.known(config)
    assert pins.changes(config, FILES) == ()
    assert [change.name for change in pins.changes(config, changed_offer())] == ["new", "read"]


def test_a_server_without_pins_has_no_changes() -> None:
    config = server(pins="off")
    pins = enforcer(PinSource(lock=lock_of(config)))
    pins.known(config)
    assert pins.changes(config, changed_offer()) == ()


def test_everything_of_a_server_that_the_lock_does_not_hold_is_new() -> None:
    config = server()
    pins = enforcer(PinSource(lock=build([], {})))
    pins.known(config)
    assert {"read", "write"} <= {change.name for change in pins.changes(config, FILES)}
    assert all(change.kind != "launch" for change in pins.changes(config, FILES))


# --- approval


def test_an_approval_needs_a_lock(tmp_path: Path) -> None:
    for memory in (PinSource(), PinSource(path=tmp_path / "mooring.lock")):
        with pytest.raises(LockError, match="there is no lock"):
            enforcer(memory).approve(server(), FILES, None)


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize("shared", [False, True])
def test_an_approval_is_written_to_the_lock_that_covers_the_server(
    tmp_path: Path, scope: str, shared: bool
) -> None:
    config = server(scope)
    path = tmp_path / "mooring.lock"
    own_path = path if shared else tmp_path / "own.lock"
    first = lock_of(config)
    for one in {path, own_path}:
        save_lock(one, first)
    before = {one: one.read_bytes() for one in {path, own_path}}
    pins = enforcer(PinSource(lock=first, own=first, path=path, own_path=own_path))
    pins.known(config)
    pins.evaluate(changed_offer())
    assert {hidden.name for hidden in pins.hidden()} == {"read", "new"}

    pins.approve(config, changed_offer(), None)

    written = own_path if scope == "user" else path
    assert {one for one, raw in before.items() if one.read_bytes() != raw} == {written}
    assert pins.is_pinned(tool("new"))
    assert pins.changes(config, changed_offer()) == ()
    pins.evaluate(changed_offer())
    assert list(pins.hidden()) == []
    # The server that starts again is compared with what was approved.
    pins.known(config)
    assert pins.is_pinned(tool("new"))
    other = server("user" if scope == "project" else "project")
    pins.known(other)
    assert pins.is_pinned(tool("new")) == shared


def test_one_tool_is_approved_and_the_others_stay_hidden(tmp_path: Path) -> None:
    config, path = server(), tmp_path / "mooring.lock"
    save_lock(path, lock_of(config))
    pins = enforcer(PinSource(lock=load_lock(path), path=path))
    pins.known(config)
    pins.approve(config, changed_offer(), "new")
    pins.evaluate(changed_offer())
    assert [hidden.name for hidden in pins.hidden()] == ["read"]


def test_an_approval_keeps_what_differs_between_starts(tmp_path: Path) -> None:
    config, path = server(), tmp_path / "mooring.lock"
    marks = {("tool", "write", "description"): "text"}
    lock = build([FILES], {"files": fingerprint(config)}, volatile={"files": marks})
    save_lock(path, lock)
    pins = enforcer(PinSource(lock=lock, path=path))
    pins.known(config)
    pins.approve(config, changed_offer(), None)
    saved = load_lock(path)
    assert saved is not None
    assert dict(saved.servers["files"].volatile) == marks


# --- what is hidden


def test_each_hidden_entry_says_why() -> None:
    config = server()
    pins = enforcer(PinSource(lock=lock_of(config)))
    pins.known(config)
    after = replace(changed_offer(), prompts=(Prompt(name="evil", server="files"),))
    pins.evaluate(after)
    assert {(one.kind, one.name): one.reason for one in pins.hidden()} == {
        ("tool", "read"): "changed since approval: text",
        ("tool", "new"): "not in the lock",
        ("prompt", "evil"): "not in the lock",
    }


def test_the_host_learns_once_which_tools_are_withheld() -> None:
    withheld: list[str] = []
    config = server()
    pins = LockEnforcer(PinSource(lock=lock_of(config)), withheld.append)
    pins.known(config)
    pins.evaluate(FILES)
    assert withheld == []
    pins.evaluate(changed_offer())
    pins.evaluate(changed_offer())
    assert sorted(withheld) == ["files/new", "files/read"]


def test_a_provider_of_the_application_is_not_judged() -> None:
    pins = enforcer(PinSource(lock=lock_of(server())))
    assert pins.evaluate(FILES) == (FILES, None)


# --- requests


def skill(name: str, text: str = "How to refund") -> Skill:
    uri = f"skill://acme/{name}/SKILL.md"
    file = {"uri": uri, "digest": f"sha256:{'0' * 64}", "size": 1}
    head = {"name": name, "description": text}
    return read_skill_entry("files", {"uri": uri, "frontmatter": head, "resources": [file]})


def guard(before: Snapshot, after: Snapshot) -> ApprovedListing:
    return ApprovedListing(decide(pin_of(before, "f"), after, "block", fingerprint="f"))


def test_tools_and_prompts_must_be_listed_and_approved() -> None:
    check = guard(FILES, replace(changed_offer(), prompts=(*FILES.prompts, Prompt(name="p", server="files"))))
    assert check("tools/call", {"name": "write"}) is None
    for name, reason in (("read", "text"), ("new", "added"), ("gone", "removed")):
        error = check("tools/call", {"name": name})
        assert error is not None
        assert (error.tool, error.reason) == (name, reason)
    assert check("prompts/get", {"name": "summarise"}) is None
    refused = check("prompts/get", {"name": "p"})
    assert refused is not None
    assert refused.reason == "added"
    unlisted = check("prompts/get", {"name": "q"})
    assert unlisted is not None
    assert str(unlisted).startswith("Prompt 'q' of server 'files' is not in the server's list")
    assert check("ping", {}) is None


def test_both_names_of_a_renamed_tool_are_refused_as_renamed() -> None:
    check = guard(snapshot(tool("a", "A")), snapshot(tool("b", "A")))
    for name in ("a", "b"):
        error = check("tools/call", {"name": name})
        assert error is not None
        assert (error.tool, error.reason) == (name, "renamed")


def test_a_completion_is_checked_like_its_prompt_or_template() -> None:
    evil = ResourceTemplate(uri_template="evil:///{x}", server="files", name="evil")
    check = guard(FILES, replace(FILES, templates=(*FILES.templates, evil)))
    assert check("completion/complete", {"ref": {"type": "ref/prompt", "name": "summarise"}}) is None
    assert check("completion/complete", {"ref": {"type": "ref/prompt", "name": "evil"}}) is not None
    assert check("completion/complete", {"ref": {"type": "ref/resource", "uri": "file:///{path}"}}) is None
    refused = check("completion/complete", {"ref": {"type": "ref/resource", "uri": "evil:///{x}"}})
    assert refused is not None
    assert refused.reason == "added"


def test_a_resource_is_read_unless_it_or_its_only_template_is_not_approved() -> None:
    before = replace(FILES, resources=(Resource(uri="db://a", server="files", name="a"),))
    evil = ResourceTemplate(uri_template="evil:///{x}", server="files", name="evil")
    both = ResourceTemplate(uri_template="file:///{other}", server="files", name="both")
    after = replace(
        before,
        resources=(*before.resources, Resource(uri="db://b", server="files", name="b")),
        templates=(*before.templates, evil, both),
    )
    check = guard(before, after)
    for method in ("resources/read", "resources/directory/read"):
        assert check(method, {"uri": "db://a"}) is None
        assert check(method, {"uri": "never-listed://x"}) is None
        assert check(method, {"uri": "file:///x"}) is None
        assert check(method, {"uri": "db://b"}) is not None
        assert check(method, {"uri": "evil:///x"}) is not None


def test_nothing_of_a_skill_that_is_not_approved_is_read() -> None:
    before = replace(FILES, skills=(skill("refunds"), skill("returns")))
    after = replace(FILES, skills=(skill("refunds"), skill("returns", "Obey"), skill("evil")))
    check = guard(before, after)
    assert check("skills/get", {"uri": "skill://acme/refunds/SKILL.md"}) is None
    assert check("resources/read", {"uri": "skill://acme/refunds/SKILL.md"}) is None
    for name in ("returns", "evil"):
        for method, uri in (
            ("skills/get", f"skill://acme/{name}/SKILL.md"),
            ("resources/read", f"skill://acme/{name}/a.md"),
            ("resources/directory/read", f"skill://acme/{name}"),
        ):
            error = check(method, {"uri": uri})
            assert error is not None
            assert error.tool == uri
    assert check("resources/read", {"uri": "skill://acme/evil2/a.md"}) is None
    unlisted = check("skills/get", {"uri": "skill://acme/none/SKILL.md"})
    assert unlisted is not None
    assert unlisted.reason == "removed"


def test_a_hidden_skill_is_explained_by_its_name_and_with_its_server() -> None:
    config = server()
    pins = enforcer(PinSource(lock=lock_of(config)))
    pins.known(config)
    assert not pins.hides_skills
    pins.evaluate(replace(FILES, skills=(skill("evil"),)))
    assert pins.hides_skills
    assert pins.explain_skill("evil") is not None
    assert pins.explain_skill("files/evil") is not None
    assert pins.explain_skill("other/evil") is None


# --- pages


def page(text: str = "a", uri: str = "ui://files/a") -> Page:
    return Page(server="files", uri=uri, digest=text * 64)


@pytest.mark.parametrize("pinning", ["block", "warn", "off"])
def test_a_page_that_changed_is_refused_or_logged_as_the_pins_say(
    pinning: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config = server(pins=pinning)
    pins = enforcer(PinSource(lock=lock_of(config, replace(FILES, pages=(page(),)))))
    pins.known(config)
    assert pins.check_page(page()) is None
    assert pins.check_page(replace(page(), server="unknown")) is None
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        refused = pins.check_page(page("b"))
        unknown = pins.check_page(page("a", "ui://files/b"))
    assert (refused is not None, unknown is not None) == (pinning == "block", pinning == "block")
    assert len(caplog.records) == (2 if pinning == "warn" else 0)


def test_pages_that_were_never_read_are_not_compared() -> None:
    config = server()
    pins = enforcer(PinSource(lock=lock_of(config, replace(FILES, pages=None))))
    pins.known(config)
    assert pins.check_page(page()) is None


# --- other connections, and where locks are


def test_another_connection_is_checked_against_the_lock_or_against_what_is_shown() -> None:
    config = server()
    pins = enforcer(PinSource(lock=lock_of(config)))
    pins.known(config)
    against_lock = pins.guard_for(changed_offer(), changed_offer())
    assert against_lock is not None
    assert against_lock("tools/call", {"name": "read"}) is not None

    alone = server(pins="block")
    pins = enforcer(PinSource(cache=False))
    pins.known(alone)
    against_shown = pins.guard_for(FILES, changed_offer())
    assert against_shown is not None
    assert against_shown("tools/call", {"name": "read"}) is not None
    assert against_shown("tools/call", {"name": "write"}) is None

    loose = server(pins="warn")
    pins.known(loose)
    assert pins.guard_for(FILES, changed_offer()) is None


def test_the_lock_of_a_project_does_not_cover_the_servers_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "mooring.lock"
    save_lock(path, lock_of(server()))
    project = [FoundFile(path=tmp_path / "mooring.json", scope="project")]
    beside = memory_of(True, project, tmp_path)
    assert beside.lock is not None
    assert (beside.path, beside.own, beside.own_path) == (path, None, own_lock_path())
    named = memory_of(path, project, tmp_path)
    assert named.lock is not None
    assert (named.path, named.own, named.own_path) == (path, None, None)
    alone = memory_of(path, [], tmp_path)
    assert alone.lock is not None
    assert (alone.own, alone.path, alone.own_path) == (alone.lock, path, path)


def test_a_host_may_do_without_a_lock(tmp_path: Path) -> None:
    assert memory_of(False, [], tmp_path) == PinSource(cache=False)
    assert memory_of(True, [], None) == PinSource()
    assert memory_of(tmp_path / "none.lock", [], None).lock is None


def test_a_cached_pin_is_not_whole_so_that_resources_are_not_compared() -> None:
    config = server()
    pins = enforcer(PinSource())
    pins.known(config)
    pins.evaluate(FILES)
    pins.close()
    again = enforcer(PinSource())
    known = again.known(config)
    assert known is not None
    found = Resource(uri="file:///a", server="files", name="a")
    assert again.evaluate(replace(FILES, resources=(found,)))[0].resources == (found,)
    again.close()


def test_a_lock_that_was_written_meanwhile_counts_from_the_next_reading(tmp_path: Path) -> None:
    path = tmp_path / "mooring.lock"
    config, other = server(), replace(server(), name="other")
    save_lock(path, lock_of(config))
    pins = enforcer(memory_of(path, [FoundFile(path=tmp_path / "mooring.json", scope="project")], tmp_path))
    for one in (config, other):
        pins.known(one)
    assert pins.read_again([config, other]) == ()
    save_lock(path, lock_of(config, changed_offer()))
    assert pins.read_again([config, other]) == ("files",)
    assert {tool.name for tool in pins.evaluate(changed_offer())[0].tools} == {"read", "write", "new"}
    path.unlink()
    assert pins.read_again([config, other]) == ()
    path.write_text("<<<<<<<")
    assert pins.read_again([config, other]) == ()


def test_a_lock_that_appears_leaves_servers_of_other_locks_alone(tmp_path: Path) -> None:
    path = tmp_path / "mooring.lock"
    mine = server("user")
    pins = enforcer(memory_of(path, [FoundFile(path=tmp_path / "mooring.json", scope="project")], tmp_path))
    pins.known(mine)
    save_lock(path, lock_of(mine))
    assert pins.read_again([mine]) == ()


def test_a_listing_like_the_last_one_is_checked_if_everything_must_be_pinned() -> None:
    pins = enforcer(PinSource())
    pins.known(server())
    pins.evaluate(FILES)
    pins.close()
    for setting, guarded in (("warn", False), ("block", True)):
        again = enforcer(PinSource())
        again.known(server(pins=setting))
        assert (again.evaluate(FILES)[1] is not None) == guarded
        again.close()
