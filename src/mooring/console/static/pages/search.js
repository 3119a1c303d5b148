// Search: what a model finds with a question, why, and what it costs.

import { h } from "../dom.js";
import { count, percent } from "../format.js";
import { jsonView } from "../json.js";
import { Query } from "../query.js";
import { go, link } from "../router.js";
import { bar, codeBlock, empty, failure, foreign, loading, section } from "../ui.js";

/** @typedef {import("../contract.js").SearchAnswer} SearchAnswer */

/** The server of mooring's own tools, which the page Tools does not list. */
const OWNER = "mooring";

/** @type {import("../main.js").Page} */
const page = { id: "search", title: "Search", icon: "search", keys: "f", make };
export default page;

/** @param {import("../main.js").Context} context */
function make({ api, repaint }) {
  /** @type {Query<SearchAnswer>} */
  const query = new Query(repaint);
  let typed = /** @type {string | undefined} */ (undefined);
  let timer = 0;

  return (/** @type {import("../router.js").Route} */ route) => {
    const q = route.query["q"] ?? "";
    const shown = typed ?? q;
    const ask = (/** @type {string} */ text) => {
      typed = text;
      clearTimeout(timer);
      timer = setTimeout(() => {
        typed = undefined;
        go(link("search", [], { q: text }), true);
      }, 150);
      repaint();
    };
    const got = q.trim() ? query.about("search", q, () => api.post("search", { query: q, limit: 20 })) : undefined;
    return h(
      "div",
      { class: "centered" },
      h("div", { class: "page-head" }, h("h1", null, "Search")),
      h(
        "p",
        { class: "muted" },
        "Type what a model would ask for. The ranking is the one that it gets from ",
        h("code", null, "tools_search"),
        ".",
      ),
      h(
        "form",
        { role: "search", on: { submit: (/** @type {Event} */ event) => event.preventDefault() } },
        h("label", { class: "visually-hidden", for: "question" }, "Question"),
        h("input", {
          id: "question",
          type: "search",
          class: "big",
          "data-filter": true,
          placeholder: "e.g. write down an idea for later",
          autocomplete: "off",
          prop: { value: shown },
          on: { input: (/** @type {any} */ event) => ask(event.target.value) },
        }),
      ),
      !got
        ? empty("Nothing asked yet", "The answer shows the order, the reasons, and the tokens against the full list.")
        : got.error
          ? failure(got.error, () => query.forget())
          : got.value
            ? answerView(got.value)
            : loading("Searching …"),
    );
  };
}

/** @param {SearchAnswer} answer */
function answerView(answer) {
  const { tokens } = answer;
  const most = Math.max(1, ...answer.hits.map((hit) => hit.score));
  return [
    answer.hits.length
      ? h(
          "ol",
          { class: "hits" },
          answer.hits.map((hit, index) =>
            h(
              "li",
              { key: hit.name, class: "hit" },
              h("span", { class: "rank", "aria-hidden": "true" }, index + 1),
              h(
                "div",
                { class: "stack tight grow" },
                h(
                  "div",
                  { class: "row wrap" },
                  h(
                    "a",
                    {
                      class: "strong mono wrap-any",
                      href: link(hit.server === OWNER ? "try" : "tools", hit.name.split("/")),
                    },
                    foreign(hit.name),
                  ),
                  h("span", { class: "muted" }, foreign(hit.server)),
                  h("span", { class: "spacer" }),
                  h("span", { class: "muted" }, `${count(hit.tokens)} tokens`),
                ),
                h("p", { class: "foreign two-lines", dir: "auto" }, hit.description),
                h(
                  "div",
                  { class: "row wrap" },
                  h(
                    "span",
                    { class: "score", title: "Score" },
                    h(
                      "span",
                      { class: "bar-track", "aria-hidden": "true" },
                      h("span", { class: "bar-fill", css: { width: `${(100 * hit.score) / most}%` } }),
                    ),
                    hit.score.toFixed(2),
                  ),
                  h(
                    "span",
                    { class: "tags" },
                    hit.why.map((reason) => h("span", { class: "tag", key: reason, dir: "auto" }, reason)),
                  ),
                ),
              ),
            ),
          ),
        )
      : empty("No tool matches", "The model would get an empty answer. Shorter questions match more."),
    section(
      "Tokens",
      bar("Full list", tokens.all, tokens.all, `${count(tokens.all)} tokens`),
      bar("First message with discovery", tokens.first, tokens.all, `${count(tokens.first)} tokens`),
      bar("This answer", tokens.answer, tokens.all, `${count(tokens.answer)} tokens`),
      h(
        "p",
        { class: "muted" },
        `First message and answer are ${percent(tokens.all ? (tokens.first + tokens.answer) / tokens.all : null)} of the full list.`,
      ),
    ),
    section(
      "What the model gets",
      typeof answer.answer === "string" ? codeBlock(answer.answer, "Answer") : jsonView(answer.answer, "Answer"),
    ),
  ];
}
