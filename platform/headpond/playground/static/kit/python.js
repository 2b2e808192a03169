// Values and calls as Python would have them written.

const WIDTH = 88;

/** A piece of Python that is no literal, e.g. `open("a.png", "rb").read()`. */
export class Raw {
  constructor(code) {
    this.code = code;
  }
}

/** Return a value as Python's literal; what does not fit a line is broken. */
export function literal(value, indent = "") {
  const flat = flatten(value);
  if (flat.length + indent.length <= WIDTH - 16 || typeof value !== "object") return flat;
  if (value === null || value instanceof Raw) return flat;
  const deeper = `${indent}    `;
  if (Array.isArray(value)) {
    const items = value.map((each) => `${deeper}${literal(each, deeper)},\n`);
    return `[\n${items.join("")}${indent}]`;
  }
  const items = Object.entries(value).map(
    ([name, each]) => `${deeper}${JSON.stringify(name)}: ${literal(each, deeper)},\n`,
  );
  return `{\n${items.join("")}${indent}}`;
}

/** Return a call with keyword arguments; those that are undefined are left out. */
export function call(callee, keywords, indent = "") {
  const given = Object.entries(keywords).filter(([, value]) => value !== undefined);
  const flat = given.map(([name, value]) => `${name}=${flatten(value)}`).join(", ");
  if (callee.length + flat.length + indent.length + 2 <= WIDTH) return `${callee}(${flat})`;
  const deeper = `${indent}    `;
  const lines = given.map(([name, value]) => `${deeper}${name}=${literal(value, deeper)},\n`);
  return `${callee}(\n${lines.join("")}${indent})`;
}

function flatten(value) {
  if (value === undefined || value === null) return "None";
  if (value instanceof Raw) return value.code;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(flatten).join(", ")}]`;
  const pairs = Object.entries(value).filter(([, each]) => each !== undefined);
  return `{${pairs.map(([name, each]) => `${JSON.stringify(name)}: ${flatten(each)}`).join(", ")}}`;
}
