// The same ranking as others would ask for it.

import { Raw, call, literal } from "../../kit/python.js";
import { curlJson, headpondClient } from "../../kit/samples.js";

/** Return the code that asks for the same ranking, by language. */
export function samples(platform, path, body) {
  const key = platform.secured ? new Raw('os.environ["HEADPOND_API_KEY"]') : "none";
  const client = { api_key: key, base_url: platform.url("").replace(/\/$/, "") };
  return {
    curl: curlJson(platform, path, body),
    Cohere: [
      ...(platform.secured ? ["import os\n"] : []),
      "import cohere\n",
      call("client = cohere.ClientV2", client),
      `ranking = ${call("client.rerank", body)}`,
      "for each in ranking.results:",
      "    print(each.relevance_score, each.index)",
    ].join("\n"),
    Headpond: [
      `${headpondClient(platform)}    documents = ${literal(body.documents, "    ")}`,
      `    ranking = ${call("client.rerank", { ...body, documents: new Raw("documents") }, "    ")}`,
      "    for each in ranking.results:",
      "        print(each.relevance_score, documents[each.index])",
    ].join("\n"),
  };
}
