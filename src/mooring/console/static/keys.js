// Shortcuts. They can be turned off, because some input devices type letters by themselves.

import { h } from "./dom.js";
import { go, link } from "./router.js";
import { dialog } from "./ui.js";

const KEY = "mooring-shortcuts";

/** @param {() => { id: string, title: string, keys: string }[]} pages */
export function createKeys(pages) {
  let waiting = 0;
  let on = read();

  /** @param {KeyboardEvent} event */
  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") return escape(event);
    const target = event.target;
    const typing =
      target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);
    if (!on || typing) return;
    const second = Date.now() - waiting < 1500;
    waiting = 0;
    if (second) {
      const page = pages().find((one) => one.keys === event.key.toLowerCase());
      if (page) go(link(page.id));
    } else if (event.key === "g") waiting = Date.now();
    else if (event.key === "/") /** @type {HTMLElement | null} */ (document.querySelector("[data-filter]"))?.focus();
    else if (event.key === "?") help();
    else return;
    event.preventDefault();
  }

  /** @param {KeyboardEvent} event */
  function escape(event) {
    const input = event.target;
    if (input instanceof HTMLInputElement && input.type === "search" && input.value) return;
    const close = /** @type {HTMLAnchorElement | null} */ (document.querySelector("[data-close]"));
    if (!close) return;
    close.click();
    /** @type {HTMLElement | null} */ (document.querySelector('.grid-row[tabindex="0"]'))?.focus();
  }

  function help() {
    /** @param {string} keys @param {string} text */
    const row = (keys, text) =>
      h(
        "div",
        { key: text },
        h(
          "dt",
          null,
          keys.split(" ").map((key, index) => [index ? " " : "", h("kbd", null, key)]),
        ),
        h("dd", null, text),
      );
    void dialog("Keyboard shortcuts", (_close, redraw) => () => [
      h(
        "dl",
        { class: "shortcuts" },
        pages().map((page) => row(`g ${page.keys}`, `Go to ${page.title}`)),
        row("/", "Filter the list"),
        row("↑ ↓", "Move in a table"),
        row("Enter", "Open the row"),
        row("Space", "Select the row"),
        row("Esc", "Close the details"),
        row("?", "Show this list"),
      ),
      h(
        "label",
        { class: "check" },
        h("input", {
          type: "checkbox",
          prop: { checked: on },
          on: { change: () => ((on = !on), write(on), redraw()) },
        }),
        h("span", null, "Shortcuts of single letters are on"),
      ),
    ]);
  }

  return { press, help };
}

function read() {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true;
  }
}

/** @param {boolean} on */
function write(on) {
  try {
    localStorage.setItem(KEY, on ? "on" : "off");
  } catch {
    // The choice lasts as long as the page.
  }
}
