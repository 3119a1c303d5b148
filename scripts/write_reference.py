"""Write docs/reference/configuration.md, docs/troubleshooting.md and the JSON Schema in the package."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from mooring.cli.explain import explanations
from mooring.config.formats import DEFAULTS
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.reference import SettingReference, json_schema, references_of

ROOT = Path(__file__).parent.parent

CONFIGURATION = """\
# Configuration reference

`make format` generates this page from the models; a test compares the two. `mooring schema` prints the same
as JSON Schema: see [editors](#editors).

Servers stand under `servers` or `mcpServers`, settings of the host beside them. A file may be YAML, TOML or
JSON with comments. `connectTimeout` and `connect-timeout` are read like `connect_timeout`.

- A duration is a number of seconds or a text such as `500ms`, `30s`, `1h30m`. A size is a number of bytes or
  a text such as `512KiB`, `16MiB`.
- Texts may contain references: `${VAR}`, `${VAR:-default}`, `${file:PATH}`. They are resolved when a server
  starts.
- In an entry, `null` means the default.
- *since* is the first version with the setting; `next` is not released yet.

```yaml
# mooring.yaml
servers:
  files:
    command: npx
    args: [-y, "@modelcontextprotocol/server-filesystem@2026.1.14", .]
    allow: ["read_*", "list_*"]
connect_timeout: 60s
policy:
  ask: ["@destructive"]
```

## Editors

`mooring schema --output mooring.schema.json` writes the schema. VS Code and PyCharm use it for completion and
checks:

| file | first line |
|---|---|
| JSON | `"$schema": "./mooring.schema.json",` inside the braces |
| YAML | `# yaml-language-server: $schema=mooring.schema.json` |
| TOML | `#:schema ./mooring.schema.json` |

The schema of the installed version is also the file `schema.json` in the package.
"""

TROUBLESHOOTING = """\
# Troubleshooting

`mooring doctor` checks everything and prints a code in brackets for each problem. `mooring explain CODE`
prints the section of this page. `make format` generates the page.
"""


def configuration() -> str:
    parts = [CONFIGURATION]
    parts += [
        "## Settings of a server\n",
        "Under `servers.NAME`. Those marked * may also stand beside `servers`, as",
        "the default of all servers.\n",
    ]
    parts += _tables(ServerConfig, "server", starred=DEFAULTS)
    parts += [
        "\n## Settings of the host\n",
        "Beside `servers`, or inside `mcp`.\n",
        *_tables(HostConfig, "host"),
    ]
    return "\n".join(parts) + "\n"


def _tables(cls: type, place: str, starred: frozenset[str] = frozenset()) -> Iterator[str]:
    rows = list(references_of(cls))
    versions = json.loads((ROOT / "scripts/since.json").read_text())
    since = {path: version for version, added in versions.items() for path in added[place]}
    yield from _table([one for one in rows if one.path.isidentifier()], since, starred)
    for head in (one for one in rows if one.section is not None):
        inner = [one for one in rows if _inside(head, one)]
        yield f"\n### `{inner[0].path.rpartition('.')[0]}`\n"
        yield f"{head.meaning}\n" if head.meaning else ""
        yield from _table(inner, since)


def _inside(head: SettingReference, one: SettingReference) -> bool:
    """Whether a setting is a field of this section itself, not of one inside it."""
    rest = one.path.removeprefix(head.path).removeprefix("[]").removeprefix(".NAME")
    return one.path.startswith(head.path) and rest.startswith(".") and rest[1:].isidentifier()


def _table(
    rows: list[SettingReference], since: Mapping[str, str], starred: frozenset[str] = frozenset()
) -> Iterator[str]:
    yield "| setting | type | default | example | since | meaning |"
    yield "|---|---|---|---|---|---|"
    for one in rows:
        name = one.path.rpartition(".")[2] + ("*" if one.path in starred else "")
        unit = f" ({one.unit})" if one.unit else ""
        default = "required" if one.required else "" if one.default in ("", "null") else f"`{one.default}`"
        example = "" if one.example is None else f"`{json.dumps(one.example, ensure_ascii=False)}`"
        version = since.get(one.path, "next")
        yield f"| `{name}` | {one.kind}{unit} | {default} | {example} | {version} | {_cell(one.meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_SYMPTOMS = (
    (
        "a server is `failed` or stays `pending`",
        "`mooring doctor` prints a code",
        "the section of the code",
    ),
    (
        "a server is `disabled`, and you did not disable it",
        "its project file is not approved",
        "[not-approved](#not-approved)",
    ),
    (
        "a server is `needs-auth`",
        "it needs a login or a token",
        "[login](#login)",
    ),
    (
        "a tool is missing",
        "it changed since it was approved; or `allow` and `deny` leave it out",
        "[changed](#changed), [settings](reference/configuration.md#settings-of-a-server)",
    ),
    (
        "the model sees only `tools_groups`, `tools_search` and `tools_select`",
        "discovery is on",
        "[too many tools](discovery.md#modes)",
    ),
    (
        "the name of a tool ends with a hash",
        "it is too long, or two tools would get the same name",
        "[names of servers](editing.md#names-of-servers)",
    ),
    (
        "a call times out",
        "the tool takes longer than `call_timeout`, or is silent for longer than `idle_timeout`",
        "[time and load](production.md#time-and-load)",
    ),
    (
        "a call fails with `Overloaded`",
        "the queue of the server is full",
        "[start, retry, freshness](lifecycle.md)",
    ),
    (
        "a call is not approved (exit code 3)",
        "the policy asks or denies",
        "[policy per tool](security.md#policy-per-tool)",
    ),
    (
        "a result is cut",
        "it is larger than `result_budget`",
        "[the budget](results.md#the-budget)",
    ),
    (
        "a changed tool appears late",
        "the server does not announce changes",
        "[how fresh the tools are](lifecycle.md#how-fresh-the-tools-are)",
    ),
    (
        "a setting has no effect",
        "it is misspelt, or another file takes precedence",
        "[configuration](#configuration), [misspelled settings](editing.md#misspelled-settings)",
    ),
)
"""What is seen, why, and what to read."""


def troubleshooting() -> str:
    table = "\n".join(
        f"| {' | '.join(row)} |" for row in (("what you see", "why", "read"), ("---",) * 3, *_SYMPTOMS)
    )
    codes = (f"## {code}\n\n{text}" for code, text in explanations().items())
    return "\n\n".join([TROUBLESHOOTING.rstrip(), f"## By symptom\n\n{table}", *codes]) + "\n"


def schema() -> str:
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


PAGES = {
    ROOT / "docs/reference/configuration.md": configuration,
    ROOT / "docs/troubleshooting.md": troubleshooting,
    ROOT / "src/mooring/schema.json": schema,
}

if __name__ == "__main__":
    for path, write in PAGES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(write())
