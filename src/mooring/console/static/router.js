// Addresses of pages: `#/page/part/part?name=value`.

/** @typedef {{ page: string, parts: string[], query: Record<string, string> }} Route */

/** @param {string} hash @returns {Route} */
export function parse(hash) {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...parts] = path.split("/").map(decode);
  /** @type {Record<string, string>} */
  const query = {};
  for (const [name, value] of new URLSearchParams(search)) query[name] = value;
  return { page, parts: parts.filter(Boolean), query };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * @param {string} page
 * @param {(string | undefined)[]} [parts]
 * @param {Record<string, string | undefined>} [query]
 */
export function link(page, parts = [], query = {}) {
  const path = [page, ...parts]
    .filter((part) => part !== undefined && part !== "")
    .map((part) => encodeURIComponent(/** @type {string} */ (part)));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return `#/${path.join("/")}${text ? `?${text}` : ""}`;
}

/** @returns {Route} */
export function current() {
  return parse(location.hash);
}

/**
 * Go to a page; with `replace`, without an entry in the history (for filters).
 * @param {string} address
 * @param {boolean} [replace]
 */
export function go(address, replace = false) {
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = address;
}
