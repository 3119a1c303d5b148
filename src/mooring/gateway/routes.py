"""Which server a resource belongs to. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from mooring.gateway.views import View

__all__ = ["resource_server"]

_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")


def resource_server(view: View, uri: str) -> str | None:
    """The server that lists `uri`, else the one that has a template for it, else the only one that has
    resources at all: some servers list none of those that they have."""
    offer = view.offer
    if (resource := offer.resources.get(uri)) is not None:
        return resource.server
    if (template := offer.templates.get(uri)) is not None:
        return template.server
    for pattern, item in offer.templates.items():
        if _compiled(pattern).fullmatch(uri):
            return item.server
    owners = {item.server for item in (*offer.resources.values(), *offer.templates.values())}
    return owners.pop() if len(owners) == 1 else None


@lru_cache(maxsize=1024)
def _compiled(template: str) -> re.Pattern[str]:
    """Each expression stands for a piece of one path segment, or of anything where it says so."""
    parts: list[str] = []
    end = 0
    for found in _EXPRESSION.finditer(template):
        parts += [re.escape(template[end : found.start()]), ".*" if found[1] else "[^/]*"]
        end = found.end()
    # Two wild parts in a row mean no more than one, and take long to match.
    pattern = re.sub(r"(\.\*|\[\^/\]\*)+(?=\.\*|\[\^/\]\*)", "", "".join(parts) + re.escape(template[end:]))
    return re.compile(pattern, re.DOTALL)
