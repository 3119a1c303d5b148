"""Model providers' HTTP APIs, answered from a script: what a request says goes in, the reply comes out."""

from __future__ import annotations

import base64
import json
from typing import Any

from . import Script, Shown


def responses(script: Script, request: dict[str, Any]) -> dict[str, Any]:
    """A reply of OpenAI's Responses API."""
    answers = [item for item in _items(request["input"]) if item.get("type") == "function_call_output"]
    script.shown = [_output(answer["output"]) for answer in answers]
    tools = [inner for tool in request.get("tools", ()) for inner in tool.get("tools", (tool,))]
    call = script.turn(tool["name"] for tool in tools if "name" in tool and not tool.get("defer_loading"))
    said = {"type": "output_text", "text": script.answer, "annotations": []}
    item: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    item |= {"content": [said]}
    if call:
        item = {"type": "function_call", "id": "f", "call_id": f"c{len(answers)}", "name": call[0]}
        item |= {"arguments": json.dumps(call[1]), "status": "completed"}
    return {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "model": "scripted",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def chat(script: Script, request: dict[str, Any]) -> dict[str, Any]:
    """A reply of OpenAI's Chat API."""
    answers = [message for message in request["messages"] if message["role"] == "tool"]
    script.shown = [Shown(answer["content"]) for answer in answers]
    call = script.turn(tool["function"]["name"] for tool in request.get("tools", ()))
    message: dict[str, Any] = {"role": "assistant", "content": None if call else script.answer}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [{"id": f"c{len(answers)}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
    return {"id": "r", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}


def messages(script: Script, request: dict[str, Any]) -> dict[str, Any]:
    """A reply of Anthropic's Messages API."""
    blocks = [block for message in request["messages"] for block in _blocks(message["content"])]
    answers = [block for block in blocks if block["type"] == "tool_result"]
    script.shown = [_result(answer) for answer in answers]
    call = script.turn(
        tool["name"]
        for tool in request.get("tools", ())
        if "input_schema" in tool and not tool.get("defer_loading")
    )
    block: dict[str, Any] = {"type": "text", "text": script.answer}
    if call:
        block = {"type": "tool_use", "id": f"c{len(answers)}", "name": call[0], "input": call[1]}
    return {
        "id": f"m{len(answers)}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [block],
        "stop_reason": "tool_use" if call else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def generate_content(script: Script, request: dict[str, Any]) -> dict[str, Any]:
    """A reply of the Gemini API."""
    parts = [part for content in request["contents"] for part in content["parts"]]
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    script.shown = [_response(answer) for answer in answers]
    tools = request.get("tools", ())
    call = script.turn(found["name"] for tool in tools for found in tool["functionDeclarations"])
    part: dict[str, Any] = {"text": script.answer}
    if call:
        part = {"functionCall": {"id": f"c{len(answers)}", "name": call[0], "args": call[1]}}
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}


def _items(given: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _output(output: Any) -> Shown:
    parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    urls = [part["image_url"].partition("base64,")[2] for part in parts if part["type"] == "input_image"]
    return Shown("\n".join(texts), images=[base64.b64decode(url) for url in urls])


def _result(answer: dict[str, Any]) -> Shown:
    content = _blocks(answer.get("content", []))
    texts = [part["text"] for part in content if part["type"] == "text"]
    images = [base64.b64decode(part["source"]["data"]) for part in content if part["type"] == "image"]
    return Shown("\n".join(texts), answer.get("is_error", False), images)


def _response(answer: dict[str, Any]) -> Shown:
    response = answer["response"]
    blobs = [part.get("inlineData") or part["inline_data"] for part in answer.get("parts", ())]
    images = [_bytes(blob["data"]) for blob in blobs]
    return Shown(str(response.get("output", response.get("error"))), "error" in response, images)


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else base64.b64decode(data.replace("-", "+").replace("_", "/"))
