"""Regular expressions of untrusted schemas, on an engine of linear time."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_LONGEST_PATTERN, _LONGEST_MATCHED = 200, 1_000
_CLASS = r"\\[wWdDsSbBpP]|\[\^|\."
_TIMES = r"\{(\d+)(?:,(\d*))?\}"


def linear_match(pattern: str, text: str) -> bool | None:
    """Whether the pattern matches the text; None if that is not checked."""
    found = _expression(pattern) if len(text) <= _LONGEST_MATCHED else None
    return None if found is None else found.isinstance_python(text)


@lru_cache(maxsize=512)
def _expression(pattern: str) -> Any:
    """Compile a pattern with the linear-time engine of pydantic_core; None if it is too costly or not
    supported."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    times = 1
    for low, high in re.findall(_TIMES, pattern):
        times *= max(int(low[:9]), int((high or "0")[:9]), 1)
    if len(pattern) > _LONGEST_PATTERN or "(?i" in pattern:
        return None
    if len(re.findall(_CLASS, pattern)) * times > 64 or len(pattern) * times > 10_000:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None
