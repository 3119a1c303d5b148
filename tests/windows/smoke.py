"""Smoke test on Windows: `python tests/windows/smoke.py`, or under Wine with `make test-wine`.

It needs nothing but mooring and its dependencies. Each check prints a line; the first failure ends it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mooring

passed: list[str] = []
SLOW = 120.0
"""Seconds for one step: a start of Python under Wine takes some seconds."""

TREE = """
import json, subprocess, sys
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                      "serverInfo": {"name": "tree", "version": "1"}}
        case "tools/list":
            schema = {"type": "object"}
            result = {"tools": [{"name": name, "inputSchema": schema} for name in ("child", "hang")]}
        case "tools/call" if message["params"]["name"] == "hang":
            continue
        case "tools/call":
            result = {"content": [{"type": "text", "text": f"{sleeper.pid} \\u2713 \\U0001f6a2"}]}
        case _:
            result = None
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        answer["error"] = {"code": -32601, "message": "no such method"}
    else:
        answer["result"] = result
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""
"""A server with a child process of its own."""


def running(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    assert sys.platform == "win32"
    kernel32 = ctypes.windll.kernel32
    kernel32.OpenProcess.restype = ctypes.c_void_p
    kernel32.WaitForSingleObject.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    kernel32.CloseHandle.argtypes = (ctypes.c_void_p,)
    handle = kernel32.OpenProcess(0x0010_0000, False, pid)
    if not handle:
        return False
    try:
        return kernel32.WaitForSingleObject(handle, 0) == 0x102
    finally:
        kernel32.CloseHandle(handle)


def ended(pid: int, within: float = 20.0) -> bool:
    """Whether the process ends within this time."""
    limit = time.monotonic() + within
    while running(pid):
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def check(name: str) -> Iterator[None]:
    """Print what is checked, and how long it took."""
    began = time.monotonic()
    yield
    passed.append(name)
    print(f"ok  {name} ({time.monotonic() - began:.1f} s)", flush=True)


def command(*arguments: str, code: int = 0, stdin: str = "") -> str:
    """The standard output of a command in the working directory, read as UTF-8."""
    done = subprocess.run(
        [sys.executable, "-m", "mooring", *arguments], input=stdin.encode(), capture_output=True, timeout=SLOW
    )
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout.decode("utf-8")


def tree_config(folder: Path) -> mooring.ServerConfig:
    """The server with a child process, started by a batch file that only PATHEXT finds."""
    (folder / "tree.py").write_text(TREE, "utf-8")
    (folder / "tree.cmd").write_text(f'@"{sys.executable}" "{folder / "tree.py"}"\n', "utf-8")
    path = os.pathsep.join((str(folder), os.environ["PATH"]))
    return mooring.ServerConfig(name="tree", command="tree", env={"PATH": path}, connect_timeout=SLOW)


async def in_library(folder: Path) -> None:
    with check("a batch file is found through PATHEXT, and texts are UTF-8"):
        async with mooring.Host([tree_config(folder)]) as host:
            await host.ready(SLOW)
            result = await host.call("mcp_tree_child", {}, timeout=SLOW)
            pid, *marks = result.text.split()
            assert marks == ["\u2713", "\U0001f6a2"], result
            assert running(int(pid))
            with check("a call ends at its timeout, and the server goes on"):
                began = time.monotonic()
                late = await host.call("mcp_tree_hang", {}, timeout=0.5)
                assert late.is_error, late
                assert time.monotonic() - began < 2
                assert (await host.call("mcp_tree_child", {}, timeout=SLOW)).text == result.text
    with check("a descendant of a server ends with the host"):
        assert ended(int(pid))


def killed_host(folder: Path) -> None:
    program = folder / "killed.py"
    program.write_text(
        "import asyncio, sys\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "import smoke, mooring\n"
        "from pathlib import Path\n"
        "async def main():\n"
        f"    async with mooring.Host([smoke.tree_config(Path({str(folder)!r}))]) as host:\n"
        "        await host.ready(120)\n"
        "        print((await host.call('mcp_tree_child', {}, timeout=120)).text.split()[0], flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n",
        "utf-8",
    )
    with check("a descendant of a server ends when the host is killed"):
        child = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        assert running(pid)
        child.kill()
        child.wait(20)
        assert ended(pid)


def in_commands(folder: Path) -> None:
    os.chdir(folder)
    os.environ["MOORING_HOME"] = str(folder / "home")
    command("init", "mcp.json", "--demo")
    config = ("--config", "mcp.json", "--timeout", str(SLOW))
    with check("a call prints JSON in UTF-8"):
        note = ("title=\xe9\u2713\U0001f6a2", "text=a")
        document = json.loads(command(*config, "--json", "call", "mcp_notes_write_note", *note))
        assert document["text"] == "Saved note: \xe9\u2713\U0001f6a2", document
    with check("list, tools, lock and check"):
        listed: dict[str, Any] = json.loads(command(*config, "--json", "list"))
        assert {row["state"] for row in listed["servers"]} == {"connected"}, listed
        command(*config, "lock")
        command(*config, "check")
        assert len(json.loads(command(*config, "--json", "tools"))) == 5
    with check("an unknown tool ends with exit code 2"):
        command(*config, "call", "mcp_notes_read_nots", code=2)


async def through_gateway(folder: Path) -> None:
    serve = ("-m", "mooring", "--config", str(folder / "mcp.json"), "serve", "--style", "raw")
    with check("serve --stdio as a server of another host"):
        config = mooring.ServerConfig(
            name="outer",
            command=sys.executable,
            args=(*serve, "--stdio"),
            connect_timeout=SLOW,
        )
        async with mooring.Host([config]) as host:
            await host.ready(SLOW)
            result = await host.call("mcp_outer_read_note", {"title": "welcome"}, timeout=SLOW)
            assert result.text == "A mooring holds many boats.", result
    with check("serve --http answers /health and calls"):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *serve,
            "--http",
            "127.0.0.1:0",
            "--json",
            "--style",
            "raw",
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            url = json.loads(await asyncio.wait_for(process.stdout.readline(), SLOW))["url"]
            health = url.removesuffix("/mcp") + "/health"
            await asyncio.to_thread(lambda: urllib.request.urlopen(health, timeout=SLOW).read())
            async with mooring.Host([mooring.ServerConfig(name="web", url=url)]) as host:
                await host.ready(SLOW)
                result = await host.call("mcp_web_read_note", {"title": "welcome"}, timeout=SLOW)
                assert result.text == "A mooring holds many boats.", result
        finally:
            process.kill()
            await process.wait()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mooring smoke ", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        asyncio.run(in_library(folder))
        killed_host(folder)
        in_commands(folder)
        asyncio.run(through_gateway(folder))
        with check("the demo"):
            command("demo")
        os.chdir(folder.parent)
    print(f"{len(passed)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
