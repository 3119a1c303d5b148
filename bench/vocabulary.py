"""Ten thousand invented tools and questions about them, the same for every contestant."""

from __future__ import annotations

import random
from typing import Any

SERVERS, TOOLS = 100, 100
VERBS = (
    "get",
    "list",
    "create",
    "delete",
    "update",
    "search",
    "send",
    "read",
    "write",
    "run",
    "export",
    "convert",
)
STARTS = (
    "mar",
    "ten",
    "vol",
    "sil",
    "cor",
    "pad",
    "lum",
    "fer",
    "gan",
    "zet",
    "bri",
    "hol",
    "dra",
    "nex",
    "pol",
)
MIDDLES = ("a", "en", "ic", "us", "or", "ib", "ad", "ow", "il", "um")
ENDS = ("ta", "ler", "gon", "mic", "sta", "vent", "port", "rick", "dle", "ra")
NOUNS = [start + middle + end for start in STARTS for middle in MIDDLES for end in ENDS]
random.Random(0).shuffle(NOUNS)


def word(rng: random.Random) -> str:
    """Return one of 1,500 nouns, the first ones far more often: as words are in a language."""
    return NOUNS[int(len(NOUNS) * rng.random() ** 3)]


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(word(rng) for _ in range(length))


def definition(number: int, rng: random.Random) -> dict[str, Any]:
    """Return one tool as a server would list it."""
    properties: dict[str, Any] = {
        f"{word(rng)}_{kind}": {"type": "string", "description": f"The {sentence(rng, 8)}."}
        for kind in ("id", "name", "filter")
    }
    return {
        "name": f"{rng.choice(VERBS)}_{word(rng)}_{word(rng)}_{number}",
        "description": f"{rng.choice(VERBS).title()} the {sentence(rng, 20)} and return it.",
        "inputSchema": {"type": "object", "properties": properties},
    }


def definitions(server: int, seed: int) -> tuple[str, list[dict[str, Any]]]:
    """Return what a server says of itself, and its tools."""
    rng = random.Random(seed)
    return f"Works with {sentence(rng, 15)}.", [definition(number, rng) for number in range(TOOLS)]


def questions(count: int) -> list[str]:
    rng = random.Random(7)
    return [f"{rng.choice(VERBS)} {sentence(rng, rng.randint(1, 6))}" for _ in range(count)]
