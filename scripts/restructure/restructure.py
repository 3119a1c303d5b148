"""Move and merge modules of mooring, rename names, and rewrite every import. Usage: restructure.py ROOT

The tables are in `plan.py` beside this file: MERGES (new module -> docstring, old modules), RENAMES
((old module, name) -> new name).
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import plan  # noqa: E402

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
SRC = ROOT / "src"
PKG = "mooring"


def path_of(module: str) -> Path:
    base = SRC / PKG / Path(*module.split(".")) if module else SRC / PKG
    if base.is_dir() and (base / "__init__.py").exists():
        return base / "__init__.py"
    return base.with_suffix(".py")


def all_modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in (SRC / PKG).rglob("*.py"):
        parts = list(path.relative_to(SRC / PKG).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


MODULES = all_modules()
NEW_OF: dict[str, str] = {}
for new, (_, olds) in plan.MERGES.items():
    for old in olds:
        assert old in MODULES, f"no module {old}"
        assert old not in NEW_OF, f"twice: {old}"
        NEW_OF[old] = new
RENAMES: dict[tuple[str, str], str] = dict(plan.RENAMES)
for (module, name) in RENAMES:
    assert module in MODULES, f"rename in unknown module {module}"


def target(module: str) -> str:
    return NEW_OF.get(module, module)


def strip(full: str | None) -> str | None:
    """`mooring.a.b` -> `a.b`, None for foreign modules."""
    if full == PKG:
        return ""
    if full and full.startswith(PKG + "."):
        return full[len(PKG) + 1 :]
    return None


def full(module: str) -> str:
    return f"{PKG}.{module}" if module else PKG


def rename_tokens(text: str, names: dict[str, str], *, attributes_of: dict[tuple[str, str], str] | None = None) -> str:
    """Replace NAME tokens. `names` are plain names (not after a dot); `attributes_of` are (object, attribute)."""
    attributes_of = attributes_of or {}
    if not names and not attributes_of:
        return text
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []
    depth_call: list[bool] = []
    for i, tok in enumerate(tokens):
        if tok.type == tokenize.OP and tok.string in "([{":
            depth_call.append(tok.string == "(")
        elif tok.type == tokenize.OP and tok.string in ")]}" and depth_call:
            depth_call.pop()
        if tok.type != tokenize.NAME:
            continue
        prev = tokens[i - 1] if i else None
        dotted = prev is not None and prev.type == tokenize.OP and prev.string == "."
        if dotted:
            owner = tokens[i - 2].string if i > 1 else ""
            before = tokens[i - 3].string if i > 2 else ""
            if before != "." and (owner, tok.string) in attributes_of:
                edits.append((tok.start[0], tok.start[1], tok.end[1], attributes_of[owner, tok.string]))
            continue
        following = tokens[i + 1] if i + 1 < len(tokens) else None
        keyword = (
            following is not None
            and following.string == "="
            and prev is not None
            and prev.string in ("(", ",")
            and bool(depth_call)
            and depth_call[-1]
        ) or (
            following is not None and following.string == "=" and prev is not None and prev.type == tokenize.NL
            and bool(depth_call) and depth_call[-1]
        )
        if keyword:
            continue
        if tok.string in names:
            edits.append((tok.start[0], tok.start[1], tok.end[1], names[tok.string]))
    for row, start, end, new in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new + line[end:]
    return "".join(lines)


def drop_owner(text: str, owners: set[str]) -> str:
    """`owner.name` -> `name` for modules that are now this very module."""
    if not owners:
        return text
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.splitlines(keepends=True)
    edits = []
    for i, tok in enumerate(tokens[:-2]):
        if (
            tok.type == tokenize.NAME
            and tok.string in owners
            and tokens[i + 1].string == "."
            and (i == 0 or tokens[i - 1].string != ".")
        ):
            edits.append((tok.start[0], tok.start[1], tokens[i + 1].end[1]))
    for row, start, end in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + line[end:]
    return "".join(lines)


def resolve(node: ast.ImportFrom, here: str | None, is_package: bool) -> str | None:
    if not node.level:
        return strip(node.module)
    if here is None:
        return None
    parts = here.split(".") if here else []
    if not is_package:
        parts = parts[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *(node.module.split(".") if node.module else [])])


def rewrite(text: str, here: str | None, is_package: bool = False) -> str:
    """Imports and renamed names of one file. `here` is the old module name for files of the package."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        print("cannot parse", here, error)
        return text
    new_here = target(here) if here is not None else None
    lines = text.splitlines(keepends=True)
    names: dict[str, str] = {}
    attributes: dict[tuple[str, str], str] = {}
    owners: set[str] = set()
    own: dict[tuple[str, str], str] = {}
    if here is not None:
        names.update({name: new for (module, name), new in RENAMES.items() if module == here})
    edits: list[tuple[int, int, str]] = []
    bound = {n.asname or n.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for n in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                old = strip(alias.name)
                if old and (old in NEW_OF):
                    print("NOTE plain import", here, alias.name)
            continue
        if not isinstance(node, ast.ImportFrom):
            continue
        base = resolve(node, here, is_package)
        if base is None:
            continue
        groups: dict[str, list[str]] = defaultdict(list)
        touched = bool(node.level)
        indent = " " * node.col_offset
        for alias in node.names:
            sub = f"{base}.{alias.name}" if base else alias.name
            if sub in MODULES and sub in NEW_OF:
                touched = True
                new_module = NEW_OF[sub]
                if new_module == new_here:
                    owners.add(alias.asname or alias.name)
                    for (module, name), new in RENAMES.items():
                        if module == sub:
                            own[alias.asname or alias.name, name] = new
                    continue
                package, _, leaf = new_module.rpartition(".")
                if alias.asname:
                    groups[package].append(f"{leaf} as {alias.asname}")
                    local = alias.asname
                elif leaf in bound and leaf != alias.name:
                    groups[package].append(f"{leaf} as {alias.name}")
                    local = alias.name
                else:
                    groups[package].append(leaf)
                    if leaf != alias.name:
                        names[alias.name] = leaf
                    local = alias.name
                for (module, name), new in RENAMES.items():
                    if module == sub:
                        attributes[local, name] = new
            elif sub in MODULES and base not in NEW_OF and sub not in NEW_OF and (base == "" or MODULES[base].name == "__init__.py") and sub != base:
                groups[base].append(alias.name + (f" as {alias.asname}" if alias.asname else ""))
                for (module, name), new in RENAMES.items():
                    if module == sub:
                        attributes[alias.asname or alias.name, name] = new
            else:
                new_module = target(base)
                renamed = RENAMES.get((base, alias.name))
                if new_module != base or renamed:
                    touched = True
                if renamed:
                    if not alias.asname:
                        names[alias.name] = renamed
                    elif alias.asname == alias.name:
                        names[alias.name] = renamed
                if new_module == new_here:
                    if alias.asname and alias.asname != alias.name:
                        print("NOTE alias of own name", here, alias.asname)
                    continue
                asname = alias.asname
                if asname is not None and asname == alias.name and renamed:
                    asname = renamed
                groups[new_module].append((renamed or alias.name) + (f" as {asname}" if asname else ""))
        if touched:
            out = "".join(
                f"{indent}from {full(module)} import {', '.join(items)}\n" for module, items in groups.items()
            )
            edits.append((node.lineno, node.end_lineno or node.lineno, out))
    for start, end, out in sorted(edits, reverse=True):
        if not out and lines[start - 1].startswith(" "):  # a block may not be left empty
            out = lines[start - 1][: len(lines[start - 1]) - len(lines[start - 1].lstrip())] + "pass\n"
        lines[start - 1 : end] = [out]
    text = "".join(lines)
    text = rename_tokens(text, {}, attributes_of=own)
    text = drop_owner(text, owners)
    # rename after the import lines are final: names in import lines are already new
    return rename_outside_imports(text, names, attributes)


def rename_outside_imports(text: str, names: dict[str, str], attributes: dict[tuple[str, str], str]) -> str:
    if not names and not attributes:
        return text
    spans: list[tuple[int, int]] = []
    try:
        tree = ast.parse(text)
    except SyntaxError:
        tree = None
    if tree is not None:
        spans = [(n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    inside = {row for a, b in spans for row in range(a, b + 1)}
    original = text.splitlines(keepends=True)
    changed = rename_tokens(text, names, attributes_of=attributes).splitlines(keepends=True)
    result = [original[i] if i + 1 in inside else changed[i] for i in range(len(original))]
    text = "".join(result)
    for old, new in names.items():  # quoted annotations
        if old[0].isupper() or old[0] == "_" and old[1].isupper():
            text = re.sub(rf'(cast\("[^"\n]*?)\b{old}\b', rf"\1{new}", text)
    return text


def fix_all(text: str, here: str) -> str:
    """Renamed names inside `__all__`."""
    renames = {name: new for (module, name), new in RENAMES.items() if module == here}
    for old, new in renames.items():
        text = re.sub(rf'(__all__[^\]]*?)"{re.escape(old)}"', rf'\1"{new}"', text, flags=re.S)
    return text


# --- merging -------------------------------------------------------------------------------------


class Part:
    def __init__(self, old: str, text: str) -> None:
        self.old, self.text = old, text
        self.tree = ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.imports: list[str] = []
        self.typing: list[str] = []
        self.exported: list[str] = []
        self.defined: set[str] = set()
        self.bound: dict[str, str] = {}
        self.dumps: dict[str, str] = {}
        self.spans: dict[str, range] = {}
        removed: set[int] = set()
        body = self.tree.body
        for index, node in enumerate(body):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                removed.update(span)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                removed.update(span)
                if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                    continue
                self.imports.append(ast.unparse(node))
                for alias in node.names:
                    origin = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
                    self.bound[alias.asname or alias.name.split(".")[0]] = origin
            elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not node.orelse and all(isinstance(n, ast.Import | ast.ImportFrom | ast.Pass) for n in node.body):
                removed.update(span)
                found = [n for n in node.body if not isinstance(n, ast.Pass)]
                self.typing += [ast.unparse(n) for n in found]
                for n in found:
                    for alias in n.names:
                        origin = f"{n.module}.{alias.name}" if isinstance(n, ast.ImportFrom) else alias.name
                        self.bound.setdefault(alias.asname or alias.name.split(".")[0], origin)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
                removed.update(span)
                value = ast.literal_eval(node.value)
                self.exported += list(value)
            else:
                for name in names_of(node):
                    self.defined.add(name)
                    self.dumps[name] = ast.dump(node)
                    self.spans[name] = span
        self.removed = removed

    def drop(self, name: str) -> None:
        self.removed.update(self.spans[name])

    @property
    def body(self) -> str:
        kept = "".join(line for i, line in enumerate(self.lines, 1) if i not in self.removed)
        return kept.strip("\n") + "\n"


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.TypeAlias) if hasattr(ast, "TypeAlias") else False:
        return [node.name.id]
    if isinstance(node, ast.If | ast.Try | ast.With):
        return [x for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt) for x in names_of(n)]
    return []


def order(olds: list[str]) -> list[str]:
    """Parts such that what one needs at import time comes before it; otherwise as listed."""
    needs: dict[str, set[str]] = {}
    for old in olds:
        tree = ast.parse(MODULES[old].read_text())
        found: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                base = resolve(node, old, MODULES[old].name == "__init__.py")
                if base in olds:
                    found.add(base)
                for alias in node.names:
                    if base is not None and f"{base}.{alias.name}" in olds:
                        found.add(f"{base}.{alias.name}")
        needs[old] = found - {old}
    done: list[str] = []
    rest = list(olds)
    while rest:
        for old in rest:
            if needs[old] <= set(done):
                done.append(old)
                rest.remove(old)
                break
        else:
            print("CYCLE among", rest, {o: needs[o] for o in rest})
            done += rest
            break
    return done


PROBLEMS: list[str] = []


def merged(new: str, docstring: str | None, texts: dict[str, str]) -> str:
    olds = order(list(texts))
    if len(olds) == 1:
        text = texts[olds[0]]
        if docstring:
            node = ast.parse(text).body[0]
            lines = text.splitlines(keepends=True)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                lines[node.lineno - 1 : node.end_lineno] = [f'"""{docstring}"""\n']
                text = "".join(lines)
        return text
    parts = [Part(old, texts[old]) for old in olds]
    seen: dict[str, tuple[str, str]] = {}
    for part in parts:
        for name, origin in part.bound.items():
            for other in parts:
                if other is not part and name in other.defined and origin != f"{full(new)}.{name}":
                    PROBLEMS.append(f"{new}: {name} is imported by {part.old} from {origin} and defined by {other.old}")
            if name in seen and seen[name][0] != origin and not {seen[name][0], origin} <= {"anyio", "anyio.abc"}:
                PROBLEMS.append(f"{new}: {name} is {seen[name][0]} in {seen[name][1]} and {origin} in {part.old}")
            seen.setdefault(name, (origin, part.old))
    for i, part in enumerate(parts):
        for other in parts[i + 1 :]:
            for name in part.defined & other.defined:
                if name in ("log", "__all__"):
                    continue
                if part.dumps.get(name) == other.dumps.get(name) is not None:
                    other.drop(name)
                    continue
                PROBLEMS.append(f"{new}: {name} is defined by {part.old} and {other.old}")
    import builtins

    for part in parts:
        for name in part.defined:
            if hasattr(builtins, name):
                for other in parts:
                    if other is not part and name not in other.defined and re.search(rf"(?<![.\w]){name}\(", other.body):
                        PROBLEMS.append(f"{new}: {name} of {part.old} hides the builtin in {other.old}")
    doc = docstring or ast.get_docstring(parts[0].tree, clean=False) or ""
    runtime = sorted({i for p in parts for i in p.imports if f"from {full(new)} import" not in i})
    runtime_names = {n for i in runtime for n in re.findall(r"\b\w+\b", i.split(" import ")[-1])}
    typing = sorted(
        {
            i
            for p in parts
            for i in p.typing
            if f"from {full(new)} import" not in i
        }
    )
    out = [f'"""{doc}"""\n', "\n", "from __future__ import annotations\n\n"]
    out += [i + "\n" for i in runtime]
    if typing:
        out += ["\nif TYPE_CHECKING:\n", *[f"    {i}\n" for i in typing]]
    exported = sorted({n for p in parts for n in p.exported})
    if exported and not set(exported) <= {n for p in parts for n in p.defined}:
        out.append(f"\n__all__ = {exported!r}\n")
    logged = False
    for part in parts:
        body = part.body
        if "log" in part.defined:
            if logged:
                body = re.sub(r"^log = logger\([^)]*\)\n", "", body, flags=re.M)
            else:
                # the logger comes first
                found = re.search(r"^log = logger\([^)]*\)\n", body, flags=re.M)
                if found:
                    body = body.replace(found[0], "", 1)
                    out.append("\n" + found[0])
            logged = True
        out.append("\n\n" + body.strip("\n") + "\n")
    return "".join(out)


def main() -> None:
    texts: dict[str, str] = {}
    for old, before, after in getattr(plan, "PATCHES", []):
        text = MODULES[old].read_text()
        assert before in text, (old, before)
        MODULES[old].write_text(text.replace(before, after))
    for old, path in MODULES.items():
        text = path.read_text()
        text = rewrite(text, old, path.name == "__init__.py")
        text = fix_all(text, old)
        if path.name == "__init__.py":  # tables of lazy exports name modules in strings
            text = re.sub(r'"([a-z_.0-9]+)"', lambda m: f'"{NEW_OF[m[1]]}"' if m[1] in NEW_OF else m[0], text)
        texts[old] = text
    outputs: dict[Path, str] = {}
    for new, (docstring, olds) in plan.MERGES.items():
        text = merged(new, docstring, {old: texts[old] for old in olds})
        base = SRC / PKG / Path(*new.split("."))
        package = (base.is_dir() and any(o == new for o in olds) and MODULES[new].name == "__init__.py") or new in plan.PACKAGES
        outputs[base / "__init__.py" if package else base.with_suffix(".py")] = text
    if PROBLEMS:
        print("\n".join(PROBLEMS))
        if "--force" not in sys.argv:
            sys.exit(1)
    for old in NEW_OF:
        MODULES[old].unlink()
    for old, path in MODULES.items():
        if old not in NEW_OF:
            path.write_text(texts[old])
    for path, text in outputs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder, doc in plan.NEW_ROOMS.items():
        init = SRC / PKG / folder / "__init__.py"
        init.parent.mkdir(parents=True, exist_ok=True)
        if not init.exists():
            init.write_text(f'"""{doc}"""\n')
    cycles()
    for folder in ("tests", "bench", "examples", "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            old_text = path.read_text()
            text = rewrite(old_text, None)
            text = dotted(text)
            if text != old_text:
                path.write_text(text)
    for path in [*(ROOT / "src").rglob("*.py")]:
        text = path.read_text()
        new = dotted(text)
        if new != text:
            path.write_text(new)
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/**/*.md", "tests/**/*.md", "pyproject.toml", "Makefile"):
        for path in ROOT.glob(pattern):
            text = path.read_text()
            new = dotted(text)
            if new != text:
                path.write_text(new)


def cycles() -> None:
    """Report modules that import each other at import time."""
    graph: dict[str, set[str]] = {}
    found = all_modules()
    for name, path in found.items():
        needs: set[str] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                base = resolve(node, name, path.name == "__init__.py")
                if base is None:
                    continue
                for alias in node.names:
                    sub = f"{base}.{alias.name}" if base else alias.name
                    needs.add(sub if sub in found else base)
        graph[name] = needs - {name, ""}
    state: dict[str, int] = {}
    def visit(node: str, path: list[str]) -> None:
        state[node] = 1
        for other in sorted(graph.get(node, ())):
            if state.get(other) == 1:
                print("IMPORT CYCLE", " -> ".join([*path[path.index(other):], other] if other in path else [node, other]))
            elif other not in state:
                visit(other, [*path, other])
        state[node] = 2
    for node in sorted(graph):
        if node not in state:
            visit(node, [node])


def dotted(text: str) -> str:
    """Dotted names of modules in strings, comments and documents."""
    def swap(match: re.Match[str]) -> str:
        words = match[0].split(".")[1:]
        for n in range(len(words), 0, -1):
            old = ".".join(words[:n])
            if old in plan.MERGES and old not in NEW_OF:
                return match[0]
            if old in NEW_OF:
                rest = words[n:]
                if rest and (old, rest[0]) in RENAMES:
                    rest[0] = RENAMES[old, rest[0]]
                return ".".join([PKG, NEW_OF[old], *rest])
            if old in MODULES and n < len(words) and (old, words[n]) in RENAMES:
                return ".".join([PKG, *words[:n], RENAMES[old, words[n]], *words[n + 1:]])
        return match[0]
    return re.sub(r"\bmooring(?:\.\w+)+", swap, text)


main()
