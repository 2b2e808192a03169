// Batches: a file of requests goes up, is watched while it is computed, and its results come back.

import { choice, field } from "../kit/field.js";
import { dropZone } from "../kit/drop.js";
import { make, styled } from "../kit/make.js";
import { Notice } from "../kit/notice.js";
import { told } from "../kit/problem.js";
import { Receipt } from "../kit/receipt.js";
import { batchRoutes, exampleFile } from "./example.js";
import { Job } from "./job.js";
import { samples } from "./samples.js";
import { upload } from "./upload.js";

const EVERY_MS = 1500;

export async function mount(root, platform) {
  await styled(platform.url("playground/batches/batches.css"));
  new Batches(root, platform);
}

class Batches {
  #root;
  #platform;
  #routes;
  #endpoint;
  #notice = new Notice();
  #receipt = new Receipt();
  #list = make("div.jobs", {});
  #empty = make("p.empty", {}, "No batch yet. Drop a file above, or run the example.");
  #jobs = new Map();
  #starting = false;

  constructor(root, platform) {
    this.#root = root;
    this.#platform = platform;
    this.#routes = batchRoutes(platform.record.records);
    this.#endpoint = choice(this.#routes.map(({ path }) => path), "/v1/embeddings");
    const drop = dropZone({
      label: "Drop a file of requests, or choose one",
      accept: ".jsonl,application/jsonl",
      hint: "JSON Lines: custom_id, method, url and body in each; see docs/batch.md",
      take: (file) => this.#begin(file),
    });
    const run = () => this.#begin(exampleFile(this.#route, this.#model));
    const example = make("button", { type: "button", click: run }, "Run an example of 24 records");
    root.append(
      make("div.stack", {}, field("Endpoint", this.#endpoint), drop, make("div.row", {}, example)),
      this.#notice.element,
      make("h3", {}, "Your batches"),
      this.#empty,
      this.#list,
      this.#receipt.element,
    );
    this.#watch();
  }

  get #route() {
    return this.#routes[this.#endpoint.selectedIndex];
  }

  get #model() {
    return this.#platform.models.find(({ workload }) => workload === this.#route.workload).id;
  }

  async #begin(file) {
    const endpoint = this.#endpoint.value;
    const job = this.#card(endpoint, file.name);
    this.#starting = true; // else it may be listed before it is known here
    try {
      const stored = await upload(this.#platform, file, (share) => job.uploaded(share));
      const asked = { input_file_id: stored.id, endpoint, completion_window: "24h" };
      const answer = await this.#platform.post("v1/batches", asked);
      const batch = await answer.json();
      this.#jobs.set(batch.id, job);
      job.show(batch);
      this.#notice.say(`${file.name} is taken in.`);
      this.#receipt.show(answer, samples(this.#platform, file.name, asked));
    } catch (error) {
      job.fail(told(error));
    }
    this.#starting = false;
  }

  /** Return a new card, on top of the others or below that of a newer batch. */
  #card(endpoint, name, newer = null) {
    const job = new Job(endpoint, name, this.#platform, this.#notice);
    if (newer) newer.element.after(job.element);
    else this.#list.prepend(job.element);
    this.#empty.hidden = true;
    return job;
  }

  /** Show batches, the newest first; none moves that is shown already. */
  #show(batches) {
    let newer = null;
    for (const batch of batches) {
      const job = this.#jobs.get(batch.id) ?? this.#card(batch.endpoint, batch.id, newer);
      this.#jobs.set(batch.id, job);
      job.show(batch);
      newer = job;
    }
  }

  async #look() {
    if (document.hidden || !this.#root.checkVisibility()) return;
    if (this.#jobs.size && [...this.#jobs.values()].every(({ over }) => over)) return;
    const listed = await (await this.#platform.get("v1/batches?limit=10")).json();
    if (this.#starting) return;
    this.#show(listed.data);
  }

  async #watch() {
    try {
      await this.#look();
    } catch (error) {
      this.#notice.fail(error);
    }
    if (this.#root.isConnected) setTimeout(() => this.#watch(), EVERY_MS);
  }
}
