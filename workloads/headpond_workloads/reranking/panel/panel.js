// The panel of reranking: a query and documents in, the documents by how well they answer out.

import { field, linesOf, modelChoice } from "../../kit/field.js";
import { make, styled } from "../../kit/make.js";
import { Notice } from "../../kit/notice.js";
import { Receipt } from "../../kit/receipt.js";
import { Cards } from "./cards.js";
import { samples } from "./samples.js";

const PATH = "v2/rerank";
const QUERY = "How does water drive a mill?";
const DOCUMENTS = [
  "The miller sells flour at the market on Saturdays.",
  "Stones grind grain between two flat faces.",
  "Falling water pushes the paddles of a wheel, whose axle turns the millstone.",
  "A headpond keeps water above the wheel, so that it runs in dry weeks too.",
  "Windmills turn their caps into the wind.",
];

export async function mount(root, platform) {
  await styled(platform.asset("panel.css"));
  root.classList.add("reranking");
  new Panel(root, platform);
}

class Panel {
  #platform;
  #model;
  #query = make("input", { type: "text", value: QUERY, required: true });
  #documents = make("textarea", { rows: 6 }, DOCUMENTS.join("\n"));
  #send = make("button.primary", { type: "submit" }, "Rank");
  #notice = new Notice();
  #cards = new Cards();
  #receipt;

  constructor(root, platform) {
    this.#platform = platform;
    this.#model = modelChoice(platform);
    this.#receipt = new Receipt(platform.record.phases);
    this.#documents.addEventListener("input", () => this.#given());
    this.#given();
    const form = make(
      "form.stack",
      { submit: (event) => this.#submit(event) },
      field("Query", this.#query),
      field("Documents, one a line", this.#documents),
      make("div.row", {}, field("Model", this.#model), this.#send),
    );
    root.append(form, this.#notice.element, this.#cards.element, this.#receipt.element);
  }

  #given() {
    this.#cards.show(linesOf(this.#documents));
  }

  async #submit(event) {
    event.preventDefault();
    const documents = linesOf(this.#documents);
    const body = { model: this.#model.value, query: this.#query.value, documents };
    this.#send.disabled = true;
    this.#notice.say("Ranking…");
    try {
      const answer = await this.#platform.post(PATH, body);
      const { results } = await answer.json();
      this.#cards.show(documents);
      this.#cards.rank(results);
      this.#notice.say(`The best answer: ${documents[results[0].index]}`);
      this.#receipt.show(answer, samples(this.#platform, PATH, body));
    } catch (error) {
      this.#notice.fail(error);
    }
    this.#send.disabled = false;
  }
}
