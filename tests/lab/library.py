"""A handwritten MCP server with resources, prompts, questions and tasks, in both eras. No SDK in it.

    python -I -S library.py '{"era": "legacy", "resources": {"memo:///a": "text"}, …}'

`Library` knows what to answer; this file run as a script puts it on stdio, `HttpLibrary` on HTTP. Every
message that it reads is appended to the file named by `log`.
"""

import json
import os
import sys

MODERN = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
TASKS = "io.modelcontextprotocol/tasks"
OBJECT = {"type": "object"}
TOOLS = ("echo", "touch", "add", "reads", "ask", "work", "crash", "capabilities")
LATER = object()
"""The answer comes when something else has happened."""


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Library:
    def __init__(self, script, push):
        self.script, self.push = script, push
        self.resources = dict(script.get("resources", {}))
        self.reads = 0
        self.watched = set()
        self.listening = {}
        self.questions = {}
        self.tasks = {}
        self.capabilities = {}
        self.finish = lambda request_id, result: push({"jsonrpc": "2.0", "id": request_id, "result": result})

    # --- what is said unasked -----------------------------------------------------------------

    def notice(self, method, params, wants):
        """To every held subscription that wants it, or to the whole connection in the handshake era."""
        for request_id, wanted in self.listening.items():
            if wants(wanted):
                self.push(
                    {
                        "jsonrpc": "2.0",
                        "method": method,
                        "params": {**params, "_meta": {SUBSCRIPTION: request_id}},
                    }
                )
        if not self.listening and self.script.get("era") == "legacy":
            self.push({"jsonrpc": "2.0", "method": method, "params": params})

    def touch(self, uri, text):
        self.resources[uri] = text
        if self.script.get("era") != "legacy" or uri in self.watched or self.script.get("always_tell"):
            self.notice(
                "notifications/resources/updated",
                {"uri": uri},
                lambda w: uri in w.get("resourceSubscriptions", ()),
            )

    def add(self, uri, text):
        self.resources[uri] = text
        self.notice("notifications/resources/list_changed", {}, lambda w: w.get("resourcesListChanged"))

    # --- what is answered ---------------------------------------------------------------------

    def respond(self, request_id, method, params, modern):
        offered = {
            "tools": {},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
            **({"extensions": {TASKS: {}}} if modern else {"tasks": {"requests": {"tools": {"call": {}}}}}),
        }
        era = self.script.get("era", "dual")
        if modern:
            self.capabilities = params["_meta"].get("io.modelcontextprotocol/clientCapabilities")
        if method == "server/discover" and era != "legacy":
            return {
                "supportedVersions": [MODERN],
                "capabilities": offered,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "initialize" and era != "modern":
            self.capabilities = params["capabilities"]
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": offered,
                "serverInfo": {"name": "library"},
            }
        if method == "ping":
            return {}
        if method == "subscriptions/listen" and modern:
            return self.listen(request_id, params["notifications"])
        if method in self.script.get("unanswered", ()):
            return LATER
        handler = getattr(self, "on_" + method.replace("/", "_"), None)
        if handler is None:
            raise Refused(-32601, f"Method not found: {method}")
        return handler(request_id, params, modern)

    def listen(self, request_id, wanted):
        self.listening[request_id] = wanted
        notice = {"notifications": wanted, "_meta": {SUBSCRIPTION: request_id}}
        self.push({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": notice})
        return LATER

    def on_tools_list(self, request_id, params, modern):
        tools = [{"name": name, "inputSchema": OBJECT} for name in TOOLS]
        if not modern:
            tools.append({"name": "long", "inputSchema": OBJECT, "execution": {"taskSupport": "required"}})
        return {"tools": tools}

    def on_resources_list(self, request_id, params, modern):
        listed = [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in self.resources]
        size = self.script.get("page_size", 10_000)
        start = int(params.get("cursor", 0))
        more = {"nextCursor": str(start + size)} if start + size < len(listed) else {}
        return {"resources": listed[start : start + size], **more}

    def on_resources_templates_list(self, request_id, params, modern):
        return {
            "resourceTemplates": [{"uriTemplate": t, "name": "any"} for t in self.script.get("templates", [])]
        }

    def on_resources_read(self, request_id, params, modern):
        uri = params["uri"]
        self.reads += 1
        if uri in self.script.get("hang", []):
            return LATER
        if uri not in self.resources and not self.script.get("any"):
            raise Refused(-32602 if modern else -32002, f"Resource not found: {uri}")
        found = self.resources.get(uri, "made of a template")
        piece = {"text": found} if isinstance(found, str) else found
        hints = {"ttlMs": self.script["ttl"], "cacheScope": "private"} if "ttl" in self.script else {}
        return {"contents": [{"uri": uri, "mimeType": "text/plain", **piece}], **hints}

    def on_resources_subscribe(self, request_id, params, modern):
        if self.script.get("no_subscriptions"):
            raise Refused(-32601, "Method not found")
        self.watched.add(params["uri"])
        return {}

    def on_resources_unsubscribe(self, request_id, params, modern):
        self.watched.discard(params["uri"])
        return {}

    def on_prompts_list(self, request_id, params, modern):
        return {"prompts": self.script.get("prompts", [])}

    def on_prompts_get(self, request_id, params, modern):
        said = f"{params['name']} {json.dumps(params.get('arguments', {}), sort_keys=True)}"
        content = {"type": "text", "text": said}
        return {
            "messages": [
                {"role": "user", "content": content},
                {"role": "assistant", "content": {**content, "text": "Yes."}},
            ]
        }

    def on_completion_complete(self, request_id, params, modern):
        typed = params["argument"]["value"]
        known = [word for word in ("paris", "park", "perth") if word.startswith(typed)]
        return {"completion": {"values": known, "total": len(known)}}

    # --- calls --------------------------------------------------------------------------------

    def on_tools_call(self, request_id, params, modern):
        given = params.get("arguments", {})
        if params["name"] == "touch":
            self.touch(given["uri"], given["text"])
        elif params["name"] == "add":
            self.add(given["uri"], given["text"])
        elif params["name"] == "crash":
            os._exit(7)
        elif params["name"] == "ask":
            return self.ask(request_id, params, given, modern)
        elif params["name"] in ("work", "long"):
            return self.work(params, given, modern)
        said = {"reads": self.reads, "capabilities": json.dumps(self.capabilities)}
        return text(said.get(params["name"], "done"))

    def ask(self, request_id, params, given, modern):
        question = {"method": given.get("method", "elicitation/create"), "params": given.get("params", {})}
        if not modern:
            self.questions[f"q{request_id}"] = request_id
            self.push({"jsonrpc": "2.0", "id": f"q{request_id}", **question})
            return LATER
        done = int(params.get("requestState", 0))
        if done >= given.get("rounds", 1):
            return text(json.dumps(params.get("inputResponses")))
        return {
            "resultType": "input_required",
            "inputRequests": {"q": question},
            "requestState": str(done + 1),
        }

    def answered(self, message):
        """The client has answered one of our questions."""
        request_id = self.questions.pop(message.get("id"), None)
        if request_id is not None:
            self.finish(request_id, text(json.dumps(message.get("result", message.get("error")))))

    # --- tasks --------------------------------------------------------------------------------

    def work(self, params, given, modern):
        if not modern and "task" not in params:
            raise Refused(-32601, "this tool is a task")
        task = {
            "taskId": f"task-{len(self.tasks)}",
            "status": "working",
            "statusMessage": "step 0",
            "polls": 0,
        }
        self.tasks[task["taskId"]] = {**task, "given": given}
        state = self.state(task["taskId"])
        return {"resultType": "task", **state} if modern else {"task": state}

    def state(self, task_id):
        task = self.tasks[task_id]
        wait = task["given"].get("wait", 20)
        shown = {
            key: task[key]
            for key in ("taskId", "status", "statusMessage", "result", "error", "inputRequests")
            if key in task
        }
        return {
            **shown,
            "ttlMs": 60000,
            "pollIntervalMs": wait,
            "pollInterval": wait,
            "createdAt": "",
            "lastUpdatedAt": "",
        }

    def on_tasks_get(self, request_id, params, modern):
        if params["taskId"] not in self.tasks:
            raise Refused(-32602, "Task not found")
        task = self.tasks[params["taskId"]]
        given = task["given"]
        task["polls"] += 1
        task["statusMessage"] = f"step {task['polls']}"
        if task["status"] == "working" and task["polls"] >= given.get("polls", 2):
            if given.get("question") and "answer" not in task:
                task |= {"status": "input_required", "inputRequests": {"q": given["question"]}}
            else:
                self.conclude(task)
        return self.state(params["taskId"])

    def conclude(self, task):
        task["status"] = task["given"].get("fate", "completed")
        if task["status"] == "completed":
            task["result"] = text(f"worked {json.dumps(task.get('answer'))}")
        elif task["status"] == "failed":
            task["error"] = {"code": -32603, "message": "the disk is full"}

    def on_tasks_update(self, request_id, params, modern):
        task = self.tasks[params["taskId"]]
        task |= {"answer": params["inputResponses"]["q"], "status": "working"}
        task.pop("inputRequests", None)
        return {}

    def on_tasks_result(self, request_id, params, modern):
        return self.tasks[params["taskId"]].get("result") or text("worked")

    def on_tasks_cancel(self, request_id, params, modern):
        self.tasks[params["taskId"]]["status"] = "cancelled"
        return {}

    def end_task(self, task_id):
        """End the task from outside, and notify its subscribers."""
        task = self.tasks[task_id]
        self.conclude(task)
        self.notice("notifications/tasks", self.state(task_id), lambda w: task_id in w.get("taskIds", ()))


def text(value):
    return {"content": [{"type": "text", "text": str(value)}]}


def reply(library, message):
    """The answer to one message; None where there is none yet."""
    if "method" not in message:
        library.answered(message)
        return None
    if "id" not in message:
        return None
    params = message.get("params") or {}
    modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    envelope = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        result = library.respond(message["id"], message["method"], params, modern)
    except Refused as problem:
        return {**envelope, "error": {"code": problem.code, "message": str(problem)}}
    if result is LATER:
        return None
    return {**envelope, "result": {"resultType": "complete", **result} if modern else result}


def main():
    given = sys.argv[1]
    if given.startswith("@"):
        with open(given[1:], encoding="utf-8") as file:
            given = file.read()
    script = json.loads(given)

    def push(message):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    library = Library(script, push)
    for line in sys.stdin:
        if script.get("log"):
            with open(script["log"], "a", encoding="utf-8") as file:
                file.write(line)
        answer = reply(library, json.loads(line))
        if answer is not None:
            push(answer)


if __name__ == "__main__":
    main()
