"""Logs without secrets: what mooring's own loggers say passes every host's redactor."""

from __future__ import annotations

import logging
from weakref import WeakSet

from mooring.core.redact import Redactor

__all__ = ["guard"]

_redactors: WeakSet[Redactor] = WeakSet()
_plain = logging.Formatter()


class _Redacted(logging.Filter):
    """Rewrites a record in which a secret stands; lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if (told := _redacted(said)) != said:
            record.msg, record.args = told, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = _plain.formatException(record.exc_info)
            if (told := _redacted(trace)) != trace:
                # Handlers may format or send the exception themselves: the object must not reach them.
                record.exc_text, record.exc_info = told, None
        return True


_FILTER = _Redacted()


def guard(redactor: Redactor) -> None:
    """From now on nothing that this redactor knows appears in the log. A filter of a logger does not hold
    for its children: so each of ours gets it."""
    _redactors.add(redactor)
    for name in list(logging.Logger.manager.loggerDict):
        if name == "mooring" or name.startswith("mooring."):
            logging.getLogger(name).addFilter(_FILTER)  # added twice, it is there once


def _redacted(text: str) -> str:
    for redactor in list(_redactors):
        text = redactor(text)
    return text
