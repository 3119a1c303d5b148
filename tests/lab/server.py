"""A handwritten, scripted MCP server over stdio, correct or faulty, without an SDK.

    python -I -S server.py '{"era": "legacy", "tools": ["echo"], …}'

Every message it reads is appended to the file named by `log`, so that tests can see the wire.

Misbehaviour on cue: `cues` maps a method to a cue, and the tool `say` takes one as its arguments. A cue is
`{"bytes": …, "times": 1, "then": "answer"}`: the bytes (one character each) go out as they are, with `@ID@`
replaced by the id of the request; then the server goes on as told by `then`, see `follow`.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
SERVER_INFO = {"name": "lab", "version": "1.0", "title": "The laboratory"}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
TOOLS = {
    "echo": {"text": {"type": "string"}},
    "sleep": {"seconds": {"type": "number"}},
    "pid": {},
    "fail": {},
    "refuse": {},
    "crash": {},
    "effect": {"n": {"type": "integer"}, "fate": {"type": "string"}},
    "say": {"bytes": {"type": "string"}, "times": {"type": "integer"}, "then": {"type": "string"}},
    "shout": {"size": {"type": "integer"}},
    "big": {"size": {"type": "integer"}},
    "grow": {"name": {"type": "string"}},
    "drop": {"name": {"type": "string"}},
    "env": {},
    "raw": {"result": {}},
    "chat": {},
    "count_lists": {},
    "cue": {"cues": {"type": "object"}},
    "meta": {},
}

given = sys.argv[1] if len(sys.argv) > 1 else "{}"
if given.startswith("@"):
    with open(given[1:], encoding="utf-8") as file:
        given = file.read()
script = json.loads(given)
era = script.get("era", "dual")
names = list(script.get("tools", ["echo", "pid"]))
extra_definitions = script.get("definitions", [])
lists = 0
out_lock = threading.Lock()
cancelled = set()
declared = {}
subscriptions = []


def write(message):
    line = json.dumps(message, separators=(",", ":"))
    with out_lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def follow(cue, request_id):
    """Say the bytes of a cue and go on as it tells; False when the request is to stay without answer."""
    data = cue.get("bytes", "").encode("latin-1").replace(b"@ID@", json.dumps(request_id).encode())
    with out_lock:
        for _ in range(cue.get("times", 1)):
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
    then = cue.get("then", "answer")
    if then == "exit":
        os._exit(9)
    if then == "mute":  # the output is closed, the process lives
        os.close(1)
    while then in ("mute", "deaf"):  # nothing more is read
        time.sleep(60)
    return then == "answer"


def log(line):
    if script.get("log"):
        with open(script["log"], "a", encoding="utf-8") as file:
            file.write(line if line.endswith("\n") else line + "\n")


def definition(name):
    return {
        "name": name,
        "description": f"The {name} tool",
        "inputSchema": {"type": "object", "properties": TOOLS.get(name, {})},
        "annotations": script.get("annotations", {}),
    }


def conditional(params):
    """The definitions of `when`: by a capability that the client declares, or with `!` by one it lacks."""
    able = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", declared)
    return [
        entry
        for name, entries in script.get("when", {}).items()
        if (name.lstrip("!") in able) != name.startswith("!")
        for entry in entries
    ]


def varied(value):
    """The script with `@ORDER@` and `@START@` replaced by what differs at every start."""
    count = 0
    if os.path.exists(script["log"]):
        with open(script["log"], encoding="utf-8") as file:
            count = sum(line.startswith('{"started"') for line in file)
    order = ["cat", "ls", "pwd"]
    order = order[count % 3 :] + order[: count % 3]
    return json.loads(json.dumps(value).replace("@ORDER@", ", ".join(order)).replace("@START@", str(count)))


def text(value, **more):
    return {"content": [{"type": "text", "text": str(value)}], **more}


def changed():
    if script.get("quiet") or "quiet" in names:  # it promised notices and sends none
        return
    if subscriptions:
        for sub in subscriptions:
            write(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/tools/list_changed",
                    "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": sub}},
                }
            )
    else:
        write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


def call(request_id, params):
    name, arguments, meta = params["name"], params.get("arguments", {}), params.get("_meta", {})
    if name == "echo":
        return text(arguments.get("text", ""), structuredContent={"text": arguments.get("text", "")})
    if name == "chat":
        for said in LEVELS[LEVELS.index(script.get("level", "info")) :]:
            line = {"level": said, "data": said}
            write({"jsonrpc": "2.0", "method": "notifications/message", "params": line})
        return text("said")
    if name == "sleep":
        token = meta.get("progressToken")
        end = time.monotonic() + arguments["seconds"]
        step = 0
        while time.monotonic() < end:
            if request_id in cancelled:
                return None
            time.sleep(0.02)
            step += 1
            if token is not None and script.get("progress"):
                progress = {"progressToken": token, "progress": step, "total": 100, "message": f"step {step}"}
                write({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        return text(arguments.get("text", "slept"))
    if name == "pid":
        return text(os.getpid())
    if name == "fail":
        return text("it did not work", isError=True)
    if name == "refuse":
        raise KeyError("refused on purpose")
    if name == "crash":
        sys.stderr.write("crashing on purpose\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "effect":
        fate = arguments.get("fate", "die after" if script.get("die_after_effect") else "live")
        if fate == "die before":
            os._exit(7)
        with open(script["effects"], "a", encoding="utf-8") as file:
            file.write(f"{arguments['n']}\n")
        if fate == "die after":
            os._exit(7)
        return text(f"done {arguments['n']}")
    if name == "say":
        return text("said") if follow(arguments, request_id) else None
    if name == "shout":
        for _ in range(arguments["size"] // 1000):
            sys.stderr.write("!" * 999 + "\n")
        sys.stderr.flush()
        return text("shouted")
    if name == "big":
        return text("x" * arguments["size"])
    if name == "grow":
        names.append(arguments["name"])
        changed()
        return text("grown")
    if name == "drop":
        names.remove(arguments["name"])
        changed()
        return text("dropped")
    if name == "cue":
        script["cues"] = arguments["cues"]
        return text("noted")
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "raw":
        return arguments["result"]
    if name == "count_lists":
        return text(lists)
    if name == "meta":
        return text(json.dumps(meta))
    if name == "mirror":
        return text(json.dumps(arguments, sort_keys=True))
    return text(f"called {name}")


def answer(message):
    global lists
    request_id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "notifications/cancelled":
        cancelled.add(params.get("requestId"))
        return
    if request_id is None or method is None:
        return
    modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    try:
        result = respond(request_id, method, params, modern)
    except KeyError as error:
        write({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32602, "message": str(error)}})
        return
    except NotImplementedError:
        error = {"code": -32601, "message": f"Method not found: {method}"}
        write({"jsonrpc": "2.0", "id": request_id, "error": error})
        return
    if result is None:
        return
    if modern and not script.get("no_result_type"):
        hints = {"ttlMs": 0, "cacheScope": "private"} if method.endswith("/list") else {}
        result = {"resultType": "complete", **hints, **result}
    write({"jsonrpc": "2.0", "id": request_id, "result": result})


def respond(request_id, method, params, modern):
    global lists
    cue = script.get("cues", {}).get(method)
    if cue is not None and not follow(cue, request_id):
        return None
    if method == "server/discover":
        if era == "dies-on-discover":
            sys.stderr.write("unknown request, giving up\n")
            sys.stderr.flush()
            os._exit(3)
        if era == "silent-on-discover":
            return None
        if era == "legacy":
            raise NotImplementedError
        return {
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {"listChanged": True}},
            "instructions": "Be careful.",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO},
        }
    if method == "initialize":
        if era == "modern":
            raise NotImplementedError
        declared.update(params.get("capabilities", {}))
        return {
            "protocolVersion": script.get("protocol", HANDSHAKE),
            "capabilities": script.get("capabilities", {"tools": {"listChanged": True}}),
            "serverInfo": SERVER_INFO,
            "instructions": script.get("instructions", "Be careful."),
        }
    if method == "ping":
        return {}
    if method == "logging/setLevel":
        script["level"] = params["level"]
        return {}
    if method == "tools/list":
        lists += 1
        if script.get("hang_on_list"):
            return None
        page_size = script.get("page_size")
        if script.get("reread"):
            with open(script["reread"], encoding="utf-8") as file:
                extra_definitions[:] = json.load(file)["definitions"]
        entries = [definition(name) for name in names] + extra_definitions + conditional(params)
        if script.get("repeat_cursor"):
            return {"tools": entries, "nextCursor": "again"}
        if script.get("endless_pages"):
            page = int(params.get("cursor") or 0)
            return {"tools": [definition(f"page_{page}")], "nextCursor": str(page + 1)}
        if not page_size:
            return {"tools": entries}
        if script.get("empty_cursor"):
            first, rest = entries[:page_size], entries[page_size:]
            return {"tools": rest} if "cursor" in params else {"tools": first, "nextCursor": ""}
        start = int(params.get("cursor") or 0)
        page = {"tools": entries[start : start + page_size]}
        if start + page_size < len(entries):
            page["nextCursor"] = str(start + page_size)
        return page
    if method == "tools/call":
        known = [*extra_definitions, *(one for some in script.get("when", {}).values() for one in some)]
        if params["name"] not in [*names, *(entry.get("name") for entry in known)]:
            raise KeyError(f"Unknown tool: {params['name']}")
        return call(request_id, params)
    if method == "resources/list":
        return {"resources": script.get("resources", [])}
    if method == "resources/templates/list":
        return {"resourceTemplates": script.get("templates", [])}
    if method == "prompts/list":
        return {"prompts": script.get("prompts", [])}
    if method == "subscriptions/listen":
        subscriptions.append(request_id)
        write(
            {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "notifications": params.get("notifications", {}),
                    "_meta": {"io.modelcontextprotocol/subscriptionId": request_id},
                },
            }
        )
        return None
    raise NotImplementedError


def follow_file(path):
    """Offer the tools named in the file, one a line, and say so whenever it changes."""
    while True:
        with open(path, encoding="utf-8") as file:
            wanted = file.read().split()
        if wanted != names:
            names[:] = wanted
            changed()
        time.sleep(0.05)


def spawn_daemon(limits):
    """Leave a process behind as daemons do: with its own session, parent, environment, files and limits."""
    if (pid := os.fork()) != 0:
        os.waitpid(pid, 0)
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    if limits:
        reset_limits()
    log(json.dumps({"grandchild": os.getpid()}))
    os.chdir("/")
    for descriptor in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    os.closerange(3, 1024)
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)
    os.execve("/bin/sleep", ["sleep", "600"], {})


def reset_limits():
    """Raise every limit, as daemons do."""
    import resource

    for number in range(16):
        resource.setrlimit(number, (resource.getrlimit(number)[1],) * 2)


def spawn_storm():
    """Leave a process behind that forks and exits for ever, each time into a new session. All of them hold
    a lock on the file `log` + ".held"."""
    import fcntl

    if os.fork() != 0:
        return
    for descriptor in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    held = os.open(script["log"] + ".held", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_SH)
    log(json.dumps({"storm": os.getpid()}))
    while True:
        os.setsid()
        reset_limits()
        if os.fork() != 0:
            os._exit(0)


def main():
    if script.get("log"):
        script.update(varied(script))
        extra_definitions[:] = script.get("definitions", [])
    if script.get("tools_file"):
        with open(script["tools_file"], encoding="utf-8") as file:
            names[:] = file.read().split()
        threading.Thread(target=follow_file, args=(script["tools_file"],), daemon=True).start()
    if script.get("spawn_grandchild") in ("daemon", "daemon with its own limits"):
        spawn_daemon(limits=script["spawn_grandchild"] != "daemon")
    elif script.get("spawn_grandchild") == "storm":
        spawn_storm()
    elif script.get("spawn_grandchild"):
        child = subprocess.Popen(
            ["sleep", "600"], start_new_session=script["spawn_grandchild"] == "own session"
        )
        log(json.dumps({"grandchild": child.pid}))
    if script.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log(json.dumps({"started": os.getpid()}))
    sys.stderr.write(script.get("stderr", ""))
    sys.stderr.flush()
    if script.get("start_delay"):
        time.sleep(script["start_delay"])
    if script.get("start_work"):  # seconds of CPU time, however long they take
        end = time.process_time() + script["start_work"]
        while time.process_time() < end:
            pass
        log(json.dumps({"worked": os.getpid()}))
    if script.get("crash_at_start"):
        sys.exit(script["crash_at_start"])
    sys.stdout.write(script.get("banner", ""))
    sys.stdout.flush()
    if script.get("hang"):
        while True:
            time.sleep(60)
    for line in sys.stdin:
        log(line)
        try:
            message = json.loads(line)
        except ValueError:
            continue
        # A slow call must not keep the loop from reading cancellations.
        if message.get("method") == "tools/call" and message["params"].get("name") == "sleep":
            threading.Thread(target=answer, args=(message,), daemon=True).start()
        else:
            answer(message)
    while script.get("ignore_eof"):
        time.sleep(60)
    sys.exit(script.get("exit_code", 0))


main()
