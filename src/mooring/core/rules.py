"""What holds for the results of one server: the host's settings, where the server has none of its own."""

from __future__ import annotations

from mooring.core.config import Conformance, HostConfig, ServerConfig
from mooring.core.values import Value

__all__ = ["RuleBook", "Rules", "rules_for"]


class Rules(Value):
    """How the calls of one server are stamped, and what becomes of its results."""

    budget: int
    """Estimated tokens of a result that a model is shown; 0: all of it."""
    output_schema: Conformance
    passthrough: bool
    """Whether the server is told who calls."""


def rules_for(host: HostConfig, server: ServerConfig | None) -> Rules:
    """Return what holds for a server; None is a provider that the configuration does not know."""
    budget, conformance, context = (
        (None, None, None) if server is None else (server.result_budget, server.output_schema, server.context)
    )
    return Rules(
        budget=host.result_budget if budget is None else budget,
        output_schema=conformance or host.output_schema,
        passthrough=(context or host.context).passthrough,
    )


class RuleBook:
    """The rules of every server, made anew only when what is configured is another object."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[HostConfig, ServerConfig | None, Rules]] = {}

    def rules(self, name: str, host: HostConfig, server: ServerConfig | None) -> Rules:
        """Return what holds for the server `name`."""
        known = self._known.get(name)
        if known is None or known[0] is not host or known[1] is not server:
            known = self._known[name] = (host, server, rules_for(host, server))
        return known[2]
