"""mooring: the MCP host layer for Python.

Names load on first use: `import mooring` imports no other package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "Block": "core.types",
    "Contents": "core.types",
    "Extension": "core.types",
    "Group": "core.types",
    "Message": "core.types",
    "Prompt": "core.types",
    "Resource": "core.types",
    "ResourceTemplate": "core.types",
    "Result": "core.types",
    "ServerStatus": "core.types",
    "Skill": "core.types",
    "SkillFile": "core.types",
    "Snapshot": "core.types",
    "Tool": "core.types",
    "Catalog": "core.catalog",
    "build_tool_name": "core.names",
    "normalize_name": "core.names",
    "parse_tool_name": "core.names",
    "tool_name_prefix": "core.names",
    "Elicitation": "core.elicitation",
    "Answer": "core.elicitation",
    "EventStream": "concurrency",
    "Hit": "core.search",
    "Plan": "config.plan",
    "HostConfig": "config.models",
    "ServerConfig": "config.models",
    "Policy": "config.sections",
    "ApprovalRequest": "policy",
    "Decision": "core.rules",
    "ToolCall": "core.types",
    "Guard": "policy.guards",
    "BudgetGuard": "policy.guards",
    "SecretGuard": "policy.guards",
    "ApprovalAsked": "core.events",
    "CallDenied": "core.events",
    "CallFinished": "core.events",
    "CallStarted": "core.events",
    "CatalogChanged": "core.events",
    "ConfigApplied": "core.events",
    "ConfigRejected": "core.events",
    "Event": "core.events",
    "EventsDropped": "core.events",
    "LoginNeeded": "core.events",
    "LoopLagged": "core.events",
    "ResourceUpdated": "core.events",
    "ScriptCalled": "core.events",
    "ScriptFinished": "core.events",
    "ScriptStarted": "core.events",
    "ServerConnected": "core.events",
    "ServerLost": "core.events",
    "ServerRemoved": "core.events",
    "SessionEnded": "core.events",
    "StateChanged": "core.events",
    "ToolSetAside": "core.events",
    "Secret": "core.redact",
    "TrustRequest": "config.trust",
    "AmbiguousResource": "errors",
    "AuthNeeded": "errors",
    "CallError": "errors",
    "CallTimeout": "errors",
    "CircuitOpen": "errors",
    "GuardDenied": "errors",
    "ConfigError": "errors",
    "ConnectError": "errors",
    "ConnectionLost": "errors",
    "MooringError": "errors",
    "NotTrusted": "errors",
    "Overloaded": "errors",
    "PolicyDenied": "errors",
    "ServerError": "errors",
    "ToolChanged": "errors",
    "UnknownPrompt": "errors",
    "UnknownResource": "errors",
    "UnknownServer": "errors",
    "UnknownTool": "errors",
    "LocalTools": "local",
    "Login": "auth.login",
    "Provider": "local",
    "Host": "host",
    "RefreshReport": "servers.waiting",
    "TurnContext": "agents.engine",
    "ContextProvider": "agents.engine",
    "PromptList": "prompts",
    "ResourceList": "resources",
    "SemanticRanker": "servers.semantic_ranking",
    "Session": "session",
    "SyncHost": "sync",
    "SyncLogin": "auth.login",
    "SyncSession": "sync",
    "SyncView": "extensions.blocking",
    "SyncViewBridge": "extensions.blocking",
    "View": "extensions.views",
    "ViewBridge": "extensions.bridge",
}

__all__ = sorted(["__version__", *_HOMES])  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from mooring.agents.engine import ContextProvider as ContextProvider
    from mooring.agents.engine import TurnContext as TurnContext
    from mooring.auth.login import Login as Login
    from mooring.auth.login import SyncLogin as SyncLogin
    from mooring.concurrency import EventStream as EventStream
    from mooring.config.models import HostConfig as HostConfig
    from mooring.config.models import ServerConfig as ServerConfig
    from mooring.config.plan import Plan as Plan
    from mooring.config.sections import Policy as Policy
    from mooring.config.trust import TrustRequest as TrustRequest
    from mooring.core.catalog import Catalog as Catalog
    from mooring.core.elicitation import Answer as Answer
    from mooring.core.elicitation import Elicitation as Elicitation
    from mooring.core.events import ApprovalAsked as ApprovalAsked
    from mooring.core.events import CallDenied as CallDenied
    from mooring.core.events import CallFinished as CallFinished
    from mooring.core.events import CallStarted as CallStarted
    from mooring.core.events import CatalogChanged as CatalogChanged
    from mooring.core.events import ConfigApplied as ConfigApplied
    from mooring.core.events import ConfigRejected as ConfigRejected
    from mooring.core.events import Event as Event
    from mooring.core.events import EventsDropped as EventsDropped
    from mooring.core.events import LoginNeeded as LoginNeeded
    from mooring.core.events import LoopLagged as LoopLagged
    from mooring.core.events import ResourceUpdated as ResourceUpdated
    from mooring.core.events import ScriptCalled as ScriptCalled
    from mooring.core.events import ScriptFinished as ScriptFinished
    from mooring.core.events import ScriptStarted as ScriptStarted
    from mooring.core.events import ServerConnected as ServerConnected
    from mooring.core.events import ServerLost as ServerLost
    from mooring.core.events import ServerRemoved as ServerRemoved
    from mooring.core.events import SessionEnded as SessionEnded
    from mooring.core.events import StateChanged as StateChanged
    from mooring.core.events import ToolSetAside as ToolSetAside
    from mooring.core.names import build_tool_name as build_tool_name
    from mooring.core.names import normalize_name as normalize_name
    from mooring.core.names import parse_tool_name as parse_tool_name
    from mooring.core.names import tool_name_prefix as tool_name_prefix
    from mooring.core.redact import Secret as Secret
    from mooring.core.rules import Decision as Decision
    from mooring.core.search import Hit as Hit
    from mooring.core.types import Block as Block
    from mooring.core.types import Contents as Contents
    from mooring.core.types import Extension as Extension
    from mooring.core.types import Group as Group
    from mooring.core.types import Message as Message
    from mooring.core.types import Prompt as Prompt
    from mooring.core.types import Resource as Resource
    from mooring.core.types import ResourceTemplate as ResourceTemplate
    from mooring.core.types import Result as Result
    from mooring.core.types import ServerStatus as ServerStatus
    from mooring.core.types import Skill as Skill
    from mooring.core.types import SkillFile as SkillFile
    from mooring.core.types import Snapshot as Snapshot
    from mooring.core.types import Tool as Tool
    from mooring.core.types import ToolCall as ToolCall
    from mooring.errors import AmbiguousResource as AmbiguousResource
    from mooring.errors import AuthNeeded as AuthNeeded
    from mooring.errors import CallError as CallError
    from mooring.errors import CallTimeout as CallTimeout
    from mooring.errors import CircuitOpen as CircuitOpen
    from mooring.errors import ConfigError as ConfigError
    from mooring.errors import ConnectError as ConnectError
    from mooring.errors import ConnectionLost as ConnectionLost
    from mooring.errors import GuardDenied as GuardDenied
    from mooring.errors import MooringError as MooringError
    from mooring.errors import NotTrusted as NotTrusted
    from mooring.errors import Overloaded as Overloaded
    from mooring.errors import PolicyDenied as PolicyDenied
    from mooring.errors import ServerError as ServerError
    from mooring.errors import ToolChanged as ToolChanged
    from mooring.errors import UnknownPrompt as UnknownPrompt
    from mooring.errors import UnknownResource as UnknownResource
    from mooring.errors import UnknownServer as UnknownServer
    from mooring.errors import UnknownTool as UnknownTool
    from mooring.extensions.blocking import SyncView as SyncView
    from mooring.extensions.blocking import SyncViewBridge as SyncViewBridge
    from mooring.extensions.bridge import ViewBridge as ViewBridge
    from mooring.extensions.views import View as View
    from mooring.host import Host as Host
    from mooring.local import LocalTools as LocalTools
    from mooring.local import Provider as Provider
    from mooring.policy import ApprovalRequest as ApprovalRequest
    from mooring.policy.guards import BudgetGuard as BudgetGuard
    from mooring.policy.guards import Guard as Guard
    from mooring.policy.guards import SecretGuard as SecretGuard
    from mooring.prompts import PromptList as PromptList
    from mooring.resources import ResourceList as ResourceList
    from mooring.servers.semantic_ranking import SemanticRanker as SemanticRanker
    from mooring.servers.waiting import RefreshReport as RefreshReport
    from mooring.session import Session as Session
    from mooring.sync import SyncHost as SyncHost
    from mooring.sync import SyncSession as SyncSession


def __getattr__(name: str) -> Any:
    if name == "sdk":  # needs an extra, and so is no part of `__all__`
        return import_module("mooring.sdk")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mooring' has no attribute {name!r}")
    value = getattr(import_module(f"mooring.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
