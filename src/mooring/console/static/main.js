// The frame around the pages: navigation, connection, theme, shortcuts.

import { Api, Stream } from "./api.js";
import { batched, h, render } from "./dom.js";
import { icon } from "./icons.js";
import { createKeys } from "./keys.js";
import { current, link } from "./router.js";
import { Store } from "./store.js";
import { switchTheme, themeName } from "./theme.js";
import { button, empty, failure, iconButton, loading } from "./ui.js";
import activity from "./pages/activity.js";
import add from "./pages/add.js";
import changes from "./pages/changes.js";
import cluster from "./pages/cluster.js";
import gateway from "./pages/gateway.js";
import inbox from "./pages/inbox.js";
import search from "./pages/search.js";
import servers from "./pages/servers.js";
import settings from "./pages/settings.js";
import tools from "./pages/tools.js";
import tryPage from "./pages/try.js";
import wire from "./pages/wire.js";

/**
 * @typedef {{ store: Store, api: Api, repaint: () => void }} Context
 * @typedef {import("./router.js").Route} Route
 * @typedef {{ id: string, title: string, icon: string, keys: string, make: (context: Context) => (route: Route) => import("./dom.js").Child,
 *   badge?: (store: Store) => { count: number, tone: string, text: string } | null, when?: (store: Store) => boolean, hidden?: boolean }} Page
 */

/** @type {Page[]} */
const PAGES = [servers, tools, tryPage, search, activity, wire, changes, inbox, gateway, cluster, settings, add];

const store = new Store();
const api = new Api();
/** @type {import("./api.js").Link} */
let linkState = "connecting";
/** @type {unknown} */
let problem;
let menuOpen = false;
let shownPage = "";
/** @type {Map<string, (route: Route) => import("./dom.js").Child>} */
const made = new Map();

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.replaceChildren();
const repaint = batched(draw);
export const context = { store, api, repaint };
const keys = createKeys(() => PAGES.filter((page) => !page.hidden && page.when?.(store) !== false));

api.onEnded = () => {
  linkState = "ended";
  stream.stop();
  repaint();
};
const stream = new Stream(
  store,
  repaint,
  (state) => {
    linkState = linkState === "ended" ? "ended" : state;
    repaint();
  },
  api,
);

async function start() {
  problem = undefined;
  repaint();
  try {
    const [, snapshot] = await Promise.all([api.open(), api.get("state")]);
    store.reset(snapshot);
    stream.start();
  } catch (error) {
    problem = error;
  }
  repaint();
}

/** @param {Route} route */
function pageOf(route) {
  return PAGES.find((page) => page.id === route.page) ?? servers;
}

function draw() {
  const route = current();
  const page = pageOf(route);
  document.title = `${page.title} · mooring`;
  render(
    root,
    skip(),
    header(page),
    navigation(page),
    h("main", { id: "main", class: `main page-${page.id}`, tabindex: "-1" }, body(page, route)),
  );
  if (shownPage && shownPage !== page.id) document.getElementById("main")?.focus({ preventScroll: true });
  shownPage = page.id;
}

function skip() {
  const jump = (/** @type {Event} */ event) => (event.preventDefault(), document.getElementById("main")?.focus());
  return h("a", { class: "skip", href: "#main", on: { click: jump } }, "Skip to the page");
}

/** @param {Page} page @param {Route} route @returns {import("./dom.js").Child} */
function body(page, route) {
  if (linkState === "ended") return ended();
  if (problem) return h("div", { class: "page" }, failure(problem, start));
  if (!store.loaded) return h("div", { class: "page" }, loading("Loading the console …"));
  if (route.page && route.page !== page.id)
    return h("div", { class: "page" }, empty("There is no such page", "Choose one in the navigation."));
  let view = made.get(page.id);
  if (!view) made.set(page.id, (view = page.make(context)));
  try {
    return h("div", { class: "page", key: page.id }, view(route));
  } catch (error) {
    // One page that fails leaves the others usable.
    console.error(error);
    return h("div", { class: "page" }, failure(error, repaint));
  }
}

function ended() {
  return h(
    "div",
    { class: "page narrow" },
    h(
      "div",
      { class: "card stack" },
      h("h1", null, "You are logged out"),
      h("p", null, "The session of this browser ended: it was logged out, it expired, or mooring was started again."),
      h("p", { class: "muted" }, "Open the URL that mooring prints, or log in with a token."),
      h("div", null, h("a", { class: "button primary", href: "./" }, "Log in again")),
    ),
  );
}

/** @param {Page} page */
function header(page) {
  const words = { connecting: "Connecting", live: "Live", lost: "Reconnecting", ended: "Logged out" };
  const where = store.values.about?.kind === "gateway" ? "Gateway" : "Local host";
  return h(
    "header",
    { class: "top" },
    h(
      "button",
      {
        type: "button",
        class: "icon-button menu-button",
        "aria-expanded": String(menuOpen),
        "aria-controls": "nav",
        "aria-label": "Pages",
        on: { click: toggleMenu },
      },
      icon("menu"),
    ),
    h("a", { class: "brand", href: "#/servers", "aria-label": "mooring" }, icon("anchor"), h("span", null, "mooring")),
    h("span", { class: "top-page" }, page.title),
    h("span", { class: "spacer" }),
    store.loaded && h("span", { class: "top-where" }, where),
    h(
      "span",
      { class: `link ${linkState}`, role: "status" },
      h("span", { class: "link-dot", "aria-hidden": "true" }),
      words[linkState],
    ),
    iconButton(
      themeName() === "dark" ? "Use light colours" : "Use dark colours",
      themeName() === "dark" ? "sun" : "moon",
      () => (switchTheme(), repaint()),
    ),
    iconButton("Keyboard shortcuts (?)", "help", () => keys.help()),
  );
}

function toggleMenu() {
  menuOpen = !menuOpen;
  draw();
  if (menuOpen) /** @type {HTMLElement | null} */ (document.querySelector("#nav a"))?.focus();
}

/** @param {Page} current */
function navigation(current) {
  return h(
    "nav",
    { id: "nav", class: `nav${menuOpen ? " open" : ""}`, "aria-label": "Pages" },
    h(
      "ul",
      null,
      PAGES.filter((page) => !page.hidden && page.when?.(store) !== false).map((page) => {
        const badge = store.loaded ? page.badge?.(store) : null;
        return h(
          "li",
          { key: page.id },
          h(
            "a",
            {
              href: link(page.id),
              "aria-current": page.id === current.id ? "page" : null,
              on: { click: () => ((menuOpen = false), repaint()) },
            },
            icon(page.icon),
            h("span", { class: "nav-title" }, page.title),
            badge &&
              badge.count > 0 &&
              h(
                "span",
                { class: `badge ${badge.tone}` },
                badge.count,
                h("span", { class: "visually-hidden" }, ` ${badge.text}`),
              ),
          ),
        );
      }),
    ),
    store.values.about &&
      h(
        "p",
        { class: "nav-foot muted" },
        `mooring ${store.values.about.version}`,
        api.session && h("span", null, api.session.principal),
        button("Log out", logout, { small: true, kind: "plain" }),
      ),
  );
}

async function logout() {
  await api.post("logout-console").catch(() => undefined);
  api.onEnded();
}

addEventListener("hashchange", repaint);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && menuOpen) toggleMenu();
  else keys.press(event);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
// Times such as "5 min ago" grow also while nothing happens.
setInterval(() => document.hidden || repaint(), 5000);
void start();
