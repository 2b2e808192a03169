// What a panel may use: the models of its workload, its own files, and the API.

import { Answer } from "./kit/answer.js";
import { Problem } from "./kit/problem.js";

const BASE = new URL("..", import.meta.url);

export class Platform {
  #key;

  /** `record` is the workload as `/v1/workloads` has it, `models` those that serve it. */
  constructor(record, models, key) {
    this.record = record;
    this.models = models;
    this.#key = key;
  }

  get workload() {
    return this.record.name;
  }

  /** Whether the server asks for a key, so that code samples need one too. */
  get secured() {
    return this.#key !== "";
  }

  /** Return the address of a path of the API. */
  url(path) {
    return new URL(path, BASE).href;
  }

  /** Return the address of one of the panel's own files. */
  asset(name) {
    return this.url(`playground/panels/${this.workload}/${name}`);
  }

  /** Ask for a path of the API, as `fetch` does. */
  fetch(path, options = {}) {
    const headers = new Headers(options.headers);
    for (const [name, value] of this.credentials()) headers.set(name, value);
    return fetch(this.url(path), { ...options, headers });
  }

  /** Return the headers that show the key. */
  credentials() {
    return this.#key ? [["authorization", `Bearer ${this.#key}`]] : [];
  }

  /** Return the `Answer` to a body of JSON, or to a form; throws `Problem` where it is refused. */
  async post(path, body, { signal } = {}) {
    const form = body instanceof FormData;
    const options = form
      ? { body }
      : { body: JSON.stringify(body), headers: { "content-type": "application/json" } };
    return this.#checked(await this.fetch(path, { method: "POST", signal, ...options }));
  }

  /** Return the `Answer` to a question without a body; throws `Problem` where it is refused. */
  async get(path, { signal } = {}) {
    return this.#checked(await this.fetch(path, { signal }));
  }

  /** Open a WebSocket of the API; browsers can't set headers, so the key is a subprotocol. */
  socket(path, query, protocol) {
    const url = new URL(path, BASE);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.search = new URLSearchParams(query);
    const key = this.#key ? [`openai-insecure-api-key.${this.#key}`] : [];
    return new WebSocket(url, [protocol, ...key]);
  }

  async #checked(response) {
    if (!response.ok) throw await Problem.of(response);
    return new Answer(response);
  }
}
