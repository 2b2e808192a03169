// A batch as others would begin it.

import { Raw, call } from "../kit/python.js";
import { curlForm, curlJson, headpondClient, openaiClient } from "../kit/samples.js";

/** Return the code that uploads a file and begins a batch over it, by language. */
export function samples(platform, name, asked) {
  const create = call("client.batches.create", { ...asked, input_file_id: new Raw("file.id") });
  const file = JSON.stringify(name);
  return {
    curl: [
      curlForm(platform, "v1/files", [["purpose", "batch"], ["file", `@${name}`]]),
      curlJson(platform, "v1/batches", asked),
    ].join("\n\n"),
    OpenAI: [
      openaiClient(platform),
      `file = client.files.create(file=open(${file}, "rb"), purpose="batch")`,
      `batch = ${create}`,
      "print(batch.id, batch.status)",
    ].join("\n"),
    Headpond: [
      `${headpondClient(platform)}    file = client.files.create(${file})`,
      `    batch = ${create.replaceAll("\n", "\n    ")}`,
      "    for result in client.batches.results(client.batches.wait(batch.id)):",
      "        print(result.custom_id, result.response)",
    ].join("\n"),
    "Command line": `headpond batch submit ${name} --endpoint ${asked.endpoint} --wait`,
  };
}
