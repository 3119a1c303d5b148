"""Run a bundled server on standard input and output: `python -m mooring.demo notes`."""

from __future__ import annotations

import os
import sys

from mooring.demo import STDIO, command

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in STDIO:
        sys.exit(f"usage: python -m mooring.demo {'|'.join(STDIO)}")
    os.execv(sys.executable, command(name))
