// The panel of generation: a conversation whose answers appear as they are made.

import { field, modelChoice, number, numberOf } from "../../kit/field.js";
import { make, styled } from "../../kit/make.js";
import { Notice } from "../../kit/notice.js";
import { Receipt } from "../../kit/receipt.js";
import { Conversation } from "./conversation.js";
import { samples } from "./samples.js";

const PATH = "v1/chat/completions";

export async function mount(root, platform) {
  await styled(platform.asset("panel.css"));
  root.classList.add("generation");
  new Panel(root, platform);
}

class Panel {
  #platform;
  #model;
  #system = make("textarea", { rows: 2, placeholder: "Nothing" });
  #tokens = number(256, { min: 1, max: 4096 });
  #temperature = number(0.7, { min: 0, max: 2, step: 0.1 });
  #sure = make("input", { type: "checkbox" });
  #message = make("textarea", { rows: 2, placeholder: "Say something…" });
  #send = make("button.primary", { type: "submit" }, "Send");
  #stop = make("button", { type: "button", hidden: true }, "Stop");
  #notice = new Notice();
  #conversation = new Conversation((text) => this.#ask(text));
  #receipt;
  #running;

  constructor(root, platform) {
    this.#platform = platform;
    this.#model = modelChoice(platform);
    this.#receipt = new Receipt(platform.record.phases);
    this.#stop.addEventListener("click", () => this.#running?.abort());
    this.#message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    root.append(this.#settings(), this.#talk(), this.#notice.element, this.#receipt.element);
  }

  #settings() {
    const sure = make("label.check", {}, this.#sure, "Show where the model was unsure");
    const clear = () => {
      this.#running?.abort();
      this.#conversation.clear();
      this.#notice.say("");
    };
    return make(
      "div.stack",
      {},
      make(
        "div.row",
        {},
        field("Model", this.#model),
        field("Temperature", this.#temperature),
        field("Most tokens", this.#tokens),
        make("button", { type: "button", click: clear }, "New conversation"),
      ),
      make(
        "details.more",
        {},
        make("summary", {}, "System message, and how sure the model is"),
        make("div.stack", {}, field("System message", this.#system), sure),
      ),
    );
  }

  #talk() {
    const composer = make(
      "form.composer",
      {
        submit: (event) => {
          event.preventDefault();
          this.#submit();
        },
      },
      field("Your message", this.#message),
      this.#send,
      this.#stop,
    );
    const keys = make("small.hint", {}, "Enter sends, Shift and Enter make a new line.");
    return make("div.talk", {}, this.#conversation.element, composer, keys);
  }

  #submit() {
    const text = this.#message.value.trim();
    if (!text || this.#running) return;
    this.#message.value = "";
    this.#ask(text);
  }

  async #ask(text) {
    this.#busy(new AbortController());
    const body = this.#body(text);
    const reply = this.#conversation.reply(text);
    try {
      const answer = await this.#platform.post(PATH, body, { signal: this.#running.signal });
      for await (const { choices, usage } of answer.events()) {
        if (choices[0]?.delta.content) reply.add(choices[0].delta.content, choices[0].logprobs);
        if (choices[0]?.finish_reason) reply.end(choices[0].finish_reason);
        if (usage) reply.count(usage);
      }
      this.#notice.say("");
      this.#receipt.show(answer, samples(this.#platform, PATH, body), reply.facts);
    } catch (error) {
      reply.end("stop");
      this.#notice.fail(error);
    }
    this.#busy(undefined);
  }

  #body(text) {
    const system = this.#system.value.trim();
    return {
      model: this.#model.value,
      messages: [
        ...(system ? [{ role: "system", content: system }] : []),
        ...this.#conversation.messages,
        { role: "user", content: text },
      ],
      max_completion_tokens: numberOf(this.#tokens),
      temperature: numberOf(this.#temperature),
      logprobs: this.#sure.checked || undefined,
      stream: true,
      stream_options: { include_usage: true },
    };
  }

  #busy(controller) {
    this.#running = controller;
    this.#send.hidden = Boolean(controller);
    this.#stop.hidden = !controller;
    if (controller) this.#notice.say("Answering…");
  }
}
