// Changes: what servers changed since it was approved, with suspicious texts, and approval of one or all.

import { h } from "../dom.js";
import { plural } from "../format.js";
import { pretty } from "../json.js";
import { attempt, button, callout, command, confirmed, empty, foreign, pill, toast } from "../ui.js";

/** @typedef {import("../contract.js").ServerChanges} ServerChanges */
/** @typedef {import("../contract.js").Change} Change */
/** @typedef {import("../main.js").Context} Context */

/** @type {import("../main.js").Page} */
const page = {
  id: "changes",
  title: "Changes",
  icon: "changes",
  keys: "c",
  make,
  badge: (store) => ({ count: store.values.totals?.changes ?? 0, tone: "warn", text: "to approve" }),
};
export default page;

/** @param {Context} context */
function make(context) {
  const { store } = context;
  return (/** @type {import("../router.js").Route} */ route) => {
    const rows = store.rows("changes");
    const shown = route.parts[0] ? rows.filter((row) => row.id === route.parts[0]) : rows;
    return h(
      "div",
      { class: "centered" },
      h(
        "div",
        { class: "page-head" },
        h("h1", null, "Changes"),
        h("span", { class: "spacer" }),
        route.parts[0] && h("a", { class: "button", href: "#/changes" }, "All servers"),
        rows.length > 1 &&
          !route.parts[0] &&
          button("Approve all", () => approveAll(context, rows), { kind: "primary" }),
      ),
      h(
        "p",
        { class: "muted" },
        store.values.about?.lock
          ? [
              "Compared with ",
              h("code", { class: "wrap-any" }, store.values.about.lock),
              ". A changed tool is hidden from models until you approve it.",
            ]
          : [
              "There is no lock. Write one with ",
              command("mooring lock"),
              ": from then on changed tools wait here for approval.",
            ],
      ),
      shown.length
        ? shown.map((row) => serverView(context, row))
        : store.values.about?.lock
          ? empty(
              rows.length ? "This server has no changes" : "Nothing changed",
              "All servers describe their tools as you approved them.",
            )
          : empty("Nothing is compared", "Without a lock, mooring does not know what you approved."),
    );
  };
}

/** @param {Context} context @param {ServerChanges} row */
function serverView(context, row) {
  const findings = row.findings ?? [];
  return h(
    "section",
    { class: "card stack", key: row.id, "aria-label": `Changes of ${row.id}` },
    h(
      "div",
      { class: "row wrap" },
      h("h2", null, foreign(row.id)),
      pill("warn", plural(row.changes.length, "change"), "warning"),
      findings.length ? pill("bad", plural(findings.length, "suspicious text"), "error") : null,
      h("span", { class: "spacer" }),
      button("Approve this server", () => approveServer(context, row), {
        kind: findings.length ? "danger" : "primary",
      }),
    ),
    findings.length
      ? callout(
          "bad",
          h("p", { class: "strong" }, "These texts look like instructions to the model. Read them before you approve."),
          h(
            "ul",
            { class: "plain" },
            findings
              .slice(0, 50)
              .map((finding, index) =>
                h("li", { key: String(index), dir: "auto" }, typeof finding === "string" ? finding : pretty(finding)),
              ),
          ),
        )
      : null,
    h(
      "ul",
      { class: "change-list" },
      row.changes.map((change, index) => changeView(context, row, change, index)),
    ),
  );
}

/** @param {Context} context @param {ServerChanges} row @param {Change} change @param {number} index */
function changeView({ api }, row, change, index) {
  const tool = change.subject === "tool";
  const approve = () =>
    attempt(
      () => api.post("approve", { server: row.id, revision: row.revision, tool: change.name }),
      (value) => `Approved ${change.name}; ${plural(value.left ?? 0, "change")} left.`,
    );
  return h(
    "li",
    { key: `${change.subject}/${change.name}/${change.kind}/${index}`, class: "change" },
    h(
      "div",
      { class: "row wrap" },
      h("span", { class: "tag" }, change.kind),
      h("span", { class: "muted" }, change.subject),
      foreign(change.name, "strong mono"),
      h("span", { class: "spacer" }),
      tool && button("Approve", approve, { small: true, label: `Approve ${change.name}` }),
    ),
    change.text && h("p", { dir: "auto" }, change.text),
    (change.before !== null && change.before !== undefined) || (change.after !== null && change.after !== undefined)
      ? compare(change.before, change.after)
      : null,
  );
}

/** @param {unknown} before @param {unknown} after */
function compare(before, after) {
  const one = textOf(before),
    other = textOf(after);
  return h(
    "div",
    { class: "compare", role: "group", "aria-label": "Before and after" },
    side("Approved", "−", "cut", one, other),
    side("Now", "+", "add", other, one),
  );
}

/** @param {string} title @param {string} mark @param {string} tone @param {string | null} text @param {string | null} other */
function side(title, mark, tone, text, other) {
  const known = new Set((other ?? "").split("\n"));
  return h(
    "div",
    { class: "compare-side" },
    h("div", { class: "compare-title" }, title),
    h(
      "pre",
      { class: "diff", tabindex: "0", "aria-label": title, role: "region" },
      text === null
        ? h("span", { class: "muted" }, "(not there)")
        : text
            .split("\n")
            .map((line, index) =>
              h(
                "span",
                { key: String(index), class: `diff-line ${known.has(line) ? "" : tone}`, dir: "ltr" },
                `${known.has(line) ? "  " : `${mark} `}${line}\n`,
              ),
            ),
    ),
  );
}

/** @param {unknown} value */
function textOf(value) {
  if (value === null || value === undefined) return null;
  return typeof value === "string" ? value : pretty(value);
}

/** @param {Context} context @param {ServerChanges} row */
async function approveServer({ api }, row) {
  if (
    row.findings?.length &&
    !(await confirmed(
      `Approve ${row.id}?`,
      h(
        "p",
        null,
        `${plural(row.findings.length, "text")} of this server ${row.findings.length === 1 ? "looks" : "look"} like instructions to the model.`,
      ),
      "Approve anyway",
      "danger",
    ))
  )
    return;
  await attempt(
    () => api.post("approve", { server: row.id, revision: row.revision }),
    () => `Approved ${row.id}.`,
  );
}

/** @param {Context} context @param {readonly ServerChanges[]} rows */
async function approveAll({ api }, rows) {
  const suspicious = rows.filter((row) => row.findings?.length);
  const text = [
    h("p", null, `This approves ${plural(rows.length, "server")}: ${rows.map((row) => row.id).join(", ")}.`),
    suspicious.length
      ? callout("bad", h("p", null, `With suspicious texts: ${suspicious.map((row) => row.id).join(", ")}.`))
      : null,
  ];
  if (!(await confirmed("Approve all changes?", text, "Approve all", suspicious.length ? "danger" : "primary"))) return;
  const answer = await attempt(
    () => api.post("approve-all", { servers: rows.map((row) => ({ server: row.id, revision: row.revision })) }),
    (value) => `Approved ${value.approved.join(", ") || "nothing"}.`,
  );
  for (const refused of answer?.refused ?? []) toast(`${refused.server}: ${refused.message}`, "bad");
}
