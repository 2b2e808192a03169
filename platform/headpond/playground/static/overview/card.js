// One model in the overview: what it does now, and how the last minute went.

import { fresh, make } from "../kit/make.js";
import { spoken } from "../kit/timing.js";
import { Spark } from "./spark.js";
import { grown, quantile, sumOf } from "./snapshot.js";

const NUMBERS = {
  calls: "calls a second",
  running: "running",
  waiting: "waiting",
  refused: "refused in all",
  goodput: "",
  kept: "kept its bounds",
  half: "half within",
  most: "95% within",
};

export class Card {
  #spark = new Spark();
  #values = {};
  #state = make("progress", { max: 1, value: 0, "aria-label": "Memory held by requests" });
  #stateText = make("span", {}, "idle");
  #refusals = make("p.refusals", {});
  #units;

  constructor(model, record) {
    this.#units = record.throughput.map(({ unit }) => unit);
    const heading = fresh("model");
    const words = { ...NUMBERS, goodput: `good ${short(this.#units[0])} a second` };
    const numbers = Object.entries(words).map(([name, label]) => {
      this.#values[name] = make("dd", {}, "–");
      return make("div", {}, make("dt", {}, label), this.#values[name]);
    });
    this.element = make(
      "article.card",
      { "aria-labelledby": heading },
      make(
        "header",
        {},
        make("div", {}, make("p.workload", {}, record.name), make("h3", { id: heading }, model.id)),
        this.#spark.element,
      ),
      make("dl.numbers", {}, numbers),
      make("div.memory", {}, this.#state, this.#stateText),
      this.#refusals,
    );
  }

  /** Show the newest of some snapshots, `{ at, model }`, the oldest a minute ago. */
  show(history) {
    const [first, last, now] = [history[0], history.at(-2), history.at(-1)];
    const { model } = now;
    if (last) this.#spark.add(this.#rate(last, now, "finished"));
    this.#set("running", model.running);
    this.#set("waiting", model.waiting);
    this.#set("calls", compact(this.#rate(first, now, "finished")));
    const latency = grown(first.model.latency, model.latency);
    this.#set("half", bound(quantile(latency, 0.5)));
    this.#set("most", bound(quantile(latency, 0.95)));
    this.#goodput(first, now);
    this.#refused(first, now);
    const share = model.budgetBytes ? model.heldBytes / model.budgetBytes : 0;
    this.#state.value = share;
    this.#stateText.textContent = model.budgetBytes
      ? `${Math.round(share * 100)}% of ${size(model.budgetBytes)} held by requests`
      : "keeps nothing between steps";
  }

  #goodput(first, now) {
    const unit = this.#units[0];
    const seconds = elapsed(first, now);
    const good = grown(first.model.goodput, now.model.goodput).get(unit) ?? 0;
    const done = grown(first.model.work, now.model.work).get(unit) ?? 0;
    this.#set("goodput", compact(seconds ? good / seconds : 0));
    this.#set("kept", done ? `${Math.round((100 * good) / done)}%` : "–");
  }

  #refused(first, now) {
    const recent = [...grown(first.model.refused, now.model.refused)].filter(([, count]) => count);
    this.#set("refused", sumOf(now.model.refused));
    const refused = `Refused in the last minute: ${recent.map(([code, n]) => `${n} ${code}`).join(", ")}`;
    const finished = sumOf(grown(first.model.finished, now.model.finished));
    const quiet = finished ? "" : "No calls in the last minute, so there is nothing to measure.";
    this.#refusals.classList.toggle("quiet", !recent.length);
    this.#refusals.textContent = recent.length ? refused : quiet;
  }

  #rate(before, now, field) {
    const seconds = elapsed(before, now);
    return seconds ? sumOf(grown(before.model[field], now.model[field])) / seconds : 0;
  }

  #set(name, value) {
    const text = String(value);
    if (this.#values[name].textContent !== text) this.#values[name].textContent = text;
  }
}

function elapsed(before, now) {
  return (now.at - before.at) / 1000;
}

function compact(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(value < 10000 ? 1 : 0)}k`;
  return value >= 100 || value === 0 ? String(Math.round(value)) : value.toFixed(1);
}

function short(unit) {
  return unit.replaceAll("_", " ");
}

function bound(seconds) {
  if (seconds === null) return "–";
  return Number.isFinite(seconds) ? spoken(seconds * 1000) : "over 2 min";
}

function size(bytes) {
  return bytes >= 2 ** 30
    ? `${(bytes / 2 ** 30).toFixed(1)} GiB`
    : `${Math.round(bytes / 2 ** 20)} MiB`;
}
