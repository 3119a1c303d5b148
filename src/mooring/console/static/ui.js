// Parts that several pages share.

import { h, render } from "./dom.js";
import { icon } from "./icons.js";
import { ApiError } from "./api.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * @param {Child} title
 * @param {() => void} act
 * @param {{ kind?: "primary" | "danger" | "plain", icon?: string, busy?: boolean, disabled?: boolean, small?: boolean, label?: string, key?: string }} [options]
 */
export function button(title, act, options = {}) {
  return h(
    "button",
    {
      type: "button",
      key: options.key,
      class: `button ${options.kind ?? ""}${options.small ? " small" : ""}`,
      "aria-label": options.label,
      disabled: options.disabled || options.busy,
      "aria-busy": options.busy ? "true" : null,
      on: { click: act },
    },
    options.icon && icon(options.icon),
    h("span", null, title),
  );
}

/** @param {string} title @param {string} name @param {() => void} act */
export function iconButton(title, name, act) {
  return h(
    "button",
    { type: "button", class: "icon-button", "aria-label": title, title, on: { click: act } },
    icon(name),
  );
}

/** A word with a shape beside it, so that the state is not said by colour alone. @param {string} tone @param {Child} text @param {string} [mark] */
export function pill(tone, text, mark) {
  return h("span", { class: `pill ${tone}` }, mark && icon(mark), h("span", null, text));
}

/** @type {Record<string, [tone: string, mark: string]>} */
const STATES = {
  connected: ["good", "ok"],
  ok: ["good", "ok"],
  valid: ["good", "ok"],
  active: ["good", "ok"],
  here: ["good", "ok"],
  up: ["good", "ok"],
  live: ["good", "ok"],
  current: ["good", "ok"],
  draining: ["warn", "pending"],
  "not ready": ["warn", "pending"],
  down: ["bad", "error"],
  silent: ["bad", "error"],
  ended: ["off", "off"],
  allow: ["good", "ok"],
  pending: ["wait", "pending"],
  running: ["wait", "pending"],
  waiting: ["wait", "pending"],
  ask: ["warn", "help"],
  failed: ["bad", "error"],
  error: ["bad", "error"],
  denied: ["warn", "off"],
  deny: ["bad", "off"],
  revoked: ["bad", "off"],
  expired: ["bad", "off"],
  "needs-auth": ["warn", "key"],
  disabled: ["off", "off"],
  cancelled: ["off", "off"],
};

/** @param {string} state */
export function toneOf(state) {
  return STATES[state]?.[0] ?? "off";
}

/** @param {string} state @param {Child} [text] */
export function statePill(state, text) {
  const [tone, mark] = STATES[state] ?? ["off", "pending"];
  return pill(tone, text ?? state, mark);
}

/** Text of a server or user: its own direction, cut by the layout. @param {Child} text @param {string} [classes] */
export function foreign(text, classes = "") {
  return h("bdi", { class: `foreign ${classes}`, dir: "auto" }, text);
}

/** A name that is cut at its beginning: its end tells it from others. @param {string} text @param {string} [classes] */
export function endOf(text, classes = "") {
  return h("span", { class: "end-cut", title: text }, foreign(text, classes));
}

/** @param {string} title @param {Child} about @param {...Child} actions */
export function empty(title, about, ...actions) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    h("p", { class: "muted" }, about),
    actions.length ? h("div", { class: "row center" }, actions) : null,
  );
}

/** @param {string} [text] */
export function loading(text = "Loading …") {
  return h(
    "div",
    { class: "loading", role: "status" },
    h("span", { class: "spinner", "aria-hidden": "true" }),
    h("span", null, text),
  );
}

/** @param {unknown} error @param {() => void} [again] */
export function failure(error, again) {
  const next = error instanceof ApiError ? error.next : null;
  return h(
    "div",
    { class: "callout bad", role: "alert" },
    icon("error"),
    h(
      "div",
      { class: "stack" },
      h("p", { dir: "auto" }, messageOf(error)),
      next && command(next),
      again && h("div", null, button("Try again", again, { small: true })),
    ),
  );
}

/** @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** @param {string} tone @param {...Child} content */
export function callout(tone, ...content) {
  const marks = /** @type {Record<string, string>} */ ({ bad: "error", warn: "warning", good: "ok", wait: "pending" });
  return h("div", { class: `callout ${tone}` }, icon(marks[tone] ?? "help"), h("div", { class: "stack" }, content));
}

/** @param {string} text @param {string} [what] */
export function copyButton(text, what = "text") {
  return h(
    "button",
    {
      type: "button",
      class: "icon-button copy",
      "aria-label": `Copy ${what}`,
      title: `Copy ${what}`,
      on: { click: (/** @type {Event} */ event) => (event.stopPropagation(), copy(text, what)) },
    },
    icon("copy"),
  );
}

/** @param {string} text @param {string} what */
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${what}.`);
  } catch {
    toast(`The browser did not allow to copy. The ${what} is: ${text}`, "warn");
  }
}

/** A command or id that can be copied. @param {string} text @param {string} [what] */
export function command(text, what = "command") {
  return h("span", { class: "command" }, h("code", { dir: "auto" }, text), copyButton(text, what));
}

/** @param {string} text @param {string} label */
export function codeBlock(text, label) {
  return h(
    "div",
    { class: "code-block" },
    h("pre", { tabindex: "0", role: "region", "aria-label": label, dir: "auto" }, text),
    copyButton(text, label.toLowerCase()),
  );
}

/** @param {[string, Child][]} rows */
export function facts(rows) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  return known.length
    ? h(
        "dl",
        { class: "facts" },
        known.map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))),
      )
    : null;
}

/** @param {string} title @param {...Child} content */
export function section(title, ...content) {
  return h("section", { class: "section", key: title }, h("h3", null, title), content);
}

/** @param {string} label @param {Child} value @param {string} [note] @param {string} [tone] */
export function stat(label, value, note, tone = "") {
  return h(
    "div",
    { class: `stat ${tone}`, key: label },
    h("dt", null, label),
    h("dd", null, value, note && h("span", { class: "stat-note" }, note)),
  );
}

/** @param {...Child} stats */
export function statStrip(...stats) {
  return h("dl", { class: "stats" }, stats);
}

/** @param {string} label @param {string} value @param {(value: string) => void} set @param {string} [placeholder] */
export function filterInput(label, value, set, placeholder) {
  return h(
    "label",
    { class: "filter grow" },
    h("span", { class: "visually-hidden" }, label),
    icon("search"),
    h("input", {
      type: "search",
      class: "filter-input",
      "data-filter": true,
      placeholder: placeholder ?? label,
      autocomplete: "off",
      spellcheck: "false",
      prop: { value },
      on: { input: (/** @type {any} */ event) => set(event.target.value) },
    }),
  );
}

/** @param {string} label @param {string} value @param {readonly (string | [string, string])[]} choices @param {(value: string) => void} set */
export function filterSelect(label, value, choices, set) {
  const all = choices.map((choice) =>
    typeof choice === "string" ? /** @type {[string, string]} */ ([choice, choice]) : choice,
  );
  if (value && !all.some(([id]) => id === value)) all.unshift([value, value]);
  return h(
    "label",
    { class: "filter" },
    h("span", { class: "visually-hidden" }, label),
    h(
      "select",
      { class: value ? "set" : "", on: { change: (/** @type {any} */ event) => set(event.target.value) } },
      h("option", { value: "", prop: { selected: !value } }, label),
      all.map(([id, title]) => h("option", { key: id, value: id, prop: { selected: id === value } }, title)),
    ),
  );
}

/**
 * A list with the details of one row beside it; on a narrow screen, in its place.
 * @param {Child} list @param {Child} detail @param {string} back address of the list
 * @param {Child} [title]
 */
export function split(list, detail, back, title) {
  return h(
    "div",
    { class: `split${detail ? " open" : ""}` },
    h("div", { class: "split-list", key: "list" }, list),
    detail &&
      h(
        "aside",
        { class: "split-detail", key: "detail", "aria-label": "Details" },
        h(
          "div",
          { class: "detail-head" },
          h(
            "a",
            {
              class: "icon-button",
              href: back,
              "aria-label": "Close the details",
              title: "Close (Esc)",
              "data-close": true,
            },
            icon("close"),
          ),
          h("h2", { class: "detail-title", tabindex: "-1" }, title),
        ),
        h("div", { class: "detail-body" }, detail),
      ),
  );
}

/** A unified diff, line by line. @param {string} text */
export function diffView(text) {
  return h(
    "pre",
    { class: "diff", tabindex: "0", role: "region", "aria-label": "Changes to the file" },
    text.split("\n").map((line, index) => {
      const tone =
        line.startsWith("+++") || line.startsWith("---")
          ? "file"
          : line.startsWith("+")
            ? "add"
            : line.startsWith("-")
              ? "cut"
              : line.startsWith("@@")
                ? "hunk"
                : "";
      return h("span", { class: `diff-line ${tone}`, key: String(index) }, `${line}\n`);
    }),
  );
}

/** Bars for the last round trips. @param {(number | null)[]} values */
export function spark(values) {
  if (!values.length) return h("span", { class: "muted" }, "–");
  const known = values.filter((value) => value !== null);
  const most = Math.max(1, ...known);
  const lost = values.length - known.length;
  return h(
    "svg",
    {
      class: "spark",
      viewBox: "0 0 64 20",
      role: "img",
      "aria-label": `Last round trips: ${known.length} answered, ${lost} lost`,
    },
    values.slice(-16).map((value, index) => {
      const tall = value === null ? 20 : Math.max(2, (value / most) * 18);
      return h("rect", {
        key: String(index),
        x: index * 4,
        y: 20 - tall,
        width: 3,
        height: tall,
        class: value === null ? "lost" : "",
      });
    }),
  );
}

/** @param {string} title @param {number} value @param {number} most @param {string} text */
export function bar(title, value, most, text) {
  return h(
    "div",
    { class: "bar", key: title },
    h("span", { class: "bar-title" }, title),
    h(
      "span",
      { class: "bar-track", "aria-hidden": "true" },
      h("span", { class: "bar-fill", css: { width: `${most ? Math.max(0.5, (100 * value) / most) : 0}%` } }),
    ),
    h("span", { class: "bar-text" }, text),
  );
}

// Messages that go away, and dialogs.

/** @type {{ id: number, text: string, tone: string }[]} */
let toasts = [];
let lastToast = 0;

/** @param {string} text @param {"good" | "warn" | "bad"} [tone] */
export function toast(text, tone = "good") {
  const id = ++lastToast;
  toasts = [...toasts.slice(-3), { id, text, tone }];
  drawToasts();
  setTimeout(
    () => {
      toasts = toasts.filter((one) => one.id !== id);
      drawToasts();
    },
    tone === "good" ? 4000 : 9000,
  );
}

function drawToasts() {
  const place = document.getElementById("toasts");
  if (place)
    render(
      place,
      toasts.map((one) =>
        h(
          "div",
          { key: String(one.id), class: `toast ${one.tone}` },
          icon(one.tone === "good" ? "ok" : "warning"),
          h("span", { dir: "auto" }, one.text),
        ),
      ),
    );
}

/**
 * Show a modal dialog. `view` describes its content; `redraw` draws it again; `close` ends it.
 * @template T
 * @param {string} title
 * @param {(close: (value?: T) => void, redraw: () => void) => () => Child} build
 * @param {string} [size]
 * @returns {Promise<T | undefined>}
 */
export function dialog(title, build, size = "") {
  return new Promise((done) => {
    const node = document.createElement("dialog");
    node.className = `dialog ${size}`;
    const before = document.activeElement;
    /** @type {T | undefined} */
    let value;
    /** @param {T} [given] */
    const close = (given) => {
      value = given;
      node.close();
    };
    const redraw = () =>
      render(
        node,
        h(
          "div",
          { class: "dialog-head" },
          h("h2", { id: "dialog-title" }, title),
          iconButton("Close", "close", () => close()),
        ),
        h("div", { class: "dialog-body" }, view()),
      );
    const view = build(close, redraw);
    node.setAttribute("aria-labelledby", "dialog-title");
    redraw();
    document.body.append(node);
    node.addEventListener("close", () => {
      render(node);
      node.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      done(value);
    });
    node.showModal();
  });
}

/** @param {string} title @param {Child} text @param {string} yes @param {"primary" | "danger"} [kind] @returns {Promise<boolean>} */
export async function confirmed(title, text, yes, kind = "primary") {
  const answer = await dialog(title, (/** @type {(value?: boolean) => void} */ close) => () => [
    h("div", { class: "stack" }, text),
    h(
      "div",
      { class: "row end" },
      button("Cancel", () => close(false)),
      button(yes, () => close(true), { kind }),
    ),
  ]);
  return answer === true;
}

/**
 * Run an action and say how it ended.
 * @template T
 * @param {() => Promise<T>} act
 * @param {string | ((value: T) => string | null)} [done]
 * @returns {Promise<T | undefined>}
 */
export async function attempt(act, done) {
  try {
    const value = await act();
    const text = typeof done === "function" ? done(value) : done;
    if (text) toast(text);
    return value;
  } catch (error) {
    toast(messageOf(error), "bad");
    return undefined;
  }
}
