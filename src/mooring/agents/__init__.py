"""Interfaces for agent runtimes: a manager, an extension, actions, an engine, deferred tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "DeferredTool": "engine",
    "discovered_names": "engine",
    "register_factories": "engine",
    "Engine": "engine",
    "McpToolProvider": "engine",
    "RefreshError": "engine",
    "EventBus": "manager",
    "FunctionTool": "extension",
    "McpBridgeExtension": "extension",
    "McpCallResult": "manager",
    "McpManager": "manager",
    "McpToolInfo": "manager",
    "McpRun": "manager",
    "StepResult": "manager",
    "mcp_tools_section": "manager",
}

__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll] -- the names are fetched on first use

if TYPE_CHECKING:
    from mooring.agents.engine import DeferredTool as DeferredTool
    from mooring.agents.engine import Engine as Engine
    from mooring.agents.engine import McpToolProvider as McpToolProvider
    from mooring.agents.engine import RefreshError as RefreshError
    from mooring.agents.engine import discovered_names as discovered_names
    from mooring.agents.engine import register_factories as register_factories
    from mooring.agents.extension import FunctionTool as FunctionTool
    from mooring.agents.extension import McpBridgeExtension as McpBridgeExtension
    from mooring.agents.manager import EventBus as EventBus
    from mooring.agents.manager import McpCallResult as McpCallResult
    from mooring.agents.manager import McpManager as McpManager
    from mooring.agents.manager import McpRun as McpRun
    from mooring.agents.manager import McpToolInfo as McpToolInfo
    from mooring.agents.manager import StepResult as StepResult
    from mooring.agents.manager import mcp_tools_section as mcp_tools_section


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'mooring.agents' has no attribute {name!r}")
    value = getattr(import_module(f"mooring.agents.{module}"), name)
    globals()[name] = value
    return value
