"""The packages that `pip install mooring` installs: everything runs without any other package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BRINGS_MCP = {"adapters/openai_agents.py"}
"""Adapters of frameworks that bring `mcp` themselves."""


@cache
def installed() -> frozenset[str]:
    """The packages that `pip install mooring` brings on this machine, mooring included."""
    found = {"mooring"}
    left = [Requirement(text) for text in PROJECT["dependencies"]]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        known, extras = name in found, wanted.extras or {""}
        found.add(name)
        for text in () if known and not wanted.extras else distribution(name).requires or ():
            inner = Requirement(text)
            environments = [{**default_environment(), "extra": extra} for extra in ("", *extras)]
            if inner.marker is None or any(inner.marker.evaluate(one) for one in environments):
                left.append(inner)
    return frozenset(found)


def test_the_readme_says_how_many_packages_an_installation_brings_and_they_are_few() -> None:
    said = re.search(r"installs (\d+) packages", (ROOT / "README.md").read_text())
    assert said is not None
    assert int(said[1]) == len(installed()) <= 20, sorted(installed())


def test_only_the_module_for_it_imports_the_official_sdk() -> None:
    found = {
        path.relative_to(ROOT / "src" / "mooring").as_posix()
        for path in (ROOT / "src" / "mooring").rglob("*.py")
        if re.search(r"^\s*(?:import|from) mcp(?:_types)?\b", path.read_text(), re.MULTILINE)
    }
    assert found == {"sdk.py"} | BRINGS_MCP


def test_the_extras_are_those_that_are_documented_and_all_has_every_one() -> None:
    extras = PROJECT["optional-dependencies"]
    inside = {
        name
        for text in extras["all"]
        for name in Requirement(text).extras
        if Requirement(text).name == "mooring"
    }
    assert inside == set(extras) - {"all"}
    assert {"keyring", "otel", "sdk", "semantic", "watch"} <= set(extras)


# --- and they suffice -----------------------------------------------------------------------------------


def blocked() -> list[str]:
    """The modules of every package of this environment that `pip install mooring` does not bring."""
    modules = packages_distributions().items()
    return sorted(
        module
        for module, names in modules
        if not {canonicalize_name(name) for name in names} & installed()
        and module not in ("mooring", "__pycache__")
    )


BLOCKER = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

NAMES = set(%r)
sys.meta_path.insert(0, Blocked())
"""

LIST_AND_CALL = """
import asyncio, sys
sys.path.insert(0, ROOT)
from mooring import Host, LocalTools
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server

REGION = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
SHAPE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

class Lab(HttpLab):
    async def _result(self, method, params):
        result = await super()._result(method, params)
        if method == "tools/list":
            result["tools"][0]["inputSchema"] = REGION
        return result

def add(a: int, b: int = 2) -> int:
    return a + b

async def main():
    async with Lab(era="modern") as lab:
        async with Host([lab_server(), lab.config()], local=[add], lock=False) as host:
            assert await host.ready(20)
            print(len(host.catalog.tools) > 2, [status.state for status in host.status()])
            print((await host.call("mcp_lab_echo", {"text": "over stdio"})).text)
            print((await host.call("mcp_web_echo", {"text": "über http"})).text)
            print((await host.call("add", {"a": 1})).text)
            print([headers["Mcp-Param-Text"] for method, headers in lab.seen if method == "tools/call"])

asyncio.run(main())
"""

SERVE = """
import asyncio, json, subprocess, sys
import aiohttp

async def main():
    import tempfile, pathlib
    from mooring import demo
    file = pathlib.Path(tempfile.mkdtemp()) / "mcp.json"
    command, *args = demo.command("notes")
    file.write_text(json.dumps({"mcpServers": {"notes": {"command": command, "args": args}}}))
    from mooring import Host
    from mooring.gateway.serve import serve_http
    async with Host.from_config(str(file), lock=False) as host, serve_http(host) as serving:
        await host.ready(20)
        async with aiohttp.ClientSession() as http:
            client = {"name": "t", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            headers = {"Accept": "application/json, text/event-stream"}
            async with http.post(serving.url, json=message, headers=headers) as answer:
                print(answer.status, "serverInfo" in await answer.text())

asyncio.run(main())
"""


def alone(code: str, *names: str) -> subprocess.CompletedProcess[str]:
    """Run a program to which the packages beyond `pip install mooring` are missing."""
    text = BLOCKER % [*names] + f"ROOT = {str(ROOT)!r}\n" + code
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)


def test_listing_and_calling_over_stdio_and_http_need_nothing_else() -> None:
    assert {"mcp", "mcp_types", "pydantic", "jsonschema", "platformdirs", "opentelemetry"} <= set(blocked())
    done = alone(LIST_AND_CALL, *blocked())
    assert done.stdout.splitlines() == [
        "True ['connected', 'connected']",
        "over stdio",
        "über http",
        "3",
        "['=?base64?w7xiZXIgaHR0cA==?=']",
    ], done.stderr


def test_serving_needs_nothing_else() -> None:
    done = alone(SERVE, *blocked())
    assert done.stdout == "200 True\n", done.stderr


@pytest.mark.parametrize("words", [["version"], ["demo"], ["schema"], ["list", "--json"]])
def test_commands_need_nothing_else(words: list[str], tmp_path: Path) -> None:
    code = f"from mooring.cli import main\nimport os\nos.chdir({str(tmp_path)!r})\nsys.exit(main({words!r}))"
    done = alone(code, *blocked())
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2), done.stderr


@pytest.mark.parametrize("missing", [("mcp", "mcp_types"), ("mcp_types",)])
def test_without_the_sdk_its_module_names_what_to_install(missing: tuple[str, ...]) -> None:
    """Of mcp 1.x, which has no `mcp_types`, the same is said."""
    done = alone("import mooring\nmooring.sdk.client_session", *missing)
    assert "ImportError: mooring.sdk needs the package mcp, version 2.1 or newer" in done.stderr
    assert "pip install 'mooring[sdk]'" in done.stderr
