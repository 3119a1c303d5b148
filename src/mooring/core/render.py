"""Rendering of results for models: text within a budget, and blocks that a model can use.

Nothing is stored here: callers pass the hint that says where the rest is. Addresses and media types of
servers are cleaned and cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.text import dumps, estimate, line
from mooring.core.types import Block, Result

__all__ = [
    "MEDIA",
    "MOST_BLOCKS",
    "arranged",
    "as_text",
    "fit",
    "inlined",
    "label",
    "plain",
    "preview",
    "split",
    "text_block",
    "within",
]

MEDIA = ("image", "audio")
MOST_BLOCKS = 64
"""With more blocks than this, texts are joined."""
_ADDRESS = 200
_LEAST = 16
# A long run of these is probably encoded data: it is left out as a whole, unless little else remains.
_ENCODED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"


def plain(result: Result, budget: int) -> bool:
    """Whether a result needs no change: only text within the budget."""
    blocks = result.blocks
    if len(blocks) == 1:
        raw = blocks[0].raw
        return raw["type"] == "text" and within(raw["text"], budget)
    if not blocks:
        return result.structured is None
    return (
        len(blocks) <= MOST_BLOCKS
        and all(block.raw["type"] == "text" for block in blocks)
        and within(result.text, budget)
    )


def within(text: str, budget: int) -> bool:
    """Whether a text is within the budget; 0 is no limit."""
    return not budget or (len(text) < 4 * (budget + 1) and estimate(text) <= budget)


def text_block(text: str) -> Block:
    """Return a text block."""
    return Block({"type": "text", "text": text})


def label(block: Block) -> str:
    """Return a short description of a block: kind, media type and address."""
    kind = {"resource": "Resource", "resource_link": "Link"}.get(
        block.type, line(block.type, 40).capitalize()
    )
    uri, mime = line(block.uri or "", _ADDRESS), line(block.mime_type or "", 80)
    return " ".join(filter(None, (kind, uri, f"({mime})" if mime else "")))


def inlined(block: Block) -> Block:
    """Return an embedded text resource as text between lines that name it."""
    text = block.text or ""
    return text_block(f"[{label(block)}, {len(text):,} characters:]\n{text}")


def as_text(block: Block) -> str:
    """Return the text of a block, or a line that describes it."""
    if block.text is not None:
        return block.text
    if block.data is not None:
        return f"[{label(block)}]"
    return dumps(block.raw)


def split(blocks: Sequence[Block], budget: int) -> tuple[list[Block], list[Block], int]:
    """Return the blocks that are joined to one text, the other blocks, and the budget of the text.

    Images and audio stay blocks, and links unless there are too many.
    """
    links = [block for block in blocks if block.type not in ("text", *MEDIA)]
    cost = estimate("".join(dumps(block.raw) for block in links))
    apart = (*MEDIA, *{block.type for block in links}) if cost <= budget // 4 else MEDIA
    text = [block for block in blocks if block.type not in apart]
    beside = [block for block in blocks if block.type in apart]
    return text, beside, budget - cost if len(apart) > len(MEDIA) else budget


def arranged(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks, with the texts joined into one if there are too many."""
    texts = [block.raw["text"] for block in blocks if block.type == "text"]
    if len(blocks) <= MOST_BLOCKS or len(texts) < 2:
        return tuple(blocks)
    return (text_block("\n".join(texts)), *(block for block in blocks if block.type != "text"))


def fit(text: str, budget: int) -> int:
    """Return how many leading characters of a text are within the budget."""
    most = text[: 4 * budget + 3]
    if estimate(most) <= budget:
        return len(most)

    def cost(end: int) -> int:
        return estimate(most[:end])

    from bisect import bisect_right  # most results fit

    return bisect_right(range(len(most)), budget, key=cost) - 1


def preview(whole: str, budget: int, rest: str) -> str:
    """Return the start and the end of a text with a notice between them, within the budget.

    Args:
        whole: A text that is above the budget.
        budget: Estimated tokens, `SMALLEST_BUDGET` at least.
        rest: How to read the rest, in one ASCII sentence.
    """
    room = budget - estimate(_notice(len(whole), len(whole), rest)) - 3
    ending = whole[-(room + 3) :]
    head = _head(whole[: fit(whole, room - room // 4)])
    tail = _tail(ending[len(ending) - fit(ending[::-1], room // 4) :])
    left = len(whole) - len(head) - len(tail)
    between = _notice(left, len(whole), rest)
    return "\n".join(filter(None, (head.removesuffix("\n"), between, tail)))


def _notice(left: int, total: int, rest: str) -> str:
    return f"[{left:,} of {total:,} characters are left out here. {rest}]"


def _head(text: str) -> str:
    """Return the text up to a nearby end of line, else end of word."""
    end = text.rfind("\n", len(text) // 2) + 1
    return text[:end] if end else _unless_empty(text.rstrip(_ENCODED), text)


def _tail(text: str) -> str:
    start = text.find("\n", 0, len(text) // 2) + 1
    return text[start:] if start else _unless_empty(text.lstrip(_ENCODED), text)


def _unless_empty(short: str, text: str) -> str:
    """Return the shorter text, or the longer one if the shorter is nearly empty."""
    return short if len(short.strip()) >= min(_LEAST, len(text) // 2) else text
