// A form made from a JSON Schema, with a view of the same value as JSON text.

import { h } from "./dom.js";
import { pretty } from "./json.js";
import { initial, kind, options, problems, properties, replaced, requiredOf, resolve, same } from "./schema.js";

/** @typedef {import("./schema.js").Schema} Schema */
/** @typedef {(string | number)[]} Path */

/** The value of one form, and what its fields hold while they are edited. */
export class FormState {
  /** @param {any} schema @param {() => void} changed @param {any} [value] @param {string} [name] */
  constructor(schema, changed, value, name = "f") {
    this.schema = /** @type {Schema} */ (schema && typeof schema === "object" ? schema : {});
    this.changed = changed;
    this.value = value === undefined ? initial(this.schema, this.schema) : value;
    /** @type {Map<string, { text: string, valid: boolean }>} What a field holds while it is edited, by path. */
    this.drafts = new Map();
    this.mode = /** @type {"form" | "json"} */ ("form");
    this.text = "";
    this.broken = "";
    this.tried = false;
    this.name = name;
  }

  /** @param {Path} path @param {any} value */
  set(path, value) {
    this.value = replaced(this.value, path, value);
    this.changed();
  }

  /** @param {"form" | "json"} mode */
  show(mode) {
    if (mode === "json") this.text = pretty(this.value);
    else if (this.broken) return;
    this.mode = mode;
    this.changed();
  }

  /** @param {string} text */
  edit(text) {
    this.text = text;
    try {
      this.value = JSON.parse(text);
      this.broken = "";
      this.drafts.clear();
    } catch (error) {
      this.broken = `Not JSON: ${error instanceof Error ? error.message : String(error)}`;
    }
    this.changed();
  }

  /** @returns {Map<string, string>} */
  problems() {
    const found = problems(this.schema, this.value, this.schema);
    for (const [path, draft] of this.drafts) if (!draft.valid) found.set(path, "Not a value of this type");
    if (this.broken) found.set("", this.broken);
    return found;
  }

  /** Whether the value may be sent. Problems are shown from then on. */
  ready() {
    this.tried = true;
    this.changed();
    return this.problems().size === 0;
  }
}

/** @param {FormState} form @returns {import("./dom.js").Child} */
export function formView(form) {
  const found = form.tried ? form.problems() : new Map();
  const names = properties(resolve(form.schema, form.schema));
  return h(
    "div",
    { class: "form" },
    h(
      "div",
      { class: "segments", role: "group", "aria-label": "Edit as" },
      segment("Form", form.mode === "form", () => form.show("form")),
      segment("JSON", form.mode === "json", () => form.show("json")),
    ),
    form.mode === "json"
      ? h(
          "label",
          { class: "field" },
          h("span", { class: "visually-hidden" }, "Arguments as JSON"),
          h("textarea", {
            class: "code",
            rows: "10",
            spellcheck: "false",
            "aria-invalid": form.broken ? "true" : null,
            prop: { value: form.text },
            on: { input: (/** @type {any} */ event) => form.edit(event.target.value) },
          }),
          form.broken && h("span", { class: "problem" }, form.broken),
        )
      : names.length
        ? objectFields(form, resolve(form.schema, form.schema), form.value, [], found)
        : h("p", { class: "muted" }, "No arguments."),
    form.tried &&
      found.size > 0 &&
      h(
        "p",
        { class: "problem", role: "alert" },
        form.mode === "json"
          ? [...found].map(([path, message]) => `${path || "value"}: ${message}`).join(" · ")
          : `${found.size === 1 ? "One field needs" : `${found.size} fields need`} attention.`,
      ),
  );
}

/** @param {string} title @param {boolean} on @param {() => void} act */
export function segment(title, on, act) {
  return h("button", { type: "button", class: "segment", "aria-pressed": String(on), on: { click: act } }, title);
}

/** @param {FormState} form @param {Schema} schema @param {any} value @param {Path} path @param {Map<string, string>} found */
function objectFields(form, schema, value, path, found) {
  const required = requiredOf(schema);
  return h(
    "div",
    { class: "fields" },
    properties(schema).map(([name, part]) => {
      const inner = value && typeof value === "object" && Object.hasOwn(value, name) ? value[name] : undefined;
      return field(form, part, inner, [...path, name], name, required.has(name), found);
    }),
  );
}

/**
 * @param {FormState} form @param {any} given @param {any} value @param {Path} path @param {string} name
 * @param {boolean} needed @param {Map<string, string>} found
 * @returns {import("./dom.js").VNode}
 */
function field(form, given, value, path, name, needed, found) {
  const schema = resolve(given, form.schema);
  const where = `/${path.join("/")}`;
  const id = `${form.name}${where}`;
  const problem = found.get(where);
  const shape = kind(schema);
  const title = typeof schema["title"] === "string" && schema["title"] !== name ? schema["title"] : "";
  const about = typeof schema["description"] === "string" ? schema["description"] : "";
  const notes = [problem && `${id}-problem`, about && `${id}-about`].filter(Boolean).join(" ") || null;
  const label = [
    h("span", { class: "field-name", dir: "auto" }, name),
    title && h("span", { class: "field-title", dir: "auto" }, title),
    h("span", { class: "field-type" }, typeName(schema)),
    needed ? h("span", { class: "required" }, "required") : null,
  ];
  const rest = [
    about && h("span", { class: "help", id: `${id}-about`, dir: "auto" }, about),
    problem && h("span", { class: "problem", id: `${id}-problem` }, problem),
  ];
  if (shape === "object" || shape === "list" || shape === "choices") {
    return h(
      "fieldset",
      { class: "field nested", key: where, "aria-describedby": notes },
      h("legend", null, label),
      rest,
      h("div", { class: "nest" }, nested(form, schema, shape, value, path, needed, found)),
    );
  }
  const attributes = {
    id,
    "aria-describedby": notes,
    "aria-invalid": problem ? "true" : null,
    "aria-required": needed ? "true" : null,
  };
  return h(
    "div",
    { class: "field", key: where },
    h("label", { for: id, class: "field-label" }, label),
    input(form, schema, shape, value, path, attributes),
    rest,
  );
}

/** @param {Schema} schema */
function typeName(schema) {
  const type = Array.isArray(schema["type"]) ? schema["type"].join(" | ") : schema["type"];
  return String(schema["format"] ?? (schema["enum"] ? "choice" : (type ?? "any"))).slice(0, 40);
}

/**
 * @param {FormState} form @param {Schema} schema @param {"object" | "list" | "choices"} shape @param {any} value
 * @param {Path} path @param {boolean} needed @param {Map<string, string>} found
 */
function nested(form, schema, shape, value, path, needed, found) {
  if (value === undefined && !needed) {
    return add("Add", () => form.set(path, initial(schema, form.schema) ?? (shape === "object" ? {} : [])));
  }
  const remove = needed
    ? null
    : h("button", { type: "button", class: "link", on: { click: () => form.set(path, undefined) } }, "Remove");
  if (shape === "object") return [objectFields(form, schema, value, path, found), remove];
  if (shape === "choices") return [checks(form, schema, value, path), remove];
  const items = Array.isArray(value) ? value : [];
  return [
    items.map((item, index) =>
      h(
        "div",
        { class: "list-item", key: String(index) },
        field(form, schema["items"], item, [...path, index], String(index + 1), true, found),
        h(
          "button",
          {
            type: "button",
            class: "icon-button",
            "aria-label": `Remove item ${index + 1}`,
            on: { click: () => form.set([...path, index], undefined) },
          },
          "×",
        ),
      ),
    ),
    h(
      "div",
      { class: "row" },
      add("Add item", () => form.set(path, [...items, firstItem(form, schema["items"])])),
      remove,
    ),
  ];
}

/** @param {FormState} form @param {any} items */
function firstItem(form, items) {
  const made = initial(items, form.schema, true, 1);
  if (made !== undefined) return made;
  const shape = kind(resolve(items, form.schema));
  return shape === "text" ? "" : shape === "number" ? 0 : shape === "boolean" ? false : null;
}

/** @param {string} title @param {() => void} act */
function add(title, act) {
  return h("button", { type: "button", class: "button small", on: { click: act } }, title);
}

/** @param {FormState} form @param {Schema} schema @param {any} value @param {Path} path */
function checks(form, schema, value, path) {
  const chosen = Array.isArray(value) ? value : [];
  return h(
    "div",
    { class: "checks" },
    (options(schema["items"]) ?? []).slice(0, 200).map((option, index) => {
      const on = chosen.some((item) => same(item, option.value));
      return h(
        "label",
        { class: "check", key: String(index) },
        h("input", {
          type: "checkbox",
          prop: { checked: on },
          on: {
            change: () =>
              form.set(path, on ? chosen.filter((item) => !same(item, option.value)) : [...chosen, option.value]),
          },
        }),
        h("span", { dir: "auto" }, option.title),
      );
    }),
  );
}

/**
 * @param {FormState} form @param {Schema} schema @param {string} shape @param {any} value @param {Path} path
 * @param {Record<string, any>} attributes
 * @returns {import("./dom.js").VNode}
 */
function input(form, schema, shape, value, path, attributes) {
  const where = `/${path.join("/")}`;
  const draft = form.drafts.get(where)?.text;
  if (shape === "choice" || shape === "boolean") {
    const choices =
      shape === "boolean"
        ? [
            { value: true, title: "true" },
            { value: false, title: "false" },
          ]
        : (options(schema) ?? []);
    const at = choices.findIndex((choice) => same(choice.value, value));
    return h(
      "select",
      {
        ...attributes,
        prop: { value: String(at) },
        on: { change: (/** @type {any} */ event) => form.set(path, choices[Number(event.target.value)]?.value) },
      },
      h("option", { value: "-1", prop: { selected: at < 0 } }, "not set"),
      choices.map((choice, index) =>
        h("option", { value: String(index), key: String(index), prop: { selected: index === at } }, choice.title),
      ),
    );
  }
  if (shape === "number") {
    return h("input", {
      ...attributes,
      type: "text",
      inputmode: "decimal",
      autocomplete: "off",
      prop: { value: draft ?? (value === undefined ? "" : String(value)) },
      on: { input: (/** @type {any} */ event) => takeDraft(form, path, where, event.target.value, parseNumber) },
    });
  }
  if (shape === "json") {
    return h("textarea", {
      ...attributes,
      class: "code",
      rows: "4",
      spellcheck: "false",
      placeholder: "JSON",
      prop: { value: draft ?? (value === undefined ? "" : pretty(value)) },
      on: { input: (/** @type {any} */ event) => takeDraft(form, path, where, event.target.value, parseJson) },
    });
  }
  const long = typeof value === "string" && (value.length > 80 || value.includes("\n"));
  const types = /** @type {Record<string, string>} */ ({
    email: "email",
    uri: "url",
    date: "date",
    password: "password",
  });
  const settings = {
    ...attributes,
    dir: "auto",
    autocomplete: "off",
    placeholder: exampleOf(schema),
    prop: { value: value === undefined ? "" : String(value) },
    on: {
      input: (/** @type {any} */ event) => form.set(path, event.target.value === "" ? undefined : event.target.value),
    },
  };
  if (long || schema["contentMediaType"] || (schema["maxLength"] ?? 0) > 500)
    return h("textarea", { ...settings, rows: "4" });
  return h("input", { ...settings, type: types[String(schema["format"])] ?? "text" });
}

/** @param {Schema} schema */
function exampleOf(schema) {
  const examples = Array.isArray(schema["examples"]) ? schema["examples"] : [];
  return typeof examples[0] === "string" ? `e.g. ${examples[0].slice(0, 60)}` : null;
}

/** @param {FormState} form @param {Path} path @param {string} where @param {string} text @param {(text: string) => any} parse */
function takeDraft(form, path, where, text, parse) {
  const empty = text.trim() === "";
  const value = empty ? undefined : parse(text);
  form.drafts.set(where, { text, valid: empty || value !== undefined });
  if (empty || value !== undefined) form.set(path, value);
  else form.changed();
}

/** @param {string} text */
function parseNumber(text) {
  const value = Number(text);
  return /\d$/.test(text.trim()) && Number.isFinite(value) ? value : undefined;
}

/** @param {string} text */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
