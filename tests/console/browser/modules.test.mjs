// The modules of the console that make no elements, in node: node --test
import assert from "node:assert/strict";
import test from "node:test";

const base = new URL("../../../src/mooring/console/static/", import.meta.url);
const { initial, kind, problems, replaced } = await import(new URL("schema.js", base));
const { Store } = await import(new URL("store.js", base));
const { ordered } = await import(new URL("format.js", base));
const { link, parse } = await import(new URL("router.js", base));

const snapshot = (rev, rows = []) => ({
  epoch: "e",
  rev,
  time: 0,
  values: { a: 1 },
  tables: { calls: rows },
  limits: { calls: 3 },
});
const row = (id, n = 0) => ({ id, n });

test("rows are replaced in place, appended, limited and removed", () => {
  const store = new Store();
  store.reset(snapshot(1, [row("a"), row("b")]));
  store.apply({
    rev: 2,
    ops: [
      ["put", "calls", row("a", 7)],
      ["put", "calls", row("c")],
      ["put", "calls", row("d")],
      ["set", "a", 2],
      ["del", "calls", "c"],
      ["del", "calls", "x"],
    ],
  });
  assert.deepEqual(store.rows("calls"), [row("b"), row("d")]);
  assert.equal(store.values.a, 2);
});

test("an event that comes again changes nothing, and a reset replaces everything", () => {
  const store = new Store();
  store.reset(snapshot(5, [row("a")]));
  const before = store.rows("calls");
  store.apply({ rev: 5, ops: [["put", "calls", row("z")]] });
  store.apply({ rev: 4, ops: [["set", "a", 9]] });
  assert.equal(store.rows("calls"), before);
  assert.equal(store.values.a, 1);
  store.reset({ ...snapshot(1), epoch: "f" });
  assert.deepEqual([store.place, store.rows("calls")], ["f-1", []]);
});

test("how changes are grouped into events does not matter", () => {
  // The same ops in events of any size give the same rows.
  const ops = Array.from({ length: 200 }, (_, n) =>
    n % 7 === 6 ? ["del", "calls", `r${(n * 5) % 11}`] : ["put", "calls", row(`r${(n * 3) % 11}`, n)],
  );
  const apply = (size) => {
    const store = new Store();
    store.reset(snapshot(0));
    for (let at = 0, rev = 1; at < ops.length; at += size, rev++) store.apply({ rev, ops: ops.slice(at, at + size) });
    return store.rows("calls");
  };
  for (const size of [2, 3, 50, 200]) assert.deepEqual(apply(size), apply(1));
});

test("addresses keep every letter", () => {
  for (const name of ["a/b", "ä?&#%", "..", "שלום", "100%", "a b"]) {
    assert.deepEqual(parse(link("tools", [name], { q: name })), { page: "tools", parts: [name], query: { q: name } });
  }
  assert.deepEqual(parse("#/tools/%E0%A4%A"), { page: "tools", parts: ["%E0%A4%A"], query: {} });
});

test("a form starts with defaults, constants and required objects", () => {
  const schema = {
    type: "object",
    required: ["a", "o"],
    properties: {
      a: { type: "string" },
      d: { type: "integer", default: 0 },
      n: { type: "array", items: {} },
      o: { type: "object", required: ["k"], properties: { k: { const: "x" } } },
    },
  };
  assert.deepEqual(initial(schema, schema), { d: 0, o: { k: "x" } });
  assert.deepEqual([...problems(schema, initial(schema, schema), schema)], [["/a", "Required"]]);
});

test("a schema that contains itself ends", () => {
  const schema = {
    type: "object",
    required: ["next"],
    properties: { next: { $ref: "#" }, value: { $ref: "#/$defs/loop" } },
    $defs: { loop: { $ref: "#/$defs/loop" } },
  };
  const value = initial(schema, schema);
  assert.ok(JSON.stringify(value).length < 1000);
  problems(schema, value, schema);
  assert.equal(kind({ $ref: "#/none" }), "json");
});

test("names of object prototypes are ordinary names", () => {
  const schema = JSON.parse(
    '{"type":"object","required":["__proto__","constructor"],"properties":{"__proto__":{"type":"string","default":"p"},"constructor":{"type":"string"}}}',
  );
  const value = initial(schema, schema);
  assert.equal(JSON.stringify(value), '{"__proto__":"p"}');
  assert.deepEqual([...problems(schema, value, schema).keys()], ["/constructor"]);
  assert.equal(JSON.stringify(replaced({}, ["__proto__", "x"], 1)), '{"__proto__":{"x":1}}');
  assert.equal({}.x, undefined);
});

test("values are checked against types, limits and choices", () => {
  const said = (schema, value) => [...problems(schema, value, schema).values()][0];
  assert.equal(said({ type: "integer", minimum: 1, maximum: 5 }, 3), undefined);
  assert.match(said({ type: "integer" }, 1.5), /whole/);
  assert.match(said({ type: "integer" }, 2 ** 60), /exactly/);
  assert.match(said({ type: "number", exclusiveMinimum: 0 }, 0), /More than 0/);
  assert.match(said({ enum: ["a", { b: 1 }] }, "c"), /allowed/);
  assert.equal(said({ enum: ["a", { b: 1 }] }, { b: 1 }), undefined);
  assert.equal(said({ type: ["string", "null"] }, null), undefined);
  assert.equal(said({ anyOf: [{ type: "integer" }, { type: "null" }] }, 4), undefined);
  assert.match(said({ type: "array", items: { type: "string" }, minItems: 2 }, ["a"]), /At least 2/);
  assert.match(said({ type: "string", maxLength: 2 }, "abc"), /At most 2/);
  // A pattern of a server is not run in the page.
  assert.equal(said({ type: "string", pattern: "^(a+)+$" }, `${"a".repeat(40)}!`), undefined);
});

test("values that are no schema make no form and no error", () => {
  for (const odd of [
    null,
    7,
    "x",
    [],
    { properties: 3 },
    { type: 3 },
    { anyOf: [] },
    { anyOf: [null] },
    { enum: [] },
    { items: 3, type: "array" },
    { properties: { a: null, b: true } },
  ]) {
    const root = odd && typeof odd === "object" ? odd : {};
    kind(root);
    problems(odd, initial(odd, root), root);
  }
});

test("characters that change the order of a text are visible, and marks of a language stay", () => {
  assert.equal(ordered("invoice\u202efdp.exe"), "invoice‹U+202E›fdp.exe");
  assert.equal(ordered("\u2066a\u2069"), "‹U+2066›a‹U+2069›");
  assert.equal(ordered("مرحبا\u200f!"), "مرحبا\u200f!");
});
