"""Checks that the arguments of a call can be sent as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["not_json"]

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_LARGEST = 10**18
"""Integers above it are left to the encoder: Python refuses to write very long ones."""


def not_json(arguments: Mapping[str, Any]) -> str | None:
    """Return why `arguments` is not JSON; None when it is.

    Arguments without nesting, which most are, cost a fraction of encoding them.
    """
    for key, value in arguments.items():
        kind = value.__class__
        if type(key) is not str:
            break
        if kind is str or kind is bool or value is None:
            continue
        if not (kind is int and -_LARGEST < value < _LARGEST):
            break
    else:
        return None
    try:
        _encode(dict(arguments))
    except (TypeError, ValueError) as problem:
        return str(problem)
    except RecursionError:
        return "it is nested too deeply"
    return None
