// Where the time of an answer went, as `server-timing` says it.

/** Return `[{ name, ms }]` in the order of the header; null where there is none. */
export function phasesOf(header) {
  if (!header) return null;
  return header.split(",").map((part) => {
    const [name, ...rest] = part.trim().split(";");
    const duration = rest.find((each) => each.startsWith("dur="));
    return { name, ms: Number(duration?.slice(4)) || 0 };
  });
}

/** Return a time in the unit that people would say it in. */
export function spoken(ms) {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}
