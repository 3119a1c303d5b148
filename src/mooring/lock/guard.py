"""Check of requests against the approved part of a server's latest listing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mooring.core.skills import root_of
from mooring.core.uris import matches
from mooring.errors import ToolChanged
from mooring.lock.compare import Admission
from mooring.lock.definitions import key_of
from mooring.lock.diff import Change, describe, shown_name, summary

__all__ = ["ApprovedListing", "tool_changed"]


class ApprovedListing:
    """Returns why a request must not be sent to a server whose pins say `block`, or None.

    Tools and prompts must be in the listing and approved. A resource may be read unless it is listed, or
    matches a template, and is not approved, because servers also return URIs that they never list.
    """

    def __init__(self, admission: Admission) -> None:
        shown = admission.visible
        self._server, self._drift = shown.server, admission.drift
        self._tools = frozenset(tool.remote_name for tool in shown.tools)
        self._prompts = frozenset(prompt.name for prompt in shown.prompts)
        self._resources = frozenset(resource.uri for resource in shown.resources)
        self._templates = tuple(template.uri_template for template in shown.templates)
        self._skills = frozenset(skill.uri for skill in shown.skills)
        self._aside = admission

    def __call__(self, method: str, params: Mapping[str, Any]) -> ToolChanged | None:
        match method:
            case "tools/call":
                name = params.get("name")
                return None if name in self._tools else self._missing("tool", str(name))
            case "prompts/get":
                return self._prompt(str(params.get("name")))
            case "resources/read" | "resources/directory/read":
                uri = str(params.get("uri"))
                return self._in_skill(uri) or self._resource(uri)
            case "skills/get":
                return self._skill(str(params.get("uri")))
            case "completion/complete":
                ref = cast("Mapping[str, Any]", params.get("ref"))
                if ref.get("type") == "ref/prompt":
                    return self._prompt(str(ref.get("name")))
                return self._template(str(ref.get("uri")))
            case _:
                return None

    def _in_skill(self, uri: str) -> ToolChanged | None:
        """Return the error for a file of a skill that is not approved."""
        for skill, change in self._aside.set_aside_skills.items():
            root = root_of(skill)
            if root is not None and (uri == root or uri.startswith(f"{root}/")):
                return tool_changed(change, uri)
        return None

    def _skill(self, uri: str) -> ToolChanged | None:
        """Return the error for a skill that is not approved, listed or not."""
        if uri in self._skills:
            return None
        if (change := self._aside.set_aside_skills.get(uri)) is not None:
            return tool_changed(change, uri)
        return ToolChanged(
            f"Skill {shown_name(uri)} of server {shown_name(self._server)} is not in the server's list, so "
            "it cannot be compared with `mooring.lock`. See what the server offers with `mooring check`.",
            server=self._server,
            tool=uri,
            reason="unlisted",
        )

    def _prompt(self, name: str) -> ToolChanged | None:
        return None if name in self._prompts else self._missing("prompt", name)

    def _resource(self, uri: str) -> ToolChanged | None:
        if uri in self._resources:
            return None
        change = self._aside.set_aside_resources.get(uri)
        if change is None and not any(matches(template, uri) for template in self._templates):
            aside = self._aside.set_aside_templates.items()
            change = next((change for template, change in aside if matches(template, uri)), None)
        return None if change is None else tool_changed(change, uri)

    def _template(self, template: str) -> ToolChanged | None:
        change = self._aside.set_aside_templates.get(template)
        return None if change is None else tool_changed(change, template)

    def _missing(self, subject: str, name: str) -> ToolChanged:
        """Return the error for an entry that changed or is not listed."""
        aside = self._aside.set_aside if subject == "tool" else self._aside.set_aside_prompts
        if (change := aside.get(name)) is not None:
            return tool_changed(change, name)
        for change in self._drift.changes:
            before = None if change.before is None else key_of(change.before)
            if change.subject == subject and name in (change.name, before):
                return tool_changed(change, name)
        problem = f"{subject.capitalize()} {shown_name(name)} of server {shown_name(self._server)}"
        return ToolChanged(
            f"{problem} is not in the server's list, so it cannot be compared with `mooring.lock`. "
            "See what the server offers with `mooring check`.",
            server=self._server,
            tool=name,
            reason="removed",
        )


def tool_changed(change: Change, name: str | None = None) -> ToolChanged:
    """Return the error for a change; `name` is the requested name if it differs."""
    return ToolChanged(
        summary(change),
        server=change.server,
        tool=change.name if name is None else name,
        reason=change.kind,
        details=describe(change),
    )
