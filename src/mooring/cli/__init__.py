"""The command line. Each command is a module of its own, imported only when it is asked for."""

from mooring.cli.app import main

__all__ = ["main"]
