// The page of a tool (MCP Apps): a frame without our origin, on another port. Messages go through the console.

import { h, host } from "./dom.js";
import { confirmed, messageOf, toast } from "./ui.js";

const TALLEST = 900;
const MOST_WAITING = 256;
/** Milliseconds after which a page that says nothing is explained. */
const SILENT = 8000;

/**
 * @param {{ api: import("./api.js").Api }} context
 * @param {string} tool
 * @param {string} run id of the call whose arguments and result the page gets
 */
export function appFrame(context, tool, run) {
  return host(createFrame, { context, tool, run }, `app-${run}`);
}

/** @param {{ context: { api: import("./api.js").Api }, tool: string, run: string }} props */
function createFrame({ context: { api }, tool, run }) {
  const node = document.createElement("div");
  node.className = "app-frame";
  const frame = document.createElement("iframe");
  let view = "";
  let ended = false;
  /** @type {EventSource | undefined} */
  let source;

  /** Messages of the frame, in their order. @type {unknown[]} */
  const waiting = [];
  let sending = false;

  /** @param {MessageEvent} event */
  const fromFrame = (event) => {
    if (!view || event.source !== frame.contentWindow) return;
    if (event.data === null || typeof event.data !== "object" || event.data.jsonrpc !== "2.0") return;
    quiet();
    if (waiting.length >= MOST_WAITING) {
      close();
      node.textContent = "The page of this tool was closed: it sent too many messages.";
      return;
    }
    waiting.push(event.data);
    if (!sending) void pump();
  };

  const note = document.createElement("p");
  let silent = 0;
  const explain = () => {
    note.textContent = `The page has sent nothing yet. If it stays empty, the browser cannot reach ${api.session?.sandbox}: open the console on the machine where it runs.`;
    node.append(note);
  };
  const quiet = () => {
    clearTimeout(silent);
    note.remove();
  };

  const pump = async () => {
    sending = true;
    while (view && waiting.length) {
      const message = waiting.shift();
      await api.post("view-message", { view, message }).catch((error) => toast(messageOf(error), "bad"));
    }
    sending = false;
  };

  const open = async () => {
    const answer = await api.post("view-open", { tool, id: run, origin: location.origin });
    if (ended) return void api.post("view-close", { view: answer.view }).catch(() => undefined);
    const origin = new URL(answer.url).origin;
    if (origin === location.origin || origin !== api.session?.sandbox)
      throw new Error("The page of this tool is not on the separate origin, so it is not shown.");
    view = answer.view;
    addEventListener("message", fromFrame);
    source = new EventSource(`api/view?view=${encodeURIComponent(view)}`);
    source.addEventListener("message", (event) => frame.contentWindow?.postMessage(JSON.parse(event.data), "*"));
    source.addEventListener("size", (event) => {
      const { height } = JSON.parse(event.data);
      if (Number.isFinite(height)) frame.style.height = `${Math.min(TALLEST, Math.max(80, height))}px`;
    });
    source.addEventListener("link", (event) => void follow(JSON.parse(event.data).url));
    source.addEventListener("close", () => close());
    // The order matters: the restrictions stand before the address is set.
    frame.setAttribute("sandbox", "allow-scripts");
    frame.setAttribute("allow", typeof answer.allow === "string" ? answer.allow : "");
    frame.setAttribute("referrerpolicy", "no-referrer");
    frame.title = `Page of ${tool}`;
    frame.src = answer.url;
    node.append(frame);
    silent = setTimeout(explain, SILENT);
  };

  const close = () => {
    ended = true;
    quiet();
    source?.close();
    removeEventListener("message", fromFrame);
    frame.remove();
    if (view) void api.post("view-close", { view }).catch(() => undefined);
    view = "";
  };

  open().catch((error) => {
    node.textContent = messageOf(error);
    node.classList.add("problem");
  });
  return { node, update() {}, dispose: close };
}

/** @param {unknown} url */
async function follow(url) {
  if (typeof url !== "string" || !/^https?:\/\//.test(url)) return;
  const yes = await confirmed(
    "Open this address?",
    [h("p", null, "The page of the tool asks to open:"), h("code", { class: "wrap-any" }, url)],
    "Open",
  );
  if (yes) window.open(url, "_blank", "noopener,noreferrer");
}
