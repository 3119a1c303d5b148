"""Skills: entries of a server's list, the manifest of their files, and the checks of their contents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast
from urllib.parse import unquote

from mooring.core.text import line
from mooring.core.types import EMPTY, Skill, SkillFile

__all__ = [
    "DYNAMIC",
    "InvalidSkillError",
    "altered",
    "changed_field",
    "entries_of",
    "file_of",
    "frontmatter",
    "read_skill_entry",
    "root_of",
]

DYNAMIC = "dynamic"
"""Value of `resources` for skills whose files are generated."""
MOST_FILES = 512
MOST_BYTES = 16 * 2**20
_NAME = r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?"
_DIGEST = r"sha256:[0-9a-f]{64}"
_ENTRY = "SKILL.md"
_HEAD = r"(?s)\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)"
_KNOWN = frozenset(("uri", "frontmatter", "resources"))
_LONGEST_DESCRIPTION = 4_096
_LONGEST_ADDRESS = 1_024


class InvalidSkillError(ValueError):
    """The entry of a skill cannot be used; the text says why."""


def read_skill_entry(server: str, raw: Mapping[str, Any]) -> Skill:
    """Return the skill of one entry of `skills/list` or `skills/get`.

    Raises:
        InvalidSkillError: a field is missing or contradicts another.
    """
    uri, given = raw.get("uri"), raw.get("frontmatter")
    if not isinstance(uri, str) or not isinstance(given, Mapping):
        raise InvalidSkillError("it has no 'uri' or no 'frontmatter'")
    if len(uri) > _LONGEST_ADDRESS:
        raise InvalidSkillError(f"its address has more than {_LONGEST_ADDRESS} characters")
    head = cast("Mapping[str, Any]", given)
    name, description = head.get("name"), head.get("description")
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise InvalidSkillError("its 'name' must have 1 to 64 lower-case letters, digits and single hyphens")
    if not isinstance(description, str) or not description.strip():
        raise InvalidSkillError("it has no 'description'")
    root = root_of(uri)
    if root is None or root.rpartition("/")[2] != name:
        raise InvalidSkillError(f"its address must end with '/{name}/{_ENTRY}'")
    return Skill(
        name=name,
        server=server,
        uri=uri,
        description=description[:_LONGEST_DESCRIPTION],
        frontmatter=dict(head),
        files=_files(uri, root, raw.get("resources")),
        extra={key: value for key, value in raw.items() if key not in _KNOWN},
    )


def root_of(uri: str) -> str | None:
    """Return the address of the directory of a skill; None if this is not the address of a `SKILL.md`."""
    start = uri.find(":")
    return uri[: -len(_ENTRY) - 1] if start > 0 and uri[start:].endswith(f"/{_ENTRY}") else None


def _files(uri: str, root: str, given: object) -> tuple[SkillFile, ...] | None:
    if given == DYNAMIC:
        return None
    if not isinstance(given, list):
        raise InvalidSkillError("its 'resources' must be a list of all files, or \"dynamic\"")
    entries = cast("list[object]", given)
    if len(entries) > MOST_FILES:
        raise InvalidSkillError(f"it has more than {MOST_FILES} files")
    files: dict[str, SkillFile] = {}
    for entry in entries:
        fields = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else EMPTY
        address, digest, size = fields.get("uri"), fields.get("digest"), fields.get("size")
        if not isinstance(address, str) or not _inside(address, root):
            raise InvalidSkillError(f"a file is not inside the directory of the skill: {str(address)[:80]!r}")
        if not isinstance(digest, str) or not re.fullmatch(_DIGEST, digest):
            raise InvalidSkillError(
                f"the digest of {address[:80]!r} must be 'sha256:' and 64 hexadecimal digits"
            )
        if type(size) is not int or size < 0:
            raise InvalidSkillError(f"{address[:80]!r} has no valid size")
        if address in files:
            raise InvalidSkillError(f"{address[:80]!r} is listed twice")
        files[address] = SkillFile(uri=address, digest=digest, size=size)
    if uri not in files:
        raise InvalidSkillError(f"its {_ENTRY} is missing in its list of files")
    if sum(one.size for one in files.values()) > MOST_BYTES:
        raise InvalidSkillError(f"its files have more than {MOST_BYTES // 2**20} MiB")
    return tuple(files[address] for address in sorted(files))


def _inside(address: str, root: str) -> bool:
    """Whether an address is below the directory of a skill, however a server decodes it."""
    if not address.startswith(f"{root}/") or "?" in address or "#" in address or "\\" in address:
        return False
    steps = unquote(unquote(address[len(root) + 1 :])).split("/")
    return all(step not in ("", ".", "..") for step in steps)


def file_of(skill: Skill, path: str | None) -> tuple[str, SkillFile | None]:
    """Return the address of a file of a skill, and its entry in the manifest (None for generated files).

    Args:
        skill: The skill.
        path: Relative to the directory of the skill. None: its `SKILL.md`.

    Raises:
        InvalidSkillError: the manifest has no such file.
    """
    root = root_of(skill.uri) or ""
    uri = skill.uri if path is None else f"{root}/{path.removeprefix('./')}"
    if skill.files is None:
        if not _inside(uri, root):
            raise InvalidSkillError(f"{line(path or '', 80)!r} is outside of the directory of the skill")
        return uri, None
    for file in skill.files:
        if file.uri == uri:
            return uri, file
    known = [file.uri[len(root) + 1 :] for file in skill.files if file.uri != skill.uri]
    shown = ", ".join(line(one, 80) for one in known[:20]) or "none"
    raise InvalidSkillError(f"it has no file {line(path or '', 80)!r}; its supporting files: {shown}")


def entries_of(skills: Iterable[Skill], uri: str) -> tuple[tuple[Skill, SkillFile | None], ...] | None:
    """Return the skills whose manifest has exactly this address, each with its entry (None for generated
    files). None: the address is in no directory of a skill, however a server decodes it.

    Args:
        skills: Those of one server.
        uri: The address, as the server gets it.

    Raises:
        InvalidSkillError: It is in the directory of a skill, and no manifest has it.
    """
    found: list[tuple[Skill, SkillFile | None]] = []
    nearest: tuple[str, Skill] | None = None
    for skill in skills:
        root = _plain(root_of(skill.uri) or "")
        if _plain(uri) == root or _plain(uri).startswith(f"{root}/"):
            found += [(skill, file) for file in skill.files or () if file.uri == uri]
            nearest = max((root, skill), nearest or (root, skill), key=lambda pair: len(pair[0]))
    if found or nearest is None:
        return tuple(found) or None
    skill = nearest[1]
    if skill.files is None and _inside(uri, root_of(skill.uri) or ""):
        return ((skill, None),)
    raise InvalidSkillError(f"the manifest of skill {skill.name!r} has no file of exactly this address")


def _plain(address: str) -> str:
    """Return an address in the form that different spellings of it have in common."""
    scheme, _, rest = unquote(unquote(address)).replace("\\", "/").partition(":")
    steps: list[str] = []
    for step in re.split("[?#]", rest, maxsplit=1)[0].split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in ("", "."):
            steps.append(step)
    return f"{scheme}:{'/'.join(steps)}".casefold()


def altered(file: SkillFile, data: bytes) -> str | None:
    """Return how content differs from the manifest, or None."""
    if len(data) != file.size:
        return f"it has {len(data)} bytes, and the manifest says {file.size}"
    if f"sha256:{sha256(data).hexdigest()}" != file.digest:
        return "its SHA-256 is not the digest in the manifest"
    return None


def frontmatter(text: str) -> str | None:
    """Return the YAML at the head of a `SKILL.md`, or None."""
    found = re.match(_HEAD, text)
    return found[1] if found else None


def changed_field(listed: Mapping[str, Any], read: object) -> str | None:
    """Return the first field in which the listed frontmatter differs from the one that was read, or None.

    Args:
        listed: From the list of skills: JSON values.
        read: From `SKILL.md`: its scalars as text, because parsers disagree about the types of plain YAML.
    """
    if not isinstance(read, Mapping):
        return "the frontmatter"
    own = cast("Mapping[str, Any]", read)
    for key in sorted({*listed, *own}):
        if key not in listed or key not in own or not _same(listed[key], own[key]):
            return line(key, 80)
    return None


_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def _same(listed: Any, read: Any) -> bool:
    if isinstance(listed, Mapping):
        return changed_field(cast("Mapping[str, Any]", listed), read) is None
    if isinstance(listed, list):
        items = cast("list[Any]", listed)
        if not isinstance(read, list) or len(cast("list[Any]", read)) != len(items):
            return False
        return all(_same(one, two) for one, two in zip(items, cast("Sequence[Any]", read), strict=True))
    if listed is None:
        return read is None
    if isinstance(listed, bool):
        return isinstance(read, str) and read.lower() in (_TRUE if listed else _FALSE)
    if isinstance(listed, int | float):
        try:
            return isinstance(read, str) and float(read) == listed
        except (ValueError, OverflowError):
            return False
    return listed == ("" if read is None and listed == "" else read)
