"""The blocks of a result as a model can use them: embedded files on disk, pictures within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mooring.core.render import MEDIA, inlined, label, text_block
from mooring.core.types import Block
from mooring.store.blobs import Blobs, decoded
from mooring.store.folder import Folder

__all__ = ["Converter"]

LARGEST_MEDIUM = 5 * 2**20
"""Bytes of a picture or sound that stays one: what model providers take."""
ALL_MEDIA, MOST_MEDIA = 20 * 2**20, 20
MOST_FILES = 256
"""Files that one result may leave on disk."""


class Converter:
    """Converts blocks; what cannot stay a block is saved as a file under the home, if there is one."""

    def __init__(self, home: Path | None) -> None:
        self._blobs = None if home is None else Blobs(home)

    @property
    def folder(self) -> Folder | None:
        return None if self._blobs is None else self._blobs.folder

    def blocks(self, blocks: Sequence[Block]) -> list[Block]:
        """The same as text, pictures, sounds, links, and what nobody knows yet."""
        made: list[Block] = []
        media, room, files = MOST_MEDIA, ALL_MEDIA, MOST_FILES
        for block in blocks:
            if block.type == "resource" and block.text is not None:
                made.append(inlined(block))
            elif block.data is None:
                made.append(block)
            elif block.type in MEDIA and media > 0 and _bytes(block) <= min(room, LARGEST_MEDIUM):
                media, room = media - 1, room - _bytes(block)
                made.append(_sound(block))
            else:
                files -= 1
                made.append(text_block(self.saved(block) if files >= 0 else _unsaved(block, _TOO_MANY)))
        return made

    def saved(self, block: Block) -> str:
        """Write the data of a block into a file; a line that says where it is, or why it is nowhere."""
        if self._blobs is None:
            return _unsaved(block, "no home is configured to save it in")
        data = decoded(block.data or "")
        if data is None:
            return _unsaved(block, _NOT_BASE64)
        try:
            path = self._blobs.save(data, block.mime_type)
        except OSError as problem:
            return _unsaved(block, f"it could not be saved: {problem.strerror or problem}")
        return f"[{label(block)}, {len(data):,} bytes, saved as {path}]"


_NOT_BASE64 = "its data is not valid base64"
_TOO_MANY = f"more than {MOST_FILES} files in one result"


def _unsaved(block: Block, why: str) -> str:
    return f"[{label(block)}, about {_bytes(block):,} bytes, is left out: {why}]"


def _bytes(block: Block) -> int:
    return len(block.data or "") * 3 // 4


def _sound(block: Block) -> Block:
    """The picture or sound, if its data is; a model provider would refuse the whole conversation else."""
    data = block.data or ""
    if decoded(data) is None:
        return text_block(_unsaved(block, _NOT_BASE64))
    joined = "".join(data.split())
    return block if joined == data else Block({**block.raw, "data": joined})
