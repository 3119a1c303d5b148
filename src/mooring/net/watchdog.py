"""What must happen when we can do nothing any more: a host killed with -9 leaves no server running.

A tiny shell reads from a pipe which process groups live. When the pipe closes and groups are left, it kills
them and every process that carries the host's mark. (A parent-death signal would reach the children but not
theirs.)
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from mooring.net.lineage import host_mark

_SCRIPT = """
trap '' INT TERM HUP
groups=
while read -r word group; do
  case $word in
    add) groups="$groups $group" ;;
    del) kept=; for one in $groups; do [ "$one" = "$group" ] || kept="$kept $one"; done; groups=$kept ;;
  esac
done
[ -z "$groups" ] && exit
sleep 1
for one in $groups; do kill -s KILL -- "-$one" 2>/dev/null; done
[ -z "$1" ] && exit
tries=0
while [ $tries -lt 50 ]; do
  found=$(grep -lsE "^Max file locks +$1" /proc/[0-9]*/limits)
  [ -z "$found" ] && exit
  for one in $found; do one=${one#/proc/}; kill -s KILL "${one%/limits}" 2>/dev/null; done
  tries=$((tries + 1))
  sleep 0.1
done
"""

_pipe: int | None = None
_owner = 0
_process: subprocess.Popen[bytes] | None = None


def guard(group: int) -> None:
    """End `group` should this process die without `release`-ing it."""
    global _pipe, _owner, _process
    if sys.platform == "win32":
        return  # there, the children's job object ends with us
    if _pipe is None or _owner != os.getpid():
        try:
            read, write = os.pipe()
        except OSError:
            return  # no room for a watchdog is no reason to lose the child
        try:
            _process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "mooring-watchdog", host_mark()],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": "/usr/bin:/bin"},
            )
        except OSError:
            os.close(write)
            return
        finally:
            os.close(read)
        _pipe, _owner = write, os.getpid()
        os.set_blocking(_pipe, False)
    _say(f"add {group}\n")


def release(group: int) -> None:
    """`group` is ended; the watchdog goes with the last one."""
    if _owner == os.getpid():
        _say(f"del {group}\n")


def dismiss() -> None:
    """No group is left: end the watchdog."""
    global _pipe, _process
    if _pipe is not None and _owner == os.getpid():
        os.close(_pipe)
        if _process is not None:
            # It has nothing to do but to read the end of its input.
            with contextlib.suppress(subprocess.TimeoutExpired):
                _process.wait(1)
        _pipe = _process = None


def _say(line: str) -> None:
    if _pipe is not None:
        # A watchdog that somebody ended is no reason to fail: it is only the last resort.
        with contextlib.suppress(OSError):
            os.write(_pipe, line.encode())
