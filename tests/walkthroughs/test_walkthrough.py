"""docs/walkthrough.md, followed word by word in clean environments: `make test-walkthroughs`.

Commands run in the order of the page, in an empty folder with an empty home. Lines below a command must be
part of its output. Nothing comes from the source tree but the wheel that is built from it.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.reference, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".peers" / "walkthroughs"
PAGE = (ROOT / "docs" / "walkthrough.md").read_text()
FRAMEWORKS = ("OpenAI Agents", "pydantic-ai", "LangChain")


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^##+ (?:\d+\. )?{re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def block(language: str, text: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Commands with the lines that their output must contain."""
    for console in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in console.split("$ ")[1:]:
            command, *expected = part.strip().splitlines()
            yield command, expected


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this source tree."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that step 1 makes; kept in .peers, made again when the step changes."""
    step = section("Install the servers")
    place = PEERS / "servers"
    note = place / ".installed"
    if not note.exists() or note.read_text() != step:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for command, _ in commands(step):
            subprocess.run(command, shell=True, cwd=place, check=True, timeout=600)
        note.write_text(step)
    return place


def install(text: str, place: Path, wheel: Path) -> None:
    """Follow the commands of a section that make an environment and install mooring, from the wheel."""
    uv = runpy.run_path(str(ROOT / "scripts/test_adapters.py"))["uv"]()
    for command, _ in commands(text):
        if command == "python3 -m venv .venv":
            made = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)]
        elif command == ". .venv/bin/activate":
            continue
        else:
            found = re.fullmatch(r"pip install '?mooring(\[[a-z-]+\])?'?", command)
            assert found, command
            package = f"mooring{found[1] or ''} @ file://{wheel}"
            made = [uv, "pip", "install", "--quiet", "--python", str(place / "bin/python"), package]
        subprocess.run(made, check=True)


def run(command: str | list[str], folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    return done.stdout


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_with_eight_servers_is_built_from_the_page_alone(
    framework: str, wheel: Path, servers: Path, tmp_path: Path
) -> None:
    home, folder = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    folder.mkdir()
    (folder / "servers").symlink_to(servers / "servers")
    subprocess.run(["git", "init", "--quiet", "repository"], cwd=folder, check=True)
    place = PEERS / f"clean-{framework.replace(' ', '-').lower()}"
    path = f"{place}/bin:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(home), "MOORING_HOME": str(home / "mooring"), "LANG": "C.UTF-8"}
    install(section("Install mooring"), place, wheel)
    (folder / "mooring.yaml").write_text(block("yaml", section("Describe them")))

    for command, expected in commands(section("The first error")):
        output = run(command, folder, env)
        assert [line for line in expected if line not in output] == [], f"{command}\n{output}"
    assert re.search(r"^servers:", (folder / "mooring.yaml").read_text())
    assert (folder / "mooring.lock").exists()

    install(section(framework), place, wheel)
    (folder / "agent.py").write_text(block("py", section(framework)))
    output = run(["python", "agent.py"], folder, env)
    wrong, right, asked, done = (
        output.find(text) for text in ("'timezone'", '"datetime"', "asked: mcp_files_write_file", "Done.")
    )
    assert 0 <= wrong < right, output
    assert asked >= 0, output
    assert max(right, asked) < done, output
    assert (folder / "boat.txt").read_text() == "pier 7"
