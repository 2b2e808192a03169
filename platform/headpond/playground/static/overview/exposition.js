// Metrics in the Prometheus text format, as far as the overview needs them.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Return `[{ name, labels, value }]` for the samples whose names are wanted. */
export function samplesOf(text, wanted) {
  const found = [];
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    if (name === undefined || !wanted.has(name)) continue;
    const read = Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, each]) => [key, each]));
    found.push({ name, labels: read, value: Number(value.replace("Inf", "Infinity")) });
  }
  return found;
}
