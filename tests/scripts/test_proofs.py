"""Short forms of the proofs that `make test-scripts` runs in full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.transport import confine
from tests.scripts import proofs

pytestmark = pytest.mark.anyio


async def test_a_worker_killed_at_random_points_repeats_no_call() -> None:
    found = await proofs.kills(6, seed=3)
    assert found["failed"] == []
    assert found["ended the script"] >= 2


def test_processes_that_ran_scripts_end_well() -> None:
    assert proofs.exits(3)["failed"] == []


PROBE = """
import os, socket
def attempt(what, action):
    try:
        action()
    except OSError:
        return
    print("ALLOWED", what)
attempt("read a file", lambda: open("/etc/passwd").read())
attempt("read the home", lambda: os.listdir(os.environ.get("SECRETS", "/root")))
attempt("write", lambda: open("/tmp/mooring-probe", "w"))
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", 1), 1))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX))
attempt("signal the host", lambda: os.kill(os.getppid(), 0))
print("probed")
"""


@pytest.mark.skipif(confine.landlock_abi() < 6, reason="this kernel has no Landlock that confines signals")
def test_a_program_inside_the_wall_reaches_no_file_no_network_and_no_other_process(tmp_path: Path) -> None:
    """The same policy as the worker's, around a program that does what a broken interpreter would try."""
    from mooring.scripts import workers

    arguments, problem = workers._setup()
    assert problem == ""
    setup = json.loads(arguments[-1])
    policy = json.dumps({"read": [*setup["read"], sys.prefix, sys.base_prefix], "write": ["/dev/null"]})
    (tmp_path / "secret").write_text("x")
    done = subprocess.run(
        [sys.executable, "-I", "-S", confine.__file__, policy, "--", sys.executable, "-I", "-c", PROBE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SECRETS": str(tmp_path)},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("probed\n", "", 0)


def test_the_policy_of_the_worker_names_no_home_and_no_temporary_files() -> None:
    from mooring.scripts import workers

    setup = json.loads(workers._setup()[0][-1])
    home = Path.home()
    assert all(not home.is_relative_to(path) and path not in ("/", "/etc", "/tmp") for path in setup["read"])


def test_a_launcher_that_is_misused_says_how_to_use_it() -> None:
    done = subprocess.run([sys.executable, confine.__file__], capture_output=True, text=True, check=False)
    assert (done.returncode, "usage:" in done.stderr) == (2, True)
    unknown = subprocess.run(
        [sys.executable, confine.__file__, "{}", "--", "no-such-program"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert unknown.returncode == 126
    assert "no-such-program" in unknown.stderr
