// An example file of requests, from the example that a route declares.

const RECORDS = 24;

/** Return the routes that a batch may name: JSON in, nothing in the path. */
export function batchRoutes(records) {
  return records.flatMap(({ name, routes }) =>
    routes
      .filter(({ method, path, conversation, example }) =>
        method === "POST" && !path.includes("{") && !conversation && example && path.startsWith("/v"),
      )
      .map(({ path, example }) => ({ workload: name, path, example })),
  );
}

/** Return a file with some requests for a route. */
export function exampleFile({ path, example }, model) {
  const lines = Array.from({ length: RECORDS }, (_, at) =>
    JSON.stringify({
      custom_id: `record-${at + 1}`,
      method: "POST",
      url: path,
      body: { model, ...example },
    }),
  );
  const name = `example${path.replaceAll("/", "-")}.jsonl`;
  return new File([lines.join("\n") + "\n"], name, { type: "application/jsonl" });
}
