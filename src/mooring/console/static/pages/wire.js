// Wire: the messages between mooring and the servers, without secrets.

import { h } from "../dom.js";
import { bytes, clock, count, milliseconds } from "../format.js";
import { jsonView } from "../json.js";
import { Query } from "../query.js";
import { go, link } from "../router.js";
import { memo } from "../store.js";
import { table } from "../table.js";
import {
  attempt,
  button,
  callout,
  codeBlock,
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

/** @typedef {import("../contract.js").WireMessage} WireMessage */
/** @typedef {import("../main.js").Context} Context */

/** @type {import("../main.js").Page} */
const page = { id: "wire", title: "Wire", icon: "wire", keys: "w", make };
export default page;

/** @type {Record<string, [arrow: string, text: string]>} */
const WAYS = {
  sent: ["→", "sent"],
  received: ["←", "received"],
  stdout: ["←", "stdout"],
  stderr: ["!", "stderr"],
  fault: ["×", "fault"],
};

const filtered = memo(
  (
    /** @type {readonly WireMessage[]} */ rows,
    /** @type {string} */ q,
    /** @type {string} */ server,
    /** @type {string} */ way,
    /** @type {string} */ kind,
  ) => {
    const text = q.toLowerCase();
    return rows
      .filter(
        (row) =>
          (!server || row.server === server) &&
          (!way || row.way === way) &&
          (!kind || row.kind === kind) &&
          (!text || `${row.method ?? ""} ${row.preview} ${row.message_id ?? ""}`.toLowerCase().includes(text)),
      )
      .reverse();
  },
);

/** @param {Context} context */
function make(context) {
  const { api, store, repaint } = context;
  /** @type {Query<{ id: string, message: unknown }>} */
  const query = new Query(repaint);

  return (/** @type {import("../router.js").Route} */ route) => {
    const { q = "", server = "", way = "", kind = "" } = route.query;
    const filters = { q, server, way, kind };
    const wire = store.values.wire;
    const rows = filtered(store.rows("wire"), q, server, way, kind);
    const chosen = store.row("wire", route.parts[0]);
    const set = (/** @type {Partial<typeof filters>} */ next) =>
      go(link("wire", route.parts, { ...filters, ...next }), true);
    const list = h(
      "div",
      { class: "list-page" },
      h(
        "div",
        { class: "page-head" },
        h("h1", null, "Wire"),
        wire &&
          h(
            "span",
            { class: "muted" },
            `${count(wire.messages)} seen${wire.dropped ? `, ${count(wire.dropped)} not shown` : ""}`,
          ),
        h("span", { class: "spacer" }),
        wire &&
          button(wire.on ? "Stop" : "Collect messages", () => attempt(() => api.post("capture", { on: !wire.on })), {
            icon: wire.on ? "pause" : "try",
          }),
      ),
      wire && !wire.on && callout("wait", h("p", null, "Messages are not collected now.")),
      h(
        "div",
        { class: "filters" },
        filterInput("Filter messages", q, (value) => set({ q: value }), "Filter by method or text"),
        filterSelect(
          "All servers",
          server,
          store.rows("servers").map((row) => row.id),
          (value) => set({ server: value }),
        ),
        filterSelect("Any direction", way, Object.keys(WAYS), (value) => set({ way: value })),
        filterSelect("Any kind", kind, ["request", "response", "error", "notification", "line"], (value) =>
          set({ kind: value }),
        ),
      ),
      table(
        {
          label: "Messages",
          rows,
          id: (row) => row.id,
          rowHeight: 34,
          selected: chosen?.id,
          columns: columns(),
          onSelect: (row) => go(link("wire", [row.id], filters)),
          tone: (row) =>
            `quiet tone-${row.kind === "error" || row.way === "fault" ? "bad" : row.way === "stderr" ? "warn" : ""}`,
          empty: store.rows("wire").length ? "No message matches the filters." : "No messages yet.",
        },
        "wire",
      ),
    );
    return split(
      list,
      chosen
        ? details(context, chosen, query)
        : route.parts[0]
          ? callout("warn", h("p", null, "This message is no longer kept."))
          : null,
      link("wire", [], filters),
      chosen ? foreign(chosen.method ?? chosen.kind) : "Not found",
    );
  };
}

/** @returns {import("../table.js").Column<WireMessage>[]} */
function columns() {
  return [
    { id: "time", title: "Time", width: "76px", cell: (row) => h("span", { class: "muted mono" }, clock(row.time)) },
    {
      id: "way",
      title: "Direction",
      width: "104px",
      cell: (row) =>
        h(
          "span",
          { class: `way ${row.way}` },
          h("span", { class: "arrow", "aria-hidden": "true" }, WAYS[row.way]?.[0]),
          WAYS[row.way]?.[1] ?? row.way,
        ),
    },
    { id: "server", title: "Server", width: "minmax(70px, 120px)", wide: true, cell: (row) => foreign(row.server) },
    {
      id: "method",
      title: "Message",
      width: "minmax(110px, 1fr)",
      cell: (row) =>
        h(
          "span",
          null,
          foreign(row.method ?? (row.way === "fault" ? "fault" : row.kind), "mono"),
          row.kind === "error" && row.way !== "fault" && h("span", { class: "bad-text" }, " error"),
          row.message_id !== null && h("span", { class: "muted" }, ` #${row.message_id}`),
        ),
    },
    {
      id: "preview",
      title: "Text",
      width: "minmax(120px, 2fr)",
      wide: true,
      cell: (row) => h("span", { class: "muted mono foreign", dir: "ltr" }, row.preview),
    },
    {
      id: "size",
      title: "Size",
      width: "76px",
      end: true,
      wide: true,
      cell: (row) => h("span", { class: "muted" }, bytes(row.size)),
    },
    {
      id: "ms",
      title: "Latency",
      width: "80px",
      end: true,
      wide: true,
      cell: (row) => (row.ms === null ? "" : milliseconds(row.ms)),
    },
  ];
}

/** @param {Context} context @param {WireMessage} row @param {Query<{ id: string, message: unknown }>} query */
function details({ api, store }, row, query) {
  const got = query.about(row.id, "", () => api.post("wire", { id: row.id }));
  const other =
    row.message_id === null
      ? undefined
      : store
          .rows("wire")
          .find(
            (one) =>
              one.id !== row.id &&
              one.server === row.server &&
              one.message_id === row.message_id &&
              (one.kind === "request") !== (row.kind === "request"),
          );
  return [
    facts([
      ["Direction", WAYS[row.way]?.[1] ?? row.way],
      ["Kind", row.kind],
      ["Server", h("a", { href: link("servers", [row.server]) }, foreign(row.server))],
      ["Time", clock(row.time)],
      ["Size", bytes(row.size)],
      ["Latency", row.ms === null ? null : milliseconds(row.ms)],
      ["Id", row.message_id === null ? null : command(String(row.message_id), "id")],
      [
        "Belongs to",
        other
          ? h("a", { href: link("wire", [other.id]) }, other.kind === "request" ? "its request" : "its response")
          : null,
      ],
    ]),
    got.error
      ? failure(got.error, () => query.forget())
      : !got.value
        ? loading()
        : section(
            "Message",
            typeof got.value.message === "string"
              ? codeBlock(got.value.message, "Message")
              : jsonView(got.value.message, "Message"),
          ),
  ];
}
