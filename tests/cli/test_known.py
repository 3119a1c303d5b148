"""Commands use the lock or the cache of an earlier run without starting a server."""

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import demo
from tests.lab.libraries import SCRIPT


@pytest.mark.parametrize("words", [["tools"], ["groups"], ["search", "letter"], ["cost"]])
def test_a_known_server_is_not_started(ran, config, lab, words: list[str]) -> None:
    file = config({"lab": lab.entry})
    first = ran(*words, "--config", file)
    assert lab.starts == 1
    again = ran(*words, "--config", file)
    assert lab.starts == 1
    assert (again.stdout, again.stderr) == (first.stdout, "")


def test_with_a_lock_the_very_first_run_starts_nothing(ran, config, lab, tmp_path, monkeypatch) -> None:
    file = config({"lab": lab.entry, "clock": "clock"})
    ran("lock", "--config", file)
    before = lab.starts
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "another"))
    assert "mcp_lab_read" in ran("tools", "--config", file).stdout
    assert lab.starts == before


# --- a command that needs one server starts no other

TOO_LONG = f"else:///{'x' * 1_000}"
"""A URI that the cache does not keep."""


class ManyServers:
    """Servers that write down each start of theirs."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "starts.log"

    def entry(self, name: str, *command: str, **settings: Any) -> dict[str, Any]:
        note = f'echo {name} >> {self._log}; exec "$@"'
        return {"command": "/bin/sh", "args": ["-c", note, "sh", *command], **settings}

    def started(self) -> list[str]:
        """Names of the servers that were started since the last question."""
        names = sorted(self._log.read_text().split()) if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return names


@pytest.fixture
def many_servers(config, tmp_path) -> tuple[ManyServers, str]:
    """Four servers, of which two have resources and prompts."""
    made = ManyServers(tmp_path)
    script = {"resources": {"memo:///a": "x"}, "templates": ["memo:///{title}"], "prompts": [{"name": "p"}]}
    library = (sys.executable, "-I", "-S", str(SCRIPT))
    other = script | {"resources": {"else:///b": "y", TOO_LONG: "z"}, "templates": []}
    file = config(
        {
            "notes": made.entry("notes", *demo.command("notes"), start="eager"),
            "clock": made.entry("clock", *demo.command("clock")),
            "lib": made.entry("lib", *library, json.dumps(script)),
            "other": made.entry("other", *library, json.dumps(other)),
        }
    )
    return made, file


ONE_SERVER = {
    ("call", "mcp_clock_now"): ["clock"],
    ("read", "memo:///a"): ["lib"],
    ("read", "memo:///a", "--server", "lib"): ["lib"],
    ("prompt", "lib", "p"): ["lib"],
    ("ping", "notes"): ["notes"],
    ("resources", "--server", "lib"): ["lib"],
}


@pytest.mark.parametrize("words", ONE_SERVER)
@pytest.mark.parametrize("known_by", ["cache", "lock"])
def test_a_command_about_one_server_starts_only_that_one(
    ran, many_servers, tmp_path, monkeypatch, words, known_by
) -> None:
    servers, file = many_servers
    if known_by == "lock":
        ran("lock", "--config", file)
        monkeypatch.setenv("MOORING_HOME", str(tmp_path / "another"))
    else:
        ran("tools", "--config", file)
    assert set(servers.started()) == {"clock", "lib", "notes", "other"}
    done = ran(*words, "--config", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert servers.started() == ONE_SERVER[words]


@pytest.mark.parametrize("known_by", ["tools", "lock"])
def test_a_resource_that_the_lock_or_the_cache_names_starts_only_its_server(
    ran, many_servers, known_by
) -> None:
    servers, file = many_servers
    ran(known_by, "--config", file)
    servers.started()
    for _ in range(2):
        assert ran("read", "else:///b", "--config", file).stdout == "y"
        assert servers.started() == ["other"]


def test_a_resource_that_no_server_is_known_for_starts_only_servers_with_resources(ran, many_servers) -> None:
    servers, file = many_servers
    ran("tools", "--config", file)
    servers.started()
    assert ran("read", TOO_LONG, "--config", file).stdout == "z"
    assert servers.started() == ["lib", "other"]


def test_a_resource_that_another_server_has_now_is_read_there_and_found_there_next_time(
    ran, config, tmp_path
) -> None:
    servers, offers = ManyServers(tmp_path), {name: tmp_path / f"{name}.json" for name in ("a", "b")}
    program = f'exec {sys.executable} -I -S {SCRIPT} "$(cat "$1")"'
    entries = {
        name: servers.entry(name, "/bin/sh", "-c", program, "sh", str(path)) for name, path in offers.items()
    }
    file = config(entries)
    for owner, other in (("a", "b"), ("b", "a")):
        offers[owner].write_text(json.dumps({"resources": {"memo:///x": owner}, "templates": []}))
        offers[other].write_text(json.dumps({"resources": {"memo:///y": other}, "templates": []}))
        assert ran("read", "memo:///x", "--config", file).stdout == owner
        assert servers.started() == ["a", "b"]
        assert ran("read", "memo:///x", "--config", file).stdout == owner
        assert servers.started() == [owner]


def test_a_call_ends_although_another_server_never_starts_nor_stops(piped, config, tmp_path) -> None:
    deaf = "trap '' TERM; while :; do sleep 1; done"
    servers = {
        "notes": "notes",
        "hanging": {
            "command": "/bin/sh",
            "args": ["-c", deaf],
            "connect_timeout": 300,
            "shutdown_grace": 300,
        },
    }
    done = piped("call", "list_notes", "--style", "raw", "--config", config(servers))
    assert done.returncode == 0
    assert "welcome" in done.stdout


def test_only_servers_that_are_not_known_are_started(ran, config, lab) -> None:
    ran("tools", "--config", config({"lab": lab.entry}))
    both = ran("tools", "--config", config({"lab": lab.entry, "clock": "clock"}))
    assert [line.split("\t")[1] for line in both.stdout.splitlines()] == ["clock", "clock", "lab", "lab"]
    assert lab.starts == 1


def test_another_command_is_another_server(ran, config, lab) -> None:
    ran("tools", "--config", config({"lab": lab.entry}))
    ran("tools", "--config", config({"lab": {**lab.entry, "args": ["-B", *lab.entry["args"]]}}))
    assert lab.starts == 2


def test_no_lock_asks_the_servers(ran, config, lab) -> None:
    file = config({"lab": lab.entry})
    ran("lock", "--config", file)
    lab.offers(read="Read it otherwise.")
    assert "otherwise" not in ran("tools", "--config", file).stdout
    assert "otherwise" in ran("tools", "--no-lock", "--config", file).stdout


def test_a_change_is_reported_when_the_server_connects(ran, config, lab) -> None:
    file = config({"lab": lab.entry})
    ran("lock", "--config", file)
    lab.offers(read="Read it otherwise.", send="Send a letter.")
    done = ran("list", "--config", file)
    assert "Tool 'read' of server 'lab' is not what was approved" in done.stderr
    assert "`mooring approve lab/read`" in done.stderr


def test_the_catalog_is_the_same_bytes_in_whatever_order_servers_start(ran, config, lab) -> None:
    names = ["lab", *(f"server{number}" for number in range(4))]
    sums: set[str] = set()
    for seed, lock in enumerate(["--no-lock", "--no-lock", "--json", "--json"]):
        random.Random(seed).shuffle(names)
        file = config({name: lab.entry if name == "lab" else "notes" for name in names})
        if seed == 3:
            ran("lock", "--config", file)
        done = ran("tools", "--json", lock, "--config", file)
        assert len(json.loads(done.stdout)) == 14
        sums.add(hashlib.sha256(done.stdout.encode()).hexdigest())
    assert len(sums) == 1
