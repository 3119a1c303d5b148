"""What the lock or an earlier run knows is answered without starting a server."""

import hashlib
import json
import random

import pytest


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
    monkeypatch.setenv("MOORING_HOME", str(tmp_path / "another"))
    assert "mcp_lab_read" in ran("tools", "--config", file).stdout
    assert lab.starts == 1


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


def test_a_change_is_told_when_a_server_is_met(ran, config, lab) -> None:
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
