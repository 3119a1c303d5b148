// Edits of the configuration: show the diff, write after a yes.

import { h } from "./dom.js";
import { button, callout, dialog, diffView, failure, loading, toast } from "./ui.js";

/**
 * @param {import("./api.js").Api} api
 * @param {string} title
 * @param {Record<string, unknown>[]} edits
 * @returns {Promise<boolean>} whether the file was written
 */
export async function propose(api, title, edits) {
  const written = await dialog(
    title,
    (/** @type {(value?: boolean) => void} */ close, redraw) => {
      /** @type {import("./contract.js").EditAnswer | undefined} */
      let answer;
      /** @type {unknown} */
      let error;
      let busy = false;
      const ask = async () => {
        error = undefined;
        try {
          answer = await api.post("edit", { edits });
        } catch (problem) {
          error = problem;
        }
        redraw();
      };
      const write = async () => {
        busy = true;
        redraw();
        try {
          const done = await api.post("edit", { edits, write: true, revision: answer?.revision });
          toast(`Wrote ${done.files.map((/** @type {any} */ file) => file.file).join(", ")}.`);
          close(true);
        } catch (problem) {
          error = problem;
          answer = undefined;
        }
        busy = false;
        redraw();
      };
      void ask();
      return () => [
        error ? failure(error, ask) : !answer ? loading("Comparing with the file …") : null,
        answer &&
          answer.files.length === 0 &&
          callout("good", h("p", null, "Nothing to change: the file says this already.")),
        answer?.files.map((file) =>
          h(
            "div",
            { class: "stack", key: file.file },
            h(
              "p",
              null,
              file.new ? "New file " : "Changes to ",
              h("code", null, file.file),
              h("span", { class: "muted" }, ` (${file.scope})`),
            ),
            diffView(file.diff),
          ),
        ),
        answer &&
          answer.notes.length > 0 &&
          callout(
            "warn",
            answer.notes.map((note, index) => h("p", { key: String(index), class: "wrap-any", dir: "auto" }, note)),
          ),
        h(
          "div",
          { class: "row end" },
          button(answer?.files.length === 0 ? "Close" : "Cancel", () => close(false)),
          answer && answer.files.length > 0 && button("Write the file", write, { kind: "primary", busy }),
        ),
      ];
    },
    "wide",
  );
  return written === true;
}
