// Blocks of results. Images and audio are shown from blobs after a check of their first bytes; the rest is text.

import { h, host } from "./dom.js";
import { bytes } from "./format.js";
import { icon } from "./icons.js";
import { codeBlock, command, copyButton } from "./ui.js";

/** @typedef {import("./contract.js").Block} Block */

const LARGEST = 20 * 1024 * 1024;

/** Types that are shown, with the bytes that a file of this type has. @type {Record<string, (b: Uint8Array) => boolean>} */
const KNOWN = {
  "image/png": (b) => starts(b, [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
  "image/jpeg": (b) => starts(b, [0xff, 0xd8, 0xff]),
  "image/gif": (b) => starts(b, [0x47, 0x49, 0x46, 0x38]),
  "image/webp": (b) => word(b, 0) === "RIFF" && word(b, 8) === "WEBP",
  "audio/wav": (b) => word(b, 0) === "RIFF" && word(b, 8) === "WAVE",
  "audio/mpeg": (b) => word(b, 0).startsWith("ID3") || (b[0] === 0xff && ((b[1] ?? 0) & 0xe0) === 0xe0),
  "audio/ogg": (b) => word(b, 0) === "OggS",
  "audio/flac": (b) => word(b, 0) === "fLaC",
};
/** @type {Record<string, string>} */
const ALIASES = {
  "image/jpg": "image/jpeg",
  "audio/x-wav": "audio/wav",
  "audio/wave": "audio/wav",
  "audio/mp3": "audio/mpeg",
};

/** @param {Uint8Array} b @param {number[]} signature */
function starts(b, signature) {
  return signature.every((byte, index) => b[index] === byte);
}

/** @param {Uint8Array} b @param {number} at */
function word(b, at) {
  return String.fromCharCode(...b.subarray(at, at + 4));
}

/**
 * The bytes of a block as a blob of a type that may be shown, or the reason why not.
 * @param {string} data in base64 @param {string | undefined} type
 * @returns {Blob | string}
 */
export function checkedBlob(data, type) {
  const given = (type ?? "").toLowerCase().split(";")[0]?.trim() ?? "";
  const name = ALIASES[given] ?? given;
  if (data.length > (LARGEST * 4) / 3) return `too large to show (more than ${bytes(LARGEST)})`;
  const check = Object.hasOwn(KNOWN, name) ? KNOWN[name] : undefined;
  if (!check) return `the type ${given || "(none)"} is not shown`;
  let found;
  try {
    found = Uint8Array.from(atob(data.replace(/\s+/g, "")), (letter) => letter.charCodeAt(0));
  } catch {
    return "not base64";
  }
  return check(found) ? new Blob([found], { type: name }) : `the bytes are not ${name}`;
}

/** @param {{ blob: Blob, label: string }} props */
function createMedia(props) {
  const address = URL.createObjectURL(props.blob);
  const sound = props.blob.type.startsWith("audio/");
  const node = document.createElement(sound ? "audio" : "img");
  node.src = address;
  node.className = sound ? "media-audio" : "media-image";
  if (node instanceof HTMLAudioElement) {
    node.controls = true;
    node.setAttribute("aria-label", props.label);
  } else node.alt = props.label;
  return {
    node,
    update() {},
    dispose() {
      URL.revokeObjectURL(address);
    },
  };
}

/** @param {Block} block @param {string} label @param {string} key */
function media(block, label, key) {
  const blob = checkedBlob(block.data ?? "", block.mime_type);
  if (typeof blob === "string")
    return h("p", { class: "muted", key }, icon("warning"), ` ${label} is not shown: ${blob}.`);
  return h(
    "figure",
    { class: "media", key },
    host(createMedia, { blob, label }, `${blob.size}-${block.data?.slice(0, 64)}`),
    h("figcaption", { class: "muted" }, `${blob.type} · ${bytes(blob.size)}`),
  );
}

/** A small picture of a server or tool from a `data:` address; others are not loaded. @param {string | undefined} source @param {string} label */
export function iconImage(source, label) {
  const found = /^data:([a-z]+\/[a-z0-9.+-]+);base64,([a-z0-9+/=\s]+)$/i.exec(source ?? "");
  if (!found) return null;
  const blob = checkedBlob(found[2] ?? "", found[1]);
  return typeof blob === "string" || !blob.type.startsWith("image/")
    ? null
    : h("span", { class: "server-icon" }, host(createMedia, { blob, label }, found[2]?.slice(0, 64)));
}

/**
 * @param {Block[]} blocks
 * @param {(uri: string) => string} [address] where a resource is read
 */
export function blocksView(blocks, address) {
  if (!blocks.length) return h("p", { class: "muted" }, "No content.");
  return h(
    "div",
    { class: "blocks" },
    blocks.map((block, index) => blockView(block, index, address)),
  );
}

/** @param {Block} block @param {number} index @param {((uri: string) => string) | undefined} address */
function blockView(block, index, address) {
  const key = String(index);
  const name = block.title ?? block.name ?? block.uri ?? `${block.type} ${index + 1}`;
  if (block.type === "image" || block.type === "audio") return media(block, name, key);
  if (block.type === "resource_link") return linkView(block, name, key, address);
  if (block.data !== undefined && block.text === undefined) {
    return h("div", { class: "stack", key }, block.uri && command(block.uri, "URI"), media(block, name, "media"));
  }
  const text = block.text ?? "";
  return h(
    "div",
    { class: "stack", key },
    block.uri &&
      h(
        "span",
        { class: "row" },
        command(block.uri, "URI"),
        block.mime_type && h("span", { class: "muted" }, block.mime_type),
      ),
    codeBlock(text, `Text ${index + 1}`),
  );
}

/** @param {Block} block @param {string} name @param {string} key @param {((uri: string) => string) | undefined} address */
function linkView(block, name, key, address) {
  const uri = block.uri ?? "";
  return h(
    "div",
    { class: "link-card", key },
    icon("external"),
    h(
      "div",
      { class: "stack tight" },
      h("bdi", { class: "strong" }, name),
      h("code", { dir: "auto" }, uri),
      block.mime_type && h("span", { class: "muted" }, block.mime_type),
    ),
    copyButton(uri, "URI"),
    address && h("a", { class: "button small", href: address(uri) }, "Read"),
  );
}
