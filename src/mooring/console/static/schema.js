// What a JSON Schema says about a form: kinds of fields, first values, problems. No element is made here.

/** @typedef {Record<string, any>} Schema */

const DEEPEST = 12;

/**
 * Follow local references, and take the branch of a union that is not null.
 * @param {any} schema @param {Schema} root @param {number} [depth]
 * @returns {Schema}
 */
export function resolve(schema, root, depth = 0) {
  if (schema === null || typeof schema !== "object" || Array.isArray(schema)) return {};
  if (typeof schema["$ref"] === "string" && depth < DEEPEST) {
    const target = pointer(root, schema["$ref"]);
    const { $ref: _, ...rest } = schema;
    return target === undefined ? rest : { ...resolve(target, root, depth + 1), ...rest };
  }
  const branches = schema["anyOf"] ?? schema["oneOf"];
  if (Array.isArray(branches) && depth < DEEPEST) {
    const real = branches.filter((branch) => branch && branch.type !== "null");
    if (real.length === 1) {
      const { anyOf: _a, oneOf: _o, ...rest } = schema;
      return { ...resolve(real[0], root, depth + 1), ...rest };
    }
  }
  return schema;
}

/** @param {Schema} root @param {string} reference */
function pointer(root, reference) {
  if (!reference.startsWith("#")) return undefined;
  /** @type {any} */
  let at = root;
  for (const part of reference.slice(1).split("/").filter(Boolean)) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (at === null || typeof at !== "object" || !Object.hasOwn(at, name)) return undefined;
    at = at[name];
  }
  return at;
}

/**
 * The kind of field for a resolved schema.
 * @param {Schema} schema
 * @returns {"object" | "list" | "choice" | "choices" | "boolean" | "number" | "text" | "json"}
 */
export function kind(schema) {
  if (options(schema)) return "choice";
  const type = Array.isArray(schema["type"]) ? single(schema["type"]) : schema["type"];
  if (schema["anyOf"] || schema["allOf"] || schema["oneOf"]) return "json";
  if (type === "object" || (!type && schema["properties"])) return schema["properties"] ? "object" : "json";
  if (type === "array") {
    const items = schema["items"];
    if (!items || Array.isArray(items) || typeof items !== "object") return "json";
    return options(items) ? "choices" : "list";
  }
  if (type === "boolean") return "boolean";
  if (type === "integer" || type === "number") return "number";
  return type === "string" ? "text" : "json";
}

/** @param {any[]} types */
function single(types) {
  const real = types.filter((type) => type !== "null");
  return real.length === 1 ? real[0] : undefined;
}

/**
 * The values to choose from, with titles.
 * @param {Schema} schema
 * @returns {{ value: any, title: string }[] | undefined}
 */
export function options(schema) {
  if ("const" in schema) return [{ value: schema["const"], title: text(schema["const"]) }];
  if (Array.isArray(schema["enum"])) {
    const names = Array.isArray(schema["enumNames"]) ? schema["enumNames"] : [];
    return schema["enum"].map((value, index) => ({ value, title: String(names[index] ?? text(value)) }));
  }
  const branches = schema["oneOf"] ?? schema["anyOf"];
  if (
    Array.isArray(branches) &&
    branches.length &&
    branches.every((branch) => branch && typeof branch === "object" && "const" in branch)
  ) {
    return branches.map((branch) => ({ value: branch.const, title: String(branch.title ?? text(branch.const)) }));
  }
  return undefined;
}

/** @param {any} value */
function text(value) {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

/** @param {Schema} schema @returns {[string, any][]} */
export function properties(schema) {
  const found = schema["properties"];
  if (!found || typeof found !== "object") return [];
  const required = requiredOf(schema);
  return Object.entries(found).sort(([one], [other]) => Number(required.has(other)) - Number(required.has(one)));
}

/** @param {Schema} schema @returns {Set<string>} */
export function requiredOf(schema) {
  return new Set(Array.isArray(schema["required"]) ? schema["required"].map(String) : []);
}

/**
 * The value that a form starts with: defaults, constants, and objects that are required.
 * @param {any} given @param {Schema} root @param {boolean} [needed] @param {number} [depth]
 * @returns {any}
 */
export function initial(given, root, needed = true, depth = 0) {
  const schema = resolve(given, root);
  if ("default" in schema) return structuredClone(schema["default"]);
  if (!needed || depth > DEEPEST) return undefined;
  if ("const" in schema) return schema["const"];
  switch (kind(schema)) {
    case "object": {
      /** @type {Record<string, any>} */
      const made = {};
      const required = requiredOf(schema);
      for (const [name, part] of properties(schema)) {
        const value = initial(part, root, required.has(name), depth + 1);
        if (value !== undefined) define(made, name, value);
      }
      return made;
    }
    case "list":
    case "choices":
      return [];
    default:
      return depth === 0 ? {} : undefined;
  }
}

/**
 * Set a key, also when it is called `__proto__`.
 * @param {Record<string, any>} target @param {string} name @param {any} value
 */
export function define(target, name, value) {
  Object.defineProperty(target, name, { value, enumerable: true, configurable: true, writable: true });
}

/**
 * A copy of `value` with another value at `path`; `undefined` removes the key.
 * @param {any} value @param {(string | number)[]} path @param {any} wanted
 * @returns {any}
 */
export function replaced(value, path, wanted) {
  if (!path.length) return wanted;
  const [first, ...rest] = path;
  if (Array.isArray(value)) {
    const copy = [...value];
    if (wanted === undefined && !rest.length) copy.splice(Number(first), 1);
    else copy[Number(first)] = replaced(copy[Number(first)], rest, wanted);
    return copy;
  }
  /** @type {Record<string, any>} */
  const copy = {};
  const source = value && typeof value === "object" ? value : {};
  for (const name of Object.keys(source)) define(copy, name, source[name]);
  const inner = replaced(Object.hasOwn(copy, String(first)) ? copy[String(first)] : undefined, rest, wanted);
  if (inner === undefined) delete copy[String(first)];
  else define(copy, String(first), inner);
  return copy;
}

/**
 * Problems by path. Patterns are left to the host: a regular expression of a server could block the page.
 * @param {any} given @param {any} value @param {Schema} root @param {string} [path] @param {boolean} [needed]
 * @returns {Map<string, string>}
 */
export function problems(given, value, root, path = "", needed = true) {
  const schema = resolve(given, root);
  /** @type {Map<string, string>} */
  const found = new Map();
  const say = (/** @type {string} */ message) => found.set(path, message);
  if (value === undefined) {
    if (needed) say("Required");
    return found;
  }
  const choices = options(schema);
  if (choices) {
    if (!choices.some((choice) => same(choice.value, value)) && !(value === null && nullable(given)))
      say("Not one of the allowed values");
    return found;
  }
  if (value === null && nullable(given)) return found;
  switch (kind(schema)) {
    case "object":
      if (value === null || typeof value !== "object" || Array.isArray(value)) say("Must be an object");
      else {
        const required = requiredOf(schema);
        for (const [name, part] of properties(schema)) {
          const inner = Object.hasOwn(value, name) ? value[name] : undefined;
          for (const [where, message] of problems(part, inner, root, `${path}/${name}`, required.has(name)))
            found.set(where, message);
        }
      }
      break;
    case "choices":
    case "list":
      if (!Array.isArray(value)) say("Must be a list");
      else {
        if (value.length < (schema["minItems"] ?? 0)) say(`At least ${schema["minItems"]} items`);
        if (value.length > (schema["maxItems"] ?? Infinity)) say(`At most ${schema["maxItems"]} items`);
        value.forEach((item, index) => {
          for (const [where, message] of problems(schema["items"], item, root, `${path}/${index}`))
            found.set(where, message);
        });
      }
      break;
    case "number":
      number(schema, value, say);
      break;
    case "boolean":
      if (typeof value !== "boolean") say("Must be true or false");
      break;
    case "text":
      if (typeof value !== "string") say("Must be text");
      else if (value.length < (schema["minLength"] ?? 0)) say(`At least ${schema["minLength"]} characters`);
      else if (value.length > (schema["maxLength"] ?? Infinity)) say(`At most ${schema["maxLength"]} characters`);
      break;
    default:
  }
  return found;
}

/** @param {Schema} schema @param {any} value @param {(message: string) => void} say */
function number(schema, value, say) {
  const type = Array.isArray(schema["type"]) ? single(schema["type"]) : schema["type"];
  if (typeof value !== "number" || !Number.isFinite(value)) say("Must be a number");
  else if (type === "integer" && !Number.isInteger(value)) say("Must be a whole number");
  else if (Number.isInteger(value) && !Number.isSafeInteger(value)) say("Too large to be sent exactly from a browser");
  else if (value < (schema["minimum"] ?? -Infinity)) say(`At least ${schema["minimum"]}`);
  else if (value > (schema["maximum"] ?? Infinity)) say(`At most ${schema["maximum"]}`);
  else if (value <= (schema["exclusiveMinimum"] ?? -Infinity)) say(`More than ${schema["exclusiveMinimum"]}`);
  else if (value >= (schema["exclusiveMaximum"] ?? Infinity)) say(`Less than ${schema["exclusiveMaximum"]}`);
}

/** @param {any} schema */
function nullable(schema) {
  const branches = schema?.anyOf ?? schema?.oneOf;
  if (Array.isArray(branches)) return branches.some((branch) => branch?.type === "null");
  return (
    schema?.type === "null" ||
    (Array.isArray(schema?.type) && schema.type.includes("null")) ||
    schema?.nullable === true
  );
}

/** @param {any} one @param {any} other */
export function same(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}
