"""What a model is shown of a result: text within a budget, and blocks that a model can use.

Pure: nothing is stored here. Where a text says that something was kept, whoever kept it says where.
What servers say of themselves (addresses, media types) is cleaned and cut before it stands in a line
of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.text import line
from mooring.core.tokens import dumps, estimate
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
"""More blocks than this cost a model more than what is in them; texts are joined then."""
_ADDRESS = 200
_LEAST = 16
# A long run of these is probably encoded data, of which half is worth nothing: it is left out whole, unless
# hardly anything else would be shown.
_ENCODED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"


def plain(result: Result, budget: int) -> bool:
    """Whether a result can be shown as it came: nothing but text, and not more of it than the budget."""
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
    """Whether a text is not above the budget, of which 0 is none."""
    return not budget or (len(text) < 4 * (budget + 1) and estimate(text) <= budget)


def text_block(text: str) -> Block:
    """Return a block that holds a text."""
    return Block({"type": "text", "text": text})


def label(block: Block) -> str:
    """Return a block's kind, media type and address in a few words, for a line of ours."""
    kind = {"resource": "Resource", "resource_link": "Link"}.get(
        block.type, line(block.type, 40).capitalize()
    )
    uri, mime = line(block.uri or "", _ADDRESS), line(block.mime_type or "", 80)
    return " ".join(filter(None, (kind, uri, f"({mime})" if mime else "")))


def inlined(block: Block) -> Block:
    """Return an embedded text resource as text that says which one it is, and how far it goes."""
    text = block.text or ""
    return text_block(f"[{label(block)}, {len(text):,} characters:]\n{text}")


def as_text(block: Block) -> str:
    """Return a block as text: its own, or a line that stands for it."""
    if block.text is not None:
        return block.text
    if block.data is not None:
        return f"[{label(block)}]"
    return dumps(block.raw)


def split(blocks: Sequence[Block], budget: int) -> tuple[list[Block], list[Block], int]:
    """Return the blocks that are read as one text, those beside it, and what is left for the text.

    Pictures and sounds stand beside the text. So do links, unless they are too many to.
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
    """Return how many characters from the start of a text are within the budget."""
    most = text[: 4 * budget + 3]
    if estimate(most) <= budget:
        return len(most)

    def cost(end: int) -> int:
        return estimate(most[:end])

    from bisect import bisect_right  # most results fit

    return bisect_right(range(len(most) + 1), budget, key=cost) - 1


def preview(whole: str, budget: int, rest: str) -> str:
    """Return the head and the tail of a text with a notice between them, all of it within the budget.

    Args:
        whole: A text that is above the budget.
        budget: Estimated tokens, `SMALLEST_BUDGET` at least.
        rest: How to get what is left out, in one ASCII sentence.
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
    """Return the text up to a border: the end of a line if one is near, else of a word."""
    end = text.rfind("\n", len(text) // 2) + 1
    return text[:end] if end else _unless_empty(text.rstrip(_ENCODED), text)


def _tail(text: str) -> str:
    start = text.find("\n", 0, len(text) // 2) + 1
    return text[start:] if start else _unless_empty(text.lstrip(_ENCODED), text)


def _unless_empty(short: str, text: str) -> str:
    """Return the shorter text, or the other one where that has next to nothing in it."""
    return short if len(short.strip()) >= min(_LEAST, len(text) // 2) else text
