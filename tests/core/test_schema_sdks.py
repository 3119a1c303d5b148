"""Compiled schemas in the providers' own types; the SDKs are large, so each is tried where installed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from pydantic import TypeAdapter

from mooring.core.schema.compile import Dialect, SetAside, compile_schema
from tests.core.test_schema_properties import many
from tests.lab.schemas import wild_schemas


def compiled(original: dict[str, Any], dialect: Dialect) -> Any:
    try:
        return compile_schema(original, dialect).schema
    except SetAside:
        return {"type": "object", "properties": {}}


@many
@given(original=wild_schemas)
def test_gemini_takes_every_compiled_schema(original) -> None:
    types = pytest.importorskip("google.genai.types", reason="google-genai (40 MB) is not installed")
    parameters = types.Schema.model_validate(compiled(original, "gemini"))
    types.FunctionDeclaration(name="tool", parameters=parameters)


@many
@given(original=wild_schemas)
def test_openai_takes_every_compiled_schema(original) -> None:
    types = pytest.importorskip("openai.types.responses", reason="openai (27 MB) is not installed")
    adapter = TypeAdapter(types.FunctionToolParam)
    for dialect in ("openai", "openai-strict"):
        tool = {
            "type": "function",
            "name": "tool",
            "parameters": compiled(original, dialect),
            "strict": False,
        }
        adapter.validate_python({**tool, "strict": dialect == "openai-strict"})


@many
@given(original=wild_schemas)
def test_anthropic_takes_every_compiled_schema(original) -> None:
    types = pytest.importorskip("anthropic.types", reason="anthropic (29 MB) is not installed")
    TypeAdapter(types.ToolParam).validate_python(
        {"name": "tool", "input_schema": compiled(original, "anthropic")}
    )
    TypeAdapter(types.tool_param.InputSchemaTyped).validate_python(compiled(original, "anthropic"))
