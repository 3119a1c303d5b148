"""JSON with comments and trailing commas, as editors write it. On plain JSON it agrees with `json`."""

from __future__ import annotations

import json
import re

from mooring.config.documents import DEPTH_LIMIT, BadSyntaxError

__all__ = ["BLANK", "JsoncParser", "parse"]

BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_ATOM = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z.+-])|\b(?:true|false|null)\b"
)


def parse(text: str) -> object:
    """The value that `text` holds.

    Raises:
        BadSyntaxError: it is not JSON, nested too deeply, or an object has a key twice.
    """
    return JsoncParser(text).document()


class JsoncParser:
    """Reads one text. `member` is where a reader that wants more than the values steps in."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open: list[tuple[str, int]] = []
        """The brackets around the present place, each with where it stands."""

    def document(self) -> object:
        value = self.value()
        self.blank()
        if self.at < len(self.text):
            raise self.wrong("there is more after the end of the document; remove it")
        return value

    def value(self) -> object:
        self.blank()
        match self.text[self.at : self.at + 1]:
            case "{":
                return self.object()
            case "[":
                return self.array()
            case '"':
                return self.string()
            case "":
                raise self.ended()
            case _:
                found = _ATOM.match(self.text, self.at)
                if found is None:
                    raise self.wrong(
                        "expected a value: text in double quotes, a number, true, false, null, { or ["
                    )
                self.at = found.end()
                try:
                    return json.loads(found[0])
                except ValueError:
                    raise self.wrong("this number is too long") from None

    def object(self) -> dict[str, object]:
        result: dict[str, object] = {}
        places: dict[str, int] = {}
        self.enter("{")
        while not self.leaves("}"):
            place = self.at
            if self.text[self.at : self.at + 1] != '"':
                raise self.wrong('expected a name in double quotes, or "}"')
            key = self.string()
            if key in result:
                raise BadSyntaxError.twice(key, self.line(places[key]), self.line(place))
            self.blank()
            if self.text[self.at : self.at + 1] != ":":
                raise self.wrong('expected ":" after the name')
            self.at += 1
            result[key] = self.member(place)
            places[key] = place
            self.separator("}")
        return result

    def member(self, place: int) -> object:
        """The value of the member whose name stands at `place`."""
        return self.value()

    def array(self) -> list[object]:
        result: list[object] = []
        self.enter("[")
        while not self.leaves("]"):
            result.append(self.value())
            self.separator("]")
        return result

    def string(self) -> str:
        found = _STRING.match(self.text, self.at)
        try:
            if found is not None:
                value: str = json.loads(found[0])
                self.at = found.end()
                return value
        except ValueError:
            pass
        raise self.wrong("this text is not closed on its line, or holds a wrong escape after a backslash")

    def enter(self, bracket: str) -> None:
        if len(self.open) >= DEPTH_LIMIT:
            raise self.wrong("is nested too deeply")
        self.open.append((bracket, self.at))
        self.at += 1

    def leaves(self, bracket: str) -> bool:
        """Whether the object or array ends here; if so, moves past its bracket."""
        self.blank()
        here = self.text[self.at : self.at + 1]
        if here == bracket:
            self.open.pop()
            self.at += 1
        elif not here:
            raise self.ended()
        return here == bracket

    def separator(self, bracket: str) -> None:
        self.blank()
        here = self.text[self.at : self.at + 1]
        if here == ",":
            self.at += 1
        elif not here:
            raise self.ended()
        elif here != bracket:
            raise self.wrong(f'expected "," or "{bracket}"')

    def blank(self) -> None:
        found = BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if self.text.startswith("/*", self.at):
            raise self.wrong("this comment is never closed; end it with */")

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def wrong(self, problem: str) -> BadSyntaxError:
        column = self.at - self.text.rfind("\n", 0, self.at)
        return BadSyntaxError(f"is not valid JSON: {problem}", line=self.line(self.at), column=column)

    def ended(self) -> BadSyntaxError:
        if not self.open:
            return self.wrong("the file ends before its value")
        bracket, at = self.open[-1]
        closing = "}" if bracket == "{" else "]"
        return self.wrong(
            f'the file ends inside the "{bracket}" of line {self.line(at)}; add the missing "{closing}"'
        )
