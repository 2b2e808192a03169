// One answer while it is made: its tokens, and their pace.

import { make } from "../../kit/make.js";
import { spoken } from "../../kit/timing.js";

const LIKELY = 0.5;
const UNLIKELY = 0.15;
const ENDS = { length: ", cut off at the most tokens", stop: "", tool_calls: ", with a call of a tool" };

export class Reply {
  #said = make("p.said", {});
  #pace = make("p.pace", {}, "…");
  #grew;
  #began = performance.now();
  #first;
  #last;
  #pieces = 0;
  #usage;
  #end = "";

  /** `grew` is called when there is more of it. */
  constructor(asked, grew) {
    this.asked = asked;
    this.text = "";
    this.#grew = grew;
    // The whole answer is said at its end: single tokens would be stammered.
    this.#said.setAttribute("aria-busy", "true");
    const who = make("span.unseen", {}, "Model: ");
    this.element = make("div.turn.assistant", {}, who, this.#pace, this.#said);
  }

  /** Add a piece; with log-probabilities, each of its tokens shows how sure it is. */
  add(piece, logprobs) {
    this.#last = performance.now();
    this.#first ??= this.#last;
    this.#pieces += 1;
    this.text += piece;
    if (logprobs?.content?.length) this.#said.append(...logprobs.content.map(token));
    else this.#said.append(piece);
    this.#tell();
    this.#grew();
  }

  /** Take what the server counted. */
  count(usage) {
    this.#usage = usage;
    this.#tell();
  }

  /** End it, for the reason that the server gives. */
  end(reason) {
    this.#end = ENDS[reason] ?? "";
    this.#said.removeAttribute("aria-busy");
    if (!this.text) this.#said.append(make("em.hint", {}, "No text."));
    this.#tell();
  }

  /** What it took, as seen from here. */
  get facts() {
    const { prompt_tokens: read, prompt_tokens_details: details } = this.#usage ?? {};
    return {
      "first token": this.#first && spoken(this.#first - this.#began),
      pace: this.#rate && `${this.#rate.toFixed(0)} tokens a second`,
      prompt: read && `${read} tokens, ${details?.cached_tokens ?? 0} of them cached`,
    };
  }

  get #rate() {
    const seconds = (this.#last - this.#first) / 1000;
    const tokens = this.#usage?.completion_tokens ?? this.#pieces;
    return seconds > 0 && tokens > 1 ? (tokens - 1) / seconds : 0;
  }

  #tell() {
    if (!this.#first) {
      this.#pace.textContent = this.#end;
      return;
    }
    const tokens = this.#usage?.completion_tokens ?? this.#pieces;
    const rate = this.#rate ? `, ${this.#rate.toFixed(0)} a second` : "";
    const first = spoken(this.#first - this.#began);
    this.#pace.textContent = `${tokens} tokens${rate}, the first after ${first}${this.#end}`;
  }
}

function token({ token: text, logprob }) {
  const probability = Math.exp(logprob);
  const sure = probability >= LIKELY ? undefined : probability >= UNLIKELY ? 1 : 0;
  const title = `${(100 * probability).toFixed(0)}% sure`;
  return make("span.token", { title, "data-sure": sure }, text);
}
