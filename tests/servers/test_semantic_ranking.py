"""Ranking by meaning: fused with the lexical search, and not imported unless it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.stdio import lab_server

numpy = pytest.importorskip("numpy")

TOOLS = [
    {"name": "procure_quibnik", "description": "Obtain a quibnik", "inputSchema": {}},
    {"name": "bake_bread", "description": "Flour, water, oven", "inputSchema": {}},
]
MEANINGS = {"zorble": 0, "quibnik": 0, "bread": 1, "flour": 1, "oven": 1, "loaf": 1}


def _encode(texts: Sequence[str]) -> Any:
    """A model of two meanings."""
    vectors = numpy.zeros((len(texts), 2))
    for row, text in enumerate(texts):
        for word in text.lower().replace(",", " ").replace(".", " ").split():
            if word in MEANINGS:
                vectors[row, MEANINGS[word]] += 1
    return vectors


@pytest.mark.anyio
async def test_a_tool_is_found_by_what_it_means_where_no_word_is_shared(hosting: Any) -> None:
    from mooring.servers.semantic_ranking import SemanticRanker

    async with hosting(lab_server(tools=[], definitions=TOOLS)) as host:
        assert host.search("zorble") == []
        host.ranker = SemanticRanker(_encode, host)
        assert host.search("zorble")[0].name == "mcp_lab_procure_quibnik"
        assert host.search("loaf")[0].name == "mcp_lab_bake_bread"
        found = await host.call("tools_search", {"query": "zorble"})
        assert found.structured["tools"][0]["name"] == "mcp_lab_procure_quibnik"


@pytest.mark.anyio
async def test_a_real_model_from_a_folder_is_loaded(tmp_path: Path, hosting: Any) -> None:
    model2vec = pytest.importorskip("model2vec")
    tokenizers = pytest.importorskip("tokenizers")
    from mooring.servers.semantic_ranking import SemanticRanker

    vocabulary = {"[UNK]": 0} | {word: number for number, word in enumerate(MEANINGS, 1)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    vectors = numpy.array([[0.0, 0.0], *([1.0, 0.0] if m == 0 else [0.0, 1.0] for m in MEANINGS.values())])
    model2vec.StaticModel(vectors, tokenizer).save_pretrained(str(tmp_path / "model"))
    async with hosting(lab_server(tools=[], definitions=TOOLS)) as host:
        host.ranker = SemanticRanker.load(str(tmp_path / "model"), host)
        assert host.search("zorble")[0].name == "mcp_lab_procure_quibnik"


def test_without_it_neither_numpy_nor_a_model_library_is_imported() -> None:
    code = "import sys; from mooring import Host; print({'numpy', 'model2vec'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "set()\n"
