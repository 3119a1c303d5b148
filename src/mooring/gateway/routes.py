"""Which server a resource belongs to. Pure."""

from __future__ import annotations

from mooring.core.templates import matches
from mooring.gateway.views import View

__all__ = ["resource_server"]


def resource_server(view: View, uri: str) -> str | None:
    """The server that lists `uri`, else the one that has a template for it, else the only one that has
    resources at all: some servers list none of those that they have."""
    offer = view.offer
    if (resource := offer.resources.get(uri)) is not None:
        return resource.server
    if (template := offer.templates.get(uri)) is not None:
        return template.server
    for pattern, item in offer.templates.items():
        if matches(pattern, uri):
            return item.server
    owners = {item.server for item in (*offer.resources.values(), *offer.templates.values())}
    return owners.pop() if len(owners) == 1 else None
