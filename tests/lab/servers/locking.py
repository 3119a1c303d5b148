"""A handwritten server over stdio that speaks both eras, one per connection: its first request decides.

It asks its user only during a call, which the 2026 era does not have. With `unlistable` it cannot list its
tools in the handshake era, like a server of the SDK with a tool whose output is an array. No SDK in it.
"""

import json
import os
import sys

MODERN, HANDSHAKE = "2026-07-28", "2025-06-18"
era = None
numbers = iter(range(1, 1_000_000))
done = []


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def ask(method, params):
    key = f"q{next(numbers)}"
    say({"id": key, "method": method, "params": params})
    while True:
        message = hear()
        if message.get("id") == key and "method" not in message:
            return message
        take(message)


def call(name):
    done.append(name)
    if name == "done":
        return f"{os.getpid()} {','.join(done)}"
    if name == "spoken":
        return MODERN if era == "modern" else HANDSHAKE
    if era == "modern":
        raise PermissionError("server-initiated requests cannot be made on this connection")
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = ask("elicitation/create", {"message": "Who are you?", "requestedSchema": form})
    content = answer.get("result", {})
    return f"{content.get('action')}: {(content.get('content') or {}).get('name', '')}"


def respond(method, params):
    if method == "server/discover":
        return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "ttlMs": 0}
    if method == "initialize":
        info = {"name": "locking", "version": "1"}
        return {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list" and era == "legacy" and "unlistable" in sys.argv:
        raise PermissionError("Handler returned an invalid result")
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": name, "inputSchema": schema} for name in ("who", "done", "spoken")]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": call(params["name"])}]}
    return {}


def take(message):
    global era
    method, params = message.get("method"), message.get("params") or {}
    if method is None or "id" not in message:
        return
    claimed = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    era = era or ("modern" if claimed and method != "initialize" else "legacy")
    try:
        if claimed != (era == "modern"):
            raise PermissionError(f"this connection serves the {era} era")
        result = respond(method, params)
    except PermissionError as problem:
        say({"id": message["id"], "error": {"code": -32600, "message": str(problem)}})
        return
    say({"id": message["id"], "result": {**({"resultType": "complete"} if claimed else {}), **result}})


while True:
    take(hear())
