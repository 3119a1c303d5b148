// The state of the console: a snapshot, and the changes after it. Pages read from here and compute no totals themselves.

/**
 * @typedef {import("./contract.js").Snapshot} Snapshot
 * @typedef {import("./contract.js").Tables} Tables
 * @typedef {import("./contract.js").Values} Values
 */

export class Store {
  constructor() {
    this.epoch = "";
    this.rev = -1;
    this.loaded = false;
    /** @type {Partial<Values>} */
    this.values = {};
    /** @type {Map<string, Map<string, any>>} */
    this.tables = new Map();
    /** @type {Record<string, number>} */
    this.limits = {};
    /** @type {Map<string, any[]>} */
    this.lists = new Map();
    /** Seconds that the clock of the host is ahead of the browser's. */
    this.ahead = 0;
  }

  get place() {
    return `${this.epoch}-${this.rev}`;
  }

  now() {
    return Date.now() / 1000 + this.ahead;
  }

  /** Whether the page may only turn servers and tools on and off and set policies: at a gateway with tokens. */
  get limited() {
    return this.values.gateway != null && !this.values.gateway.open;
  }

  /** @param {Snapshot} snapshot */
  reset(snapshot) {
    this.epoch = snapshot.epoch;
    this.rev = snapshot.rev;
    this.values = snapshot.values;
    this.limits = snapshot.limits;
    this.ahead = snapshot.time - Date.now() / 1000;
    this.tables = new Map(
      Object.entries(snapshot.tables).map(([name, rows]) => [
        name,
        new Map(rows.map((/** @type {any} */ row) => [row.id, row])),
      ]),
    );
    this.lists.clear();
    this.loaded = true;
  }

  /**
   * Apply the changes of one event. Changes that are already part of the state are ignored.
   * @param {{ rev: number, ops: import("./contract.js").Op[] }} patch
   */
  apply(patch) {
    if (patch.rev <= this.rev) return;
    for (const [op, name, given] of patch.ops) {
      if (op === "set") {
        this.values = { ...this.values, [name]: given };
        continue;
      }
      let rows = this.tables.get(name);
      if (!rows) this.tables.set(name, (rows = new Map()));
      this.lists.delete(name);
      if (op === "del") rows.delete(given);
      else {
        rows.set(given.id, given);
        const limit = this.limits[name] ?? Infinity;
        while (rows.size > limit) rows.delete(/** @type {string} */ (rows.keys().next().value));
      }
    }
    this.rev = patch.rev;
  }

  /**
   * The rows of a table in order. The same array until the table changes.
   * @template {keyof Tables} T
   * @param {T} name
   * @returns {readonly Tables[T][]}
   */
  rows(name) {
    let list = this.lists.get(name);
    if (!list) this.lists.set(name, (list = [...(this.tables.get(name)?.values() ?? [])]));
    return list;
  }

  /**
   * @template {keyof Tables} T
   * @param {T} name
   * @param {string | undefined | null} id
   * @returns {Tables[T] | undefined}
   */
  row(name, id) {
    return id ? this.tables.get(name)?.get(id) : undefined;
  }
}

/**
 * A function that computes again only when an argument is another one.
 * @template {any[]} A
 * @template R
 * @param {(...args: A) => R} compute
 * @returns {(...args: A) => R}
 */
export function memo(compute) {
  /** @type {A | undefined} */
  let last;
  /** @type {R} */
  let value;
  return (...args) => {
    if (!last || args.length !== last.length || args.some((arg, index) => arg !== last?.[index])) {
      value = compute(...args);
      last = args;
    }
    return value;
  };
}
