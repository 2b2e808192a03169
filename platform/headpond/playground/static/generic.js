// The panel of a workload that brings none: its routes, with the examples that it declares.

import { choice, field } from "./kit/field.js";
import { make } from "./kit/make.js";
import { Notice } from "./kit/notice.js";
import { literal } from "./kit/python.js";
import { Receipt } from "./kit/receipt.js";
import { curlJson } from "./kit/samples.js";

export function mount(root, platform) {
  const routes = platform.record.routes.filter(
    ({ method, path, conversation }) => method === "POST" && !path.includes("{") && !conversation,
  );
  if (!routes.length) {
    root.append(make("p.empty", {}, "None of its routes can be tried from here."));
    return;
  }
  const route = choice(routes.map(({ path, summary }) => [path, `${path}: ${summary}`]));
  const body = make("textarea.code", { rows: 10, spellcheck: "false" });
  const send = make("button.primary", { type: "submit" }, "Send");
  const notice = new Notice();
  const answer = make("pre.answer", { tabindex: 0, "aria-label": "Answer" });
  const receipt = new Receipt(platform.record.phases);
  const suggest = () => (body.value = example(routes[route.selectedIndex], platform));
  route.addEventListener("change", suggest);
  suggest();

  async function ask(event) {
    event.preventDefault();
    send.disabled = true;
    answer.textContent = "";
    notice.say("Waiting for the answer…");
    try {
      const path = route.value.slice(1);
      const asked = JSON.parse(body.value);
      const got = await platform.post(path, asked);
      const text = await got.text();
      answer.textContent = pretty(text);
      notice.say("");
      receipt.show(got, { curl: curlJson(platform, path, asked), Python: python(platform, path, asked) });
    } catch (error) {
      notice.fail(error);
    }
    send.disabled = false;
  }

  root.append(
    make(
      "form.stack",
      { submit: ask },
      field("Route", route),
      field("Request", body, "JSON, as the route takes it."),
      make("div.row", {}, send),
    ),
    notice.element,
    answer,
    receipt.element,
  );
}

function example({ example }, platform) {
  return JSON.stringify({ model: platform.models[0].id, ...example }, null, 2);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function python(platform, path, body) {
  const key = platform.secured
    ? ',\n    headers={"authorization": f"Bearer {os.environ[\'HEADPOND_API_KEY\']}"}'
    : "";
  const url = JSON.stringify(platform.url(path));
  const imports = platform.secured ? "import os\n\nimport httpx" : "import httpx";
  const sent = literal(body, "    ");
  return `${imports}\n\nanswer = httpx.post(\n    ${url},\n    json=${sent}${key},\n)\nprint(answer.json())`;
}
