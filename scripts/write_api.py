"""Write docs/reference/api/: one entry for each exported name, with its example from docs/examples/.

mkdocstrings fills the entries from the docstrings when the site is built.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import mooring

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference" / "api"
EXAMPLES = ROOT / "docs" / "examples"
GENERATED = "<!-- written by `make format` -->\n"
NOTE = (
    "In the examples, `host` is an entered `Host` with the server `shop` (tools `price` and `order`), `reader` one with\n"
    "the server `library` (resource `memo://opening`, prompt `greet`, skill `refunds`), and `folder` the working\n"
    "directory. The code runs inside an async function. A test runs each example.\n"
)


@dataclass(frozen=True)
class Page:
    """One page: a heading, a sentence, and the names on it."""

    title: str
    about: str
    module: str = "mooring"
    names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Whole modules instead of names."""


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PAGES = {
    "host": Page(
        "Host and session",
        "What you create and enter, and what its verbs return. `SyncHost` has the same verbs without `await`.",
        names=words(
            "Host SyncHost Session SyncSession ServerStatus RefreshReport Plan EventStream Login SyncLogin"
        ),
    ),
    "catalog": Page(
        "Catalog",
        "What the servers offer, merged, and the names of tools.",
        names=words(
            "Catalog Tool Group Hit Resource ResourceTemplate ResourceList Prompt PromptList Skill SkillFile Extension"
            " Snapshot SemanticRanker build_tool_name parse_tool_name tool_name_prefix normalize_name"
        ),
    ),
    "results": Page(
        "Results",
        "What calls, readings and prompts return, and questions of servers.",
        names=words("Result Block Contents Message Elicitation Answer"),
    ),
    "configuration": Page(
        "Configuration",
        "Settings as Python values. [Every setting](../configuration.md) has its table.",
        names=words("HostConfig ServerConfig Secret TrustRequest __version__"),
    ),
    "policy": Page(
        "Policy",
        "Decisions about calls: rules, approvals, guards. See [rules and guards](../../policy.md).",
        names=words("Policy ApprovalRequest Decision ToolCall Guard SecretGuard BudgetGuard"),
    ),
    "events": Page(
        "Events",
        "What `host.events()` yields.",
        names=words(
            "Event StateChanged ServerConnected ServerLost ServerRemoved LoginNeeded CatalogChanged ToolSetAside"
            " ResourceUpdated SessionEnded ConfigApplied ConfigRejected ApprovalAsked CallDenied CallStarted"
            " CallFinished ScriptStarted ScriptCalled ScriptFinished LoopLagged EventsDropped"
        ),
    ),
    "errors": Page(
        "Errors",
        "`host.call` returns them in `result.error`; with `check=True`, and in the other verbs, they are raised.",
        names=words(
            "MooringError ConfigError UnknownTool UnknownServer UnknownResource AmbiguousResource UnknownPrompt"
            " ConnectError AuthNeeded NotTrusted PolicyDenied ToolChanged GuardDenied CallError CallTimeout"
            " ConnectionLost CircuitOpen Overloaded ServerError"
        ),
    ),
    "local": Page(
        "Own tools", "Functions and sources of tools of the application.", names=words("LocalTools Provider")
    ),
    "extensions": Page(
        "Extensions",
        "Pages of tools. See [extensions](../../extensions.md).",
        names=words("View ViewBridge SyncView SyncViewBridge"),
    ),
    "agents": Page(
        "mooring.agents",
        "Interfaces that agent runtimes expect. See [interfaces for runtimes](../../agents.md).",
        module="mooring.agents",
        names=words(
            "McpManager McpToolInfo McpCallResult McpRun StepResult EventBus mcp_tools_section McpBridgeExtension"
            " FunctionTool Engine McpToolProvider RefreshError DeferredTool register_factories discovered_names"
            " mooring.ContextProvider mooring.TurnContext"
        ),
    ),
    "gateway": Page(
        "mooring.gateway",
        "Serve a host as one MCP server. See [the gateway](../../gateway.md).",
        module="mooring.gateway",
        names=words("serve_http Serving serve_stdio asgi_app ClientBridge"),
    ),
    "sdk": Page(
        "mooring.sdk",
        "The official `ClientSession` on mooring's connection (extra `sdk`).",
        module="mooring.sdk",
        names=("client_session",),
    ),
    "testing": Page(
        "mooring.testing",
        "Doubles for your tests. See [test your agent](../../testing.md).",
        module="mooring.testing",
        names=words(
            "FakeServer Request Fault hang crash garbage slow unauthorized rate_limited VirtualClock Recorder Replay"
            " replay_script"
        ),
    ),
    "adapters": Page(
        "mooring.adapters",
        "One module for each framework. See [adapters](../../adapters.md) for the table and the examples.",
        module="mooring.adapters",
        modules=tuple(
            sorted(
                path.stem
                for path in (ROOT / "src/mooring/adapters").glob("*.py")
                if not path.stem.startswith("_")
            )
        ),
    ),
}


def pages() -> dict[Path, str]:
    """The text of each page, by its path."""
    found = {TARGET / f"{name}.md": GENERATED + "\n".join(_page(name, page)) for name, page in PAGES.items()}
    return {TARGET / "index.md": GENERATED + "\n".join(_index()), **found}


def _page(file: str, page: Page) -> Iterator[str]:
    yield f"# {page.title}\n"
    yield f"{page.about}\n"
    if page.modules:
        for module in page.modules:
            yield f"::: mooring.adapters.{module}\n"
            yield f"Example: [examples/{_example_file(module)}](../../../examples/{_example_file(module)})\n"
        return
    yield NOTE
    examples = examples_of(file)
    for name in page.names:
        full = name if "." in name else f"{page.module}.{name}"
        short = name.rpartition(".")[2]
        yield f"::: {full}\n"
        yield f"```py\n{examples[short]}\n```\n"


def _example_file(module: str) -> str:
    names = {
        "anthropic": "anthropic_messages",
        "openai": "openai_responses",
        "google_genai": "google_genai_loop",
    }
    names |= {"llm": "llm_chain"}
    return f"{names.get(module, f'{module}_agent')}.py"


def _index() -> Iterator[str]:
    yield "# Python reference\n"
    yield "Every exported name. `help(mooring.Host)` shows the same in Python.\n"
    yield "| name | | page |"
    yield "|---|---|---|"
    rows: list[tuple[str, str, str, str]] = []
    for file, page in PAGES.items():
        for name in page.names:
            full = name if "." in name else f"{page.module}.{name}"
            rows.append((full, summary(full), page.title, file))
        rows += [
            (f"mooring.adapters.{module}", _module_summary(module), page.title, file)
            for module in page.modules
        ]
    for full, about, title, file in sorted(rows, key=lambda row: (row[0].count("."), row[0].lower())):
        shown = full.removeprefix("mooring.") if full.count(".") == 1 else full
        yield f"| [`{shown}`]({file}.md#{full}) | {about} | {title} |"
    yield ""


def summary(full: str) -> str:
    """The first sentence of the docstring."""
    module, _, name = full.rpartition(".")
    if name == "__version__":
        return "The version of mooring."
    value = getattr(import_module(module), name)
    document = inspect.getdoc(value) if callable(value) else _attribute_docstring(value, name)
    assert document, full
    first = document.split("\n\n")[0].split("\n")
    text = " ".join(line.strip() for line in first)
    return re.split(r"(?<=[.:])\s", text)[0].rstrip(":").replace("|", "\\|")


def _attribute_docstring(value: object, name: str) -> str:
    """The text below an assignment, such as that of a fault."""
    source = inspect.getsource(inspect.getmodule(type(value)))  # type: ignore[arg-type]
    body = ast.parse(source).body
    for assignment, below in pairwise(body):
        names = [ast.unparse(target) for target in getattr(assignment, "targets", [])]
        if name in names and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return str(below.value.value)
    return ""


def _module_summary(module: str) -> str:
    tree = ast.parse((ROOT / f"src/mooring/adapters/{module}.py").read_text())
    return (ast.get_docstring(tree) or "").split("\n")[0].rstrip(":")


def examples_of(file: str) -> Mapping[str, str]:
    """The examples in one file of docs/examples, by the name that they show: imports and body."""
    source = (EXAMPLES / f"{file}.py").read_text()
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = source.splitlines()[node.body[0].lineno - 1 : node.end_lineno]
            body = textwrap.dedent("\n".join(lines + _comments_after(source, node)))
            needed = [line for one in imports if (line := _needed(one, body))]
            name = node.name if node.name == "__version__" else node.name.rstrip("_")
            found[name] = "\n".join([*needed, *([""] if needed else []), body])
    return found


def _comments_after(source: str, node: ast.AST) -> list[str]:
    """Comments at the end of a function, which the syntax tree does not have."""
    lines: list[str] = []
    for line in source.splitlines()[getattr(node, "end_lineno", 0) :]:
        if not line.startswith("    #"):
            break
        lines.append(line)
    return lines


def _needed(node: ast.Import | ast.ImportFrom, body: str) -> str:
    used = [
        alias
        for alias in node.names
        if re.search(rf"\b{re.escape((alias.asname or alias.name).split('.')[0])}\b", body)
    ]
    if not used or (isinstance(node, ast.ImportFrom) and node.module == "pathlib" and "Path(" not in body):
        return ""
    copied = type(node)(**{**{name: getattr(node, name) for name in node._fields}, "names": used})
    return ast.unparse(copied)


def exported() -> set[str]:
    """Every exported name, in full."""
    found = {f"mooring.{name}" for name in mooring.__all__}
    for module in ("mooring.agents", "mooring.gateway", "mooring.testing", "mooring.sdk"):
        found |= {f"{module}.{name}" for name in import_module(module).__all__}
    return found | {f"mooring.adapters.{name}" for name in PAGES["adapters"].modules}


def documented() -> set[str]:
    """Every name that has an entry."""
    return {name for text in pages().values() for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    written = pages()
    for old in set(TARGET.glob("*.md")) - set(written):
        old.unlink()
    for path, text in written.items():
        path.write_text(text)
