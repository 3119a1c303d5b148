"""Build the distributions and use them as a user would: `make release-check`.

    python scripts/release_check.py [--release]

Builds the sdist and the wheel, runs `twine check`, compares the contents of the wheel with the source tree,
builds a wheel from the sdist and compares the two, installs the wheel in a clean environment, imports it and
runs the demo.
With `--release`, CHANGELOG.md must have a section of this version.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".peers" / "release"
SOURCE = ROOT / "src"
WHEEL_ONLY = re.compile(r"^mooring-[^/]+\.dist-info/")


def step(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def run(*words: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """The output of a command; ends the program if it fails."""
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"error: {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    return re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]


def build(source: Path, target: Path, kind: str) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target), cwd=source)
    return next(target.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not WHEEL_ONLY.match(name)}


def tracked() -> set[str]:
    """The files of the package that git knows."""
    listed = run("git", "ls-files", "src/mooring").splitlines()
    return {str((ROOT / name).relative_to(SOURCE)) for name in listed}


def problems_of(wheel: Path) -> Iterator[str]:
    """What is missing in the wheel, and what does not belong there."""
    there, wanted = names_in(wheel), tracked()
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - there))
    yield from (f"the wheel has {name}, which git does not know" for name in sorted(there - wanted))
    with zipfile.ZipFile(wheel) as archive:
        information = f"mooring-{version()}.dist-info/"
        entries = archive.read(f"{information}entry_points.txt").decode()
        if "mooring = mooring.cli:main" not in entries:
            yield "the wheel has no command `mooring`"
        if not any(name.endswith("licenses/LICENSE") for name in archive.namelist()):
            yield "the wheel has no LICENSE"
        metadata = archive.read(f"{information}METADATA").decode()
        if f"Version: {version()}" not in metadata:
            yield "the metadata has another version"


def changelog(release: bool) -> Iterator[str]:
    found = re.search(rf"^## {re.escape(version())}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if found is None and release:
        yield f"CHANGELOG.md has no section {version()}"
    elif found is None:
        step(f"note: CHANGELOG.md has no section {version()}; --release requires it")


def try_it(uv: str, wheel: Path, folder: Path) -> None:
    """Install the wheel in a clean environment, import it, and run the demo, outside of the source tree."""
    place = folder / "clean"
    run(uv, "venv", "--quiet", "--python", sys.executable, str(place))
    run(uv, "pip", "install", "--quiet", "--python", str(place / "bin/python"), str(wheel))
    env = {
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "HOME": str(folder),
        "MOORING_HOME": str(folder / "state"),
    }
    code = (
        "import mooring, sys; [getattr(mooring, name) for name in mooring.__all__]; print(mooring.__file__)"
    )
    imported = run("python", "-c", code, cwd=folder, env=env)
    if str(place) not in imported:
        sys.exit(f"error: another mooring was imported: {imported}")
    step(f"every exported name is imported from {imported.strip()}")
    if version() not in run("mooring", "--version", cwd=folder, env=env):
        sys.exit("error: `mooring --version` prints another version")
    shown = run("mooring", "demo", cwd=folder, env=env)
    step(f"mooring demo: {shown.strip().splitlines()[-1].strip()}")


def main() -> int:
    uv = runpy.run_path(str(ROOT / "scripts/test_adapters.py"))["uv"]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = build(ROOT, folder / "dist", "wheel"), build(ROOT, folder / "dist", "sdist")
        step(f"built {wheel.name} ({wheel.stat().st_size // 1024} KiB), {sdist.name}")
        if not (HOME / "bin" / "twine").exists():
            run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(HOME))
            run(uv, "pip", "install", "--quiet", "--python", str(HOME / "bin/python"), "twine")
        run(str(HOME / "bin/twine"), "check", "--strict", str(wheel), str(sdist))
        step("twine check: passed")
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "sdist", filter="data")
        again = build(next((folder / "sdist").iterdir()), folder / "again", "wheel")
        problems = [*problems_of(wheel), *changelog("--release" in sys.argv)]
        if names_in(again) != names_in(wheel):
            problems.append("a wheel that is built from the sdist has other files")
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        if problems:
            return 1
        step(f"{len(names_in(wheel))} files in the wheel, the same from the sdist")
        try_it(uv, wheel, folder)
    step("ready to release")
    return 0


if __name__ == "__main__":
    sys.exit(main())
