"""Decide whether a server may be started, whether a call may be made, and what guards do to it."""

from mooring.policy.approvals import (
    ANSWER_TIMEOUT,
    PLANNED,
    ApprovalRequest,
    Approver,
    approved_by,
    keep_planned,
    plan_text,
)
from mooring.policy.enforce import Decide, PolicyEnforcer
from mooring.policy.trust import Ask, Trust

__all__ = [
    "ANSWER_TIMEOUT",
    "PLANNED",
    "ApprovalRequest",
    "Approver",
    "Ask",
    "Decide",
    "PolicyEnforcer",
    "Trust",
    "approved_by",
    "keep_planned",
    "plan_text",
]
