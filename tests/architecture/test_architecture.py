"""Rules that hold for the whole source tree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mooring
import mooring.cli.app

ROOT = Path(__file__).parents[2]
HEAVY = {"mcp", "mcp_types", "pydantic", "aiohttp", "anyio", "httpx2", "yaml"}


def modules_after(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after running the code."""
    report = (
        "import json, sys; sys.stderr.write(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True, timeout=30
    )
    return set(json.loads(done.stderr))


def test_importing_mooring_loads_nothing_heavy() -> None:
    assert not modules_after("import mooring") & (HEAVY | {"asyncio", "logging", "typing_extensions"})


def test_opening_a_host_of_lazy_servers_loads_nothing_heavy(tmp_path: Path) -> None:
    file = tmp_path / "mooring.json"
    file.write_text(json.dumps({"servers": {"db": {"command": "db-mcp", "start": "lazy"}}}))
    code = f"""
import asyncio
from mooring import Host, ServerConfig

async def main():
    async with Host.from_config({str(file)!r}) as host:
        assert [server.name for server in host.config.servers] == ["db"]
        host.search("rows of a table")

asyncio.run(main())
"""
    # anyio runs the host; the rest waits for the first connection.
    assert not modules_after(code) & (HEAVY - {"anyio"} | {"pydantic_core", "watchfiles"})


def test_help_loads_nothing_heavy() -> None:
    commands = [["--help"], *([name, "--help"] for name in mooring.cli.app.COMMANDS)]
    code = f"from mooring.cli import main\nfor words in {commands!r}: main(words)"
    assert not modules_after(code) & (HEAVY | {"asyncio", "logging"})


def test_every_public_name_can_be_had_and_is_listed_once() -> None:
    assert mooring.__all__ == sorted(set(mooring.__all__))
    assert [name for name in mooring.__all__ if not hasattr(mooring, name)] == []
    assert dir(mooring) == mooring.__all__


def test_every_public_name_is_known_to_type_checkers() -> None:
    source = (ROOT / "src/mooring/__init__.py").read_text()
    missing = [n for n in mooring.__all__ if n != "__version__" and f"import {n} as {n}" not in source]
    assert missing == []


def test_each_module_names_only_what_it_has() -> None:
    from importlib import import_module

    wrong: list[str] = []
    for path in sorted((ROOT / "src/mooring").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        if name.endswith("__main__") or ".demo.servers." in name:
            continue
        try:
            module = import_module(name)
        except ImportError as problem:
            if 'pip install "mooring[' in str(problem):  # an adapter whose framework is not installed
                continue
            raise
        wrong += [f"{name}.{item}" for item in getattr(module, "__all__", ()) if not hasattr(module, item)]
    assert wrong == []


def test_the_version_is_written_once_for_all() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == mooring.__version__


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=30)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_file_points_outside_the_repository() -> None:
    neighbour = "/".join(["..", "shared"])
    absolute = "/".join(["", "work", "shared"])
    found = [
        str(path)
        for path in tracked_files()
        if any(place in path.read_text(errors="replace") for place in (neighbour, absolute))
    ]
    assert found == []


def test_modules_stay_small() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/check_sizes.py"], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_the_page_for_agents_stays_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 80


def test_every_logger_of_ours_is_one_that_keeps_secrets() -> None:
    made = [
        str(path)
        for path in (ROOT / "src").rglob("*.py")
        if '= logging.getLogger("mooring' in path.read_text()
    ]
    assert made == [], "use `mooring.config.logs.logger`"


def test_what_waits_follows_the_one_clock_of_the_loop() -> None:
    """Otherwise a virtual clock drives only half of the program. `start_queue` measures CPU time."""
    rooms = [ROOT / "src/mooring" / room for room in ("transport", "auth", "servers")]
    waiting = [path for room in rooms for path in room.glob("*.py")]
    using = sorted(path.name for path in waiting if "time.monotonic" in path.read_text())
    assert using == ["start_queue.py"]
