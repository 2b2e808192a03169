// Labels with their scores as bars, the best first.

import { make } from "../../kit/make.js";

/** Return a table of `[{ label, score }]`. */
export function bars(classes) {
  const rows = classes.map(({ label, score }) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, label),
      make("td.meter", {}, make("progress", { max: 1, value: score, "aria-label": label })),
      make("td.value", {}, percent(score)),
    ),
  );
  return make(
    "table.bars",
    {},
    make("caption.unseen", {}, "What the model sees, the likeliest first"),
    make("tbody", {}, rows),
  );
}

function percent(score) {
  return `${(100 * score).toFixed(score < 0.1 ? 2 : 1)}%`;
}
