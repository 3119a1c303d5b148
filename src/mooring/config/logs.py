"""Loggers that redact the secrets of every host."""

from __future__ import annotations

import logging
from weakref import WeakSet

from mooring.core.redact import Redactor

__all__ = ["guard", "logger", "redacted"]

_redactors: WeakSet[Redactor] = WeakSet()
_plain = logging.Formatter()


class _Redacted(logging.Filter):
    """Replaces secrets in log records. Drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (shown := redacted(message)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = _plain.formatException(record.exc_info)
            chain = _chain(record.exc_info[1])
            if (shown := redacted(trace)) != trace or redacted(chain) != chain:
                # Handlers may format or send the exception themselves: the object must not reach them.
                record.exc_text, record.exc_info = shown, None
        return True


def _chain(problem: BaseException | None) -> str:
    """Return the texts of an exception, its causes and contexts, also those that the traceback hides."""
    texts: list[str] = []
    left, seen = [problem], set[int]()
    while left:
        if (each := left.pop()) is None or id(each) in seen:
            continue
        seen.add(id(each))
        texts += [repr(each), str(each), *getattr(each, "__notes__", ())]
        left += [each.__context__, each.__cause__, *getattr(each, "exceptions", ())]
    return "\n".join(texts)


_FILTER = _Redacted()


def logger(name: str) -> logging.Logger:
    """Return a logger with the filter. Filters do not apply to child loggers, so each has its own."""
    made = logging.getLogger(name)
    made.addFilter(_FILTER)  # a repeated addition has no effect
    return made


def guard(redactor: Redactor) -> None:
    """Redact the secrets of this redactor in all logs from now on."""
    _redactors.add(redactor)


def redacted(text: str) -> str:
    """Return a text without the secrets of any host."""
    for redactor in list(_redactors):
        text = redactor(text)
    return text
