// A small line of how something went over the last two minutes.

import { draw } from "../kit/make.js";

const [WIDTH, HEIGHT, MOST] = [120, 32, 60];

export class Spark {
  #values = [];
  #line = draw("polyline", { class: "spark-line", points: "" });
  #area = draw("polygon", { class: "spark-area", points: "" });

  constructor() {
    const size = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
    this.element = draw(
      "svg",
      { ...size, class: "spark", "aria-hidden": "true" },
      this.#area,
      this.#line,
    );
  }

  /** Show one more value; the oldest goes. */
  add(value) {
    this.#values.push(value);
    this.#values.splice(0, this.#values.length - MOST);
    const most = Math.max(1, ...this.#values);
    const points = this.#values.map((each, at) => {
      const x = WIDTH - (this.#values.length - 1 - at) * (WIDTH / (MOST - 1));
      return `${x.toFixed(1)},${(HEIGHT - 2 - (each / most) * (HEIGHT - 4)).toFixed(1)}`;
    });
    this.#line.setAttribute("points", points.join(" "));
    const left = points[0].split(",")[0];
    this.#area.setAttribute("points", [`${left},${HEIGHT}`, ...points, `${WIDTH},${HEIGHT}`].join(" "));
  }
}
