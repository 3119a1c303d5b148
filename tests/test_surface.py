"""The public API: names, signatures and docstrings of the main classes, and the exports."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import mooring
from mooring import Host, ServerConfig, Session, SyncHost, SyncSession

HOST = [
    "add",
    "apply",
    "call",
    "catalog",
    "close",
    "complete",
    "config",
    "discovery",
    "events",
    "from_config",
    "health_check",
    "held",
    "hidden",
    "login",
    "logout",
    "ping",
    "prompt",
    "prompts",
    "provider",
    "ranker",
    "read",
    "ready",
    "redact",
    "refresh",
    "reload",
    "remove",
    "resources",
    "search",
    "session",
    "skills",
    "status",
    "style",
    "subscribe",
    "tools",
    "unsubscribe",
    "view",
]
SESSION = [
    *("agent_id", "call", "catalog", "discovery", "headers", "id", "principal", "read_skill", "run_script"),
    "tools",
]
MAIN = (Host, Session, SyncHost, SyncSession)


def public(value: Any) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]


def test_the_names_of_host_and_session_are_frozen() -> None:
    assert public(Host) == HOST
    assert public(Host()) == HOST
    assert public(Session) == SESSION
    assert public(Host().session()) == SESSION


def test_the_names_of_sync_host_and_sync_session_are_frozen() -> None:
    assert public(SyncHost) == sorted({*HOST, "open"} - {"provider"})
    assert public(SyncSession) == SESSION


def test_the_exports_are_frozen() -> None:
    assert mooring.__all__ == EXPORTS


@pytest.mark.parametrize("kind", MAIN, ids=lambda kind: kind.__name__)
def test_every_public_name_has_a_docstring(kind: type) -> None:
    assert [name for name in public(kind) if not inspect.getdoc(inspect.getattr_static(kind, name))] == []


@pytest.mark.parametrize("kind", MAIN, ids=lambda kind: kind.__name__)
def test_every_verb_has_a_signature_of_its_own(kind: type) -> None:
    verbs = [name for name in public(kind) if callable(getattr(kind, name)) and name != "from_config"]
    signatures = {name: inspect.signature(getattr(kind, name)).parameters.values() for name in verbs}
    assert [
        name for name, found in signatures.items() if any(one.kind is one.VAR_KEYWORD for one in found)
    ] == []


def test_representations_are_short_and_say_which_object_it_is() -> None:
    host = Host([ServerConfig(name="files", command="x")])
    assert repr(host) == "<Host not entered: 1 servers (files)>"
    assert repr(host.session("alice", agent_id="ana")) == "<Session 'alice' agent_id='ana'>"
    assert repr(host.session()) == "<Session 'shared'>"
    assert repr(SyncHost()) == "<SyncHost not entered: 0 servers ()>"


EXPORTS = [
    "AmbiguousResource",
    "Answer",
    "ApprovalAsked",
    "ApprovalRequest",
    "AuthNeeded",
    "Block",
    "CallDenied",
    "CallError",
    "CallFinished",
    "CallStarted",
    "CallTimeout",
    "Catalog",
    "CatalogChanged",
    "CircuitOpen",
    "ConfigApplied",
    "ConfigError",
    "ConfigRejected",
    "ConnectError",
    "ConnectionLost",
    "Contents",
    "ContextProvider",
    "Elicitation",
    "Event",
    "EventStream",
    "EventsDropped",
    "Extension",
    "Group",
    "Hit",
    "Host",
    "HostConfig",
    "LocalTools",
    "Login",
    "LoginNeeded",
    "LoopLagged",
    "Message",
    "MooringError",
    "NotTrusted",
    "Overloaded",
    "Plan",
    "Policy",
    "PolicyDenied",
    "Prompt",
    "PromptList",
    "Provider",
    "RefreshReport",
    "Resource",
    "ResourceList",
    "ResourceTemplate",
    "ResourceUpdated",
    "Result",
    "ScriptCalled",
    "ScriptFinished",
    "ScriptStarted",
    "Secret",
    "SemanticRanker",
    "ServerConfig",
    "ServerConnected",
    "ServerError",
    "ServerLost",
    "ServerRemoved",
    "ServerStatus",
    "Session",
    "SessionEnded",
    "Skill",
    "SkillFile",
    "Snapshot",
    "StateChanged",
    "SyncHost",
    "SyncLogin",
    "SyncSession",
    "SyncView",
    "SyncViewBridge",
    "Tool",
    "ToolChanged",
    "ToolSetAside",
    "TrustRequest",
    "TurnContext",
    "UnknownPrompt",
    "UnknownResource",
    "UnknownServer",
    "UnknownTool",
    "View",
    "ViewBridge",
    "__version__",
    "build_tool_name",
    "normalize_name",
    "parse_tool_name",
    "tool_name_prefix",
]
