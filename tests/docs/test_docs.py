"""The examples in the documentation are executed."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import mooring
from mooring import demo

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(language: str, page: Path) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


TUTORIAL = ROOT / "docs/tutorial.md"
EXAMPLES = [
    pytest.param(source, id=f"{page.name}-{number}")
    for page in PAGES
    if page != TUTORIAL
    for number, source in enumerate(blocks("python", page), 1)
]


@pytest.mark.parametrize("source", EXAMPLES)
def test_a_python_example_runs_as_it_stands_and_prints_what_it_says(source: str, tmp_path: Path) -> None:
    command, *args = demo.command("notes")
    servers = {"mcpServers": {"notes": {"command": command, "args": args}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"# prints: (.*)", source)
    assert expected or not done.stdout
    assert [line for line in expected if line not in done.stdout] == []


def test_the_tutorial_works_in_an_empty_folder(tmp_path: Path) -> None:
    """Its console lines and programs, in order, with no other file than those that it makes."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MOORING_HOME": str(tmp_path / "home")}
    environment["PYTHONPATH"] = str(Path(mooring.__file__).parents[1])
    folder = tmp_path / "project"
    folder.mkdir()
    text = TUTORIAL.read_text()
    for language, source in re.findall(r"```(console|python)\n(.*?)```", text, re.DOTALL):
        lines = re.findall(r"^\$ mooring (.*)", source, re.MULTILINE)
        words = [["-m", "mooring", *shlex.split(line)] for line in lines]
        shown = ""
        for word in words if language == "console" else [["-W", "error", "-c", source]]:
            done = subprocess.run(
                [sys.executable, *word],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=30,
            )
            assert done.returncode == 0, (word, done.stderr)
            shown += re.sub(r" +", " ", done.stdout)
        printed = re.findall(r"# prints: (.*)", source) or re.findall(r"^([^$\n].*)", source, re.MULTILINE)
        assert [line for line in printed if re.sub(r" +", " ", line).strip() not in shown] == []


def test_the_example_configuration_serves_the_first_example_from_the_root_of_a_clone() -> None:
    source = blocks("python", README)[0].replace("mcp.json", "examples/mcp.json")
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert "A mooring holds many boats." in done.stdout, done.stderr


def test_the_readme_names_only_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z-]+)", "".join(blocks("sh", README))))
    assert named
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_the_command_line_page_is_what_the_commands_say() -> None:
    page = runpy.run_path(str(ROOT / "scripts/write_cli_help.py"))["page"]()
    assert (ROOT / "docs/cli.md").read_text() == page, "run `make format`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_tables_follow_an_empty_line_or_a_heading(page: Path) -> None:
    """Without it, GitHub shows a list and the site a paragraph."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```$", "```", page.read_text())
    before: str = ""
    for line in text.splitlines():
        starts = re.match(r"[-*] |\d+\. |\|", line)
        if starts and not line.startswith("|---") and before.strip():
            inside = re.match(r"\s|[-*] |\d+\. |\||#|<!--", before)
            assert inside, f"add an empty line after {before!r}"
        before = line


def test_the_recorded_session_is_what_the_commands_print() -> None:
    script = [sys.executable, str(ROOT / "scripts/record_session.py"), "--check"]
    assert subprocess.run(script, timeout=50).returncode == 0, "run `make format`"


def test_the_changelog_the_package_and_the_deployment_files_have_one_version() -> None:
    import tomllib

    released = re.findall(
        r"^## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    numbers = [tuple(map(int, version.split("."))) for version, _ in released]
    dates = [date.fromisoformat(day) for _, day in released]
    assert len(numbers) >= 2
    assert (numbers, dates) == (sorted(numbers, reverse=True), sorted(dates, reverse=True))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    deployed = [
        *re.findall(r"image: mooring:(\S+)", (ROOT / "deploy/compose.yaml").read_text()),
        *re.findall(r'appVersion: "(\S+)"', (ROOT / "deploy/helm/mooring/Chart.yaml").read_text()),
        *re.findall(r'tag: "(\S+)"', (ROOT / "deploy/helm/mooring/values.yaml").read_text()),
    ]
    assert [project, mooring.__version__, *deployed] == [released[0][0]] * 5


def test_the_changelog_has_each_section_and_each_entry_once() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    entries = re.findall(r"^- .*(?:\n  .*)*", text, re.M)
    assert sorted(entry for entry in set(entries) if entries.count(entry) > 1) == []
    for version in text.split("\n## ")[1:]:
        titles = re.findall(r"^### (.*)", version, re.M)
        assert sorted(titles) == sorted(set(titles) & {"Added", "Changed", "Fixed", "Removed"}), version[:40]
