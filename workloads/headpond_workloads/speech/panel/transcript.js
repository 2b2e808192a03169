// What was said, in final lines, and what is being said, of which the end may still change.

import { fresh, make } from "../../kit/make.js";

export class Transcript {
  #stable = make("span.stable", {});
  #revisable = make("span.revisable", {});
  #lines = make("ol.final", {});
  #empty = make("p.empty", {}, "Nothing was said yet.");
  #view;

  constructor() {
    const [final, partial] = [fresh("final"), fresh("partial")];
    const log = { role: "log", "aria-live": "polite", "aria-labelledby": final, tabindex: 0 };
    this.#view = make("div.said", log, this.#empty, this.#lines);
    this.element = make(
      "div",
      {},
      make("h3", { id: partial }, "Being said ", make("span.revisable", {}, "(may still change)")),
      make("div.partial", { role: "group", "aria-labelledby": partial }, this.#stable, this.#revisable),
      make("h3", { id: final }, "What was said"),
      this.#view,
    );
  }

  /** The part of what is being said that stays. */
  get stable() {
    return this.#stable.textContent;
  }

  /** Show what is being said. */
  partial(stable, revisable = "") {
    this.#stable.textContent = stable;
    this.#revisable.textContent = revisable;
  }

  /** Add a final line; what was being said is over. */
  finish(when, text) {
    this.partial("");
    if (!text) return;
    this.#empty.hidden = true;
    this.#lines.append(make("li", {}, make("time", {}, when), make("span", {}, text)));
    this.#view.scrollTop = this.#view.scrollHeight;
  }
}
