// Try: call a tool, read a resource, fill a prompt; the results, and the calls before.

import { appFrame } from "../app.js";
import { blocksView } from "../content.js";
import { h } from "../dom.js";
import { FormState, formView, segment } from "../form.js";
import { clock, count, milliseconds } from "../format.js";
import { jsonView, pretty } from "../json.js";
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
  empty,
  failure,
  filterInput,
  foreign,
  loading,
  section,
  statePill,
  endOf,
} from "../ui.js";
import { inboxCard } from "./inbox.js";

/** @typedef {import("../main.js").Context} Context */
/** @typedef {import("../router.js").Route} Route */
/** @typedef {import("../contract.js").Tool} Tool */
/** @typedef {import("../contract.js").Result} Result */

/** @type {import("../main.js").Page} */
const page = { id: "try", title: "Try", icon: "try", keys: "y", make };
export default page;

/** @param {Context} context */
function make(context) {
  const state = new TryState(context);
  return (/** @type {Route} */ route) => {
    const kind = route.query["kind"] ?? "tools";
    const chosen = route.parts.length > 0;
    return h(
      "div",
      { class: `try${chosen ? " chosen" : ""}` },
      h(
        "div",
        { class: "try-list" },
        h("div", { class: "page-head" }, h("h1", null, "Try")),
        h(
          "div",
          { class: "segments", role: "group", "aria-label": "What to try" },
          ["tools", "resources", "prompts"].map((name) =>
            segment(name[0]?.toUpperCase() + name.slice(1), kind === name, () => go(link("try", [], { kind: name }))),
          ),
        ),
        kind === "tools"
          ? state.toolList(route)
          : kind === "resources"
            ? state.resourceList(route)
            : state.promptList(route),
      ),
      h(
        "div",
        { class: "try-main" },
        chosen && h("a", { class: "back", href: link("try", [], { kind }) }, "‹ All ", kind),
        kind === "tools"
          ? state.toolView(route)
          : kind === "resources"
            ? state.resourceView(route)
            : state.promptView(route),
      ),
    );
  };
}

const matching = memo((/** @type {readonly Tool[]} */ rows, /** @type {string} */ text) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(
    (row) => row.name !== null && words.every((word) => `${row.name} ${row.title ?? ""}`.toLowerCase().includes(word)),
  );
});

class TryState {
  /** @param {Context} context */
  constructor(context) {
    this.context = context;
    this.filter = "";
    this.view = "content";
    /** @type {Map<string, FormState>} */
    this.forms = new Map();
    /** @type {Query<import("../contract.js").ToolDetail>} */
    this.tool = new Query(context.repaint);
    /** @type {Query<Result>} */
    this.result = new Query(context.repaint);
    /** @type {Query<{ resources: any[], templates: any[] }>} */
    this.resources = new Query(context.repaint);
    /** @type {Query<{ prompts: any[] }>} */
    this.prompts = new Query(context.repaint);
    /** @type {Query<any>} */
    this.content = new Query(context.repaint);
    this.sending = false;
  }

  /** @param {string} label */
  filterBox(label) {
    return h(
      "div",
      { class: "filters" },
      filterInput(label, this.filter, (value) => ((this.filter = value), this.context.repaint())),
    );
  }

  /** @param {Route} route */
  toolList(route) {
    const rows = matching(this.context.store.rows("tools"), this.filter);
    return [
      this.filterBox("Filter tools"),
      table(
        {
          label: "Tools to try",
          rows,
          id: (row) => row.id,
          rowHeight: 48,
          selected: route.parts[0],
          onSelect: (row) => go(link("try", [row.id])),
          columns: [
            {
              id: "name",
              title: "Tool",
              width: "1fr",
              cell: (row) =>
                h(
                  "div",
                  { class: "two" },
                  endOf(row.name ?? row.remote, "strong mono"),
                  h("span", { class: "sub muted foreign", dir: "auto" }, row.title ?? row.summary),
                ),
            },
          ],
          empty: "No tool matches.",
        },
        "try-tools",
      ),
    ];
  }

  /** @param {Route} route */
  toolView(route) {
    const { api, store } = this.context;
    const name = route.parts[0];
    if (!name) return empty("Choose a tool", "Its form is made from the schema that the server sent.");
    // Asked again when the server describes the tool in another way, or when it appears.
    const got = this.tool.about(name, JSON.stringify(store.row("tools", name) ?? null), () =>
      api.post("tool", { tool: name }),
    );
    if (got.error) return failure(got.error, () => this.tool.forget());
    const tool = got.value;
    if (!tool) return loading();
    const form = this.form(`tool:${name}`, tool.input_schema);
    const shown = store.row("tries", route.query["run"]);
    return [
      h(
        "header",
        { class: "stack tight" },
        h("h2", { class: "mono wrap-any" }, foreign(name)),
        tool.title && h("p", { class: "prose strong few-lines", dir: "auto" }, tool.title),
        h("p", { class: "prose muted few-lines", dir: "auto" }, tool.description),
        h(
          "p",
          { class: "muted" },
          store.row("tools", name) && [h("a", { href: link("tools", name.split("/")) }, "About this tool"), " · "],
          `${count(tool.tokens)} tokens`,
          tool.policy !== "allow" && [" · ", statePill(tool.policy)],
        ),
      ),
      h(
        "form",
        {
          class: "card stack",
          on: {
            submit: (/** @type {Event} */ event) => (event.preventDefault(), this.call(name, form)),
            keydown: (/** @type {KeyboardEvent} */ event) =>
              event.key === "Enter" &&
              (event.ctrlKey || event.metaKey) &&
              (event.preventDefault(), this.call(name, form)),
          },
        },
        formView(form),
        h(
          "div",
          { class: "row wrap" },
          h(
            "button",
            {
              type: "submit",
              class: "button primary",
              "aria-busy": this.sending ? "true" : null,
              disabled: this.sending,
            },
            "Call",
          ),
          button("Reset", () => (this.forms.delete(`tool:${name}`), this.context.repaint())),
          h("span", { class: "muted" }, "Ctrl Enter"),
        ),
      ),
      this.questions(shown),
      shown ? this.outcome(shown) : null,
      this.history(name, shown?.id),
    ];
  }

  /** @param {string} key @param {unknown} schema */
  form(key, schema) {
    let form = this.forms.get(key);
    if (!form || JSON.stringify(form.schema) !== JSON.stringify(schema)) {
      this.forms.set(key, (form = new FormState(schema, this.context.repaint, undefined, key)));
      if (this.forms.size > 50) this.forms.delete(/** @type {string} */ (this.forms.keys().next().value));
    }
    return form;
  }

  /** @param {string} name @param {FormState} form */
  async call(name, form) {
    if (!form.ready() || this.sending) return;
    this.sending = true;
    const answer = await attempt(() => this.context.api.post("call", { tool: name, arguments: form.value ?? {} }));
    this.sending = false;
    this.context.repaint();
    if (answer) go(link("try", [name], { run: answer.id }));
  }

  /** Questions that wait while a call runs. @param {import("../contract.js").Try | undefined} run */
  questions(run) {
    if (run?.state !== "running") return null;
    return this.context.store
      .rows("inbox")
      .filter((item) => item.server === run.server || item.tool === run.tool)
      .map((item) => inboxCard(this.context, item));
  }

  /** @param {import("../contract.js").Try} run */
  outcome(run) {
    const { api } = this.context;
    if (run.state === "running") {
      const progress = run.progress;
      return h(
        "section",
        { class: "card stack", "aria-label": "Result" },
        h(
          "div",
          { class: "row" },
          statePill("running", "Running"),
          h("span", { class: "spacer" }),
          button("Cancel", () => attempt(() => api.post("cancel", { id: run.id }))),
        ),
        progress
          ? [
              h("progress", {
                max: progress.total ?? 1,
                value: progress.total ? progress.progress : null,
                "aria-label": "Progress",
              }),
              progress.message && h("p", { dir: "auto" }, progress.message),
            ]
          : h("progress", { "aria-label": "Running" }),
      );
    }
    const got = this.result.about(run.id, run.state, () => api.post("result", { id: run.id }));
    const value = got.value;
    return h(
      "section",
      { class: "card stack", "aria-label": "Result" },
      h(
        "div",
        { class: "row wrap" },
        statePill(run.state, { ok: "Done", error: "Failed", cancelled: "Cancelled" }[run.state] ?? run.state),
        h("span", { class: "muted" }, milliseconds(run.ms)),
        h("span", { class: "spacer" }),
        button("Call again", () => this.replay(run), { icon: "replay", small: true }),
      ),
      got.error ? failure(got.error, () => this.result.forget()) : !value ? loading() : this.parts(value, run),
    );
  }

  /** @param {import("../contract.js").Try} run */
  async replay(run) {
    const answer = await attempt(() => this.context.api.post("replay", { id: run.id }));
    if (answer) go(link("try", [run.tool], { run: answer.id }));
  }

  /** @param {Result} value @param {import("../contract.js").Try} run */
  parts(value, run) {
    const structured = value.structured !== null && value.structured !== undefined;
    const tabs = [
      ["content", "Content"],
      ...(structured ? [["structured", "Structured"]] : []),
      ["raw", "Raw"],
      ["arguments", "Arguments"],
    ];
    const view = tabs.some(([id]) => id === this.view) ? this.view : "content";
    return [
      value.error &&
        callout(
          "bad",
          h("p", { class: "strong" }, value.error.kind),
          h("p", { dir: "auto" }, value.error.message),
          value.error.next && command(value.error.next),
        ),
      value.is_error && !value.error && callout("bad", h("p", null, "The tool reported an error.")),
      run.app && appFrame(this.context, run.tool, run.id),
      h(
        "div",
        { class: "segments", role: "group", "aria-label": "Show the result as" },
        tabs.map(([id = "", title = ""]) =>
          segment(title, view === id, () => ((this.view = id), this.context.repaint())),
        ),
      ),
      view === "structured"
        ? jsonView(value.structured, "Structured result")
        : view === "raw"
          ? codeBlock(pretty(value.raw), "Raw result")
          : view === "arguments"
            ? jsonView(value.arguments, "Arguments")
            : blocksView(value.blocks, (uri) => link("try", [value.server, uri], { kind: "resources" })),
    ];
  }

  /** @param {string} tool @param {string | undefined} shown */
  history(tool, shown) {
    const runs = this.context.store
      .rows("tries")
      .filter((run) => run.tool === tool)
      .slice(-20)
      .reverse();
    if (!runs.length) return null;
    return section(
      "Calls of this tool",
      h(
        "ul",
        { class: "history" },
        runs.map((run) =>
          h(
            "li",
            { key: run.id },
            h(
              "a",
              { href: link("try", [tool], { run: run.id }), "aria-current": run.id === shown ? "true" : null },
              statePill(run.state, clock(run.started)),
              h("code", { class: "foreign", dir: "ltr" }, run.arguments),
              h("span", { class: "muted" }, milliseconds(run.ms)),
            ),
            run.state !== "running" &&
              button("Use", () => this.reuse(run), {
                small: true,
                label: `Use the arguments of ${clock(run.started)}`,
              }),
          ),
        ),
      ),
    );
  }

  /** @param {import("../contract.js").Try} run */
  async reuse(run) {
    const value = await attempt(() => this.context.api.post("result", { id: run.id }));
    const form = this.forms.get(`tool:${run.tool}`);
    if (!value || !form) return;
    form.drafts.clear();
    form.value = value.arguments;
    form.text = pretty(value.arguments);
    form.changed();
  }

  /** @param {Route} route */
  resourceList(route) {
    const got = this.resources.about("resources", String(this.context.store.values.totals?.resources), () =>
      this.context.api.post("resources"),
    );
    if (got.error) return failure(got.error, () => this.resources.forget());
    if (!got.value) return loading();
    const text = this.filter.toLowerCase();
    const rows = [
      ...got.value.resources,
      ...got.value.templates.map((one) => ({ ...one, uri: one.uri ?? one.uri_template ?? one.template })),
    ].filter((row) => `${row.uri} ${row.name ?? ""} ${row.server}`.toLowerCase().includes(text));
    return [
      this.filterBox("Filter resources"),
      table(
        {
          label: "Resources",
          rows,
          id: (row) => `${row.server}\n${row.uri}`,
          rowHeight: 48,
          selected: route.parts.join("\n"),
          onSelect: (row) => go(link("try", [row.server, row.uri], { kind: "resources" })),
          columns: [
            {
              id: "uri",
              title: "Resource",
              width: "1fr",
              cell: (row) =>
                h(
                  "div",
                  { class: "two" },
                  foreign(row.title ?? row.name ?? row.uri, "strong"),
                  h("span", { class: "sub muted foreign mono", dir: "auto" }, `${row.server} · ${row.uri}`),
                ),
            },
          ],
          empty: "No resource.",
        },
        "try-resources",
      ),
    ];
  }

  /** @param {Route} route */
  resourceView(route) {
    const [server, given] = route.parts;
    if (!server || !given) return empty("Choose a resource", "Servers offer documents by URI.");
    const form = this.form(`uri:${server}:${given}`, {
      type: "object",
      required: ["uri"],
      properties: { uri: { type: "string", default: given } },
    });
    const uri = String(form.value?.uri ?? given);
    const template = /\{[^}]*\}/.test(uri);
    const got = template
      ? undefined
      : this.content.about(`${server}\n${given}`, uri, () => this.context.api.post("read", { uri, server }));
    return [
      h("h2", { class: "mono wrap-any" }, foreign(given)),
      h("p", { class: "muted" }, "Server ", foreign(server)),
      /\{[^}]*\}/.test(given) &&
        h(
          "div",
          { class: "card stack" },
          h("p", { class: "muted" }, "A template: replace the parts in braces."),
          formView(form),
        ),
      template
        ? null
        : got?.error
          ? failure(got.error, () => this.content.forget())
          : got?.value
            ? h("section", { class: "card stack", "aria-label": "Content" }, blocksView(got.value.blocks))
            : loading(),
    ];
  }

  /** @param {Route} route */
  promptList(route) {
    const got = this.prompts.about("prompts", String(this.context.store.values.totals?.prompts), () =>
      this.context.api.post("prompts"),
    );
    if (got.error) return failure(got.error, () => this.prompts.forget());
    if (!got.value) return loading();
    const text = this.filter.toLowerCase();
    return [
      this.filterBox("Filter prompts"),
      table(
        {
          label: "Prompts",
          rows: got.value.prompts.filter((row) => `${row.server} ${row.name}`.toLowerCase().includes(text)),
          id: (row) => `${row.server}\n${row.name}`,
          rowHeight: 48,
          selected: route.parts.join("\n"),
          onSelect: (row) => go(link("try", [row.server, row.name], { kind: "prompts" })),
          empty: "No prompt.",
          columns: [
            {
              id: "name",
              title: "Prompt",
              width: "1fr",
              cell: (row) =>
                h(
                  "div",
                  { class: "two" },
                  foreign(row.title ?? row.name, "strong"),
                  h("span", { class: "sub muted foreign", dir: "auto" }, `${row.server} · ${row.description ?? ""}`),
                ),
            },
          ],
        },
        "try-prompts",
      ),
    ];
  }

  /** @param {Route} route */
  promptView(route) {
    const [server, name] = route.parts;
    const prompt = this.prompts.value?.prompts.find((one) => one.server === server && one.name === name);
    if (!server || !name) return empty("Choose a prompt", "Servers offer templates of messages.");
    if (!prompt)
      return this.prompts.value
        ? callout("warn", h("p", null, `There is no prompt '${name}' on '${server}'.`))
        : loading();
    const names = /** @type {any[]} */ (prompt.arguments ?? []);
    const schema = {
      type: "object",
      required: names.filter((one) => one.required).map((one) => one.name),
      properties: Object.fromEntries(
        names.map((one) => [one.name, { type: "string", title: one.title, description: one.description }]),
      ),
    };
    const form = this.form(`prompt:${server}:${name}`, schema);
    const fill = async () => {
      if (!form.ready()) return;
      const wanted = form.value;
      this.content.about(`${server}\n${name}\nprompt`, JSON.stringify(wanted) + Date.now(), () =>
        this.context.api.post("prompt", { server, name, arguments: wanted }),
      );
      this.context.repaint();
    };
    const got = this.content.subject === `${server}\n${name}\nprompt` ? this.content : undefined;
    return [
      h("h2", { class: "wrap-any" }, foreign(prompt.title ?? name)),
      h("p", { class: "muted prose", dir: "auto" }, prompt.description),
      h(
        "form",
        { class: "card stack", on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), void fill()) } },
        formView(form),
        h("div", null, h("button", { type: "submit", class: "button primary" }, "Fill the prompt")),
      ),
      got?.error
        ? failure(got.error)
        : got?.value
          ? h(
              "section",
              { class: "card stack", "aria-label": "Messages" },
              got.value.messages.map((/** @type {any} */ message, /** @type {number} */ index) =>
                h(
                  "div",
                  { class: "stack tight", key: String(index) },
                  h("strong", null, message.role),
                  blocksView([message.block]),
                ),
              ),
            )
          : got?.busy
            ? loading()
            : null,
    ];
  }
}
