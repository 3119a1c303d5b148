"""Ranking by meaning. Needs the extra: `pip install 'mooring[semantic]'`.

    host = Host.from_config()
    host.ranker = SemanticRanker.load("path/to/model", host)

Its order is combined with that of the lexical search. Without the extra, nothing here is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from mooring.core.catalog import Catalog
from mooring.core.types import Tool
from mooring.errors import ConfigError

__all__ = ["Encode", "SemanticRanker"]

Encode = Callable[[Sequence[str]], Any]
"""Encodes texts as vectors: an array of shape (texts, dimensions)."""


class _HasCatalog(Protocol):
    @property
    def catalog(self) -> Catalog: ...


class SemanticRanker:
    """A `Ranker` that compares the embedding of a query with those of the tools."""

    def __init__(self, encode: Encode, host: _HasCatalog) -> None:
        self._encode = encode
        self._host = host
        self._numpy: Any = import_module("numpy")
        self._vectors: dict[str, Any] = {}
        """Vectors by text, so that only new texts are encoded when the catalog changes."""

    @classmethod
    def load(cls, model: str, host: _HasCatalog) -> SemanticRanker:
        """A ranker with a static embedding model (model2vec) from a folder, or from its hub by name.

        Raises:
            ConfigError: the `semantic` extra is not installed.
        """
        try:
            model2vec: Any = import_module("model2vec")
        except ImportError:
            problem = "ranking by meaning needs the semantic extra: pip install 'mooring[semantic]'"
            raise ConfigError(problem) from None
        return cls(model2vec.StaticModel.from_pretrained(model).encode, host)

    def rank(self, query: str, names: Sequence[str]) -> list[tuple[str, float]]:
        """Return every name with its cosine similarity to the query, the best first."""
        tools = self._host.catalog.tools
        known = [name for name in names if name in tools]
        if not known:
            return []
        texts = [_said(tools[name]) for name in known]
        missing = sorted({text for text in texts if text not in self._vectors})
        if missing:
            self._vectors.update(zip(missing, self._unit(self._encode(missing)), strict=True))
        matrix = self._numpy.stack([self._vectors[text] for text in texts])
        scores = matrix @ self._unit(self._encode([query]))[0]
        return sorted(zip(known, scores.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))

    def _unit(self, vectors: Any) -> Any:
        array = self._numpy.asarray(vectors, dtype="float32")
        lengths = self._numpy.linalg.norm(array, axis=1, keepdims=True)
        return array / self._numpy.maximum(lengths, 1e-12)


def _said(tool: Tool) -> str:
    return f"{tool.remote_name.replace('_', ' ')}. {tool.description[:500]}"
