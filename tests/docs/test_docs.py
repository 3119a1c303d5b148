"""What the documentation shows is run."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from mooring import demo

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")] if path.name != "LICENSE"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def write_config(folder: Path) -> None:
    """The `mcp.json` that the README talks about, around the bundled servers."""
    command, *args = demo.command("notes")
    (folder / "mcp.json").write_text(
        json.dumps({"mcpServers": {"notes": {"command": command, "args": args}}})
    )


@pytest.mark.parametrize("source", blocks("python"), ids=lambda source: source.strip().splitlines()[-1][:40])
def test_a_python_example_of_the_readme_runs_as_it_stands(source: str, tmp_path: Path) -> None:
    write_config(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"# prints: (.*)", source)
    assert [line for line in expected if line not in done.stdout] == []


def test_the_readme_names_only_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z-]+)", "".join(blocks("sh"))))
    assert named
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_the_command_line_page_is_what_the_commands_say() -> None:
    page = runpy.run_path(str(ROOT / "scripts/write_cli_help.py"))["page"]()
    assert (ROOT / "docs/cli.md").read_text() == page, "run `make format`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "source", re.findall(r"```python\n(.*?)```", (ROOT / "docs/security.md").read_text(), re.DOTALL)
)
def test_a_python_example_of_the_security_page_runs_as_it_stands(source: str, tmp_path: Path) -> None:
    test_a_python_example_of_the_readme_runs_as_it_stands(source, tmp_path)


def test_the_recorded_session_is_what_the_commands_print() -> None:
    script = [sys.executable, str(ROOT / "scripts/record_session.py"), "--check"]
    assert subprocess.run(script, timeout=50).returncode == 0, "run `make format`"
