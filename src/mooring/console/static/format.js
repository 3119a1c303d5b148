// Numbers, times and sizes as text.

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

/** @param {number} value @param {string} one @param {string} [many] */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** @param {number | null | undefined} ms */
export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** @param {number | null | undefined} size */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  if (size < 1024) return `${size} B`;
  if (size < 1024 * 1024) return `${(size / 1024).toFixed(1)} KB`;
  return `${(size / 1024 / 1024).toFixed(1)} MB`;
}

/** @param {number | null | undefined} share */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share === 0) return "0 %";
  return share < 0.001 ? "<0.1 %" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});

/** @param {number | null | undefined} seconds since 1970 */
export function clock(seconds) {
  return seconds === null || seconds === undefined ? "–" : TIME.format(seconds * 1000);
}

/** @param {number | null | undefined} seconds since 1970 */
export function date(seconds) {
  return seconds === null || seconds === undefined ? "–" : DAY.format(seconds * 1000);
}

/** @param {number | null | undefined} seconds since 1970 @param {number} [now] */
export function ago(seconds, now = Date.now() / 1000) {
  if (seconds === null || seconds === undefined) return "–";
  const past = Math.max(0, now - seconds);
  if (past < 5) return "just now";
  return `${span(past)} ago`;
}

/** @param {number} seconds */
export function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/**
 * Text of a server with characters that change the order of the others made visible: `\u202eexe.txt` must not look like
 * another name. @param {string} text
 */
export function ordered(text) {
  return text.replace(
    /[\u202a-\u202e\u2066-\u2069]/g,
    (found) => `‹U+${found.charCodeAt(0).toString(16).toUpperCase()}›`,
  );
}
