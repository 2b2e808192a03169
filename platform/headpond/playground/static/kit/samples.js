// The same call as others would make it: by curl, a vendor's client, and ours.
// The key never shows: code reads it from the environment.

import { fresh, make } from "./make.js";
import { literal } from "./python.js";
import { TabList } from "./tablist.js";

/** Return a call of curl with a body of JSON. */
export function curlJson(platform, path, body) {
  const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return [
    `curl ${platform.url(path)}`,
    ...secret(platform),
    "  -H 'content-type: application/json'",
    `  -d '${json}'`,
  ].join(" \\\n");
}

/** Return a call of curl with a form; fields are `[name, text]`, files `[name, "@file"]`. */
export function curlForm(platform, path, fields) {
  const parts = fields.map(([name, value]) => `  -F ${quoted(`${name}=${value}`)}`);
  return [`curl ${platform.url(path)}`, ...secret(platform), ...parts].join(" \\\n");
}

/** Return the beginning of a program with OpenAI's client. */
export function openaiClient(platform) {
  const key = platform.secured ? 'os.environ["HEADPOND_API_KEY"]' : '"none"';
  const imports = platform.secured ? "import os\n\n" : "";
  const url = literal(platform.url("v1"));
  return `${imports}from openai import OpenAI\n\nclient = OpenAI(base_url=${url}, api_key=${key})\n`;
}

/** Return the beginning of a program with Headpond's client, up to its `with` block. */
export function headpondClient(platform) {
  const url = literal(platform.url("").replace(/\/$/, ""));
  const key = platform.secured ? ", api_key=os.environ[\"HEADPOND_API_KEY\"]" : "";
  const imports = platform.secured ? "import os\n\n" : "";
  return `${imports}from headpond import Client\n\nwith Client(base_url=${url}${key}) as client:\n`;
}

function secret(platform) {
  return platform.secured ? ['  -H "authorization: Bearer $HEADPOND_API_KEY"'] : [];
}

function quoted(text) {
  return /^[\w@.=:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Code in several languages, a tab for each, with a button that copies what is shown. */
export class Samples {
  #tabs;
  #view = make("div.codes", {});

  constructor() {
    this.#tabs = new TabList("Code");
    const copy = make("button.small", { type: "button", click: () => this.#copy(copy) }, "Copy");
    const bar = make("div.samples-bar", {}, this.#tabs.element, copy);
    this.element = make("div.samples", {}, bar, this.#view);
  }

  /** Show `{ curl: "…", openai: "…", headpond: "…" }`, by name. */
  show(codes) {
    const chosen = this.#tabs.chosen?.dataset.language;
    this.#tabs.clear();
    this.#view.replaceChildren();
    for (const [language, code] of Object.entries(codes)) {
      const panel = make("pre", { id: fresh("code"), tabindex: 0 }, make("code", {}, code));
      const tab = this.#tabs.add(language, panel);
      tab.dataset.language = language;
      this.#view.append(panel);
      if (language === chosen) this.#tabs.select(tab);
    }
  }

  async #copy(button) {
    const shown = this.#view.querySelector("pre:not([hidden])");
    try {
      await navigator.clipboard.writeText(shown.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown); // where the clipboard is closed to pages
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}
