"""Tokens and time of multi-step tasks, with single calls and as one script: `make bench-scripts`.

Each task is a program as a model would write it, over the bundled and the reference servers. It runs twice: as a
script, and as the same calls made one by one, as a model without scripts makes them. What enters the prompt is
counted with mooring's estimate: the definitions of the tools that are used, every call with its arguments, and
every result; for a script the two tools, the answer of `script_api`, the program and its result. The table in
docs/scripts.md is written by this program.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import mooring
from mooring import demo
from mooring.core.builtin_tools import SCRIPT_API, SCRIPT_RUN
from mooring.core.text import estimate, tool_cost
from mooring.scripts.stubs import function_names, identifiers
from tests.reference.conftest import NPM, PYPI, installed, npm_install, pip_install

PAGE = Path(__file__).parents[1] / "docs" / "scripts.md"
START, END = "<!-- tasks: written by `make bench-scripts` -->", "<!-- end of tasks -->"
FILES = 24
LINES = 120


def tasks(root: str) -> dict[str, str]:
    """The programs by what they do."""
    listing = f'names = [line[7:] for line in (await mcp_files_list_directory(path="{root}"))["content"].splitlines()]\n'
    read = f'texts = await asyncio.gather(*[mcp_files_read_text_file(path=f"{root}/{{n}}") for n in names])\n'
    everything = f"import asyncio\n{listing}{read}"
    return {
        "Read all notes, count the words": (
            'titles = (await mcp_notes_list_notes())["titles"]\n'
            'notes = [(await mcp_notes_read_note(title=t))["text"] for t in titles]\n'
            "sum(len(n.split()) for n in notes)"
        ),
        "Write ten notes, list them": (
            'for i in range(10):\n    await mcp_notes_write_note(title=f"step {i}", text=f"Step {i} of the plan. " * 20)\n'
            'len((await mcp_notes_list_notes())["titles"])'
        ),
        "Rewrite every note in capitals": (
            'for t in (await mcp_notes_list_notes())["titles"]:\n'
            "    note = await mcp_notes_read_note(title=t)\n"
            '    await mcp_notes_write_note(title=t, text=note["text"].upper())\n'
            '"done"'
        ),
        "Copy notes that match a word to a file": (
            'found = []\nfor t in (await mcp_notes_list_notes())["titles"]:\n'
            '    text = (await mcp_notes_read_note(title=t))["text"]\n'
            '    if "PLAN" in text:\n        found.append(text)\n'
            f'await mcp_files_write_file(path="{root}/plan.txt", content="\\n".join(found))\nlen(found)'
        ),
        "The warmest of three cities": (
            'cities = [await mcp_weather_forecast(city=c) for c in ("Hamburg", "Lisbon", "Oslo")]\n'
            'max(cities, key=lambda c: c["celsius"])["city"]'
        ),
        "A weather report as a note": (
            'lines = []\nfor c in ("Hamburg", "Lisbon", "Oslo"):\n'
            "    w = await mcp_weather_forecast(city=c)\n    lines.append(f\"{c}: {w['celsius']} °C, {w['sky']}\")\n"
            'await mcp_notes_write_note(title="weather", text="\\n".join(lines))\nlen(lines)'
        ),
        "One time in twelve time zones": (
            "import asyncio\n"
            'r = await asyncio.gather(*[mcp_clock_convert(time="2026-05-06T12:00:00+00:00", offset_hours=h) for h in range(12)])\n'
            '[x["time"][11:16] for x in r]'
        ),
        "Meeting times in six cities": (
            "out = {}\n"
            'for z in ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney", "UTC"):\n'
            '    r = await mcp_time_convert_time(source_timezone="UTC", time="14:00", target_timezone=z)\n'
            '    out[z] = r["target"]["datetime"][11:16]\nout'
        ),
        "Count the errors in log files": everything + 'sum(t["content"].count("ERROR") for t in texts)',
        "Errors by code, the five most frequent": (
            everything + "import re\nfrom collections import Counter\n"
            'Counter(c for t in texts for c in re.findall(r"ERROR (E\\d+)", t["content"])).most_common(5)'
        ),
        "Lines of one request in all files": (
            everything
            + 'sorted(line for t in texts for line in t["content"].splitlines() if "request=77 " in line)'
        ),
        "The largest file": (
            "import re\n" + listing + "best = (0, '')\nfor n in names:\n"
            f'    info = (await mcp_files_get_file_info(path=f"{root}/{{n}}"))["content"]\n'
            '    best = max(best, (int(re.search(r"size: (\\d+)", info).group(1)), n))\nbest[1]'
        ),
        "A summary file of all logs": (
            everything
            + "rows = [f\"{n}: {t['content'].count('ERROR')} errors\" for n, t in zip(names, texts)]\n"
            f'await mcp_files_write_file(path="{root}/summary.txt", content="\\n".join(rows))\nlen(rows)'
        ),
        "Weather of three places, averaged": (
            'places = ("New York", "Chicago", "Los Angeles")\n'
            "r = [await mcp_everything_get_structured_content(location=p) for p in places]\n"
            'round(sum(x["temperature"] for x in r) / len(r), 1)'
        ),
    }


def write_logs(root: Path) -> None:
    for number in range(FILES):
        rows = [
            f"2026-05-06T12:{line % 60:02}:00 {'ERROR E' + str(line % 7) if line % 9 == 0 else 'INFO'} "
            f"request={line * 7 % 101} file={number} took={line * 13 % 97}ms path=/api/v1/items/{line}"
            for line in range(LINES + number)
        ]
        (root / f"app-{number:02}.log").write_text("\n".join(rows))


async def measure(host: mooring.Host, name: str, code: str) -> dict[str, Any]:
    """Run one task both ways."""
    session = host.session(name, scripts=True)
    made: list[tuple[str, Any, mooring.Result]] = []
    original = type(session).call

    async def noted(self: Any, tool: str, arguments: Any = None, **more: Any) -> mooring.Result:
        result = await original(self, tool, arguments, **more)
        if tool not in ("script_run", "script_api"):
            made.append((tool, arguments, result))
        return result

    functions = function_names(host.catalog.tools.values())
    used = [functions[word] for word in sorted(identifiers(code)) if word in functions]
    api = await session.call("script_api", {"tools": [tool.name for tool in used]})
    await session.run_script("1")
    type(session).call = noted  # type: ignore[method-assign]
    try:
        started = time.perf_counter()
        result = await session.call("script_run", {"code": code})
        with_ms = (time.perf_counter() - started) * 1000
    finally:
        type(session).call = original  # type: ignore[method-assign]
    if result.is_error:
        raise SystemExit(f"{name}: {result.text}")
    calls = _without_dry_run(made, result)
    started = time.perf_counter()
    singles = [await session.call(tool, arguments) for tool, arguments, _ in calls]
    without_ms = (time.perf_counter() - started) * 1000
    said = [json.dumps({"name": tool, "arguments": dict(given)}) for tool, given, _ in calls]
    without = (
        sum(map(tool_cost, used)) + sum(map(estimate, said)) + sum(estimate(one.text) for one in singles)
    )
    texts = (api.text, json.dumps({"code": code}), result.text)
    with_scripts = tool_cost(SCRIPT_API) + tool_cost(SCRIPT_RUN) + sum(map(estimate, texts))
    return {
        "task": name,
        "calls": len(calls),
        "without": without,
        "with": with_scripts,
        "without_ms": without_ms,
        "with_ms": with_ms,
    }


def _without_dry_run(made: list[Any], result: mooring.Result) -> list[Any]:
    """The calls of the script itself: the reads of its dry run would not be made without scripts."""
    calls = result.meta["mooring/script"]["calls"]
    left = Counter(call["tool"] for call in calls if not call.get("planning"))
    kept: list[Any] = []
    for call in reversed(made):
        if left[call[0]]:
            left[call[0]] -= 1
            kept.append(call)
    return kept[::-1]


async def run() -> list[dict[str, Any]]:
    node = installed("node", NPM, npm_install) / "node_modules/@modelcontextprotocol"
    clock = installed("time", PYPI, pip_install) / "bin/mcp-server-time"
    with tempfile.TemporaryDirectory() as folder, demo.weather() as url:
        root = Path(folder).resolve() / "logs"
        root.mkdir()
        write_logs(root)
        commands = {
            "files": ("node", str(node / "server-filesystem/dist/index.js"), str(root)),
            "everything": ("node", str(node / "server-everything/dist/index.js"), "stdio"),
            "time": (str(clock),),
            "notes": demo.command("notes"),
            "clock": demo.command("clock"),
        }
        servers = [
            mooring.ServerConfig(name=name, command=command, args=tuple(args), trust_hints=True)
            for name, (command, *args) in commands.items()
        ]
        servers.append(mooring.ServerConfig(name="weather", url=url, trust_hints=True))
        async with mooring.Host(servers, lock=False, home=None, on_approval=lambda request: True) as host:
            await host.ready(120)
            return [await measure(host, name, code) for name, code in tasks(str(root)).items()]


def table(rows: list[dict[str, Any]]) -> str:
    """The table of the documentation."""
    lines = [
        "| task | calls | tokens, single calls | tokens, script | time, single calls | time, script |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['task']} | {row['calls']} | {row['without']:,} | {row['with']:,} "
        f"| {row['without_ms']:.0f} ms | {row['with_ms']:.0f} ms |"
        for row in rows
    ]
    whole = {
        key: sum(row[key] for row in rows) for key in ("calls", "without", "with", "without_ms", "with_ms")
    }
    lines.append(
        f"| **all** | {whole['calls']} | {whole['without']:,} | {whole['with']:,} "
        f"| {whole['without_ms']:.0f} ms | {whole['with_ms']:.0f} ms |"
    )
    return "\n".join(lines)


def main() -> int:
    rows = asyncio.run(run())
    text = table(rows)
    print(text)
    page = PAGE.read_text()
    pattern = re.compile(re.escape(START) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{START}\n{text}\n{END}", page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
