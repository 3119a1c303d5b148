"""`mooring token`: create, list, rotate and revoke tokens of the gateway."""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, UsageError, suggestion
from mooring.cli.output import GAP, Output, table

if TYPE_CHECKING:
    from mooring.gateway.tokens import StoredToken, TokenFile

USAGE = "mooring token create|list|rotate|revoke [NAME] [options]"
DETAILS = """

create NAME   make a token and print it, once; only a hash of it is stored
list          tokens with their profiles, scopes, expiry and last use
rotate NAME   replace the secret of a token; --grace keeps the old one valid,
              --expires sets another lifetime
revoke NAME   end a token and the sessions of its clients

A running gateway notices each change within a second. As soon as one token
exists, the gateway requires a token. The file is `gateway.token_file` of the
configuration, else gateway-tokens.json in the state directory."""
EXAMPLES = """\
  mooring token create ana --profile reading --expires 90d --scope read
  mooring token rotate ana --grace 1h
  mooring token revoke ana"""


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=["create", "list", "rotate", "revoke"], metavar="ACTION")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the token; its principal is token:NAME")
    parser.add_argument(
        "--profile", action="append", default=[], metavar="P", help="valid for this profile only; repeatable"
    )
    parser.add_argument("--scope", action="append", default=[], metavar="S", help="a scope; repeatable")
    parser.add_argument("--expires", type=_duration, metavar="TIME", help="such as 90d or 12h; else never")
    parser.add_argument("--grace", type=_duration, metavar="TIME", help="rotate: the old secret stays valid")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.config import load
    from mooring.gateway.tokens import TokenFile, token_path

    if args.action != "list" and args.name is None:
        raise UsageError(f"`mooring token {args.action}` needs a NAME. See `mooring token --help`.")
    allowed = {"create": ("profile", "scope", "expires"), "rotate": ("expires", "grace")}.get(args.action, ())
    for option in ("profile", "scope", "expires", "grace"):
        if getattr(args, option) and option not in allowed:
            raise UsageError(f"`mooring token {args.action}` has no --{option}. See `mooring token --help`.")
    if args.action == "list" and args.name:
        raise UsageError("`mooring token list` lists all tokens and takes no NAME.")
    config = load(options.files)
    unknown = [name for name in args.profile if name not in config.gateway.profiles]
    if unknown:
        known = ", ".join(config.gateway.profiles) or "none is configured"
        near = suggestion(unknown[0], list(config.gateway.profiles))
        raise UsageError(f"There is no profile {unknown[0]!r}.{near} Known profiles: {known}.")
    file = TokenFile(token_path(config.gateway))
    if args.action == "list":
        return _list(file, options, out)
    if args.action == "revoke":
        return _revoked(file.revoke(args.name), options, out)
    if args.action == "create":
        token, entry = file.create(args.name, profiles=args.profile, scopes=args.scope, lifetime=args.expires)
    else:
        token, entry = file.rotate(args.name, grace=args.grace or 0.0, lifetime=args.expires)
    _show(token, entry, options, out)
    return 0


def _show(token: str, entry: StoredToken, options: Options, out: Output) -> None:
    if options.json:
        out.document({**_row(entry), "token": token})
        return
    out.line(token)
    until = f" It is valid until {_date(entry.expires)}." if entry.expires else ""
    out.note(f"This is the token of {entry.name!r}. It is not shown again.{until}")


def _revoked(entry: StoredToken, options: Options, out: Output) -> int:
    if options.json:
        out.document(_row(entry))
    else:
        out.note(f"The token {entry.name!r} is revoked.")
    return 0


def _list(file: TokenFile, options: Options, out: Output) -> int:
    entries = sorted(file.read(), key=lambda entry: entry.name)
    if options.json:
        out.document([_row(entry) for entry in entries])
        return 0
    if not entries:
        out.note("There are no tokens. Make one with `mooring token create NAME`.")
        return 0
    rows = [["NAME", "STATE", "PROFILES", "SCOPES", "EXPIRES", "LAST USED"]]
    for entry in entries:
        row = _row(entry)
        rows.append(
            [
                entry.name,
                row["state"],
                " ".join(entry.profiles) or "all",
                " ".join(entry.scopes) or "-",
                _date(entry.expires) if entry.expires else "never",
                _date(entry.last_used, time=True) if entry.last_used else "never",
            ]
        )
    header, *body = table(rows, width=out.width, spare=[3, 2, 4])
    out.lines([out.paint(GAP.join(header).rstrip(), "dim"), *(GAP.join(cells).rstrip() for cells in body)])
    return 0


def _row(entry: StoredToken) -> dict[str, Any]:
    import time

    return entry.document(time.time())


def _date(at: float | None, *, time: bool = False) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(at or 0, UTC):{'%Y-%m-%d %H:%M' if time else '%Y-%m-%d'}}"


def _duration(text: str) -> float:
    from mooring.gateway.tokens import lifetime

    try:
        return lifetime(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
