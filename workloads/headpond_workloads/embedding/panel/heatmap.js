// A table of how alike each pair of texts is; the number says it, and the shade.

import { make } from "../../kit/make.js";

/** Return a number without the nought that they all begin with. */
function shown(cosine) {
  return cosine.toFixed(2).replace(/^-0.00$/, "0.00").replace(/^(-?)0/, "$1");
}

/** Return the table; `point` is called with the pair that is looked at. */
export function heatmap(cosines, texts, point) {
  const rest = cosines.flatMap((row, i) => row.filter((_, j) => j !== i));
  const [least, most] = [Math.min(...rest, 0.999), Math.max(...rest)];
  const head = texts.map((text, at) => make("th", { scope: "col", title: text }, String(at + 1)));
  const rows = cosines.map((row, i) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", title: texts[i] }, String(i + 1)),
      row.map((cosine, j) => {
        const title = `${texts[i]} — ${texts[j]}`;
        const enter = { mouseenter: () => point([i, j]), mouseleave: () => point([]) };
        const cell = make("td", { title, ...enter }, shown(cosine));
        // Shades are stretched over what there is: most sentences are somewhat alike.
        const share = (cosine - least) / (most - least || 1);
        cell.style.setProperty("--share", 100 * Math.max(0, Math.min(1, share)));
        return cell;
      }),
    ),
  );
  return make(
    "table.heat",
    {},
    make("caption.unseen", {}, "Cosine similarity of each pair of texts, by their numbers"),
    make("thead", {}, make("tr", {}, make("td", {}), head)),
    make("tbody", {}, rows),
  );
}
