// What one scrape says of each model, summed over its replicas.

import { samplesOf } from "./exposition.js";

const GAUGES = {
  headpond_running: "running",
  headpond_waiting: "waiting",
  headpond_state_held_bytes: "heldBytes",
  headpond_state_budget_bytes: "budgetBytes",
};
const COUNTERS = {
  headpond_finished_total: ["finished", "outcome"],
  headpond_refused_total: ["refused", "code"],
  headpond_work_total: ["work", "unit"],
  headpond_goodput_total: ["goodput", "unit"],
  headpond_request_seconds_bucket: ["latency", "le"],
};
const WANTED = new Set([...Object.keys(GAUGES), ...Object.keys(COUNTERS)]);

/** Return what is known of each model by its name; counters are maps by their own label. */
export function snapshot(text) {
  const models = new Map();
  for (const { name, labels, value } of samplesOf(text, WANTED)) {
    if (!models.has(labels.model)) models.set(labels.model, blank());
    const model = models.get(labels.model);
    if (name in GAUGES) model[GAUGES[name]] += value;
    else {
      const [field, label] = COUNTERS[name];
      const by = labels[label] === "+Inf" ? "Infinity" : labels[label];
      model[field].set(by, (model[field].get(by) ?? 0) + value);
    }
  }
  return models;
}

/** Return what a model without samples has. */
export function blank() {
  const counters = Object.values(COUNTERS).map(([field]) => [field, new Map()]);
  const gauges = Object.values(GAUGES).map((field) => [field, 0]);
  return Object.fromEntries([...gauges, ...counters]);
}

/** Return how much of each label was counted between two maps; a restart counts from nothing. */
export function grown(before, after) {
  const found = new Map();
  for (const [label, value] of after) {
    const old = before.get(label) ?? 0;
    found.set(label, value >= old ? value - old : value);
  }
  return found;
}

/** Return the sum of a map. */
export function sumOf(counts) {
  return [...counts.values()].reduce((sum, value) => sum + value, 0);
}

/** Return the upper bound in seconds below which a share of what was counted lies. */
export function quantile(buckets, share) {
  const bounds = [...buckets].map(([le, count]) => [Number(le), count]).sort(([a], [b]) => a - b);
  const total = bounds.at(-1)?.[1] ?? 0;
  return total ? bounds.find(([, count]) => count >= share * total)[0] : null;
}
