// Activity: the calls as they happen. Success is quiet, failures stand out.

import { h } from "../dom.js";
import { clock, count, date, milliseconds, percent, plural } from "../format.js";
import { jsonView } from "../json.js";
import { Query } from "../query.js";
import { go, link } from "../router.js";
import { memo } from "../store.js";
import { segment } from "../form.js";
import { table } from "../table.js";
import {
  attempt,
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
  stat,
  statStrip,
  statePill,
  toneOf,
} from "../ui.js";

/** @typedef {import("../contract.js").Call} Call */
/** @typedef {import("../contract.js").Script} Script */
/** @typedef {import("../main.js").Context} Context */
/** @typedef {{ id: string, started: number, call?: Call, script?: Script }} Row */

/** @type {import("../main.js").Page} */
const page = { id: "activity", title: "Activity", icon: "activity", keys: "a", make };
export default page;

/** @type {WeakMap<Call | Script, Row>} */
const wrapped = new WeakMap();

const joined = memo((/** @type {readonly Call[]} */ calls, /** @type {readonly Script[]} */ scripts) => {
  /** @type {Row[]} */
  const rows = [];
  for (const call of calls) rows.push(keep(call, { id: call.id, started: call.started, call }));
  for (const script of scripts) rows.push(keep(script, { id: `script:${script.id}`, started: script.started, script }));
  return scripts.length ? rows.sort((one, other) => other.started - one.started) : rows.reverse();
});

/** @param {Call | Script} source @param {Row} made */
function keep(source, made) {
  const known = wrapped.get(source);
  if (known) return known;
  wrapped.set(source, made);
  return made;
}

/** @typedef {{ q: string, server: string, principal: string, session: string, outcome: string, script: string }} Filters */

const filtered = memo(
  (
    /** @type {readonly Row[]} */ rows,
    /** @type {string} */ q,
    /** @type {string} */ server,
    /** @type {string} */ principal,
    /** @type {string} */ session,
    /** @type {string} */ outcome,
    /** @type {string} */ script,
  ) => {
    const text = q.toLowerCase();
    return rows.filter(({ call, script: run }) =>
      call
        ? (!server || call.server === server) &&
          (!principal || call.principal === principal) &&
          (!session || call.session === session) &&
          (!outcome || (outcome === "bad" ? !["ok", "running"].includes(call.outcome) : call.outcome === outcome)) &&
          (!script || call.script === script) &&
          (!text || `${call.tool} ${call.error ?? ""} ${call.id}`.toLowerCase().includes(text))
        : run !== undefined &&
          !server &&
          !principal &&
          (!session || run.session === session) &&
          (!outcome || (outcome === "bad" ? run.state === "error" : run.state === outcome)) &&
          (!script || run.id === script) &&
          (!text || "script".includes(text)),
    );
  },
);

/** @param {"principal" | "session"} key */
const distinct = (key) =>
  memo((/** @type {readonly Call[]} */ calls) =>
    [...new Set(calls.map((call) => call[key] ?? "").filter(Boolean))].slice(0, 100),
  );
const principals = distinct("principal");
const sessions = distinct("session");

/** @param {Context} context */
function make(context) {
  const { store, repaint } = context;
  /** @type {Query<any>} */
  const exchange = new Query(repaint);
  /** @type {Set<string>} */
  let checked = new Set();
  let tab = "calls";
  /** @type {readonly Row[] | undefined} */
  let held;

  return (/** @type {import("../router.js").Route} */ route) => {
    const { q = "", server = "", principal = "", session = "", outcome = "", script = "" } = route.query;
    const filters = { q, server, principal, session, outcome, script };
    const calls = store.rows("calls");
    const live = joined(calls, store.rows("scripts"));
    const rows = filtered(held ?? live, q, server, principal, session, outcome, script);
    const id = route.parts[0] ?? "";
    const chosen = live.find((row) => row.id === id) ?? held?.find((row) => row.id === id);
    const set = (/** @type {Partial<Filters>} */ next) =>
      go(link("activity", route.parts, { ...filters, ...next }), true);
    const list = h(
      "div",
      { class: "list-page" },
      h(
        "div",
        { class: "page-head" },
        h("h1", null, "Activity"),
        h(
          "div",
          { class: "segments", role: "group", "aria-label": "Show" },
          [
            ["calls", "Calls"],
            ["top", "Top tools"],
            ["log", "Log"],
          ].map(([key = "", title = ""]) => segment(title, tab === key, () => ((tab = key), repaint()))),
        ),
        h("span", { class: "spacer" }),
        tab === "calls" && [
          button(held ? "Continue" : "Pause", () => ((held = held ? undefined : live), repaint()), {
            icon: held ? "try" : "pause",
          }),
          button(checked.size ? `Export ${checked.size}` : "Export", () => exportCalls(context, checked, rows), {
            icon: "download",
          }),
        ],
      ),
      stats(context),
      tab === "log"
        ? logView(context)
        : tab === "top"
          ? topView(context)
          : [
              h(
                "div",
                { class: "filters" },
                filterInput("Filter calls", q, (value) => set({ q: value }), "Filter by tool or error"),
                filterSelect(
                  "All servers",
                  server,
                  store.rows("servers").map((row) => row.id),
                  (value) => set({ server: value }),
                ),
                filterSelect(
                  "Any outcome",
                  outcome,
                  [["bad", "not ok"], "ok", "error", "failed", "denied", "running"],
                  (value) => set({ outcome: value }),
                ),
                filterSelect("Any principal", principal, principals(calls), (value) => set({ principal: value })),
                filterSelect("Any session", session, sessions(calls), (value) => set({ session: value })),
                script && button("Calls of one script ×", () => set({ script: "" }), { small: true }),
              ),
              table(
                {
                  label: "Calls",
                  rows,
                  id: (row) => row.id,
                  rowHeight: 36,
                  selected: chosen?.id,
                  checked,
                  columns: columns(),
                  onCheck: (next) => ((checked = next), repaint()),
                  onSelect: (row) => go(link("activity", [row.id], filters)),
                  tone: (row) => `quiet tone-${toneOf(row.call?.outcome ?? row.script?.state ?? "ok")}`,
                  empty: calls.length
                    ? "No call matches the filters."
                    : "No calls yet. They appear here as they happen.",
                },
                "calls",
              ),
            ],
    );
    return split(
      list,
      chosen
        ? details(context, chosen, exchange)
        : id
          ? callout("warn", h("p", null, "This call is no longer kept."))
          : null,
      link("activity", [], filters),
      chosen?.call ? foreign(chosen.call.tool) : chosen ? "Script" : "Not found",
    );
  };
}

/** @param {Context} context */
function stats({ store }) {
  const all = store.values.activity;
  if (!all) return null;
  return statStrip(
    stat("Running", count(all.running)),
    stat("Finished", count(all.finished), `${all.rate.toFixed(all.rate < 10 ? 1 : 0)} per second`),
    stat("Failed", percent(all.error_rate), plural(all.errors, "call"), all.errors ? "bad" : ""),
    stat("Denied", count(all.denied)),
    stat("p50", milliseconds(all.p50)),
    stat("p95", milliseconds(all.p95)),
  );
}

/** @returns {import("../table.js").Column<Row>[]} */
function columns() {
  return [
    { id: "time", title: "Time", width: "76px", cell: (row) => h("span", { class: "muted mono" }, clock(row.started)) },
    {
      id: "tool",
      title: "Tool",
      width: "minmax(120px, 2fr)",
      sort: (row) => row.call?.tool ?? "",
      cell: ({ call, script }) =>
        call
          ? [
              call.script && h("span", { class: "muted", title: "Called by a script" }, "↳ "),
              foreign(call.tool, "mono"),
            ]
          : h("span", { class: "strong" }, `Script · ${plural(script?.calls ?? 0, "call")}`),
    },
    {
      id: "server",
      title: "Server",
      width: "minmax(80px, 1fr)",
      wide: true,
      sort: (row) => row.call?.server ?? "",
      cell: (row) => foreign(row.call?.server ?? ""),
    },
    {
      id: "who",
      title: "Principal",
      width: "minmax(80px, 1fr)",
      wide: true,
      sort: (row) => row.call?.principal ?? "",
      cell: (row) => h("span", { class: "muted foreign", dir: "auto" }, row.call?.principal ?? "–"),
    },
    {
      id: "outcome",
      title: "Outcome",
      width: "minmax(96px, 1fr)",
      sort: (row) => row.call?.outcome ?? row.script?.state ?? "",
      cell: ({ call, script }) => outcomeView(call?.outcome ?? script?.state ?? "", call?.error),
    },
    {
      id: "ms",
      title: "Time taken",
      width: "88px",
      end: true,
      wide: true,
      sort: (row) => -(row.call?.ms ?? row.script?.ms ?? 0),
      cell: (row) => milliseconds(row.call?.ms ?? row.script?.ms),
    },
  ];
}

/** @param {string} outcome @param {string | null | undefined} error */
function outcomeView(outcome, error) {
  if (outcome === "ok") return h("span", { class: "muted" }, "ok");
  return h(
    "span",
    { class: "row tight" },
    statePill(outcome),
    error && h("span", { class: "muted foreign", dir: "auto", title: error }, error),
  );
}

/** @param {Context} context @param {Row} row @param {Query<any>} query */
function details(context, { call, script }, query) {
  const { api, store } = context;
  if (script) {
    const inner = store.rows("calls").filter((one) => one.script === script.id);
    return [
      statePill(script.state),
      facts([
        ["Started", date(script.started)],
        ["Time taken", milliseconds(script.ms)],
        ["Session", script.session],
        ["Calls", count(script.calls)],
      ]),
      section(
        "Calls",
        h(
          "ul",
          { class: "history" },
          inner.map((one) =>
            h(
              "li",
              { key: one.id },
              h(
                "a",
                { href: link("activity", [one.id]) },
                statePill(one.outcome, foreign(one.tool)),
                h("span", { class: "muted" }, milliseconds(one.ms)),
              ),
            ),
          ),
        ),
        h("a", { href: link("activity", [], { script: script.id }) }, "Show them in the list"),
      ),
    ];
  }
  if (!call) return null;
  const got =
    call.recorded && call.outcome !== "running"
      ? query.about(call.id, call.outcome, () => api.post("exchange", { call: call.id }))
      : undefined;
  const tool = store.rows("tools").find((one) => one.server === call.server && one.remote === call.tool);
  return [
    h(
      "div",
      { class: "row wrap" },
      statePill(call.outcome),
      tool?.name && h("a", { class: "button small", href: link("try", [tool.id]) }, "Try this tool"),
      call.recorded &&
        button("Export", () => exportCalls(context, new Set([call.id]), []), { small: true, icon: "download" }),
    ),
    call.error && callout(call.outcome === "denied" ? "warn" : "bad", h("p", { dir: "auto" }, call.error)),
    facts([
      ["Started", date(call.started)],
      ["Time taken", milliseconds(call.ms)],
      ["Server", h("a", { href: link("servers", [call.server]) }, foreign(call.server))],
      ["Principal", call.principal ?? "–"],
      ["Session", call.session ?? "–"],
      ["Script", call.script ? h("a", { href: link("activity", [`script:${call.script}`]) }, call.script) : null],
      ["Call", command(call.id, "id")],
    ]),
    !got
      ? h(
          "p",
          { class: "muted" },
          call.recorded ? "It is still running." : "The messages of this call were not recorded.",
        )
      : got.error
        ? failure(got.error, () => query.forget())
        : got.value
          ? got.value.requests.map((/** @type {any} */ request, /** @type {number} */ index) =>
              h(
                "div",
                { key: String(index), class: "stack" },
                section(`${request.method} – parameters`, jsonView(request.params, "Parameters")),
                section(request.error ? "Error" : "Result", jsonView(request.error ?? request.result, "Result")),
              ),
            )
          : loading(),
  ];
}

/** @param {Context} context @param {Set<string>} checked @param {readonly Row[]} rows */
async function exportCalls({ api }, checked, rows) {
  const ids = checked.size ? [...checked] : rows.filter((row) => row.call?.recorded).map((row) => row.id);
  const calls = ids.filter((id) => !id.startsWith("script:"));
  const answer = await attempt(
    () => api.post("export", { calls }),
    (value) => `Exported ${plural(value.calls, "call")} of ${plural(value.servers.length, "server")} as ${value.name}.`,
  );
  if (answer) download(answer.name, answer.recording);
}

/** @param {string} name @param {string} text */
function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name.replace(/[^\w.-]+/g, "_");
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** @param {Context} context */
function topView({ store }) {
  return table(
    {
      label: "Top tools",
      rows: store.values.activity?.top ?? [],
      id: (row) => `${row.server}/${row.tool}`,
      rowHeight: 40,
      onSelect: (row) => go(link("activity", [], { server: row.server, q: row.tool })),
      columns: [
        {
          id: "tool",
          title: "Tool",
          width: "minmax(140px, 2fr)",
          sort: (row) => row.tool,
          cell: (row) => foreign(row.tool, "mono"),
        },
        {
          id: "server",
          title: "Server",
          width: "1fr",
          wide: true,
          sort: (row) => row.server,
          cell: (row) => foreign(row.server),
        },
        {
          id: "calls",
          title: "Calls",
          width: "80px",
          end: true,
          sort: (row) => -row.calls,
          cell: (row) => count(row.calls),
        },
        {
          id: "errors",
          title: "Failed",
          width: "80px",
          end: true,
          sort: (row) => -(row.error_rate ?? 0),
          cell: (row) => h("span", { class: row.errors ? "bad-text" : "muted" }, percent(row.error_rate)),
        },
        {
          id: "p50",
          title: "p50",
          width: "80px",
          end: true,
          wide: true,
          sort: (row) => -(row.p50 ?? 0),
          cell: (row) => milliseconds(row.p50),
        },
        {
          id: "p95",
          title: "p95",
          width: "80px",
          end: true,
          sort: (row) => -(row.p95 ?? 0),
          cell: (row) => milliseconds(row.p95),
        },
      ],
      empty: "No calls yet.",
    },
    "top",
  );
}

const newest = memo((/** @type {readonly import("../contract.js").LogLine[]} */ rows) => [...rows].reverse());

/** @param {Context} context */
function logView({ store }) {
  return table(
    {
      label: "Log",
      rows: newest(store.rows("log")),
      id: (row) => row.id,
      rowHeight: 34,
      tone: (row) => `quiet tone-${row.level === "error" ? "bad" : row.level === "warning" ? "warn" : ""}`,
      columns: [
        {
          id: "time",
          title: "Time",
          width: "76px",
          cell: (row) => h("span", { class: "muted mono" }, clock(row.time)),
        },
        {
          id: "level",
          title: "Level",
          width: "84px",
          cell: (row) =>
            row.level === "info"
              ? h("span", { class: "muted" }, "info")
              : statePill(row.level === "error" ? "error" : "denied", row.level),
        },
        { id: "server", title: "Server", width: "110px", wide: true, cell: (row) => foreign(row.server ?? "") },
        {
          id: "text",
          title: "Text",
          width: "minmax(140px, 1fr)",
          cell: (row) => h("span", { class: "foreign", dir: "auto", title: row.text }, row.text),
        },
      ],
      empty: "Nothing was logged.",
    },
    "log",
  );
}
