"""Servers added and removed at run time: all or nothing, and still so after the files were read again."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import (
    CatalogChanged,
    ConfigApplied,
    ConfigError,
    Host,
    HostConfig,
    MooringError,
    ServerConfig,
    StateChanged,
)
from mooring.config.plan import Changes
from mooring.host import runtime_of
from tests.lab.stdio import COMMAND, lab_server, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

ENTRY: dict[str, Any] = {"command": COMMAND[0], "args": list(COMMAND[1:])}


class Files:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "mcp.json"

    def write(self, watch: bool = False, **servers: Any) -> None:
        fresh = self.file.with_name("fresh")
        settings = {"watch": {"enabled": watch, "debounce": "50ms"}}
        fresh.write_text(json.dumps({"mcpServers": servers, **settings}))
        os.replace(fresh, self.file)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.write(a=ENTRY, b=ENTRY)
    return files


def names(host: Host) -> list[str]:
    assert sorted(server.name for server in host.config.servers) == [one.name for one in host.status()]
    return [status.name for status in host.status()]


async def test_what_was_added_and_removed_stays_so_over_a_reload(files: Files) -> None:
    async with Host.from_config(files.file) as host:
        await host.ready(20)
        await host.add(lab_server("extra"))
        await host.remove("b")
        await host.reload()
        assert names(host) == ["a", "extra"]
        files.write(a=ENTRY, b=ENTRY, c=ENTRY)
        for _ in range(2):
            await host.reload()
            assert names(host) == ["a", "c", "extra"]
        await host.ready(20)
        assert (await host.call("mcp_extra_echo", {"text": "x"})).text == "x"


async def test_it_stays_so_while_the_files_are_followed(files: Files) -> None:
    files.write(watch=True, a=ENTRY, b=ENTRY)
    async with Host.from_config(files.file) as host:
        await host.ready(20)
        events = host.events(ConfigApplied)
        await host.add(lab_server("extra"))
        await host.remove("b")
        files.write(watch=True, a=ENTRY, b=ENTRY, c=ENTRY)
        with anyio.fail_after(20):
            applied = await anext(events)
        assert isinstance(applied, ConfigApplied)
        assert (applied.started, applied.stopped, applied.restarted) == (("c",), (), ())
        assert names(host) == ["a", "c", "extra"]


async def test_an_entry_that_is_changed_in_the_file_counts_again(files: Files) -> None:
    changed = {**ENTRY, "env": {"A": "1"}}
    async with Host.from_config(files.file) as host:
        await host.ready(20)
        await host.add(lab_server("extra"))
        await host.remove("b")
        files.write(a=ENTRY, b=changed, extra=changed)
        await host.reload()
        assert names(host) == ["a", "b", "extra"]
        assert {server.name: dict(server.env) for server in host.config.servers} == {
            "a": {},
            "b": {"A": "1"},
            "extra": {"A": "1"},
        }
        files.write(a=ENTRY)
        await host.reload()
        assert names(host) == ["a"]


async def test_a_server_that_was_replaced_at_run_time_stays_replaced(files: Files) -> None:
    async with Host.from_config(files.file) as host:
        await host.ready(20)
        await host.remove("b")
        await host.add(lab_server("b", tools=["pid"]))
        files.write(a=ENTRY, b=ENTRY, c={**ENTRY, "disabled": True})
        await host.reload()
        assert [tool for tool in host.catalog.tools if tool.startswith("mcp_b_")] == ["mcp_b_pid"]


async def test_a_configuration_that_the_application_applies_replaces_everything() -> None:
    async with Host([lab_server("a")]) as host:
        await host.add(lab_server("extra"))
        await host.apply(HostConfig(servers=(lab_server("a"),)))
        assert names(host) == ["a"]


def test_changes_are_forgotten_when_the_entry_they_are_about_is_rewritten() -> None:
    one, other = ServerConfig(name="a", command="x"), ServerConfig(name="a", command="y")
    changes = Changes([one])
    changes.note("a", None)
    assert changes.applied == changes.over([one]).applied == ()
    assert changes.over([other]).applied == (other,)
    assert changes.over([]).over([one]).applied == (one,)


# --- add: nothing to be seen before it has succeeded


async def test_an_addition_cannot_be_seen_before_it_succeeds_nor_when_it_fails(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server("one")]) as host:
        await host.ready(20)
        revision, before, events = host.catalog.revision, host.config, host.events()
        hanging = lab_server(
            "two", log=str(log), cues={"tools/list": {"bytes": "", "times": 1, "then": "silence"}}
        )
        adding = asyncio.create_task(host.add(hanging))
        await until(lambda: bool(starts(log)))
        assert [status.name for status in host.status()] == ["one"]
        assert (host.catalog.revision, host.config) == (revision, before)
        with pytest.raises(ConfigError, match="already"):
            await host.add(lab_server("two"))
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        with pytest.raises(MooringError):
            await host.add(lab_server("three", crash_at_start=4))
        assert (host.catalog.revision, host.config) == (revision, before)
        events.end()
        assert [event async for event in events if getattr(event, "server", "one") != "one"] == []
        assert (await host.add(lab_server("two"))).state == "connected"


async def test_a_successful_addition_reports_its_states_and_its_tools() -> None:
    async with Host([lab_server("one")]) as host:
        await host.ready(20)
        events = host.events(StateChanged, CatalogChanged)
        await host.add(lab_server("two", tools=["echo"]))
        reported: list[Any] = []
        with anyio.fail_after(20):
            while not any(isinstance(event, CatalogChanged) for event in reported):
                reported.append(await anext(events))
        states = [event for event in reported if isinstance(event, StateChanged)]
        assert {event.server for event in states} == {"two"}
        assert states[-1].new == "connected"
        [change] = [event for event in reported if isinstance(event, CatalogChanged)]
        assert change.added == ("mcp_two_echo",)


@pytest.mark.parametrize("off", ["host", "entry", "list"])
async def test_a_server_that_is_turned_off_is_added_without_being_started(tmp_path: Path, off: str) -> None:
    log = tmp_path / "log"
    config = HostConfig(enabled=off != "host", enabled_servers=("other",) if off == "list" else None)
    async with Host(config) as host:
        server = lab_server("two", log=str(log), settings={"disabled": off == "entry"})
        status = await host.add(server)
        assert status.state == "disabled"
        assert host.config.servers == (server,)
        assert not host.catalog.tools
        await host.remove("two")
    assert starts(log) == []


# --- apply: all or nothing


@pytest.mark.parametrize("when", ["refused", "half-way", "not a configuration"])
async def test_a_configuration_that_cannot_be_applied_leaves_everything_as_it_was(when: str) -> None:
    async with Host([lab_server("one")]) as host:
        await host.ready(20)
        before, revision = host.config, host.catalog.revision
        pid = (await host.call("mcp_one_pid")).text

        async def fail() -> None:
            raise ConfigError("no")

        async def fine() -> None:
            pass

        def vet(config: HostConfig) -> Any:
            if when == "refused" and config is not before:
                raise ConfigError("no")
            return fine if config is before else fail

        runtime_of(host).config.vet = vet
        new: Any = HostConfig(servers=(lab_server("two"),), style="raw")
        with pytest.raises((ConfigError, AttributeError)):
            await host.apply(new if when != "not a configuration" else object())
        runtime_of(host).config.vet = None
        assert host.config is before
        assert [status.name for status in host.status()] == ["one"]
        assert host.catalog.revision == revision
        assert (await host.call("mcp_one_pid")).text == pid


async def test_an_apply_that_is_cancelled_while_servers_change_is_undone() -> None:
    busy = lab_server("one", tools=["sleep", "pid"])
    async with Host([busy, lab_server("kept", tools=["pid"])]) as host:
        await host.ready(20)
        before = host.config
        pid = (await host.call("mcp_kept_pid")).text
        calling = asyncio.create_task(host.call("mcp_one_sleep", {"seconds": 60}))
        new = lab_server("one", tools=["pid"])
        applying = asyncio.create_task(host.apply(HostConfig(servers=(new, before.servers[1]))))
        await until(lambda: "one" in host._servers._replaced)  # the old connection waits for its call
        applying.cancel()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await applying
        assert host.config is before
        assert [status.name for status in host.status()] == ["kept", "one"]
        assert (await host.call("mcp_kept_pid")).text == pid
        await until(lambda: "mcp_one_sleep" in host.catalog.tools)


async def test_a_reload_is_refused_for_a_new_problem_and_not_for_one_that_was_there_before(
    files: Files,
) -> None:
    bad = {"command": "x", "args": "wrong"}
    files.write(a=ENTRY, bad=bad)
    async with Host.from_config(files.file) as host:
        await host.ready(20)
        files.write(a=ENTRY, bad=bad, more=ENTRY)
        await host.reload()
        assert names(host) == ["a", "more"]
        files.write(a=bad, bad=bad, more=ENTRY)
        with pytest.raises(ConfigError):
            await host.reload()
        assert names(host) == ["a", "more"]


# --- while a reload is under way

SLOW: dict[str, Any] = {**ENTRY, "args": [*COMMAND[1:], json.dumps({"tools": ["sleep"]})]}


async def test_what_is_added_and_removed_during_a_reload_stays_so(files: Files) -> None:
    files.write(a=ENTRY, b=ENTRY, slow=SLOW)
    async with Host.from_config(files.file) as host:
        await host.ready(20)
        calling = asyncio.create_task(host.call("mcp_slow_sleep", {"seconds": 60}))
        files.write(a=ENTRY, b=ENTRY, slow={**SLOW, "env": {"A": "1"}})
        reloading = asyncio.create_task(host.reload())
        await until(lambda: "slow" in host._servers._replaced)  # the old connection waits for its call
        changing = asyncio.gather(host.add(lab_server("extra")), host.remove("b"))
        calling.cancel()
        await reloading
        await changing
        assert names(host) == ["a", "extra", "slow"]
        files.write(a=ENTRY, b=ENTRY, c=ENTRY, slow={**SLOW, "env": {"A": "1"}})
        await host.reload()
        assert names(host) == ["a", "c", "extra", "slow"]


async def test_many_reloads_additions_and_removals_at_once_end_as_if_one_after_the_other(
    files: Files,
) -> None:
    async def reload() -> None:
        for number in range(6):
            files.write(a=ENTRY, b={**ENTRY, "env": {"N": str(number)}})
            await host.reload()

    async def change() -> None:
        for number in range(6):
            await host.add(lab_server(f"extra{number}"))
            if number % 2:
                await host.remove(f"extra{number}")

    async with Host.from_config(files.file) as host:
        await host.ready(20)
        await asyncio.gather(reload(), change())
        assert names(host) == ["a", "b", "extra0", "extra2", "extra4"]
        await host.reload()
        assert names(host) == ["a", "b", "extra0", "extra2", "extra4"]


async def test_servers_can_be_added_and_removed_while_a_person_is_asked_about_a_reload(
    tmp_path: Path,
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def ask(request: Any) -> bool:
        asked.set()
        await answered.wait()
        return True

    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {}}))
    async with Host.from_config(cwd=tmp_path, trust=ask) as host:
        await host.add(lab_server("b"))
        file.write_text(json.dumps({"mcpServers": {"theirs": ENTRY}}))
        reloading = asyncio.create_task(host.reload())
        with anyio.fail_after(20):
            await asked.wait()
            await host.add(lab_server("extra"))
            await host.remove("b")
            assert names(host) == ["extra"]
            answered.set()
            await reloading
        assert names(host) == ["extra", "theirs"]
