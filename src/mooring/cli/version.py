"""`mooring version`: the version of mooring, Python and the platform."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options
from mooring.cli.output import Output, wrap

USAGE = "mooring version [options]"
DETAILS = "\n\n`mooring --version` prints the version of mooring alone."
EXAMPLES = """\
  mooring version
  mooring version --json"""


async def run(args: Namespace, options: Options, out: Output) -> int:
    import platform

    from mooring import __version__
    from mooring.core.types import PROTOCOLS

    about = {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "protocols": list(PROTOCOLS),
    }
    if options.json:
        out.document(about)
    else:
        versions = f"mooring {__version__}, Python {about['python']}, {about['platform']}"
        protocols = f"MCP protocol {PROTOCOLS[-1]} and the handshake versions {', '.join(PROTOCOLS[:-1])}"
        out.lines(wrap(f"{versions}\n{protocols}", out.width))
    return 0
