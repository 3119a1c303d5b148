"""Errors raised on their own, without the exception that led to them."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["raise_alone"]


def raise_alone(problem: BaseException) -> NoReturn:
    """Raise `problem` with an empty `__context__` and `__cause__`.

    `raise ... from None` hides the handled exception from tracebacks, but keeps it in `__context__`. It may
    quote a secret: text of a server, a request with its headers, the bytes of a file. Use this function in an
    `except` block when the handled exception is not redacted.
    """
    try:
        raise problem
    finally:
        problem.__context__ = problem.__cause__ = None
