// Tools: one table of all tools, filters, details, and edits of many at once.

import { h } from "../dom.js";
import { iconImage } from "../content.js";
import { propose } from "../edits.js";
import { count, plural } from "../format.js";
import { jsonView } from "../json.js";
import { Query } from "../query.js";
import { go, link } from "../router.js";
import { memo } from "../store.js";
import { table } from "../table.js";
import {
  button,
  callout,
  codeBlock,
  command,
  copyButton,
  facts,
  failure,
  filterInput,
  filterSelect,
  foreign,
  loading,
  section,
  split,
  statePill,
  endOf,
} from "../ui.js";

/** @typedef {import("../contract.js").Tool} Tool */
/** @typedef {import("../main.js").Context} Context */
/** @typedef {{ q: string, server: string, shown: string, policy: string, hint: string }} Filters */

/** @type {import("../main.js").Page} */
const page = { id: "tools", title: "Tools", icon: "tools", keys: "t", make };
export default page;

const SHOWN = /** @type {Record<string, string>} */ ({
  always: "always shown",
  search: "found by search",
  page: "only for its page",
  no: "not shown",
});

/** @type {WeakMap<Tool, string>} */
const texts = new WeakMap();

/** @param {Tool} row */
function textOf(row) {
  let text = texts.get(row);
  if (text === undefined) texts.set(row, (text = `${row.id} ${row.title ?? ""} ${row.summary}`.toLowerCase()));
  return text;
}

const filtered = memo(
  (
    /** @type {readonly Tool[]} */ rows,
    /** @type {string} */ q,
    /** @type {string} */ server,
    /** @type {string} */ shown,
    /** @type {string} */ policy,
    /** @type {string} */ hint,
  ) => {
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    return rows.filter(
      (row) =>
        (!server || row.server === server) &&
        (!shown || (shown === "hidden" ? row.hidden !== null : row.shown === shown)) &&
        (!policy || row.policy === policy) &&
        (!hint || (hint === "app" ? row.app : hint === "unpinned" ? !row.pinned : row.hints.includes(hint))) &&
        words.every((word) => textOf(row).includes(word)),
    );
  },
);

/** @param {Context} context */
function make(context) {
  const { store, repaint } = context;
  /** @type {Query<import("../contract.js").ToolDetail>} */
  const detail = new Query(repaint);
  /** @type {Set<string>} */
  let checked = new Set();

  return (/** @type {import("../router.js").Route} */ route) => {
    const { q = "", server = "", shown = "", policy = "", hint = "" } = route.query;
    const filters = { q, server, shown, policy, hint };
    const all = store.rows("tools");
    const rows = filtered(all, q, server, shown, policy, hint);
    const id = route.parts.join("/");
    const chosen = store.row("tools", id);
    const set = (/** @type {Partial<Filters>} */ next) => go(link("tools", route.parts, { ...filters, ...next }), true);
    const list = h(
      "div",
      { class: "list-page" },
      h(
        "div",
        { class: "page-head" },
        h("h1", null, "Tools"),
        h(
          "span",
          { class: "muted", role: "status" },
          rows.length === all.length ? count(all.length) : `${count(rows.length)} of ${count(all.length)}`,
        ),
      ),
      h(
        "div",
        { class: "filters" },
        filterInput("Filter tools", q, (value) => set({ q: value }), "Filter by name or description"),
        filterSelect(
          "All servers",
          server,
          store.rows("servers").map((row) => row.id),
          (value) => set({ server: value }),
        ),
        filterSelect(
          "Any visibility",
          shown,
          [
            ["always", "always shown"],
            ["search", "found by search"],
            ["page", "only for its page"],
            ["hidden", "hidden"],
          ],
          (value) => set({ shown: value }),
        ),
        filterSelect("Any policy", policy, ["allow", "ask", "deny"], (value) => set({ policy: value })),
        filterSelect(
          "Any kind",
          hint,
          [
            "read-only",
            "destructive",
            "idempotent",
            "open-world",
            ["app", "has a page"],
            ["unpinned", "not in the lock"],
          ],
          (value) => set({ hint: value }),
        ),
      ),
      checked.size > 0 && bulk(context, checked, () => ((checked = new Set()), repaint())),
      table(
        {
          label: "Tools",
          rows,
          id: (row) => row.id,
          rowHeight: 52,
          selected: chosen?.id,
          columns: columns(Boolean(store.values.about?.lock)),
          checked,
          onCheck: (next) => ((checked = next), repaint()),
          onSelect: (row) => go(link("tools", row.id.split("/"), filters)),
          tone: (row) => (row.hidden ? "tone-off" : ""),
          empty: all.length ? "No tool matches the filters." : "No server has listed tools yet.",
        },
        "tools",
      ),
    );
    return split(
      list,
      chosen
        ? details(context, chosen, detail)
        : id
          ? callout("warn", h("p", null, `There is no tool '${id}'.`))
          : null,
      link("tools", [], filters),
      chosen ? foreign(chosen.name ?? chosen.remote) : "Not found",
    );
  };
}

/** @param {boolean} locked @returns {import("../table.js").Column<Tool>[]} */
function columns(locked) {
  return [
    {
      id: "name",
      title: "Tool",
      width: "minmax(170px, 3fr)",
      sort: (row) => row.id,
      cell: (row) =>
        h(
          "div",
          { class: "two" },
          endOf(row.name ?? row.remote, "strong mono"),
          h(
            "span",
            { class: "sub muted foreign", dir: "auto" },
            row.title ? `${row.title} — ${row.summary}` : row.summary,
          ),
        ),
    },
    {
      id: "server",
      title: "Server",
      width: "minmax(90px, 1fr)",
      sort: (row) => row.server,
      cell: (row) => foreign(row.server),
    },
    {
      id: "hints",
      title: "Kind",
      width: "minmax(110px, 1fr)",
      wide: true,
      sort: (row) => row.hints.join(),
      cell: (row) => hints(row, locked),
    },
    {
      id: "policy",
      title: "Policy",
      width: "84px",
      wide: true,
      sort: (row) => row.policy,
      cell: (row) => (row.policy === "allow" ? h("span", { class: "muted" }, "allow") : statePill(row.policy)),
    },
    {
      id: "shown",
      title: "Shown",
      width: "128px",
      wide: true,
      sort: (row) => row.shown,
      cell: (row) => h("span", { class: "muted" }, row.hidden ? "hidden" : (SHOWN[row.shown] ?? row.shown)),
    },
    {
      id: "tokens",
      title: "Tokens",
      width: "76px",
      end: true,
      wide: true,
      sort: (row) => -row.tokens,
      cell: (row) => count(row.tokens),
    },
  ];
}

/** @param {Tool} row @param {boolean} locked */
function hints(row, locked) {
  const words = [
    ...row.hints.filter((hint) => hint === "destructive" || hint === "read-only"),
    ...(row.app ? ["page"] : []),
    ...(row.pinned || !locked ? [] : ["not locked"]),
  ];
  return h(
    "span",
    { class: "tags" },
    words.map((word) => h("span", { key: word, class: `tag ${word === "destructive" ? "warn" : ""}` }, word)),
  );
}

/** @param {Context} context @param {Set<string>} checked @param {() => void} done */
function bulk({ api, store }, checked, done) {
  const tools = [...checked]
    .map((id) => store.row("tools", id))
    .filter((row) => row !== undefined)
    .map((row) => ({ server: row.server, tool: row.remote }));
  const edit = async (/** @type {string} */ title, /** @type {Record<string, unknown>} */ op) => {
    if (await propose(api, `${title} ${plural(tools.length, "tool")}`, [{ ...op, tools }])) done();
  };
  return h(
    "div",
    { class: "bulk", role: "region", "aria-label": "Selected tools" },
    h("strong", null, plural(tools.length, "tool"), " selected"),
    h("span", { class: "spacer" }),
    button("Enable", () => edit("Enable", { op: "tool-enable" }), { small: true }),
    button("Disable", () => edit("Disable", { op: "tool-disable" }), { small: true }),
    button("Ask before", () => edit("Ask before calling", { op: "tool-policy", then: "ask" }), { small: true }),
    button("Deny", () => edit("Deny", { op: "tool-policy", then: "deny" }), { small: true }),
    button("Allow", () => edit("Allow", { op: "tool-policy", then: "allow" }), { small: true }),
    button("Clear", done, { small: true, kind: "plain" }),
  );
}

/** @param {Context} context @param {Tool} row @param {Query<import("../contract.js").ToolDetail>} query */
function details({ api }, row, query) {
  const got = query.about(row.id, `${row.policy}|${row.shown}|${row.pinned}|${row.tokens}`, () =>
    api.post("tool", { tool: row.id }),
  );
  const value = got.value;
  const off = row.hidden !== null;
  const one = [{ server: row.server, tool: row.remote }];
  return [
    row.hidden &&
      callout(
        "warn",
        h("p", { dir: "auto" }, `Hidden by ${row.hidden.by}: ${row.hidden.reason}`),
        row.hidden.by === "lock" && h("a", { href: link("changes", [row.server]) }, "Show the changes"),
      ),
    h(
      "div",
      { class: "row wrap" },
      row.name && h("a", { class: "button primary", href: link("try", [row.name]) }, "Try it"),
      button(off ? "Enable" : "Disable", () =>
        propose(api, `${off ? "Enable" : "Disable"} ${row.remote}`, [
          { op: off ? "tool-enable" : "tool-disable", tools: one },
        ]),
      ),
      h(
        "label",
        { class: "filter" },
        h("span", { class: "visually-hidden" }, "Policy of this tool"),
        h(
          "select",
          {
            on: {
              change: (/** @type {any} */ event) => (
                void propose(api, `Policy of ${row.remote}`, [
                  { op: "tool-policy", tools: one, then: event.target.value },
                ]),
                (event.target.value = row.policy)
              ),
            },
          },
          ["allow", "ask", "deny"].map((then) =>
            h("option", { key: then, value: then, prop: { selected: row.policy === then } }, `Policy: ${then}`),
          ),
        ),
      ),
    ),
    got.error ? failure(got.error, () => query.forget()) : !value ? loading() : more(value, row),
  ];
}

/** @param {import("../contract.js").ToolDetail} value @param {Tool} row */
function more(value, row) {
  return [
    value.icons?.length
      ? h(
          "div",
          { class: "row" },
          value.icons.slice(0, 4).map((one) => iconImage(one.src, "")),
        )
      : null,
    value.title && h("p", { class: "strong", dir: "auto" }, value.title),
    h("p", { class: "prose", dir: "auto" }, value.description || "No description."),
    value.signature && section("Signature", codeBlock(value.signature, "Signature")),
    facts([
      ["Server", h("a", { href: link("servers", [row.server]) }, foreign(row.server))],
      [
        "Its name there",
        h(
          "span",
          { class: "row" },
          h("code", { class: "wrap-any", dir: "auto" }, value.remote_name),
          copyButton(value.remote_name, "name"),
        ),
      ],
      ["Tokens", count(value.tokens)],
      [
        "Policy",
        h(
          "span",
          null,
          statePill(value.policy),
          value.policy_reason && h("span", { class: "muted", dir: "auto" }, ` ${value.policy_reason}`),
        ),
      ],
      ["Shown", SHOWN[value.shown] ?? value.shown],
      ["Profiles", value.profiles?.length ? value.profiles.map((name) => name || "default").join(", ") : null],
      ["Lock", value.pinned ? "approved" : "not in the lock"],
      [
        "Kind",
        row.hints.length
          ? h(
              "span",
              { class: "tags" },
              row.hints.map((hint) =>
                h("span", { class: `tag ${hint === "destructive" ? "warn" : ""}`, key: hint }, hint),
              ),
            )
          : "says nothing",
      ],
    ]),
    value.command && section("Command", command(value.command)),
    section("Input schema", jsonView(value.input_schema, "Input schema")),
    value.output_schema ? section("Output schema", jsonView(value.output_schema, "Output schema")) : null,
    hasKeys(value.annotations)
      ? section(
          "Annotations",
          jsonView(value.annotations, "Annotations"),
          h("p", { class: "muted" }, "Written by the server; not checked."),
        )
      : null,
    hasKeys(value.meta) ? section("Meta", jsonView(value.meta, "Meta")) : null,
  ];
}

/** @param {unknown} value */
function hasKeys(value) {
  return value !== null && typeof value === "object" && Object.keys(value).length > 0;
}
