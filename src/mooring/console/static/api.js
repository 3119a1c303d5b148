// Requests to the console, and the stream of changes.

/** @typedef {"connecting" | "live" | "lost" | "ended"} Link */

export class ApiError extends Error {
  /** @param {string} message @param {number} status @param {string} kind @param {string | null} next */
  constructor(message, status, kind, next) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.next = next;
  }
}

export class Api {
  constructor() {
    /** @type {import("./contract.js").Session | undefined} */
    this.session = undefined;
    /** @type {() => void} */
    this.onEnded = () => {};
  }

  async open() {
    this.session = await this.get("session");
  }

  /** @param {string} path @returns {Promise<any>} */
  async get(path) {
    return this.read(await request(`api/${path}`, { headers: { Accept: "application/json" } }));
  }

  /** @param {string} verb @param {Record<string, unknown>} [body] @returns {Promise<any>} */
  async post(verb, body = {}) {
    /** @type {Record<string, string>} */
    const headers = { "Content-Type": "application/json", Accept: "application/json" };
    if (this.session?.csrf) headers["X-Mooring-CSRF"] = this.session.csrf;
    return this.read(await request(`api/${verb}`, { method: "POST", headers, body: JSON.stringify(body) }));
  }

  /** @param {Response} response @returns {Promise<any>} */
  async read(response) {
    const text = await response.text();
    /** @type {any} */
    let answer;
    try {
      answer = text ? JSON.parse(text) : {};
    } catch {
      throw new ApiError(
        `The console answered with ${response.status} and no JSON.`,
        response.status,
        "BadAnswer",
        null,
      );
    }
    if (response.ok) return answer;
    if (response.status === 401) this.onEnded();
    const error = answer.error ?? {};
    throw new ApiError(
      String(error.message ?? `The console answered with ${response.status}.`),
      response.status,
      String(error.kind ?? "Error"),
      error.next ?? null,
    );
  }
}

/** @param {string} path @param {RequestInit} init */
async function request(path, init) {
  try {
    return await fetch(path, { credentials: "same-origin", cache: "no-store", ...init });
  } catch {
    throw new ApiError("The console does not answer. Is mooring still running?", 0, "Unreachable", "mooring console");
  }
}

/**
 * Keep the store up to date. The browser reconnects by itself with the last revision that it saw; after an answer that
 * ends the stream, it is opened again from the revision of the store.
 */
export class Stream {
  /** @param {import("./store.js").Store} store @param {() => void} changed @param {(link: Link) => void} linked @param {Api} api */
  constructor(store, changed, linked, api) {
    this.store = store;
    this.changed = changed;
    this.linked = linked;
    this.api = api;
    this.delay = 500;
    /** @type {EventSource | undefined} */
    this.source = undefined;
    this.stopped = false;
  }

  start() {
    if (this.stopped) return;
    const source = new EventSource(`api/events?since=${encodeURIComponent(this.store.place)}`);
    this.source = source;
    source.onopen = () => {
      this.delay = 500;
      this.linked("live");
    };
    source.addEventListener("patch", (event) => {
      this.store.apply(JSON.parse(event.data));
      this.changed();
    });
    source.addEventListener("reset", (event) => {
      const before = this.store.epoch;
      this.store.reset(JSON.parse(event.data));
      // Another process: its session has another value for the CSRF header.
      if (this.store.epoch !== before) this.api.open().catch(() => undefined);
      this.changed();
    });
    source.onerror = () => {
      this.linked("lost");
      if (source.readyState === EventSource.CLOSED) this.again();
    };
  }

  stop() {
    this.stopped = true;
    this.source?.close();
  }

  again() {
    this.source?.close();
    setTimeout(async () => {
      try {
        // A request tells an ended login (401) from a console that is gone.
        await this.api.get("session");
      } catch {
        // The stream reports its own errors.
      }
      this.start();
    }, this.delay);
    this.delay = Math.min(this.delay * 2, 8000);
  }
}
