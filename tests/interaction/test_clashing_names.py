"""An invalid or clashing entry does not affect others, and no server gets the names of another."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mooring import ConfigError, Host, HostConfig, LocalTools, ServerConfig
from mooring.cli import main
from mooring.gateway.serve import serve_http
from tests.lab.caller import Caller
from tests.lab.stdio import COMMAND, lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

ENTRY: dict[str, Any] = {"command": COMMAND[0], "args": list(COMMAND[1:])}


def states(host: Host) -> dict[str, str]:
    return {status.name: status.state for status in host.status()}


def write(folder: Path, **servers: Any) -> Path:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


@pytest.mark.parametrize("disabled", [False, True])
def test_a_server_named_like_mooring_costs_itself_alone_and_is_reported_with_its_file(
    tmp_path: Path, disabled: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, mooring={**ENTRY, "disabled": disabled}, fine=ENTRY)
    assert main(["--config", str(file), "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["state"]) for one in document["servers"]] == [("fine", "connected")]
    assert str(file) in json.dumps(document["warnings"])


async def test_a_server_may_be_named_local_where_the_application_has_no_tools_of_its_own(
    tmp_path: Path,
) -> None:
    async with Host.from_config(write(tmp_path, local=ENTRY, fine=ENTRY)) as host:
        await host.ready(20)
        assert states(host) == {"local": "connected", "fine": "connected"}
        assert (await host.call("mcp_local_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize("disabled", [False, True])
async def test_a_server_with_the_name_of_a_provider_is_reported_and_the_others_start(
    tmp_path: Path, disabled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def double(x: int) -> int:
        return 2 * x

    file = write(tmp_path, local={**ENTRY, "disabled": disabled}, fine=ENTRY)
    with caplog.at_level(logging.WARNING):
        async with Host.from_config(file, local=[double]) as host:
            await host.ready(20)
            assert states(host) == {"fine": "connected"}
            assert (await host.call("double", {"x": 2})).text == "4"
            file.write_text(json.dumps({"mcpServers": {"local": ENTRY, "fine": ENTRY, "more": ENTRY}}))
            await host.reload()
            await until(lambda: states(host) == {"fine": "connected", "more": "connected"})
    assert re.search(rf"{file}: server 'local': is ignored", caplog.text)


async def test_duplicates_in_a_list_of_servers_keep_the_first() -> None:
    servers = [
        lab_server("a", tools=["echo"]),
        lab_server("a", tools=["pid"]),
        lab_server("mooring"),
        lab_server("b"),
    ]
    async with Host(servers) as host:
        await host.ready(20)
        assert states(host) == {"a": "connected", "b": "connected"}
        assert "mcp_a_echo" in host.catalog.tools
        assert "mcp_a_pid" not in host.catalog.tools
        assert [warning.server for warning in host.config.warnings] == ["a", "mooring"]


async def test_adding_a_name_that_is_taken_still_raises() -> None:
    async with Host([lab_server("a")], local=LocalTools(name="mine")) as host:
        for name in ("a", "mooring", "mine"):
            with pytest.raises(ConfigError, match="already"):
                await host.add(lab_server(name))


@pytest.mark.parametrize(("one", "other"), [("a-b", "a_b"), ("GitHub", "github")])
async def test_names_equal_after_normalisation_are_both_kept_with_suffixes_that_stay(
    one: str, other: str
) -> None:
    async with Host([lab_server(one), lab_server(other)]) as host:
        await host.ready(20)
        before = {(tool.server, tool.remote_name): name for name, tool in host.catalog.tools.items()}
        mine = before[one, "echo"]
        assert re.fullmatch(r"mcp_\w+_echo_[0-9a-f]{8}", mine)
        assert mine != before[other, "echo"]
        for (server, tool), name in before.items():
            if tool == "echo":
                assert (await host.call(name, {"text": server})).server == server
        config = tuple(ServerConfig(**{**vars(s), "disabled": s.name == other}) for s in host.config.servers)
        await host.apply(HostConfig(servers=config))
        await until(lambda: all(tool.server == one for tool in host.catalog.tools.values()))
        assert {name for (server, _), name in before.items() if server == one} == set(host.catalog.tools)


@pytest.mark.parametrize("down", ["missing", "disabled", "lazy", "filtered"])
@pytest.mark.parametrize(("style", "plain"), [("mcp", "mcp_a_b_echo"), ("server", "a_b_echo")])
async def test_a_name_of_a_configured_server_that_is_down_is_not_given_to_another(
    style: Any, plain: str, down: str
) -> None:
    hostile = lab_server("a", tools=["b_echo"])
    settings: dict[str, dict[str, Any]] = {
        "missing": {"command": "/does/not/exist"},
        "disabled": {**ENTRY, "disabled": True},
        "lazy": {"command": "/does/not/exist", "start": "lazy"},
        "filtered": {**ENTRY, "deny": ["*"]},
    }
    async with Host([hostile, ServerConfig(name="a_b", **settings[down])], style=style) as host:
        await host.ready(20)
        await until(lambda: "a" in host.catalog.servers)
        assert plain not in host.catalog.tools
        [name] = [name for name, tool in host.catalog.tools.items() if tool.server == "a"]
        assert re.fullmatch(rf"{plain}_[0-9a-f]{{8}}", name)
        result = await host.call(plain, {"text": "secret"}, timeout=5)
        assert result.is_error
        assert result.server != "a"


async def test_a_server_that_is_added_gets_its_name_and_the_other_loses_it() -> None:
    hostile = lab_server("a", tools=["b_echo"])
    async with Host([hostile]) as host:
        await host.ready(20)
        assert host.catalog.tools["mcp_a_b_echo"].server == "a"
        await host.add(lab_server("a_b", tools=["pid"]))
        assert "mcp_a_b_echo" not in host.catalog.tools
        assert "mcp_a_b_pid" in host.catalog.tools


async def test_a_gateway_does_not_hand_out_such_a_name_either() -> None:
    hostile = lab_server("a", tools=["b_echo"])
    down = ServerConfig(name="a_b", command="/does/not/exist", start="lazy")
    async with Host([hostile, down]) as host, serve_http(host) as serving, aiohttp.ClientSession() as http:
        await host.ready(20)
        caller = Caller(http, serving.url, modern=True)
        await caller.begin()
        names = await caller.tools()
        assert "mcp_a_b_echo" not in names
        assert any(re.fullmatch(r"mcp_a_b_echo_[0-9a-f]{8}", name) for name in names)
