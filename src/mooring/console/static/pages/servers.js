// Servers: which one is ill, why, and what to do.

import { h } from "../dom.js";
import { propose } from "../edits.js";
import { ago, count, date, milliseconds, percent, plural, span } from "../format.js";
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
  spark,
  split,
  stat,
  statStrip,
  statePill,
  toneOf,
} from "../ui.js";
import { firstRun } from "./add.js";

/** @typedef {import("../contract.js").Server} Server */
/** @typedef {import("../main.js").Context} Context */

/** States that need a person first. */
const ORDER = ["failed", "needs-auth", "pending", "connected", "disabled"];

/** @type {import("../main.js").Page} */
const page = {
  id: "servers",
  title: "Servers",
  icon: "servers",
  keys: "s",
  make,
  badge: (store) => {
    const totals = store.values.totals;
    const ill = (totals?.failed ?? 0) + (totals?.needs_auth ?? 0);
    return { count: ill, tone: "bad", text: `${ill === 1 ? "server needs" : "servers need"} attention` };
  },
};
export default page;

/** @param {Context} context */
function make(context) {
  const { store, repaint } = context;
  /** @type {Query<import("../contract.js").ServerDetail>} */
  const detail = new Query(repaint);
  const filtered = memo(
    (/** @type {readonly Server[]} */ rows, /** @type {string} */ text, /** @type {string} */ state) => {
      const wanted = text.toLowerCase();
      return rows
        .filter(
          (row) =>
            (!state || row.state === state) &&
            (!wanted || `${row.id} ${row.label} ${row.reason ?? ""} ${row.transport}`.toLowerCase().includes(wanted)),
        )
        .sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state) || (one.id < other.id ? -1 : 1));
    },
  );
  const welcome = firstRun(context);

  return (/** @type {import("../router.js").Route} */ route) => {
    if (store.values.first_run && !store.rows("servers").length) return welcome();
    const { q = "", state = "" } = route.query;
    const chosen = store.row("servers", route.parts[0]);
    const rows = filtered(store.rows("servers"), q, state);
    const set = (/** @type {Record<string, string>} */ next) =>
      go(link("servers", route.parts, { q, state, ...next }), true);
    const list = h(
      "div",
      { class: "list-page" },
      h(
        "div",
        { class: "page-head" },
        h("h1", null, "Servers"),
        h("span", { class: "spacer" }),
        !store.limited && h("a", { class: "button", href: "#/add" }, "Add a server"),
      ),
      totals(context),
      warnings(context),
      h(
        "div",
        { class: "filters" },
        filterInput("Filter servers", q, (value) => set({ q: value })),
        filterSelect("Any state", state, ["connected", "pending", "failed", "needs-auth", "disabled"], (value) =>
          set({ state: value }),
        ),
      ),
      table(
        {
          label: "Servers",
          rows,
          id: (row) => row.id,
          rowHeight: 60,
          selected: chosen?.id,
          columns: columns(),
          tone: (row) => `tone-${toneOf(row.state)}`,
          onSelect: (row) => go(link("servers", [row.id], { q, state })),
          empty: "No server matches.",
        },
        "servers",
      ),
    );
    return split(
      list,
      chosen
        ? details(context, chosen, detail)
        : route.parts[0]
          ? callout("warn", h("p", null, `There is no server '${route.parts[0]}'.`))
          : null,
      link("servers", [], { q, state }),
      chosen ? foreign(chosen.id) : "Not found",
    );
  };
}

/** @param {Context} context */
function totals({ store }) {
  const totals = store.values.totals,
    activity = store.values.activity;
  if (!totals || !activity) return null;
  const ill = totals.failed + totals.needs_auth;
  return statStrip(
    stat(
      "Connected",
      `${totals.connected} of ${totals.servers - totals.disabled}`,
      ill
        ? `${ill} ${ill === 1 ? "needs" : "need"} attention`
        : totals.pending
          ? `${totals.pending} starting`
          : "all well",
      ill ? "bad" : "",
    ),
    stat("Tools", count(totals.tools), totals.hidden ? `${count(totals.hidden)} hidden` : undefined),
    stat(
      "Tokens",
      count(totals.discovery_used ? totals.shown_tokens : totals.tokens),
      totals.discovery_used ? `of ${count(totals.tokens)} in the full list` : "in the full list",
    ),
    stat("Calls", count(activity.finished), `${percent(activity.error_rate)} failed`),
    stat("p95", milliseconds(activity.p95), `p50 ${milliseconds(activity.p50)}`),
  );
}

/** @param {Context} context */
function warnings({ store }) {
  const found = store.values.warnings ?? [];
  if (!found.length) return null;
  return h(
    "details",
    { class: "callout warn fold" },
    h("summary", null, plural(found.length, "warning"), " about the configuration"),
    h(
      "ul",
      { class: "plain" },
      found
        .slice(0, 50)
        .map((warning, index) =>
          h(
            "li",
            { key: String(index), dir: "auto" },
            warning.server && h("strong", null, `${warning.server}: `),
            warning.message,
            warning.file && h("span", { class: "muted" }, ` (${warning.file})`),
          ),
        ),
    ),
  );
}

/** @returns {import("../table.js").Column<Server>[]} */
function columns() {
  return [
    {
      id: "name",
      title: "Server",
      width: "minmax(150px, 1.2fr)",
      sort: (row) => row.id,
      cell: (row) =>
        h(
          "div",
          { class: "two" },
          foreign(row.id, "strong"),
          h("span", { class: "muted sub" }, [row.transport, row.protocol].filter(Boolean).join(" · ")),
        ),
    },
    {
      id: "state",
      title: "State",
      width: "minmax(150px, 2fr)",
      sort: (row) => ORDER.indexOf(row.state),
      cell: (row) =>
        h(
          "div",
          { class: "two" },
          statePill(row.state, row.state === "connected" ? "connected" : row.label),
          row.reason
            ? h("span", { class: "sub foreign", dir: "auto", title: row.reason }, row.reason.split("\n", 1)[0])
            : row.state === "connected" && h("span", { class: "sub muted" }, row.label),
        ),
    },
    {
      id: "tools",
      title: "Tools",
      width: "84px",
      end: true,
      wide: true,
      sort: (row) => -row.tools,
      cell: (row) =>
        h(
          "div",
          { class: "two end" },
          h("span", null, count(row.tools)),
          h("span", { class: "muted sub" }, `${count(row.tokens)} tok`),
        ),
    },
    {
      id: "calls",
      title: "Calls",
      width: "84px",
      end: true,
      wide: true,
      sort: (row) => -row.calls,
      cell: (row) =>
        h(
          "div",
          { class: "two end" },
          h("span", null, count(row.calls)),
          row.errors ? h("span", { class: "sub bad-text" }, `${count(row.errors)} failed`) : null,
        ),
    },
    {
      id: "p95",
      title: "p95",
      width: "76px",
      end: true,
      wide: true,
      sort: (row) => -(row.p95 ?? 0),
      cell: (row) => milliseconds(row.p95),
    },
    { id: "trips", title: "Round trips", width: "96px", wide: true, cell: (row) => spark(row.trips) },
  ];
}

/** @param {Context} context @param {Server} row @param {Query<import("../contract.js").ServerDetail>} query */
function details(context, row, query) {
  const { api, store } = context;
  const got = query.about(row.id, `${row.state}|${row.restarts}|${row.tools}`, () =>
    api.post("server", { server: row.id }),
  );
  const value = got.value;
  return [
    h(
      "div",
      { class: "row wrap" },
      statePill(row.state, row.state === "connected" ? "connected" : row.label),
      row.changes > 0 &&
        h("a", { class: "pill warn", href: link("changes", [row.id]) }, plural(row.changes, "change"), " to approve"),
    ),
    row.reason || row.next
      ? callout(
          row.state === "failed" ? "bad" : row.state === "needs-auth" ? "warn" : "wait",
          row.reason && h("p", { class: "lines", dir: "auto" }, row.reason),
          row.next && nextStep(row.next),
        )
      : null,
    actions(context, row, query),
    facts([
      ["Transport", row.transport],
      ["Protocol", row.protocol ? `${row.protocol}${row.era ? ` (${row.era})` : ""}` : null],
      [
        "Connected",
        row.connected_at ? h("span", { title: date(row.connected_at) }, ago(row.connected_at, store.now())) : null,
      ],
      ["Freshness", row.fresh_within === null ? null : `changes show within ${span(row.fresh_within)}`],
      ["Retry", row.retry_at ? `in ${span(Math.max(0, row.retry_at - store.now()))}` : null],
      ["Breaker", row.breaker && row.breaker !== "closed" ? row.breaker : null],
      ["Restarts", row.restarts ? count(row.restarts) : null],
      ["Running", row.running || row.waiting ? `${plural(row.running, "call")}, ${count(row.waiting)} waiting` : null],
      ["Latency", row.p50 === null ? null : `p50 ${milliseconds(row.p50)}, p95 ${milliseconds(row.p95)}`],
      ["Calls", row.calls ? `${count(row.calls)}, ${percent(row.error_rate)} failed` : "none yet"],
      ["Processes", row.processes ? count(row.processes) : null],
      [
        "Tools",
        h(
          "a",
          { href: link("tools", [], { server: row.id }) },
          plural(row.tools, "tool"),
          row.hidden ? `, ${row.hidden} hidden` : "",
        ),
      ],
      ["Tokens", row.tokens ? count(row.tokens) : null],
      [
        "Resources",
        row.resources ? h("a", { href: link("try", [], { kind: "resources" }) }, count(row.resources)) : null,
      ],
      ["Prompts", row.prompts ? h("a", { href: link("try", [], { kind: "prompts" }) }, count(row.prompts)) : null],
      ["Skills", row.skills ? count(row.skills) : null],
      [
        "File",
        row.file
          ? h(
              "span",
              null,
              h("code", { class: "wrap-any" }, row.file),
              h("span", { class: "muted" }, ` ${row.scope ?? ""}`),
            )
          : null,
      ],
    ]),
    got.error ? failure(got.error, () => query.forget()) : !value ? loading() : more(value, row, context),
  ];
}

/** @param {string} next */
function nextStep(next) {
  return /^mooring /.test(next) ? h("p", null, "Next: ", command(next)) : h("p", { dir: "auto" }, "Next: ", next);
}

/** @param {Context} context @param {Server} row @param {Query<any>} query */
function actions({ api, store }, row, query) {
  const act = (/** @type {string} */ verb, /** @type {(value: any) => string | null} */ done) =>
    attempt(() => api.post(verb, { server: row.id }), done).then(() => query.forget());
  const off = row.state === "disabled";
  return h(
    "div",
    { class: "row wrap" },
    row.login &&
      button(row.state === "needs-auth" ? "Log in" : "Log in again", () => login(api, row.id), {
        kind: row.state === "needs-auth" ? "primary" : undefined,
        icon: "key",
      }),
    !off &&
      button("Reconnect", () => act("reconnect", (value) => `${row.id}: ${value.state}.`), {
        kind: row.state === "failed" ? "primary" : undefined,
      }),
    row.state === "connected" &&
      button("Ping", () => act("ping", (value) => `${row.id} answered in ${milliseconds(value.ms)}.`)),
    row.state === "connected" && button("Refresh", () => act("refresh", () => `Listed ${row.id} again.`)),
    row.held &&
      row.file &&
      !store.limited &&
      button("Approve its file", () => propose(api, `Approve ${row.file}`, [{ op: "trust", file: row.file }])),
    button(
      off ? "Enable" : "Disable",
      () =>
        propose(api, `${off ? "Enable" : "Disable"} ${row.id}`, [
          { op: off ? "server-enable" : "server-disable", server: row.id },
        ]),
      { kind: off ? "primary" : undefined },
    ),
    row.login && row.state === "connected" && button("Log out", () => act("logout", () => `Logged out of ${row.id}.`)),
  );
}

/** @param {import("../api.js").Api} api @param {string} server */
export async function login(api, server) {
  const answer = await attempt(
    () => api.post("login", { server }),
    (value) => `Continue at ${value.host}.`,
  );
  if (answer?.url && /^https?:/.test(answer.url)) window.open(answer.url, "_blank", "noopener,noreferrer");
}

/** @param {import("../contract.js").ServerDetail} value @param {Server} row @param {Context} context */
function more(value, row, { store }) {
  const lines = store
    .rows("log")
    .filter((line) => line.server === row.id)
    .slice(-30);
  return [
    section(
      "Standard error",
      value.stderr?.length
        ? codeBlock(value.stderr.join("\n"), "Standard error")
        : h(
            "p",
            { class: "muted" },
            row.transport === "stdio" ? "Nothing was written." : "Only servers that mooring starts have one.",
          ),
    ),
    lines.length
      ? section(
          "Events",
          codeBlock(
            lines.map((line) => `${new Date(line.time * 1000).toLocaleTimeString("en-GB")}  ${line.text}`).join("\n"),
            "Events",
          ),
        )
      : null,
    value.instructions ? section("Instructions", codeBlock(value.instructions, "Instructions")) : null,
    value.warnings?.length ? section("Warnings", jsonView(value.warnings, "Warnings")) : null,
    value.hidden?.length ? section("Hidden", jsonView(value.hidden, "Hidden tools")) : null,
    value.info ? section("Says about itself", jsonView(value.info, "Server info")) : null,
    section(
      "Configuration",
      jsonView(value.config, "Configuration"),
      h("p", null, h("a", { href: link("settings", [], { q: row.id }) }, "Edit in Settings")),
    ),
  ];
}
