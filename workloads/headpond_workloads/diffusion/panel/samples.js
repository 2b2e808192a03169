// The same pictures as others would ask for them.

import { call } from "../../kit/python.js";
import { curlJson, headpondClient, openaiClient } from "../../kit/samples.js";

const OPENAIS = new Set(["model", "prompt", "n"]);

/** Return the code that paints the same pictures, by language. */
export function samples(platform, path, body) {
  const { stream: _, partial_images: __, progress: ___, ...asked } = body;
  const given = Object.entries(asked).filter(([, value]) => value !== undefined);
  const known = Object.fromEntries(given.filter(([name]) => OPENAIS.has(name)));
  const more = Object.fromEntries(given.filter(([name]) => !OPENAIS.has(name)));
  const extra = Object.keys(more).length ? { extra_body: more } : {};
  return {
    curl: curlJson(platform, path, asked),
    OpenAI: [
      openaiClient(platform).replace("from openai", "import base64\n\nfrom openai").replace("os\n\nimport", "os\nimport"),
      `pictures = ${call("client.images.generate", { ...known, ...extra })}`,
      "for at, picture in enumerate(pictures.data):",
      '    open(f"{at}.png", "wb").write(base64.b64decode(picture.b64_json))',
    ].join("\n"),
    Headpond: [
      `${headpondClient(platform)}    pictures = ${call("client.images.generate", asked, "    ")}`,
      "    for picture in pictures.data:",
      '        picture.save(f"{picture.seed}.png")',
    ].join("\n"),
  };
}
