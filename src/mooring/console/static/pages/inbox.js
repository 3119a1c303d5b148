// Inbox: what waits for a person. Approvals, plans of scripts, questions of servers, logins.

import { h, host, render } from "../dom.js";
import { FormState, formView } from "../form.js";
import { ago, plural, span } from "../format.js";
import { jsonView } from "../json.js";
import { attempt, button, callout, codeBlock, empty, facts, foreign, pill } from "../ui.js";

/** @typedef {import("../contract.js").InboxItem} InboxItem */
/** @typedef {import("../main.js").Context} Context */

/** @type {import("../main.js").Page} */
const page = {
  id: "inbox",
  title: "Inbox",
  icon: "inbox",
  keys: "i",
  make,
  badge: (store) => ({ count: store.values.totals?.inbox ?? 0, tone: "accent", text: "waiting" }),
};
export default page;

/** @type {Record<string, string>} */
const KINDS = { approval: "Approval", plan: "Plan of a script", elicitation: "Question", login: "Login" };

/** @param {Context} context */
function make(context) {
  return (/** @type {import("../router.js").Route} */ route) => {
    const rows = context.store.rows("inbox");
    return h(
      "div",
      { class: "centered" },
      h(
        "div",
        { class: "page-head" },
        h("h1", null, "Inbox"),
        h("span", { class: "muted", role: "status" }, rows.length ? `${plural(rows.length, "item")} waiting` : ""),
      ),
      rows.length
        ? rows.map((item) => inboxCard(context, item, item.id === route.parts[0]))
        : empty("Nothing waits for you", "Calls that need a yes, questions of servers and logins appear here."),
    );
  };
}

/** @param {Context} context @param {InboxItem} item @param {boolean} [marked] */
export function inboxCard(context, item, marked = false) {
  return host(createCard, { context, item, marked, now: Math.floor(context.store.now()) }, `inbox-${item.id}`);
}

/** @param {{ context: Context, item: InboxItem, marked: boolean, now: number }} props */
function createCard(props) {
  const node = document.createElement("section");
  let shown = props;
  /** @type {string | undefined} */
  let busy;
  const draw = () => {
    node.className = `card stack inbox-item${shown.marked ? " marked" : ""}`;
    node.setAttribute("aria-label", KINDS[shown.item.kind] ?? shown.item.kind);
    render(node, cardView(shown, form, busy, send, shown.item.kind === "login" ? paste : undefined));
  };
  const form =
    props.item.kind === "elicitation" && props.item.mode !== "url"
      ? new FormState(props.item.schema, () => draw(), undefined, props.item.id)
      : undefined;
  /** @param {string} action */
  const send = async (action) => {
    if (action === "accept" && form && !form.ready()) return;
    busy = action;
    draw();
    const body =
      action === "accept" && form
        ? { id: shown.item.id, action, content: form.value ?? {} }
        : { id: shown.item.id, action };
    await attempt(() => shown.context.api.post("answer", body));
    busy = undefined;
    draw();
  };
  /** @param {string} url */
  const paste = (url) =>
    void attempt(() => shown.context.api.post("login-complete", { item: shown.item.id, url }), "Logged in.");
  draw();
  // The time that is left counts down also while nothing else changes.
  const timer = setInterval(draw, 1000);
  return {
    node,
    /** @param {typeof props} next */
    update(next) {
      shown = next;
      draw();
    },
    dispose() {
      clearInterval(timer);
    },
  };
}

/** @param {{ context: Context, item: InboxItem }} props @param {FormState | undefined} form @param {string | undefined} busy @param {(action: string) => void} send @param {((url: string) => void) | undefined} paste */
function cardView({ context, item }, form, busy, send, paste) {
  const now = context.store.now();
  const left = item.expires === null ? null : item.expires - now;
  const title = item.title ?? (item.kind === "approval" && item.tool ? `Allow the call of ${item.tool}?` : null);
  return [
    h(
      "div",
      { class: "row wrap" },
      pill("accent", KINDS[item.kind] ?? item.kind),
      item.server && foreign(item.server, "muted"),
      h("span", { class: "spacer" }),
      h("span", { class: "muted" }, ago(item.asked, now), left !== null && left > 0 && ` · ${span(left)} left`),
    ),
    title && h("h2", { class: "inbox-title", dir: "auto" }, title),
    item.text &&
      (item.kind === "plan"
        ? codeBlock(item.text, "Plan")
        : h("p", { class: title ? "prose" : "prose inbox-text", dir: "auto" }, item.text)),
    item.reason && callout("warn", h("p", { dir: "auto" }, item.reason)),
    Array.isArray(item.sensitive)
      ? item.sensitive.length > 0 && sensitive(item.sensitive.join(", "))
      : item.sensitive
        ? sensitive(typeof item.sensitive === "string" ? item.sensitive : "")
        : null,
    facts([
      ["Tool", item.tool && foreign(item.tool, "mono")],
      ["Session", item.session],
    ]),
    item.kind === "plan"
      ? program(item.arguments)
      : hasKeys(item.arguments)
        ? jsonView(item.arguments, "Arguments")
        : null,
    form && formView(form),
    (item.mode === "url" || item.kind === "login") && item.url ? address(item) : null,
    paste && callback(item, paste),
    h(
      "div",
      { class: "row wrap" },
      choices(item).map(([action, title, kind]) =>
        button(title, () => send(action), { key: action, kind, busy: busy === action, disabled: busy !== undefined }),
      ),
    ),
  ];
}

/** The code of a script. @param {any} given */
function program(given) {
  return typeof given?.code === "string" ? codeBlock(given.code, "Program") : null;
}

/** @param {string} names */
function sensitive(names) {
  return callout(
    "warn",
    h(
      "p",
      null,
      `The server asks for something that looks like a secret${names ? ` (${names})` : ""}. It gets what you type.`,
    ),
  );
}

/** @param {InboxItem} item */
function address(item) {
  return h(
    "div",
    { class: "callout wait" },
    h(
      "div",
      { class: "stack" },
      h("p", null, "Opens ", h("strong", { class: "wrap-any" }, item.host ?? ""), " in a new tab:"),
      h("code", { class: "wrap-any" }, item.url),
      h(
        "div",
        null,
        h("a", { class: "button primary", href: item.url, target: "_blank", rel: "noopener noreferrer" }, "Open"),
      ),
    ),
  );
}

/** For a browser on another machine, which cannot reach the page that ends the login. @param {InboxItem} item @param {(url: string) => void} paste */
function callback(item, paste) {
  const id = `callback-${item.id}`;
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    const input = document.getElementById(id);
    if (input instanceof HTMLInputElement && input.value.trim()) paste(input.value.trim());
  };
  return h(
    "form",
    { class: "field", on: { submit } },
    h("label", { for: id }, "If the browser cannot open the last page of the login, paste its address here"),
    h(
      "span",
      { class: "row" },
      h("input", { id, type: "text", autocomplete: "off", spellcheck: "false" }),
      h("button", { type: "submit", class: "button" }, "Finish"),
    ),
  );
}

/** @param {InboxItem} item @returns {[string, string, "primary" | "danger" | undefined][]} */
function choices(item) {
  if (item.kind === "approval" || item.kind === "plan")
    return [
      ["approve", "Approve", "primary"],
      ["deny", "Deny", undefined],
    ];
  if (item.kind === "login") return [["cancel", "Cancel the login", undefined]];
  return [
    ["accept", item.mode === "url" ? "I have done it" : "Send", item.mode === "url" ? undefined : "primary"],
    ["decline", "Decline", undefined],
    ["cancel", "Dismiss", undefined],
  ];
}

/** @param {unknown} value */
function hasKeys(value) {
  return value !== null && value !== undefined && (typeof value !== "object" || Object.keys(value).length > 0);
}
