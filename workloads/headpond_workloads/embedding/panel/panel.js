// The panel of embedding: texts in, how alike they are out.

import { field, linesOf, modelChoice, number, numberOf } from "../../kit/field.js";
import { make, styled } from "../../kit/make.js";
import { Notice } from "../../kit/notice.js";
import { Receipt } from "../../kit/receipt.js";
import { heatmap } from "./heatmap.js";
import { samples } from "./samples.js";
import { scatter } from "./scatter.js";
import { plane, similarities } from "./vectors.js";

const PATH = "v1/embeddings";
const MOST_TEXTS = 40;
const TEXTS = [
  "The water wheel turns slowly.",
  "A river drives the old mill.",
  "Rain fills the pond above the dam.",
  "The cat sleeps on the sofa.",
  "A puppy plays in the garden.",
  "Dogs bark at the postman.",
  "Stocks fell sharply on Monday.",
  "The central bank raised interest rates.",
];

export async function mount(root, platform) {
  await styled(platform.asset("panel.css"));
  root.classList.add("embedding");
  new Panel(root, platform);
}

class Panel {
  #platform;
  #model;
  #texts = make("textarea", { rows: 8 }, TEXTS.join("\n"));
  #dimensions = number("", { min: 1, placeholder: "all" });
  #send = make("button.primary", { type: "submit" }, "Embed");
  #notice = new Notice();
  #views = make("div", {}, make("p.empty", {}, "How alike the texts are, and where they lie."));
  #receipt;

  constructor(root, platform) {
    this.#platform = platform;
    this.#model = modelChoice(platform);
    this.#receipt = new Receipt(platform.record.phases);
    const form = make(
      "form.stack",
      { submit: (event) => this.#submit(event) },
      field("Texts, one a line", this.#texts, `Up to ${MOST_TEXTS} are shown.`),
      make(
        "div.row",
        {},
        field("Model", this.#model),
        field("Dimensions", this.#dimensions),
        this.#send,
      ),
    );
    root.append(form, this.#notice.element, this.#views, this.#receipt.element);
  }

  async #submit(event) {
    event.preventDefault();
    const input = linesOf(this.#texts).slice(0, MOST_TEXTS);
    const body = { model: this.#model.value, input, dimensions: numberOf(this.#dimensions) };
    this.#send.disabled = true;
    this.#notice.say("Embedding…");
    try {
      const answer = await this.#platform.post(PATH, body);
      const { data, usage } = await answer.json();
      const vectors = data.map(({ embedding }) => embedding);
      this.#show(input, vectors);
      this.#notice.say(
        `${vectors.length} vectors of ${vectors[0].length} values, from ${usage.prompt_tokens} tokens.`,
      );
      this.#receipt.show(answer, samples(this.#platform, PATH, body));
    } catch (error) {
      this.#notice.fail(error);
    }
    this.#send.disabled = false;
  }

  #show(texts, vectors) {
    const { points, explained } = plane(vectors);
    const shown = Math.round(100 * (explained[0] + explained[1]));
    const list = make(
      "ol.texts",
      {},
      texts.map((text, at) => make("li", {}, make("b", {}, String(at + 1)), text)),
    );
    const point = (pair) =>
      [...list.children].forEach((line, at) => line.classList.toggle("near", pair.includes(at)));
    this.#views.replaceChildren(
      make(
        "div.views",
        {},
        make(
          "section",
          {},
          make("h3", {}, "How alike they are"),
          make("div.scroll", {}, heatmap(similarities(vectors), texts, point)),
          list,
        ),
        make(
          "section",
          {},
          make("h3", {}, "Where they lie"),
          scatter(points, texts),
          make("p.hint", {}, `The two directions in which they differ most: ${shown}% of it all.`),
        ),
      ),
    );
  }
}
