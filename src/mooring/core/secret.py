"""A text that shows itself to nobody."""

from __future__ import annotations

from typing import Any, Never

__all__ = ["MASK", "Secret", "reveal"]

MASK = "***"


class Secret(str):
    """A value for `env`, `headers`, `args` or `auth` that never prints.

    As a text it *is* `***`: printed, formatted, logged, pickled or written as JSON it can be nothing
    else, by whatever library. Only `reveal()` gives the value. Two secrets are equal when their values
    are; no secret equals a plain text.
    """

    __slots__ = ("_value",)
    _value: str

    def __new__(cls, value: str) -> Secret:
        made = super().__new__(cls, MASK)
        object.__setattr__(made, "_value", value.reveal() if isinstance(value, Secret) else value)
        return made

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a Secret does not change")

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return str, (MASK,)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self


def reveal(text: str) -> str:
    """The value of a secret; any other text as it is."""
    return text.reveal() if isinstance(text, Secret) else text
