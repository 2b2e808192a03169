// Controls with their labels.

import { fresh, make } from "./make.js";

/** Return a label with its control, and a hint that screen readers read with it. */
export function field(label, control, hint = "") {
  const id = hint && fresh("hint");
  if (id) control.setAttribute("aria-describedby", id);
  return make(
    "div.field",
    {},
    make("label", {}, make("span", {}, label), control),
    hint && make("small.hint", { id }, hint),
  );
}

/** Return a list to choose one of. */
export function choice(options, chosen) {
  const list = make("select", {});
  for (const each of options) {
    const [value, text] = Array.isArray(each) ? each : [each, each];
    list.append(new Option(text, value, value === chosen, value === chosen));
  }
  return list;
}

/** Return the list of the models that a panel may ask, for `field("Model", …)`. */
export function modelChoice(platform) {
  return choice(platform.models.map(({ id }) => id));
}

/** Return a field for a number; empty where it may be left to the server. */
export function number(value, attributes = {}) {
  return make("input", { type: "number", inputmode: "decimal", value, ...attributes });
}

/** Return the number of a field, undefined where it is empty. */
export function numberOf(control) {
  return control.value.trim() === "" ? undefined : Number(control.value);
}

/** Return the lines of a text that hold anything. */
export function linesOf(control) {
  return control.value.split("\n").map((line) => line.trim()).filter(Boolean);
}
