"""The command line. Each command is a module that is imported only when it runs."""

from mooring.cli.app import main

__all__ = ["main"]
