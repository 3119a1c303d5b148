// The first run, and adding servers: bundled ones, those of another program, or one command or URL.

import { h } from "../dom.js";
import { propose } from "../edits.js";
import { plural } from "../format.js";
import { Query } from "../query.js";
import { go, link } from "../router.js";
import { button, callout, command, failure, loading, toast } from "../ui.js";

/** @typedef {import("../main.js").Context} Context */

/** @type {import("../main.js").Page} */
const page = {
  id: "add",
  title: "Add servers",
  icon: "plus",
  keys: "n",
  hidden: true,
  make: (context) => choices(context, () => [h("div", { class: "page-head" }, h("h1", null, "Add servers"))]),
};
export default page;

/** @param {Context} context */
export function firstRun(context) {
  return choices(context, () => [
    h(
      "div",
      { class: "welcome" },
      h("h1", null, "Connect your first server"),
      h(
        "p",
        { class: "muted lead" },
        "mooring keeps MCP servers connected and merges their tools. No server is configured yet. ",
        !context.store.limited && "Each choice below shows the change to the file before it is written.",
      ),
    ),
  ]);
}

/** @param {Context} context @param {() => import("../dom.js").Child} head */
function choices(context, head) {
  const { api, repaint, store } = context;
  /** @type {Query<{ programs: import("../contract.js").Program[] }>} */
  const programs = new Query(repaint);
  const draft = { name: "", what: "", env: "", problem: "" };

  const add = async () => {
    const made = entryOf(draft);
    draft.problem = typeof made === "string" ? made : "";
    repaint();
    if (typeof made === "string") return;
    if (await propose(api, `Add ${draft.name}`, [{ op: "server-add", name: draft.name.trim(), entry: made }])) {
      go(link("servers", [draft.name.trim()]));
      Object.assign(draft, { name: "", what: "", env: "" });
    }
  };
  const demo = async () => {
    if (await propose(api, "Add the demo servers", [{ op: "demo" }])) go(link("servers"));
  };

  return () => [
    head(),
    store.limited
      ? elsewhere()
      : h(
          "div",
          { class: "choices" },
          h(
            "section",
            { class: "card stack" },
            h("h2", null, "Demo servers"),
            h(
              "p",
              null,
              "Two small servers that come with mooring, ",
              h("code", null, "notes"),
              " and ",
              h("code", null, "clock"),
              ". They need no network.",
            ),
            h("div", null, button("Add the demo servers", demo, { kind: "primary" })),
          ),
          h(
            "section",
            { class: "card stack" },
            h("h2", null, "One server"),
            form(draft, repaint, add),
            h("p", { class: "muted" }, "In a terminal: ", command("mooring add NAME -- COMMAND")),
          ),
          h(
            "section",
            { class: "card stack span" },
            h("h2", null, "From another program"),
            importer(context, programs),
          ),
        ),
    store.values.about &&
      h(
        "p",
        { class: "muted files" },
        "Files in use: ",
        store.values.about.files.length
          ? store.values.about.files.map((file) => h("code", { key: file.file }, file.file))
          : "none yet",
      ),
  ];
}

/** What to do at a gateway with tokens. */
function elsewhere() {
  return callout(
    "wait",
    h(
      "p",
      null,
      "Servers of a gateway with tokens are added on its machine: each of them is a program that runs there.",
    ),
    h("p", null, "In a terminal: ", command("mooring add NAME -- COMMAND")),
  );
}

/** @param {{ name: string, what: string, env: string, problem: string }} draft @param {() => void} repaint @param {() => void} add */
function form(draft, repaint, add) {
  /** @param {"name" | "what" | "env"} key @param {string} label @param {string} placeholder */
  const line = (key, label, placeholder) =>
    h(
      "div",
      { class: "field" },
      h("label", { for: `add-${key}` }, label),
      h("input", {
        id: `add-${key}`,
        type: "text",
        autocomplete: "off",
        spellcheck: "false",
        placeholder,
        prop: { value: draft[key] },
        on: { input: (/** @type {any} */ event) => ((draft[key] = event.target.value), repaint()) },
      }),
    );
  return h(
    "form",
    { class: "stack", on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), add()) } },
    line("name", "Name", "files"),
    line("what", "Command or URL", "npx -y some-server, or https://host/mcp"),
    draft.problem && h("p", { class: "problem", role: "alert" }, draft.problem),
    h("div", null, h("button", { class: "button", type: "submit" }, "Show the change")),
  );
}

/**
 * The entry of the file for what was typed, or what is wrong with it.
 * @param {{ name: string, what: string }} draft
 * @returns {Record<string, unknown> | string}
 */
export function entryOf(draft) {
  if (!draft.name.trim()) return "Give the server a name.";
  const what = draft.what.trim();
  if (!what) return "Type a command or a URL.";
  if (/^https?:\/\//.test(what)) return { url: what };
  const words = wordsOf(what);
  if (typeof words === "string") return words;
  return words.length > 1 ? { command: words[0], args: words.slice(1) } : { command: words[0] };
}

/** Words as a shell would take them: spaces separate, quotes and backslashes keep. @param {string} text @returns {string[] | string} */
function wordsOf(text) {
  /** @type {string[]} */
  const words = [];
  let word = "",
    quote = "",
    inside = false;
  for (let at = 0; at < text.length; at++) {
    const letter = /** @type {string} */ (text[at]);
    if (quote) {
      if (letter === quote) quote = "";
      else if (letter === "\\" && quote === '"' && at + 1 < text.length) word += text[++at];
      else word += letter;
    } else if (letter === '"' || letter === "'") ((quote = letter), (inside = true));
    else if (letter === "\\" && at + 1 < text.length) ((word += text[++at]), (inside = true));
    else if (/\s/.test(letter)) {
      if (inside) words.push(word);
      ((word = ""), (inside = false));
    } else ((word += letter), (inside = true));
  }
  if (quote) return "A quote is not closed.";
  if (inside) words.push(word);
  return words;
}

/** @param {Context} context @param {Query<{ programs: import("../contract.js").Program[] }>} query */
function importer({ api }, query) {
  const got = query.about("programs", "", () => api.post("programs"));
  if (got.error) return failure(got.error, () => query.forget());
  if (!got.value) return loading("Looking for files of other programs …");
  const found = got.value.programs.filter((program) => program.servers.length || program.error);
  if (!found.length) return h("p", { class: "muted" }, "No other program with MCP servers was found on this machine.");
  const take = async (/** @type {import("../contract.js").Program} */ program) => {
    if (await propose(api, `Import from ${program.title}`, [{ op: "import", program: program.program }])) {
      toast(`Imported from ${program.title}.`);
      go(link("servers"));
    }
  };
  return h(
    "ul",
    { class: "programs" },
    found.map((program) =>
      h(
        "li",
        { key: program.program + program.file },
        h(
          "div",
          { class: "stack tight grow" },
          h("strong", null, program.title),
          h("code", { class: "wrap-any muted" }, program.file),
          program.error
            ? h("span", { class: "problem" }, program.error)
            : h("span", { class: "muted", dir: "auto" }, program.servers.map((server) => server.name).join(", ")),
        ),
        !program.error &&
          button(`Import ${plural(program.servers.length, "server")}`, () => take(program), { small: true }),
      ),
    ),
  );
}
