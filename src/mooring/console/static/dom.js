// Elements from descriptions, updated in place. All text becomes text nodes: no function here parses HTML. Characters
// that change the order of others are made visible.

/**
 * @typedef {{ node: Node, update(props: any): void, dispose?(): void }} Hosted
 * @typedef {{ kind: "text", text: string, node?: Node, key?: undefined }} TextNode
 * @typedef {{ kind: "element", tag: string, key?: string, props: Props, children: VNode[], node?: Element }} ElementNode
 * @typedef {{ kind: "host", create: (props: any) => Hosted, key?: string, props: any, node?: Node, hosted?: Hosted }} HostNode
 * @typedef {TextNode | ElementNode | HostNode} VNode
 * @typedef {VNode | string | number | boolean | null | undefined | Child[]} Child
 * @typedef {{ [name: string]: any, key?: string, on?: Record<string, (event: any) => void>,
 *   css?: Record<string, string>, prop?: Record<string, any>, ref?: (node: any) => void }} Props
 */

import { ordered } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "circle", "rect", "line", "polyline", "g", "title_"]);
const URL_ATTRIBUTES = new Set(["href", "src"]);
const FORBIDDEN = new Set(["style", "srcdoc", "innerhtml", "outerhtml", "formaction", "action", "xlink:href"]);
const READ_ATTRIBUTES = new Set(["title", "aria-label", "placeholder"]);
const SPECIAL = new Set(["key", "on", "css", "prop", "ref"]);

/**
 * Describe an element.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {ElementNode}
 */
export function h(tag, props, ...children) {
  return { kind: "element", tag, key: props?.key, props: props ?? {}, children: flatten(children, []) };
}

/**
 * Describe a part of the page that manages its own elements.
 * @template P
 * @param {(props: P) => { node: Node, update(props: P): void, dispose?(): void }} create
 * @param {P} props
 * @param {string} [key]
 * @returns {HostNode}
 */
export function host(create, props, key) {
  return { kind: "host", create, key, props };
}

/** @param {Child[]} children @param {VNode[]} into @returns {VNode[]} */
function flatten(children, into) {
  for (const child of children) {
    if (child === null || child === undefined || typeof child === "boolean") continue;
    if (Array.isArray(child)) flatten(child, into);
    else if (typeof child === "object") into.push(child);
    else into.push({ kind: "text", text: ordered(String(child)) });
  }
  return into;
}

/** @type {WeakMap<Node, VNode[]>} */
const rendered = new WeakMap();

/**
 * Make the children of an element match the descriptions. Elements that stay keep focus and scroll position.
 * @param {Node} parent
 * @param {...Child} children
 */
export function render(parent, ...children) {
  const next = flatten(children, []);
  patch(parent, rendered.get(parent) ?? [], next);
  rendered.set(parent, next);
}

/** @param {VNode} node @param {number} index */
function identity(node, index) {
  if (node.key !== undefined) return `k:${node.key}`;
  return node.kind === "element" ? `${index}:${node.tag}` : `${index}:${node.kind}`;
}

/** @param {Node} parent @param {VNode[]} before @param {VNode[]} after */
function patch(parent, before, after) {
  /** @type {Map<string, VNode>} */
  const known = new Map();
  before.forEach((node, index) => known.set(identity(node, index), node));
  const matches = after.map((node, index) => {
    const id = identity(node, index);
    const match = known.get(id);
    if (!match || !alike(match, node)) return undefined;
    known.delete(id);
    return match;
  });
  for (const left of known.values()) discard(parent, left);
  let cursor = parent.firstChild;
  after.forEach((node, index) => {
    const match = matches[index];
    const element = match ? update(match, node) : create(node);
    if (element === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(element, cursor);
  });
}

/** @param {VNode} one @param {VNode} other */
function alike(one, other) {
  if (one.kind === "element" && other.kind === "element") return one.tag === other.tag;
  if (one.kind === "host" && other.kind === "host") return one.create === other.create;
  return one.kind === other.kind;
}

/** @param {Node} parent @param {VNode} node */
function discard(parent, node) {
  release(node);
  if (node.node && node.node.parentNode === parent) parent.removeChild(node.node);
}

/** @param {VNode} node */
function release(node) {
  if (node.kind === "host") node.hosted?.dispose?.();
  if (node.kind === "element") node.children.forEach(release);
}

/** @param {VNode} node @returns {Node} */
function create(node) {
  if (node.kind === "text") return (node.node = document.createTextNode(node.text));
  if (node.kind === "host") {
    node.hosted = node.create(node.props);
    return (node.node = node.hosted.node);
  }
  const element = SVG_TAGS.has(node.tag) ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  node.node = element;
  patch(element, [], node.children);
  assign(element, {}, node.props);
  node.props.ref?.(element);
  return element;
}

/** @param {VNode} before @param {VNode} after @returns {Node} */
function update(before, after) {
  after.node = before.node;
  if (before.kind === "text" && after.kind === "text") {
    if (before.text !== after.text) /** @type {Text} */ (before.node).data = after.text;
  } else if (before.kind === "host" && after.kind === "host") {
    after.hosted = before.hosted;
    after.hosted?.update(after.props);
  } else if (before.kind === "element" && after.kind === "element") {
    const element = /** @type {Element} */ (before.node);
    patch(element, before.children, after.children);
    assign(element, before.props, after.props);
  }
  return /** @type {Node} */ (after.node);
}

/** @param {Element} element @param {Props} before @param {Props} after */
function assign(element, before, after) {
  for (const name in before) if (!(name in after) && !SPECIAL.has(name)) element.removeAttribute(name);
  for (const name in after) {
    if (!SPECIAL.has(name) && after[name] !== before[name]) setAttribute(element, name, after[name]);
  }
  if (before.on || after.on) listen(element, after.on ?? {});
  if (after.css) {
    const style = /** @type {HTMLElement} */ (element).style;
    for (const name in after.css) style.setProperty(name, after.css[name] ?? "");
  }
  for (const name in after.prop ?? {}) {
    const target = /** @type {any} */ (element);
    if (target[name] !== after.prop?.[name]) target[name] = after.prop?.[name];
  }
}

/** @param {Element} element @param {string} name @param {any} value */
function setAttribute(element, name, value) {
  const lower = name.toLowerCase();
  if (lower.startsWith("on") || FORBIDDEN.has(lower)) throw new Error(`attribute ${name} is not allowed`);
  if (value === null || value === undefined || value === false) return element.removeAttribute(name);
  const text = value === true ? "" : String(value);
  if (URL_ATTRIBUTES.has(lower) && !safeAddress(text)) return element.removeAttribute(name);
  element.setAttribute(name, READ_ATTRIBUTES.has(lower) ? ordered(text) : text);
}

/**
 * Whether an address may be followed or loaded: our own pages, blobs that we made, and links to the web.
 * @param {string} text
 */
export function safeAddress(text) {
  if (/^(#|\.?\/(?!\/))/.test(text)) return true;
  try {
    return ["http:", "https:", "blob:"].includes(new URL(text).protocol);
  } catch {
    return false;
  }
}

/** @type {WeakMap<Element, Record<string, (event: any) => void>>} */
const handlers = new WeakMap();

/** @param {Element} element @param {Record<string, (event: any) => void>} wanted */
function listen(element, wanted) {
  const known = handlers.get(element);
  for (const type in wanted) {
    if (known && type in known) continue;
    element.addEventListener(type, (event) => handlers.get(element)?.[type]?.(event));
  }
  const all = known ? Object.fromEntries(Object.keys(known).map((type) => [type, ignore])) : {};
  handlers.set(element, { ...all, ...wanted });
}

function ignore() {}

/**
 * A function that runs `paint` once in the next frame, however often it is called.
 * @param {() => void} paint
 */
export function batched(paint) {
  let wanted = false;
  const run = () => {
    wanted = false;
    paint();
  };
  return () => {
    if (wanted) return;
    wanted = true;
    // A hidden page gets no frames; it must not collect work without bound either.
    if (document.hidden) setTimeout(run, 250);
    else requestAnimationFrame(run);
  };
}
