"""References inside one schema. Nothing is ever fetched: what lies outside leads nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from mooring.core.schema.shapes import as_list, as_object
from mooring.core.types import Json

__all__ = ["References"]


class References:
    """Finds the targets of `#`, `#/any/json/pointer`, `#anchor`, and these behind the schema's `$id`."""

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._anchors: dict[str, Json] | None = None

    def find(self, ref: str) -> Json:
        """The schema that a reference means, or None."""
        base = self._root.get("$id")
        if isinstance(base, str) and base and ref.startswith(base):
            ref = ref[len(base) :] or "#"
        if ref == "#":
            return self._root
        if ref.startswith("#/"):
            target = self._follow(ref[2:])
        elif ref.startswith("#"):
            if self._anchors is None:
                self._anchors = _anchors(self._root)
            target = self._anchors.get(ref[1:])
        else:
            target = None
        return target if isinstance(target, bool) else as_object(target)

    def _follow(self, pointer: str) -> Json:
        place: Json = self._root
        for part in pointer.split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if (members := as_object(place)) is not None:
                place = members.get(name)
            else:
                items = as_list(place)
                place = items[int(name)] if name.isdecimal() and int(name[:6]) < len(items) else None
        return place


def _anchors(root: Json) -> dict[str, Json]:
    """Every subschema that has a plain name."""
    found: dict[str, Json] = {}
    waiting: list[Json] = [root]
    while waiting:
        place = waiting.pop()
        if isinstance(place, list):
            waiting.extend(as_list(place))
        elif schema := as_object(place):
            waiting.extend(schema.values())
            for keyword in ("$anchor", "$dynamicAnchor", "$id", "id"):
                if isinstance(name := schema.get(keyword), str):
                    found.setdefault(name.removeprefix("#"), schema)
    return found
