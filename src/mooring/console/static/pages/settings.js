// Settings: the effective configuration with the file and line of each value; edits as a diff.

import { h } from "../dom.js";
import { propose } from "../edits.js";
import { count } from "../format.js";
import { jsonView, pretty } from "../json.js";
import { Query } from "../query.js";
import { go, link } from "../router.js";
import { memo } from "../store.js";
import { table } from "../table.js";
import {
  button,
  callout,
  command,
  facts,
  failure,
  filterInput,
  filterSelect,
  foreign,
  loading,
  section,
  split,
} from "../ui.js";

/** @typedef {import("../contract.js").SettingRow} SettingRow */
/** @typedef {import("../main.js").Context} Context */

/** @type {import("../main.js").Page} */
const page = { id: "settings", title: "Settings", icon: "settings", keys: ",", make };
export default page;

const filtered = memo(
  (/** @type {readonly SettingRow[]} */ rows, /** @type {string} */ q, /** @type {string} */ show) => {
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    return rows.filter(
      (row) =>
        (!show || (show === "set" ? row.file !== null : row.file === null)) &&
        words.every((word) => `${row.path.join(".")} ${short(row.value)}`.toLowerCase().includes(word)),
    );
  },
);

/** @param {unknown} value */
function short(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "–");
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

/** @param {SettingRow} row */
const idOf = (row) => `${row.path.join(".")}@${row.file ?? ""}:${row.line ?? ""}`;

/** @param {Context} context */
function make(context) {
  const { api, store, repaint } = context;
  /** @type {Query<{ files: { file: string, scope: string, error: string | null }[], rows: SettingRow[] }>} */
  const query = new Query(repaint);
  const draft = { id: "", text: "" };
  const adding = { path: "", text: "" };

  return (/** @type {import("../router.js").Route} */ route) => {
    const { q = "", show = "set" } = route.query;
    const got = query.about(
      "settings",
      JSON.stringify([
        store.values.about?.files,
        store.rows("servers").map((row) => [row.id, row.state === "disabled"]),
      ]),
      () => api.post("settings"),
    );
    const set = (/** @type {Record<string, string>} */ next) =>
      go(link("settings", route.parts, { q, show, ...next }), true);
    const chosen = got.value?.rows.find((row) => idOf(row) === route.parts[0]);
    const head = h("div", { class: "page-head" }, h("h1", null, "Settings"));
    if (got.error) return [head, failure(got.error, () => query.forget())];
    if (!got.value) return [head, loading()];
    const rows = filtered(got.value.rows, q, show === "all" ? "" : show);
    const list = h(
      "div",
      { class: "list-page" },
      head,
      files(got.value.files),
      h(
        "div",
        { class: "filters" },
        filterInput("Filter settings", q, (value) => set({ q: value }), "Filter by name or value"),
        filterSelect(
          "Set and default",
          show === "all" ? "" : show,
          [
            ["set", "set in a file"],
            ["default", "default values"],
          ],
          (value) => set({ show: value || "all" }),
        ),
        h("span", { class: "muted", role: "status" }, `${count(rows.length)} of ${count(got.value.rows.length)}`),
        !store.limited && button("Add a setting", () => go(link("settings", ["+"], { q, show })), { icon: "plus" }),
      ),
      table(
        {
          label: "Settings",
          rows,
          id: idOf,
          rowHeight: 44,
          selected: chosen && idOf(chosen),
          columns: columns(),
          onSelect: (row) => go(link("settings", [idOf(row)], { q, show })),
          tone: (row) => (row.effective ? "" : "tone-off"),
          empty: got.value.rows.some((row) => row.file) ? "No setting matches." : "No file sets anything.",
        },
        "settings",
      ),
    );
    const done = (/** @type {boolean} */ written) => written && query.forget();
    const detail =
      route.parts[0] === "+" && !store.limited
        ? addView(context, adding, done)
        : chosen
          ? details(context, chosen, draft, done)
          : null;
    return split(
      list,
      detail,
      link("settings", [], { q, show }),
      chosen ? foreign(chosen.path.join(".")) : "Add a setting",
    );
  };
}

/** @param {{ file: string, scope: string, error: string | null }[]} files */
function files(files) {
  if (!files.length) return callout("wait", h("p", null, "No configuration file was found."));
  return h(
    "ul",
    { class: "file-list" },
    files.map((file) =>
      h(
        "li",
        { key: file.file },
        h("span", { class: "tag" }, file.scope),
        command(file.file, "path"),
        file.error && h("span", { class: "problem", dir: "auto" }, file.error),
      ),
    ),
  );
}

/** @returns {import("../table.js").Column<SettingRow>[]} */
function columns() {
  return [
    {
      id: "path",
      title: "Setting",
      width: "minmax(140px, 1.4fr)",
      sort: (row) => row.path.join("."),
      cell: (row) =>
        h(
          "span",
          { class: "end-cut", title: row.path.join(".") },
          h(
            "span",
            { class: "path" },
            row.path.map((part, index) => [
              index ? h("span", { class: "muted", key: `d${index}` }, ".") : null,
              foreign(part, index === row.path.length - 1 ? "strong" : ""),
            ]),
          ),
        ),
    },
    {
      id: "value",
      title: "Value",
      width: "minmax(120px, 2fr)",
      cell: (row) => h("code", { class: "foreign", dir: "ltr" }, short(row.value)),
    },
    {
      id: "file",
      title: "From",
      width: "minmax(120px, 1fr)",
      wide: true,
      sort: (row) => `${row.file ?? ""}:${String(row.line ?? 0).padStart(6, "0")}`,
      cell: (row) =>
        row.file
          ? h(
              "span",
              { class: "muted foreign", title: row.file },
              `${base(row.file)}${row.line ? `:${row.line}` : ""}`,
              row.effective ? "" : " (overridden)",
            )
          : h("span", { class: "muted" }, "default"),
    },
  ];
}

/** @param {string} path */
function base(path) {
  return path.split(/[\\/]/).pop() ?? path;
}

/** @param {Context} context @param {SettingRow} row @param {{ id: string, text: string }} draft @param {(written: boolean) => void} done */
function details({ api, repaint, store }, row, draft, done) {
  if (draft.id !== idOf(row))
    Object.assign(draft, {
      id: idOf(row),
      text: typeof row.value === "string" ? JSON.stringify(row.value) : pretty(row.value),
    });
  const parsed = parse(draft.text);
  const name = row.path.join(".");
  const where = row.file ? { file: row.file } : {};
  return [
    !row.effective && callout("wait", h("p", null, "Another file overrides this value.")),
    facts([
      ["Name", command(name, "name")],
      ["File", row.file && h("code", { class: "wrap-any" }, row.file)],
      ["Line", row.line && command(`${row.file}:${row.line}`, "place")],
      ["Scope", row.scope],
      [
        "Default",
        row.default === undefined || row.default === null ? null : h("code", { class: "wrap-any" }, short(row.default)),
      ],
    ]),
    section(
      "Value",
      typeof row.value === "object" && row.value !== null
        ? jsonView(row.value, "Value")
        : h("code", { class: "wrap-any", dir: "ltr" }, short(row.value)),
    ),
    store.limited
      ? h("p", { class: "muted" }, "Settings of a gateway with tokens are changed in the file on its machine.")
      : section(
          "Change it",
          editor("setting-value", draft.text, (text) => ((draft.text = text), repaint()), parsed),
          h(
            "div",
            { class: "row wrap" },
            button(
              "Show the change",
              () =>
                propose(api, `Set ${name}`, [{ op: "set", path: row.path, value: parsed.value, ...where }]).then(done),
              { kind: "primary", disabled: parsed.problem !== "" },
            ),
            row.file &&
              button("Remove from the file", () =>
                propose(api, `Remove ${name}`, [{ op: "unset", path: row.path, file: row.file }]).then(done),
              ),
          ),
        ),
  ];
}

/** @param {Context} context @param {{ path: string, text: string }} draft @param {(written: boolean) => void} done */
function addView({ api, repaint }, draft, done) {
  const parsed = parse(draft.text);
  const path = draft.path
    .split(".")
    .map((part) => part.trim())
    .filter(Boolean);
  return [
    h(
      "div",
      { class: "field" },
      h("label", { for: "setting-path" }, "Name"),
      h("input", {
        id: "setting-path",
        type: "text",
        placeholder: "e.g. discovery or servers.github.call_timeout",
        autocomplete: "off",
        spellcheck: "false",
        prop: { value: draft.path },
        on: { input: (/** @type {any} */ event) => ((draft.path = event.target.value), repaint()) },
      }),
      h("span", { class: "help" }, "Keys separated by dots. All names: ", h("code", null, "mooring schema")),
    ),
    editor("new-value", draft.text, (text) => ((draft.text = text), repaint()), parsed),
    button(
      "Show the change",
      () => propose(api, `Set ${path.join(".")}`, [{ op: "set", path, value: parsed.value }]).then(done),
      { kind: "primary", disabled: !path.length || parsed.problem !== "" },
    ),
  ];
}

/** @param {string} id @param {string} text @param {(text: string) => void} set @param {{ problem: string }} parsed */
function editor(id, text, set, parsed) {
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, "New value, as JSON"),
    h("textarea", {
      id,
      class: "code",
      rows: "4",
      spellcheck: "false",
      "aria-invalid": parsed.problem && text ? "true" : null,
      "aria-describedby": `${id}-problem`,
      prop: { value: text },
      on: { input: (/** @type {any} */ event) => set(event.target.value) },
    }),
    h("span", { class: "problem", id: `${id}-problem` }, text ? parsed.problem : ""),
  );
}

/** @param {string} text @returns {{ value: unknown, problem: string }} */
function parse(text) {
  try {
    return { value: JSON.parse(text), problem: "" };
  } catch (error) {
    return {
      value: undefined,
      problem: `Not JSON: ${error instanceof Error ? error.message : error}. Text stands in quotes.`,
    };
  }
}
