// The panel of diffusion: a text in, pictures out, painted before one's eyes.

import { field, modelChoice, number, numberOf } from "../../kit/field.js";
import { make, styled } from "../../kit/make.js";
import { Notice } from "../../kit/notice.js";
import { Receipt } from "../../kit/receipt.js";
import { samples } from "./samples.js";
import { Tile } from "./tile.js";

const PATH = "v1/images/generations";
const PREVIEWS = 3;

export async function mount(root, platform) {
  await styled(platform.asset("panel.css"));
  root.classList.add("diffusion");
  new Panel(root, platform);
}

class Panel {
  #platform;
  #model;
  #prompt;
  #negative = make("input", { type: "text", placeholder: "Nothing" });
  #pictures = number(6, { min: 1, max: 10, step: 1 });
  #seed = number(7, { min: 0, step: 1, placeholder: "any" });
  #steps = number("", { min: 1, step: 1, placeholder: "as the model has it" });
  #guidance = number("", { min: 0, max: 100, step: 0.5, placeholder: "as the model has it" });
  #paint = make("button.primary", { type: "submit" }, "Paint");
  #stop = make("button", { type: "button", hidden: true }, "Stop");
  #notice = new Notice();
  #gallery = make("div.gallery", {});
  #empty = make("p.empty", {}, "The pictures will appear here, one for each seed.");
  #receipt;
  #running;

  constructor(root, platform) {
    this.#platform = platform;
    this.#model = modelChoice(platform);
    const [{ example }] = platform.record.routes;
    this.#prompt = make("input", { type: "text", value: example.prompt, required: true });
    this.#receipt = new Receipt(platform.record.phases);
    this.#stop.addEventListener("click", () => this.#running?.abort());
    root.append(
      this.#form(),
      this.#notice.element,
      this.#empty,
      this.#gallery,
      this.#receipt.element,
    );
  }

  #form() {
    return make(
      "form.stack",
      {
        submit: (event) => {
          event.preventDefault();
          this.#run();
        },
      },
      field("Prompt", this.#prompt),
      make(
        "div.row",
        {},
        field("Model", this.#model),
        field("First seed", this.#seed),
        field("Pictures", this.#pictures),
        this.#paint,
        this.#stop,
      ),
      make(
        "details.more",
        {},
        make("summary", {}, "Steps, guidance, and what not to paint"),
        make(
          "div.row",
          {},
          field("Steps", this.#steps),
          field("Guidance", this.#guidance),
          field("Negative prompt", this.#negative),
        ),
      ),
    );
  }

  async #run() {
    const body = this.#body();
    this.#busy(new AbortController());
    const tiles = Array.from({ length: body.n }, () => new Tile(body.prompt, (s) => this.#keep(s)));
    this.#empty.hidden = true;
    this.#gallery.replaceChildren(...tiles.map(({ element }) => element));
    try {
      const { signal } = this.#running;
      const answer = await this.#platform.post(PATH, body, { signal });
      let finished = 0;
      for await (const event of answer.events()) {
        tiles[event.index].take(event);
        if (!event.type.endsWith(".completed")) continue;
        finished += 1;
        this.#notice.say(`${finished} of ${body.n} pictures are painted.`);
      }
      this.#receipt.show(answer, samples(this.#platform, PATH, body));
    } catch (error) {
      tiles.forEach((tile) => tile.stop());
      this.#notice.fail(error);
    }
    this.#busy(undefined);
  }

  #body() {
    return {
      model: this.#model.value,
      prompt: this.#prompt.value,
      negative_prompt: this.#negative.value || undefined,
      n: numberOf(this.#pictures) ?? 1,
      seed: numberOf(this.#seed),
      num_inference_steps: numberOf(this.#steps),
      guidance_scale: numberOf(this.#guidance),
      stream: true,
      partial_images: PREVIEWS,
      progress: true,
    };
  }

  /** Paint on from one picture: its seed stays, the rest may be changed. */
  #keep(seed) {
    this.#seed.value = seed;
    this.#pictures.value = 1;
    this.#prompt.focus();
    this.#notice.say(`Seed ${seed} is kept: change the prompt, the steps or the guidance.`);
  }

  #busy(controller) {
    this.#running = controller;
    this.#paint.hidden = Boolean(controller);
    this.#stop.hidden = !controller;
    if (controller) this.#notice.say("Painting…");
  }
}
