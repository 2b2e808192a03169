// What was just done: where its time went, what was charged, and the code that does the same.

import { fresh, make } from "./make.js";
import { Samples } from "./samples.js";
import { waterfall } from "./waterfall.js";

export class Receipt {
  #declared;
  #times = make("div.times", {});
  #facts = make("dl.facts", {});
  #samples = new Samples();

  /** `declared` are the phases of the workload's record. */
  constructor(declared = []) {
    this.#declared = declared;
    const heading = fresh("receipt");
    // Hidden until there is something: results that appear above would push it about.
    this.element = make(
      "section.receipt",
      { "aria-labelledby": heading, hidden: true },
      make("h3", { id: heading }, "What was just done"),
      make(
        "div.receipt-body",
        {},
        make("div", {}, this.#times, this.#facts),
        this.#samples.element,
      ),
    );
  }

  /** Show an answer that is over, and the code by language. */
  show(answer, codes, facts = {}) {
    this.element.hidden = false;
    const { phases, work, streamed, bundle, requestId } = answer;
    this.#times.replaceChildren(phases ? waterfall(phases, this.#declared) : "");
    const charged = streamed ? "charged at most" : "charged";
    const all = { ...facts, [charged]: spaced(work), bundle, request: requestId };
    this.#facts.replaceChildren(
      ...Object.entries(all)
        .filter(([, value]) => value != null)
        .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
    );
    this.#samples.show(codes);
  }
}

function spaced(work) {
  return work?.replace(/=(\d+)/g, (_, digits) => ` ${Number(digits).toLocaleString("en")}`)
    .replaceAll("_", " ");
}
