// A conversation: what was said so far, and the answer that is being made.

import { make } from "../../kit/make.js";
import { Reply } from "./reply.js";

const STARTERS = [
  "What is the capital of France?",
  "Explain in two sentences what a watermill does.",
  "Write a haiku about rain.",
];

export class Conversation {
  #ask;
  #replies = [];

  /** `ask` is called with a message that was picked rather than written. */
  constructor(ask) {
    this.#ask = ask;
    const attributes = { role: "log", "aria-label": "Conversation", tabindex: 0 };
    this.element = make("div.log", { ...attributes, "aria-live": "polite" });
    this.clear();
  }

  /** What was said, as the API takes it. */
  get messages() {
    const heard = this.#replies.filter(({ text }) => text); // not those that failed
    return heard.flatMap(({ asked, text }) => [
      { role: "user", content: asked },
      { role: "assistant", content: text },
    ]);
  }

  /** Begin anew. */
  clear() {
    this.#replies = [];
    const pick = (text) =>
      make("button.small", { type: "button", click: () => this.#ask(text) }, text);
    this.element.replaceChildren(
      make(
        "div.empty",
        {},
        make("p", {}, "Nothing was said yet. Write a message below, or begin with one of these:"),
        make("div.starters", {}, STARTERS.map(pick)),
      ),
    );
  }

  /** Add a message, and return the reply to it, which is empty. */
  reply(asked) {
    if (!this.#replies.length) this.element.replaceChildren();
    const reply = new Reply(asked, () => this.#follow());
    this.#replies.push(reply);
    this.element.append(
      make("div.turn.user", {}, make("span.unseen", {}, "You: "), make("p.said", {}, asked)),
      reply.element,
    );
    this.element.scrollTop = this.element.scrollHeight;
    return reply;
  }

  /** Keep the newest text in sight, unless somebody has scrolled away from it. */
  #follow() {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    if (scrollHeight - scrollTop - clientHeight < 80) this.element.scrollTop = scrollHeight;
  }
}
