// A value of JSON as a tree that opens part by part, or as indented text.

import { h, host, render } from "./dom.js";

const PAGE = 100;
const LONG = 400;
const OPEN_LEVELS = 2;

/**
 * @param {unknown} value
 * @param {string} label
 * @param {string} [key]
 */
export function jsonView(value, label, key) {
  return host(createTree, { value, label }, key);
}

/** @param {{ value: unknown, label: string }} props */
function createTree(props) {
  const node = document.createElement("div");
  node.className = "json";
  /** @type {Map<string, number | boolean>} */
  let opened = new Map();
  let shown = props;
  const draw = () => {
    node.setAttribute("role", "group");
    node.setAttribute("aria-label", shown.label);
    render(node, branch(shown.value, "", 0, opened, draw));
  };
  draw();
  return {
    node,
    /** @param {{ value: unknown, label: string }} next */
    update(next) {
      if (next.value !== shown.value) opened = new Map();
      shown = next;
      draw();
    },
  };
}

/**
 * @param {unknown} value @param {string} path @param {number} depth
 * @param {Map<string, number | boolean>} opened @param {() => void} draw
 * @returns {import("./dom.js").VNode}
 */
function branch(value, path, depth, opened, draw) {
  if (value === null || typeof value !== "object") return leaf(value, path, opened, draw);
  const list = Array.isArray(value);
  const entries = list
    ? value.map((item, index) => /** @type {[string, unknown]} */ ([String(index), item]))
    : Object.entries(value);
  const brackets = list ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return h("span", { class: "json-mark" }, brackets.join(""));
  const open = opened.get(`o${path}`) ?? depth < OPEN_LEVELS;
  const limit = /** @type {number} */ (opened.get(`n${path}`) ?? PAGE);
  const toggle = h(
    "button",
    {
      type: "button",
      class: "json-toggle",
      "aria-expanded": String(open),
      on: { click: () => (opened.set(`o${path}`, !open), draw()) },
    },
    h("span", { "aria-hidden": "true" }, open ? "▾" : "▸"),
    ` ${brackets[0]}`,
    open ? "" : h("span", { class: "json-count" }, `${entries.length}${list ? "" : " keys"}${brackets[1]}`),
  );
  if (!open) return toggle;
  return h(
    "span",
    { class: "json-branch" },
    toggle,
    h(
      "ul",
      null,
      entries
        .slice(0, limit)
        .map(([name, item]) =>
          h(
            "li",
            { key: name },
            list ? h("span", { class: "json-index" }, name) : h("span", { class: "json-key", dir: "auto" }, name),
            h("span", { class: "json-mark" }, ": "),
            branch(item, `${path}/${name}`, depth + 1, opened, draw),
          ),
        ),
      entries.length > limit &&
        h(
          "li",
          { key: "\u0000more" },
          h(
            "button",
            { type: "button", class: "link", on: { click: () => (opened.set(`n${path}`, limit + 1000), draw()) } },
            `Show more (${entries.length - limit} left)`,
          ),
        ),
    ),
    h("span", { class: "json-mark" }, brackets[1]),
  );
}

/**
 * @param {unknown} value @param {string} path @param {Map<string, number | boolean>} opened @param {() => void} draw
 * @returns {import("./dom.js").VNode}
 */
function leaf(value, path, opened, draw) {
  if (typeof value !== "string")
    return h("span", { class: `json-${value === null ? "null" : typeof value}` }, String(value));
  const whole = value.length <= LONG || opened.get(`o${path}`) === true;
  return h(
    "span",
    null,
    h("span", { class: "json-string", dir: "auto" }, JSON.stringify(whole ? value : value.slice(0, LONG))),
    !whole &&
      h(
        "button",
        { type: "button", class: "link", on: { click: () => (opened.set(`o${path}`, true), draw()) } },
        ` … ${value.length - LONG} more characters`,
      ),
  );
}

/** @param {unknown} value */
export function pretty(value) {
  return JSON.stringify(value, null, 2) ?? "";
}
