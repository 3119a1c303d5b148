"""Logs without secrets: what mooring's own loggers say passes every host's redactor."""

from __future__ import annotations

import logging
from weakref import WeakSet

from mooring.core.redact import Redactor

__all__ = ["guard", "logger"]

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
            if (told := _redacted(trace)) != trace or _redacted(said := _chain(record.exc_info[1])) != said:
                # Handlers may format or send the exception themselves: the object must not reach them.
                record.exc_text, record.exc_info = told, None
        return True


def _chain(problem: BaseException | None) -> str:
    """The texts of an exception and of all that it leads to, also those that its traceback does not show."""
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
    """A logger of ours. A filter does not hold for the children of its logger, so that each has its own."""
    made = logging.getLogger(name)
    made.addFilter(_FILTER)  # added twice, it is there once
    return made


def guard(redactor: Redactor) -> None:
    """From now on nothing that this redactor knows appears in the log."""
    _redactors.add(redactor)


def _redacted(text: str) -> str:
    for redactor in list(_redactors):
        text = redactor(text)
    return text
