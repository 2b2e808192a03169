// The overview: every model's load, queue, goodput and refusals, from `/metrics`.

import { make, styled } from "../kit/make.js";
import { Notice } from "../kit/notice.js";
import { Card } from "./card.js";
import { blank, snapshot } from "./snapshot.js";

const EVERY_MS = 2000;
const KEPT_MS = 60_000;

export async function mount(root, platform) {
  await styled(platform.url("playground/overview/overview.css"));
  const notice = new Notice();
  const cards = new Map();
  for (const record of platform.record.records) {
    for (const model of platform.models.filter(({ workload }) => workload === record.name)) {
      cards.set(model.id, { card: new Card(model, record), history: [] });
    }
  }
  const grid = make("div.cards", {}, [...cards.values()].map(({ card }) => card.element));
  const foot = make(
    "p.hint",
    {},
    "The last minute, looked at every two seconds while this tab is open. Goodput is work whose ",
    "calls kept the latency bounds that their workload declares.",
  );
  root.append(grid, notice.element, foot);

  async function look() {
    if (document.hidden || !root.checkVisibility()) return;
    try {
      const models = snapshot(await (await platform.get("metrics")).text());
      const at = performance.now();
      for (const [name, { card, history }] of cards) {
        history.push({ at, model: models.get(name) ?? blank() });
        while (at - history[0].at > KEPT_MS) history.shift();
        card.show(history);
      }
      notice.say("");
    } catch (error) {
      notice.fail(error);
    }
  }

  async function watch() {
    await look();
    if (root.isConnected) setTimeout(watch, EVERY_MS);
  }
  watch();
}
