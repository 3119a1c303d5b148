"""Guards: checks before and after each call, of the application and built in.

Every call of every session goes through them: those of the library, of gateway clients and of adapters. A
guard that raises, takes too long or returns something else than it may denies the call, or withholds its
result.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio import to_thread

from mooring.concurrency import call_back
from mooring.config.logs import logger
from mooring.config.secret_scan import without_credentials
from mooring.core.events import CallDenied, Event
from mooring.core.json_values import not_json
from mooring.core.types import EMPTY, Result, Tool, ToolCall
from mooring.core.value import replace
from mooring.errors import GuardDenied, PolicyDenied
from mooring.policy.enforce import tool_call

if TYPE_CHECKING:
    from mooring.config.shaping import GuardSettings
    from mooring.core.redact import Redactor
    from mooring.core.transforms import CallContext
    from mooring.servers.state import CurrentConfig

log = logger("mooring.policy")

TIMEOUT = 5.0
"""Seconds for one guard, unless `guards.timeout` says otherwise."""
_LARGE = 65_536
"""Characters of arguments that are searched on the event loop; more in a thread."""
_DEEPEST = 64
_BUDGETS = Lock()
"""Held while a file of amounts is open: the threads of one process do not wait for each other in SQLite."""


class Guard:
    """Base class of guards. Override one method or both; they may be plain functions, which run in a thread.

        class NoMail(Guard):
            async def before(self, call):
                if "@" in str(call.arguments.get("to", "")):
                    raise GuardDenied("mail is not sent from here")

    `before` returns None, or a mapping of arguments to send instead. `after` returns None, or the result to
    give to the caller instead. To deny the call or withhold the result, raise `GuardDenied` with the reason.
    """

    name: str = ""
    """For messages. Default: the name of the class."""
    last: bool = False
    """Whether `before` runs after the policy has allowed the call, and not before, so that the policy does
    not see arguments that it returns."""

    async def before(self, call: ToolCall) -> Mapping[str, Any] | None:
        """Check a call before it is made."""
        return None

    async def after(self, call: ToolCall, result: Result) -> Result | None:
        """Check the result of a call before the caller gets it."""
        return None


class SecretGuard(Guard):
    """Denies calls whose arguments hold a secret of this host, or text that looks like a credential.

    Args:
        redact: `Host.redact`, which knows the secrets of the host; None: only texts that look like
        credentials are found.
        allow: Globs of `server/tool` that may get secrets.
    """

    name = "secrets"

    def __init__(self, redact: Redactor | None = None, *, allow: Sequence[str] = ()) -> None:
        self._redact, self._allow = redact, tuple(allow)

    async def before(self, call: ToolCall) -> None:
        if any(fnmatchcase(f"{call.server}/{call.tool}", glob) for glob in self._allow):
            return
        texts = list(_texts(call.arguments))
        if sum(len(text) for _, text in texts) > _LARGE:
            found = await to_thread.run_sync(partial(self._found, texts))
        else:
            found = self._found(texts)
        if found is not None:
            raise GuardDenied(found)

    def _found(self, texts: list[tuple[str, str]]) -> str | None:
        for argument, text in texts:
            if self._redact is not None and self._redact(text) != text:
                return f"argument {argument!r} holds a secret of this host"
            if without_credentials(text) != text:
                return f"argument {argument!r} holds something that looks like a credential"
        return None


class BudgetGuard(Guard):
    """Limits what each principal spends in a day (UTC). The amounts survive a restart and are shared by all
    processes that use the same file.

    Args:
        per_day: The most that one principal may spend.
        costs: Cost of a call by glob of `server/tool`; the first that matches counts, others cost 1.
        path: The file. Default: `budget.sqlite3` in the state directory of mooring.
    """

    name = "budget"
    last = True

    def __init__(
        self,
        per_day: float,
        *,
        costs: Mapping[str, float] = EMPTY,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._per_day, self._costs, self._path = per_day, dict(costs), path

    async def before(self, call: ToolCall) -> None:
        tool = f"{call.server}/{call.tool}"
        cost = next((cost for glob, cost in self._costs.items() if fnmatchcase(tool, glob)), 1.0)
        today, who = datetime.now(UTC).date().isoformat(), call.principal or ""
        spent = await to_thread.run_sync(self._spend, today, who, cost)
        if spent is not None:
            raise GuardDenied(
                f"the budget of the day is used up ({spent:g} of {self._per_day:g} spent, and this call "
                f"costs {cost:g}); it is renewed at 00:00 UTC"
            )

    def _spend(self, today: str, who: str, cost: float) -> float | None:
        """Add the cost; return the amount spent before if the limit would be exceeded."""
        with _BUDGETS, closing(self._opened()) as file, file:
            file.execute("BEGIN IMMEDIATE")
            query = "SELECT amount FROM spent WHERE day = ? AND who = ?"
            found = file.execute(query, (today, who)).fetchone()
            before = float(found[0]) if found else 0.0
            if before + cost > self._per_day:
                return before
            if found is None:
                file.execute("DELETE FROM spent WHERE day < date(?, '-31 days')", (today,))
            file.execute("INSERT OR REPLACE INTO spent VALUES (?, ?, ?)", (today, who, before + cost))
        return None

    def _opened(self) -> sqlite3.Connection:
        if self._path is None:
            from mooring.config.files import state_home

            path = state_home() / "budget.sqlite3"
        else:
            path = Path(self._path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            # Not opened here: to close it would release the locks that SQLite holds in this process.
            if not stat.S_ISREG(path.lstat().st_mode):
                raise OSError(f"{path} is a symbolic link, or not a regular file") from None
        file = sqlite3.connect(path, timeout=TIMEOUT, isolation_level=None)
        try:
            file.execute("PRAGMA synchronous = OFF")  # a crash of the machine may lose the last seconds
            file.execute(
                "CREATE TABLE IF NOT EXISTS spent (day TEXT, who TEXT, amount REAL, PRIMARY KEY (day, who))"
            )
        except sqlite3.Error:
            file.close()
            raise
        return file


class GuardChain:
    """The guards of one host: those of the application first, then the built-in ones of the configuration."""

    def __init__(
        self,
        guards: Sequence[Guard],
        *,
        current: CurrentConfig,
        redact: Redactor,
        exempt: frozenset[str],
        emit: Callable[[Event], None],
    ) -> None:
        """
        Args:
            guards: The guards of the application.
            current: The configuration with the built-in ones.
            redact: Knows the secrets of the host.
            exempt: Providers whose tools are mooring's own.
            emit: Receives `CallDenied`.
        """
        self._given, self._current, self._redact, self._emit = tuple(guards), current, redact, emit
        self._exempt = exempt
        self._settings: GuardSettings | None = None
        self._guards: tuple[Guard, ...] = self._given

    def of(self, server: str) -> tuple[Guard, ...]:
        """Return the guards for calls of a server, in order."""
        settings = self._current.config.guards
        if settings is not self._settings:
            self._settings, self._guards = settings, (*self._given, *self._built_in(settings))
        return () if server in self._exempt else self._guards

    def _built_in(self, settings: GuardSettings | None) -> Iterator[Guard]:
        if settings is None:
            return
        if settings.secrets is not None and settings.secrets.enabled:
            yield SecretGuard(self._redact, allow=settings.secrets.allow)
        if settings.budget is not None:
            yield BudgetGuard(settings.budget.per_day, costs=settings.budget.costs)

    async def before(
        self, tool: Tool, arguments: Mapping[str, Any], context: CallContext, *, last: bool
    ) -> Mapping[str, Any]:
        """Return the arguments to send.

        Args:
            tool: The tool to call.
            arguments: As the server gets them.
            context: The caller.
            last: Run the guards that come after the policy, else the others.

        Raises:
            PolicyDenied: A guard denies the call, or does not work.
        """
        call = tool_call(tool, arguments, context)
        for guard in self.of(tool.server):
            if bool(getattr(guard, "last", False)) is not last:
                continue
            said = await self._ask(guard, "before", call)
            if said is None:
                continue
            if not isinstance(said, Mapping) or not_json(cast("Mapping[str, Any]", said)):
                raise self._denied(call, guard, "returned something other than arguments")
            call = replace(call, arguments=cast("Mapping[str, Any]", said))
        return call.arguments

    async def after(
        self, tool: Tool, arguments: Mapping[str, Any], context: CallContext, result: Result
    ) -> Result:
        """Return the result for the caller.

        Raises:
            PolicyDenied: A guard withholds the result, or does not work.
        """
        call = tool_call(tool, arguments, context)
        for guard in reversed(self.of(tool.server)):
            said = await self._ask(guard, "after", call, result)
            if said is None:
                continue
            if not isinstance(said, Result):
                raise self._denied(call, guard, "returned something other than a result", called=True)
            result = replace(said, raw=None) if said.raw is result.raw and said != result else said
        return result

    async def _ask(self, guard: Guard, method: str, call: ToolCall, *more: Any) -> Any:
        function: Any = getattr(guard, method, None)
        if function is None or getattr(function, "__func__", None) is getattr(Guard, method):
            return None
        called = method == "after"
        timeout = TIMEOUT if self._settings is None else self._settings.timeout
        with anyio.move_on_after(timeout):
            try:
                return await call_back(function, call, *more)
            except GuardDenied as denied:
                raise self._denied(call, guard, f"denied it: {denied.reason}", called=called) from None
            except Exception:
                log.exception("guard failed guard=%s server=%s tool=%s", _name(guard), call.server, call.tool)
                raise self._denied(call, guard, "failed; see the log", called=called) from None
        raise self._denied(call, guard, f"did not answer within {timeout:g} s", called=called)

    def _denied(self, call: ToolCall, guard: Guard, why: str, *, called: bool = False) -> PolicyDenied:
        reason = f"guard {_name(guard)!r} {why}"
        what = "was called, but its result is withheld" if called else "was not called"
        self._emit(CallDenied(server=call.server, tool=call.tool, session=call.session, reason=reason))
        problem = f"{call.name!r} {what}: {reason}."
        return PolicyDenied(problem, server=call.server, tool=call.tool, reason=reason, called=called)


def _name(guard: Guard) -> str:
    return getattr(guard, "name", "") or type(guard).__name__


def _texts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return every text in the arguments, with the argument that holds it.

    Raises:
        GuardDenied: They are nested too deeply to be searched.
    """
    for name, value in arguments.items():
        yield name, name
        level: list[Any] = [value]
        for _ in range(_DEEPEST):
            inner: list[Any] = []
            for item in level:
                if isinstance(item, str):
                    yield name, item
                elif isinstance(item, Mapping):
                    fields = cast("Mapping[str, Any]", item)
                    yield from ((name, key) for key in fields)
                    inner.extend(fields.values())
                elif isinstance(item, list | tuple):
                    inner.extend(cast("list[Any]", item))
            level = inner
            if not level:
                break
        else:
            raise GuardDenied(f"argument {name!r} is nested too deeply to be searched")
