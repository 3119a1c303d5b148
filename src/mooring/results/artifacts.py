"""Records of calls: one JSON file per call, numbered in the order in which the calls ended."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from mooring.core.redact import MASK, Redactor, is_secret_name
from mooring.results.store import PrivateDirectory

__all__ = ["Artifacts"]

_DAY = 86_400.0
_LONGEST_NAME = 65_536
_NAME = re.compile(r"call-(\d{6,})\.json")


class Artifacts:
    """The directory of a run. Records of earlier runs are deleted after 30 days."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self.folder = PrivateDirectory(path, names=_NAME.pattern, size=2**31, age=30 * _DAY, private=False)
        self._redact = redact
        self._next: int | None = None

    def write(self, record: Mapping[str, Any]) -> Path:
        """Write one record.

        Raises:
            OSError: The file cannot be written.
        """
        data = self._document(record)
        if self._next is None:
            self._next = self._next_number()
        while True:
            number, self._next = self._next, self._next + 1
            try:
                return self.folder.write(f"call-{number:06}.json", [data])
            except FileExistsError:
                continue  # another process uses the same directory

    def _next_number(self) -> int:
        names = [path.name for path in self.folder.path.glob("call-*.json")]
        return max((int(known[1]) for name in names if (known := _NAME.fullmatch(name))), default=0) + 1

    def _document(self, record: Mapping[str, Any]) -> bytes:
        try:
            named: set[str] = set()
            given = {"arguments": _masked(record["arguments"], named)} if "arguments" in record else {}
            repeated = Redactor(named)
            plain = _redacted({**record, **given}, lambda text: repeated(self._redact(text)))
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2, default=str)
        except (ValueError, RecursionError) as problem:
            basics = {name: record.get(name) for name in ("started_at", "server", "tool", "duration_ms")}
            text = json.dumps(basics | {"problem": f"not JSON-serialisable: {type(problem).__name__}"})
        return text.encode("utf-8", "replace")


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {redact(str(name)): _redacted(item, redact) for name, item in items}
    if isinstance(value, list | tuple):
        return [_redacted(item, redact) for item in cast("list[Any]", value)]
    return value


def _masked(value: Any, found: set[str]) -> Any:
    """Replace values under names such as `password` at any depth. The values are added to `found`, because
    tools repeat their arguments in results."""
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        masked: dict[Any, Any] = {}
        for name, item in items:
            if item is not None and is_secret_name(str(name)[:_LONGEST_NAME]):
                found.update(_texts(item))
                masked[name] = MASK
            else:
                masked[name] = _masked(item, found)
        return masked
    if isinstance(value, list | tuple):
        return [_masked(item, found) for item in cast("list[Any]", value)]
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in cast("Mapping[Any, Any]", value).values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from _texts(item)
