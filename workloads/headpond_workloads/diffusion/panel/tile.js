// One picture while it is painted: its step, its previews, and at last itself.

import { make } from "../../kit/make.js";
import { blobOf, showBlob } from "../../kit/picture.js";

const SMALL = 128;

export class Tile {
  #image;
  #bar = make("progress", { max: 1, value: 0, "aria-label": "Steps" });
  #said = make("span", {}, "waits");
  #actions = make("span.row", {});
  #again;

  /** `again` is called with the seed of a picture that is liked. */
  constructor(prompt, again) {
    this.#again = again;
    this.#image = make("img", { alt: `A picture of: ${prompt}` });
    this.element = make(
      "figure.tile",
      {},
      make("div.frame", {}, this.#image),
      this.#bar,
      make("figcaption", {}, this.#said, this.#actions),
    );
  }

  /** Take an event of the stream. */
  take(event) {
    const kind = event.type.split(".").at(-1);
    if (kind === "progress") {
      this.#bar.max = event.steps;
      this.#bar.value = event.step;
      this.#said.textContent = `step ${event.step} of ${event.steps}`;
    } else {
      this.#show(event);
      if (kind === "completed") this.#finish(event);
    }
  }

  /** Say that there will be no picture. */
  stop() {
    if (!this.#actions.childElementCount) this.#said.textContent = "stopped";
  }

  #show({ b64_json: base64, output_format: format, size }) {
    const [width, height] = size.split("x").map(Number);
    this.#image.classList.toggle("small", Math.max(width, height) <= SMALL);
    this.#image.style.setProperty("--shape", `${width} / ${height}`);
    showBlob(this.#image, blobOf(base64, `image/${format}`));
  }

  #finish({ seed, num_inference_steps: steps, output_format: format }) {
    this.#bar.value = this.#bar.max;
    this.#said.textContent = `seed ${seed}`;
    this.#actions.replaceChildren(
      make("a", { href: this.#image.src, download: `${seed}.${format}` }, "Save"),
      make(
        "button.small",
        { type: "button", click: () => this.#again(seed), title: `Seed ${seed}, ${steps} steps` },
        "Keep seed",
      ),
    );
  }
}
