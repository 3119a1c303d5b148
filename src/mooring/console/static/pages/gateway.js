// Gateway: clients, sessions, profiles, tokens, limits.

import { h } from "../dom.js";
import { ago, count, date, plural, span } from "../format.js";
import { table } from "../table.js";
import {
  attempt,
  button,
  callout,
  command,
  confirmed,
  dialog,
  empty,
  failure,
  foreign,
  section,
  stat,
  statStrip,
  statePill,
} from "../ui.js";

/** @typedef {import("../main.js").Context} Context */
/** @typedef {import("../contract.js").Token} Token */

/** @type {import("../main.js").Page} */
const page = { id: "gateway", title: "Gateway", icon: "gateway", keys: "g", make };
export default page;

/** @param {Context} context */
function make(context) {
  const { store } = context;
  return () => {
    const gateway = store.values.gateway;
    const head = h(
      "div",
      { class: "page-head" },
      h("h1", null, "Gateway"),
      h("span", { class: "spacer" }),
      button("Create a token", () => createToken(context), { icon: "plus" }),
    );
    if (!gateway) {
      return h(
        "div",
        { class: "centered" },
        head,
        empty("No gateway runs in this process", [
          "It serves all tools as one MCP server. Start it with ",
          command("mooring serve --http 127.0.0.1:8000 --console"),
          ".",
        ]),
        tokens(context),
        profiles(context),
      );
    }
    const limits = Object.entries(gateway.limits).filter(([, value]) => value !== null);
    return h(
      "div",
      { class: "centered wide-page" },
      head,
      gateway.draining && callout("warn", h("p", null, "The gateway is draining: it takes no new sessions.")),
      gateway.open && callout("warn", h("p", null, "The gateway is open: it asks clients for no token.")),
      h("p", null, "Clients connect to ", command(gateway.url, "URL")),
      statStrip(
        stat("Sessions", count(gateway.sessions)),
        stat("Connections", count(gateway.connections)),
        stat("Tokens", count(store.rows("tokens").length)),
        stat("Profiles", count(store.rows("profiles").length)),
      ),
      clients(context),
      profiles(context),
      tokens(context),
      section(
        "Limits",
        h(
          "dl",
          { class: "facts" },
          limits.map(([name, value]) =>
            h("div", { key: name }, h("dt", null, name.replaceAll("_", " ")), h("dd", null, count(value))),
          ),
        ),
      ),
    );
  };
}

/** @param {Context} context */
function clients({ store, api }) {
  const end = async (/** @type {string} */ id) => {
    if (
      await confirmed(
        "End this session?",
        h("p", null, "The client must start a new one. Its running calls are cancelled."),
        "End it",
        "danger",
      )
    )
      await attempt(() => api.post("session-end", { id }), "The session ended.");
  };
  return section(
    "Clients",
    h(
      "div",
      { class: "short-grid" },
      table(
        {
          label: "Clients",
          rows: store.rows("clients"),
          id: (row) => row.id,
          rowHeight: 40,
          empty: "No client is connected.",
          columns: [
            {
              id: "principal",
              title: "Principal",
              width: "minmax(90px, 1fr)",
              sort: (row) => row.principal ?? "",
              cell: (row) => foreign(row.principal ?? "–", "strong"),
            },
            {
              id: "profile",
              title: "Profile",
              width: "minmax(80px, 1fr)",
              sort: (row) => row.profile,
              cell: (row) => row.profile || "default",
            },
            { id: "protocol", title: "Protocol", width: "110px", wide: true, cell: (row) => row.protocol ?? "–" },
            {
              id: "session",
              title: "Session",
              width: "minmax(90px, 1fr)",
              wide: true,
              cell: (row) => h("code", null, row.id),
            },
            { id: "running", title: "Running", width: "80px", end: true, cell: (row) => count(row.running) },
            {
              id: "idle",
              title: "Idle",
              width: "72px",
              end: true,
              wide: true,
              sort: (row) => row.idle,
              cell: (row) => span(row.idle),
            },
            {
              id: "end",
              title: "",
              width: "72px",
              cell: (row) => button("End", () => void end(row.id), { small: true, label: `End session ${row.id}` }),
            },
          ],
        },
        "clients",
      ),
    ),
  );
}

/** @param {Context} context */
function profiles({ store }) {
  const rows = store.rows("profiles");
  if (!rows.length) return null;
  const empty = store.values.totals?.tools ? rows.filter((row) => !row.tools).map((row) => row.id || "default") : [];
  return section(
    "Profiles",
    empty.length > 0 &&
      callout(
        "warn",
        h("p", null, `No tool is in the profile ${empty.join(", ")}. Globs are compared with SERVER/TOOL, e.g. `),
        h("code", null, "notes/read_*"),
      ),
    h(
      "div",
      { class: "short-grid" },
      table(
        {
          label: "Profiles",
          rows,
          id: (row) => row.id || "default",
          rowHeight: 40,
          columns: [
            {
              id: "name",
              title: "Profile",
              width: "minmax(90px, 1fr)",
              cell: (row) => h("strong", null, row.id || "default"),
            },
            { id: "path", title: "Path", width: "minmax(100px, 1fr)", cell: (row) => h("code", null, row.path) },
            { id: "tools", title: "Tools", width: "72px", end: true, cell: (row) => count(row.tools) },
            { id: "tokens", title: "Tokens", width: "84px", end: true, wide: true, cell: (row) => count(row.tokens) },
            {
              id: "servers",
              title: "Servers",
              width: "minmax(90px, 2fr)",
              wide: true,
              cell: (row) => foreign(row.servers.join() === "*" ? "all" : row.servers.join(", ") || "none"),
            },
            {
              id: "scopes",
              title: "Scopes",
              width: "minmax(80px, 1fr)",
              wide: true,
              cell: (row) => foreign(row.scopes?.join(", ") ?? "–"),
            },
          ],
        },
        "profiles",
      ),
    ),
  );
}

/** @param {Context} context */
function tokens(context) {
  const { store } = context;
  return section(
    "Tokens",
    h(
      "div",
      { class: "short-grid" },
      table(
        {
          label: "Tokens",
          rows: store.rows("tokens"),
          id: (row) => row.id,
          rowHeight: 44,
          empty: "No token was created.",
          columns: [
            {
              id: "name",
              title: "Name",
              width: "minmax(100px, 1fr)",
              sort: (row) => row.id,
              cell: (row) => foreign(row.id, "strong"),
            },
            { id: "state", title: "State", width: "100px", cell: (row) => statePill(row.state) },
            {
              id: "scopes",
              title: "Scopes",
              width: "minmax(80px, 1fr)",
              wide: true,
              cell: (row) => foreign(row.scopes?.join(", ") ?? ""),
            },
            {
              id: "expires",
              title: "Expires",
              width: "150px",
              wide: true,
              sort: (row) => row.expires ?? Infinity,
              cell: (row) => (row.expires ? date(row.expires) : "never"),
            },
            {
              id: "used",
              title: "Last used",
              width: "110px",
              wide: true,
              cell: (row) => (row.last_used ? ago(row.last_used, store.now()) : "never"),
            },
            {
              id: "actions",
              title: "",
              width: "150px",
              cell: (row) =>
                h(
                  "span",
                  { class: "row tight" },
                  button("Rotate", () => void rotate(context, row), { small: true, label: `Rotate ${row.id}` }),
                  row.state !== "revoked" &&
                    button("Revoke", () => void revoke(context, row), { small: true, label: `Revoke ${row.id}` }),
                ),
            },
          ],
        },
        "tokens",
      ),
    ),
  );
}

/** @param {Context} context */
async function createToken({ api }) {
  const draft = { name: "", scopes: "", profiles: "", expires: "90d" };
  await dialog("Create a token", (close, redraw) => {
    /** @type {unknown} */
    let error;
    /** @type {string | undefined} */
    let secret;
    const list = (/** @type {string} */ text) => text.split(/[,\s]+/).filter(Boolean);
    const create = async () => {
      error = undefined;
      try {
        const body = {
          name: draft.name.trim(),
          ...(list(draft.scopes).length ? { scopes: list(draft.scopes) } : {}),
          ...(list(draft.profiles).length ? { profiles: list(draft.profiles) } : {}),
          ...(draft.expires.trim() ? { expires: draft.expires.trim() } : {}),
        };
        secret = (await api.post("token-create", body)).token;
      } catch (problem) {
        error = problem;
      }
      redraw();
    };
    /** @param {keyof typeof draft} key @param {string} label @param {string} help */
    const line = (key, label, help) =>
      h(
        "div",
        { class: "field" },
        h("label", { for: `token-${key}` }, label),
        h("input", {
          id: `token-${key}`,
          type: "text",
          autocomplete: "off",
          "aria-describedby": `token-${key}-help`,
          prop: { value: draft[key] },
          on: { input: (/** @type {any} */ event) => (draft[key] = event.target.value) },
        }),
        h("span", { class: "help", id: `token-${key}-help` }, help),
      );
    return () =>
      secret !== undefined
        ? [
            h("p", null, "Copy the token now. It is not shown again."),
            command(secret, "token"),
            h(
              "div",
              { class: "row end" },
              button("Done", () => close(), { kind: "primary" }),
            ),
          ]
        : h(
            "form",
            { class: "stack", on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), void create()) } },
            line("name", "Name", "Who or what uses it"),
            line("scopes", "Scopes", "Separated by commas; empty: the default"),
            line("profiles", "Profiles", "Names of profiles; empty: all"),
            line("expires", "Expires", "Such as 90d; empty: never"),
            error !== undefined && failure(error),
            h(
              "div",
              { class: "row end" },
              button("Cancel", () => close()),
              h("button", { type: "submit", class: "button primary" }, "Create"),
            ),
          );
  });
}

/** @param {Context} context @param {Token} row */
async function rotate({ api }, row) {
  const answer = await attempt(() => api.post("token-rotate", { name: row.id }));
  if (answer?.token)
    await dialog(`New token of ${row.id}`, (/** @type {(value?: boolean) => void} */ close) => () => [
      h("p", null, "Copy the token now. It is not shown again."),
      command(answer.token, "token"),
      h(
        "div",
        { class: "row end" },
        button("Done", () => close(), { kind: "primary" }),
      ),
    ]);
}

/** @param {Context} context @param {Token} row */
async function revoke({ api }, row) {
  if (
    await confirmed(
      `Revoke ${row.id}?`,
      h(
        "p",
        null,
        `Clients that use this token are refused from now on${row.profiles?.length ? ` (${plural(row.profiles.length, "profile")})` : ""}.`,
      ),
      "Revoke",
      "danger",
    )
  )
    await attempt(() => api.post("token-revoke", { name: row.id }), `Revoked ${row.id}.`);
}
