"""A contestant's process, seen from the harness."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from bench.entries import ROOT, Entry

ANSWER_TIMEOUT = 120.0
EXIT_TIMEOUT = 20.0


class Failed(Exception):
    """A contestant could not do what was asked of it."""


class Process:
    """Runs `bench.worker` for one contestant; `ask` sends it one command."""

    def __init__(self, entry: Entry) -> None:
        environment = dict(os.environ)
        if entry.requires:
            environment.pop("PYTHONPATH", None)  # an environment of its own means just that
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 -- `close()` closes it
        self._process = subprocess.Popen(
            [str(entry.python), "-m", "bench.worker", entry.name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, do: str, **command: Any) -> dict[str, Any]:
        """The answer to one command.

        Raises:
            Failed: the contestant says so, is gone, or did not answer in time.
        """
        clock = threading.Timer(ANSWER_TIMEOUT, self._process.kill)
        clock.start()
        try:
            with suppress(BrokenPipeError):
                self._commands.write(json.dumps({"do": do, **command}).encode() + b"\n")
                self._commands.flush()
            line = self._answers.readline()
        finally:
            clock.cancel()
        if not line:
            raise Failed(f"its process ended: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def close(self) -> None:
        """End the process; its servers end with their pipes."""
        with suppress(BrokenPipeError):
            self._commands.close()
        try:
            self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._errors.close()

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_TIMEOUT)
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
