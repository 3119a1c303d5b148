"""A result as the pieces that a framework can hold: text, and images where it has them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from mooring.core.types import Block, Result

IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""What every provider that takes images takes. One that it cannot read fails the whole request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text, or an image."""

    text: str = ""
    mime_type: str | None = None
    """None for text."""
    data: str = ""
    """Base64 of the image."""

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.data)

    @property
    def url(self) -> str:
        return f"data:{self.mime_type};base64,{self.data}"


def pieces(result: Result, images: Collection[str] = IMAGES) -> list[Piece]:
    """What to show the model: never nothing. Images of other types than `images` are told in words."""
    found = [piece for block in result.blocks if (piece := _piece(block, images)) is not None]
    if found:
        return found
    if result.structured is not None:
        return [Piece(text=json.dumps(result.structured, ensure_ascii=False))]
    return [
        Piece(text="The tool failed and gave no reason." if result.is_error else "Done; there is no output.")
    ]


def text(result: Result) -> str:
    """What to show a model that reads nothing but text."""
    return "\n".join(piece.text for piece in pieces(result, ()))


def fields(result: Result) -> dict[str, Any]:
    """What to show a model that reads objects: the structured value, and the text unless it says the same."""
    if result.is_error:
        return {"error": text(result)}
    shown = "\n".join(piece.text for piece in pieces(result) if piece.mime_type is None)
    if result.structured is None:
        return {"output": shown}
    if not shown or _same(shown, result.structured):
        return {"output": result.structured}
    return {"output": shown, "structured": result.structured}


def _piece(block: Block, images: Collection[str]) -> Piece | None:
    if block.text is not None:
        return Piece(text=block.text) if block.text else None
    if block.data is not None:
        kind = block.mime_type or "data"
        if kind in images and (data := _base64(block.data)) is not None:
            return Piece(mime_type=kind, data=data)
        where = f" from {block.uri}" if block.uri else ""
        return Piece(text=f"[{kind}{where}, {len(block.data) * 3 // 4} bytes, not shown]")
    if block.type == "resource_link":
        about = ", ".join(part for part in (block.raw.get("name"), block.mime_type) if isinstance(part, str))
        return Piece(text=f"[resource {block.uri}{f' ({about})' if about else ''}]")
    return Piece(text=json.dumps(dict(block.raw), ensure_ascii=False, default=str))


def _base64(data: str) -> str | None:
    """The same in the one spelling that providers take; None when it is no base64."""
    try:
        return base64.b64encode(base64.b64decode(data)).decode() if data else None
    except (binascii.Error, ValueError):
        return None


def _same(shown: str, structured: Any) -> bool:
    try:
        return json.loads(shown) == structured
    except (ValueError, RecursionError):
        return False
