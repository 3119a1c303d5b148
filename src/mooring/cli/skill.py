"""`mooring skill`: read one skill."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import Output
from mooring.core.text import clean, without_controls
from mooring.errors import CallError

if TYPE_CHECKING:
    from mooring.core.types import Skill
    from mooring.extensions.skills import Skills

USAGE = "mooring skill NAME [FILE] [options]"
DETAILS = """

Prints the SKILL.md of a skill, or one of its supporting files, after the checks
that a model's read passes: size and digest must be those in the server's list,
and the head of SKILL.md must be the listed one. The text is the server's and
not trusted.

Exit code 3: the skill differs from the list or from mooring.lock."""
EXAMPLES = """\
  mooring skill github/refunds
  mooring skill refunds references/FORMS.md"""


def configure(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name from `mooring skills`")
    parser.add_argument("file", metavar="FILE", nargs="?", help="path of a supporting file of the skill")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, open_host
    from mooring.host import runtime_of

    server = args.name.partition("/")[0]
    async with open_host(options, out) as host:
        known = [one.name for one in host.config.servers]
        await gather(host, out, chosen(host, [server] if server in known else []), options.timeout)
        skills = runtime_of(host).skills
        skill = _found(skills, args.name)
        contents = await skills.read(skill, args.file, options.timeout)
    if options.json:
        held = {"text": contents.text} if not contents.is_binary else {"blob": contents.blocks[0].data}
        verified = skill.files is not None
        out.document(
            {"name": skill.name, "server": skill.server, "uri": contents.uri, "verified": verified, **held}
        )
    elif out.width is not None:
        out.line(clean(contents.text))
    else:
        out.line(without_controls(contents.text))
    return 0


def _found(skills: Skills, name: str) -> Skill:
    try:
        return skills.find(name)
    except CallError as problem:
        text = str(problem)
        raise UsageError(f"{text[0].upper()}{text[1:].rstrip('?')}. See `mooring skills`.") from None
