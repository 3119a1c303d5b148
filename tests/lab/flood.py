"""A server in a process of its own that floods one of its streams and goes on answering calls. No SDK in it.

    python -I -S flood.py stdio FLOOD             floods its output when the tool `flood` is called
    python -I -S flood.py get|post|listen|sse FLOOD     the same over HTTP; prints its port first

FLOOD is one of `FLOODS`. With `get` and `listen` the flood starts when the stream is opened, with `post` and
`sse` when the tool `flood` is called. `body` answers the tool `flood` with a JSON body that never ends.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MESSAGE = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
CHANGED = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
REQUEST = '{"jsonrpc":"2.0","id":"%08d","method":"ping"}'
ANSWER = '{"jsonrpc":"2.0","id":987654321,"result":{}}'
FLOODS = {
    "data": "data:\n",
    "comment": ": x\n",
    "comments": ": x\n\n",
    "blank": "\n",
    "event": "event: x\n",
    "id": "id: 1\n",
    "ids": "id: 1\n\n",
    "unknown": "x\n",
    "endless": "x",
    "crumbs": "xx",
    "notice": f"data: {MESSAGE}\n\n",
    "changed": f"data: {CHANGED}\n\n",
    "foreign": f"data: {ANSWER}\n\n",
    "garbage": "garbage\n",
    "brace": "{\n",
    "notice-line": MESSAGE + "\n",
    "changed-line": CHANGED + "\n",
    "foreign-line": ANSWER + "\n",
    "request": "".join(f"data: {REQUEST % number}\n\n" for number in range(1_000)),
    "request-line": "".join(REQUEST % number + "\n" for number in range(1_000)),
    "stderr": "x" * 79 + "\n",
    "stderr-blank": "\n",
}

where, name = sys.argv[1], sys.argv[2]
piece = FLOODS[name].encode()
CHUNKED = name == "crumbs"
"""Whether each piece of the flood is an HTTP chunk of its own."""
BLOCK = (b"%x\r\n%s\r\n" % (len(piece), piece) if CHUNKED else piece) * max(1, 65_536 // len(piece))
INFO = {"name": "flood", "version": "1"}
TOOLS = [{"name": tool, "inputSchema": {"type": "object"}} for tool in ("echo", "flood")]
old_stream = None
flooding = threading.Event()


def result(message):
    method, params = message["method"], message.get("params") or {}
    if method == "server/discover" and where == "listen":
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": True}},
            "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
        }
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": INFO,
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": str(params.get("arguments", {}).get("text", ""))}]}
    return None


def reply(message):
    found = result(message)
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    answer |= {"error": {"code": -32601, "message": "unknown"}} if found is None else {"result": found}
    return json.dumps(answer).encode()


def asks_for_flood(message):
    return message.get("method") == "tools/call" and message["params"]["name"] == "flood"


def framed(data):
    return b"%x\r\n%s\r\n" % (len(data), data) if CHUNKED else data


def pour(write):
    try:
        while True:
            write(BLOCK)
    except OSError:
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _head(self, kind, length=None):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Mcp-Session-Id", "s")
        if length is None:
            if CHUNKED:
                self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def do_GET(self):
        global old_stream
        self._head("text/event-stream")
        if where == "sse":
            self.wfile.write(framed(b"event: endpoint\ndata: /messages\n\n"))
            old_stream = self.wfile
            flooding.wait()
        elif where != "get":
            flooding.wait()
            return
        pour(self.wfile.write)

    def do_DELETE(self):
        self._head("text/plain", 0)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if where == "sse":
            self._head("text/plain", 0)
            if asks_for_flood(message):
                flooding.set()
            elif "id" in message and "method" in message:
                old_stream.write(framed(b"data: " + reply(message) + b"\n\n"))
            return
        if "id" not in message or "method" not in message:
            self._head("text/plain", 0)
        elif asks_for_flood(message) and where in ("post", "body"):
            self._head("text/event-stream" if where == "post" else "application/json")
            pour(self.wfile.write)
        elif message["method"] == "subscriptions/listen" and where == "listen":
            self._head("text/event-stream")
            stamp = {"io.modelcontextprotocol/subscriptionId": message["id"]}
            params = {"notifications": message["params"]["notifications"], "_meta": stamp}
            method = "notifications/subscriptions/acknowledged"
            first = {"jsonrpc": "2.0", "method": method, "params": params}
            self.wfile.write(framed(b"data: " + json.dumps(first).encode() + b"\n\n"))
            pour(self.wfile.write)
        else:
            body = reply(message)
            self._head("application/json", len(body))
            self.wfile.write(body)


def serve_stdio():
    descriptor = 2 if name.startswith("stderr") else 1
    for line in sys.stdin:
        message = json.loads(line)
        if asks_for_flood(message):
            pour_into = lambda data: os.write(descriptor, data)  # noqa: E731
            threading.Thread(target=pour, args=(pour_into,), daemon=True).start()
        elif "id" in message and "method" in message:
            os.write(1, reply(message) + b"\n")


if where == "stdio":
    serve_stdio()
    os._exit(0)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
