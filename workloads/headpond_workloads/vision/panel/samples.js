// The same classification as others would ask for it.

import { Raw, call, literal } from "../../kit/python.js";
import { curlForm, headpondClient } from "../../kit/samples.js";

/** Return the code that classifies the same file, by language. */
export function samples(platform, path, name, { model, top_k: top }) {
  const file = `open(${literal(name)}, "rb").read()`;
  const asked = { model, image: new Raw(file), top_k: top };
  return {
    curl: curlForm(platform, path, [["model", model], ["image", `@${name}`], ["top_k", top]]),
    Triton: triton(platform, file, model, top),
    Headpond: [
      `${headpondClient(platform)}    found = ${call("client.classifications.create", asked, "    ")}`,
      "    for each in found.data[0].classes:",
      "        print(each.score, each.label)",
    ].join("\n"),
  };
}

function triton(platform, file, model, top) {
  const { host, pathname } = new URL(platform.url(""));
  const key = new Raw('{"authorization": f"Bearer {os.environ[\'HEADPOND_API_KEY\']}"}');
  const asked = {
    model_name: model,
    inputs: new Raw("[image]"),
    outputs: new Raw("[logits]"),
    headers: platform.secured ? key : undefined,
  };
  return [
    ...(platform.secured ? ["import os\n"] : []),
    "import numpy as np",
    "import tritonclient.http as triton\n",
    `client = triton.InferenceServerClient(${literal(host + pathname.replace(/\/$/, ""))})`,
    'image = triton.InferInput("image", [1], "BYTES")',
    `image.set_data_from_numpy(np.array([${file}], dtype=object))`,
    `logits = triton.InferRequestedOutput("logits", class_count=${top})`,
    `answer = ${call("client.infer", asked)}`,
    'print(answer.as_numpy("logits"))',
  ].join("\n");
}
