// The same conversation as others would have it.

import { call } from "../../kit/python.js";
import { curlJson, headpondClient, openaiClient } from "../../kit/samples.js";

/** Return the code that asks for the same answer, by language. */
export function samples(platform, path, body) {
  const { stream_options: _, ...asked } = body;
  return {
    curl: curlJson(platform, path, asked).replace("curl ", "curl -N "),
    OpenAI: [
      openaiClient(platform),
      `stream = ${call("client.chat.completions.create", asked)}`,
      "for chunk in stream:",
      '    print(chunk.choices[0].delta.content or "", end="", flush=True)',
    ].join("\n"),
    Headpond: [
      `${headpondClient(platform)}    stream = ${call("client.chat.completions.create", asked, "    ")}`,
      "    for chunk in stream:",
      '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
    ].join("\n"),
  };
}
