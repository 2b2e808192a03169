// The same vectors as others would ask for them.

import { call } from "../../kit/python.js";
import { curlJson, headpondClient, openaiClient } from "../../kit/samples.js";

/** Return the code that asks for the same vectors, by language. */
export function samples(platform, path, body) {
  return {
    curl: curlJson(platform, path, body),
    OpenAI: [
      openaiClient(platform),
      `found = ${call("client.embeddings.create", body)}`,
      "print(len(found.data), len(found.data[0].embedding))",
    ].join("\n"),
    Headpond: [
      `${headpondClient(platform)}    found = ${call("client.embeddings.create", body, "    ")}`,
      "    print(len(found.data), len(found.data[0].vector))",
    ].join("\n"),
  };
}
