// Texts as points: what is near in meaning lies near.

import { draw } from "../../kit/make.js";

const [SIDE, EDGE, RADIUS] = [400, 28, 11];

/** Return a picture of the places, `[[x, y], …]`, which are numbered. */
export function scatter(points, texts) {
  const most = Math.max(1e-6, ...points.flat().map(Math.abs));
  const at = (value) => SIDE / 2 + (value / most) * (SIDE / 2 - EDGE);
  const marks = points.map(([x, y], index) =>
    draw(
      "g",
      { class: "point" },
      draw("title", {}, `${index + 1}: ${texts[index]}`),
      draw("circle", { cx: at(x), cy: at(-y), r: RADIUS }),
      draw("text", { x: at(x), y: at(-y) }, String(index + 1)),
    ),
  );
  const label = `Texts in a plane: ${points
    .map(([x, y], index) => `${index + 1} at ${x.toFixed(2)}, ${y.toFixed(2)}`)
    .join("; ")}`;
  return draw(
    "svg",
    { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "scatter", role: "img", "aria-label": label },
    draw("line", { x1: SIDE / 2, x2: SIDE / 2, y1: 0, y2: SIDE, class: "axis" }),
    draw("line", { y1: SIDE / 2, y2: SIDE / 2, x1: 0, x2: SIDE, class: "axis" }),
    marks,
  );
}
