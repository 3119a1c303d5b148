"""Decide whether a server may be started, whether a call may be made, and what guards do to it."""

from mooring.policy.enforce import (
    ANSWER_TIMEOUT,
    ApprovalRequest,
    Approver,
    Decide,
    PolicyEnforcer,
    approved_by,
)
from mooring.policy.trust import Ask, Trust

__all__ = [
    "ANSWER_TIMEOUT",
    "ApprovalRequest",
    "Approver",
    "Ask",
    "Decide",
    "PolicyEnforcer",
    "Trust",
    "approved_by",
]
