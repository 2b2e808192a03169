// One batch in the list: how far it is, and what can be done with it.

import { fresh, make } from "../kit/make.js";
import { spoken } from "../kit/timing.js";

const OVER = new Set(["completed", "failed", "expired", "cancelled"]);
const SHOWN_LINES = 5;
const SHOWN_BYTES = 64 * 1024;

export class Job {
  #platform;
  #notice;
  #bar = make("progress", { max: 1, value: 0 });
  #chip = make("span.chip", {});
  #counts = make("p.counts", {});
  #why = make("p.why", {});
  #actions = make("div.row", {});
  #lines = make("pre.answer", { tabindex: 0, hidden: true, "aria-label": "First results" });
  #id = make("code.id", {});
  #shown = "";

  /** Begin with the file that is about to be uploaded; `notice` is told what goes wrong. */
  constructor(endpoint, file, platform, notice) {
    this.#platform = platform;
    this.#notice = notice;
    const heading = fresh("batch");
    this.#bar.setAttribute("aria-labelledby", heading);
    this.element = make(
      "article.card.job",
      { "aria-labelledby": heading },
      make(
        "header",
        {},
        make("div", {}, make("h4", { id: heading }, endpoint), this.#id),
        this.#chip,
      ),
      this.#bar,
      this.#counts,
      this.#why,
      this.#actions,
      this.#lines,
    );
    this.over = false;
    this.#id.textContent = file;
    this.#state("uploading");
  }

  /** Show how much of the file is uploaded, 0 to 1. */
  uploaded(share) {
    this.#bar.value = share;
    this.#counts.textContent = `${Math.round(100 * share)}% of the file is uploaded`;
  }

  /** Say that no batch came of it, and why. */
  fail(reason) {
    this.over = true;
    this.#state("failed");
    this.#counts.textContent = "";
    this.#why.textContent = reason;
  }

  /** Show the batch as it is now. */
  show(batch) {
    this.over = OVER.has(batch.status);
    this.#id.textContent = batch.id;
    this.#state(batch.status);
    const { total, completed, failed } = batch.request_counts;
    this.#bar.value = total ? (completed + failed) / total : Number(batch.status === "completed");
    this.#counts.textContent = counts(batch);
    this.#why.textContent = why(batch);
    if (this.#shown === batch.status) return; // buttons under a finger stay where they are
    this.#shown = batch.status;
    this.#actions.replaceChildren(...this.#buttons(batch));
  }

  #state(status) {
    this.#chip.textContent = status.replace("_", " ");
    this.#chip.dataset.status = status;
  }

  #buttons(batch) {
    const button = (text, act) => make("button.small", { type: "button", click: act }, text);
    const file = (text, id) => id && [
      button(`Show ${text}`, () => this.#try(() => this.#look(id))),
      button(`Save ${text}`, () => this.#try(() => this.#save(id))),
    ];
    const stop = () => this.#platform.post(`v1/batches/${batch.id}/cancel`, {});
    return [
      ...(this.over || batch.status === "cancelling" ? [] : [button("Cancel", () => this.#try(stop))]),
      ...(file("results", batch.output_file_id) || []),
      ...(file("errors", batch.error_file_id) || []),
    ];
  }

  async #try(act) {
    try {
      await act();
    } catch (error) {
      this.#notice.fail(error);
    }
  }

  async #look(id) {
    const answer = await this.#platform.fetch(`v1/files/${id}/content`);
    const lines = (await beginning(answer.body, SHOWN_BYTES)).split("\n").filter(Boolean);
    const shown = lines.slice(0, SHOWN_LINES).map((line) => line.slice(0, 400));
    const more = lines.length > SHOWN_LINES ? "\n…" : "";
    this.#lines.textContent = shown.join("\n") + more;
    this.#lines.hidden = false;
  }

  async #save(id) {
    const answer = await this.#platform.fetch(`v1/files/${id}/content`);
    const href = URL.createObjectURL(await answer.blob());
    make("a", { href, download: `${id}.jsonl` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }
}

/** Return the text that a body begins with; the rest of it is not fetched. */
async function beginning(body, bytes) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (text.length < bytes) {
    const { value, done } = await reader.read();
    if (done) break;
    text += value;
  }
  reader.cancel().catch(() => {});
  return text;
}

function counts({ request_counts: { total, completed, failed }, progress, status }) {
  if (!total) return status === "validating" ? "Reading the file…" : "";
  const rest = progress?.estimated_completion_at
    ? `, done in about ${spoken(Math.max(0, progress.estimated_completion_at * 1000 - Date.now()))}`
    : "";
  const bad = failed ? `, ${failed} with an error` : "";
  return `${completed + failed} of ${total} records${bad}${OVER.has(status) ? "" : rest}`;
}

function why({ errors, waits_for: waits }) {
  const [first] = errors?.data ?? [];
  if (first) return `${first.line ? `Line ${first.line}: ` : ""}${first.message}`;
  return waits ? `Waits for ${waits}` : "";
}
