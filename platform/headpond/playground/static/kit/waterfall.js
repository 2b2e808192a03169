// A waterfall: each phase of an answer as a bar that begins where the one before ends.

import { draw, make } from "./make.js";
import { spoken } from "./timing.js";

const LEAST = 0.4; // of a hundred: a phase of no time can still be seen

/** Return a table of phases; `declared` are those of the record, which know their kinds. */
export function waterfall(phases, declared = []) {
  const total = phases.reduce((sum, { ms }) => sum + ms, 0);
  const known = new Map(declared.map((phase) => [phase.name, phase]));
  let before = 0;
  const rows = phases.map(({ name, ms }) => {
    const { kind = "host", summary = "" } = known.get(name) ?? {};
    const row = make(
      "tr",
      { title: summary },
      make("th", { scope: "row" }, name),
      make("td.track", {}, bar(kind, before, ms, total)),
      make("td.ms", {}, spoken(ms)),
    );
    before += ms;
    return row;
  });
  return make(
    "table.waterfall",
    {},
    make("caption", {}, `${spoken(total)} from request to last byte`),
    make("thead.unseen", {}, make("tr", {}, heads())),
    make("tbody", {}, rows),
  );
}

function heads() {
  return ["Phase", "When", "Time"].map((text) => make("th", { scope: "col" }, text));
}

function bar(kind, before, ms, total) {
  const share = total ? 100 / total : 0;
  const width = Math.max(LEAST, ms * share);
  const x = Math.min(before * share, 100 - width);
  return draw(
    "svg",
    { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", class: "bar" },
    draw("rect", { x, y: 0, width, height: 10, class: `kind-${kind}` }),
  );
}
