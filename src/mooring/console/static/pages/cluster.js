// Cluster: the nodes, and which of them owns what.

import { h } from "../dom.js";
import { ago, count } from "../format.js";
import { table } from "../table.js";
import { callout, empty, foreign, section, statePill } from "../ui.js";

/** @type {import("../main.js").Page} */
const page = {
  id: "cluster",
  title: "Cluster",
  icon: "cluster",
  keys: "l",
  make,
  when: (store) => Boolean(store.values.cluster),
};
export default page;

/** @param {import("../main.js").Context} context */
function make({ store }) {
  return () => {
    const cluster = store.values.cluster;
    return h(
      "div",
      { class: "centered wide-page" },
      h("div", { class: "page-head" }, h("h1", null, "Cluster")),
      cluster
        ? [
            cluster.problem && callout("bad", h("p", { dir: "auto" }, cluster.problem)),
            part("Nodes", cluster.nodes, store.now()),
            part("Owners", cluster.owners, store.now()),
          ]
        : empty("This gateway is not part of a cluster", "Set gateway.cluster in the configuration to join one."),
    );
  };
}

/** @param {string} title @param {Record<string, unknown>[]} rows @param {number} now */
function part(title, rows, now) {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))].slice(0, 8);
  if (!rows.length) return section(title, h("p", { class: "muted" }, "None."));
  const named = rows.map((row, index) => ({ index, row }));
  return section(
    title,
    h(
      "div",
      { class: "short-grid" },
      table(
        {
          label: title,
          rows: named,
          id: ({ index }) => String(index),
          rowHeight: 40,
          columns: keys.map((key, index) => ({
            id: key,
            title: key === "url" ? "URL" : (key[0] ?? "").toUpperCase() + key.slice(1).replaceAll("_", " "),
            width: "minmax(90px, 1fr)",
            wide: index > 2,
            sort: ({ row }) => (typeof row[key] === "number" ? /** @type {number} */ (row[key]) : String(row[key])),
            cell: ({ row }) => cell(key, row[key], now),
          })),
        },
        title,
      ),
    ),
  );
}

/** @param {string} key @param {unknown} value @param {number} now */
function cell(key, value, now) {
  if (value === null || value === undefined) return "–";
  if (key === "state" || key === "lease") return statePill(String(value));
  if (typeof value === "number") return value > 1e9 && value < 1e10 ? ago(value, now) : count(value);
  if (Array.isArray(value)) return value.length ? foreign(value.join(", ")) : "–";
  return foreign(
    typeof value === "string" ? value : JSON.stringify(value),
    key === "name" || key === "id" ? "strong" : "",
  );
}
