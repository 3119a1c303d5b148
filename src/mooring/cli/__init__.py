"""The command line. Each command is a module that is imported only when it runs."""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 130 if Ctrl-C ends it, also while it is being imported."""
    try:
        from mooring.cli.app import main as run
    except KeyboardInterrupt:
        return 130
    return run(argv)
