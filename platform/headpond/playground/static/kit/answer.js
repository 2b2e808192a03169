// One answer of the API: its body or its events, and what it says about itself.

import { eventsOf } from "./events.js";
import { Problem } from "./problem.js";
import { phasesOf } from "./timing.js";

const TIMING = /^server-timing: /;

export class Answer {
  #response;

  /** Take a response that went well. */
  constructor(response) {
    this.#response = response;
    this.phases = phasesOf(response.headers.get("server-timing"));
    this.work = response.headers.get("x-headpond-work");
    // What a stream comes to is known when it is over; its header says what was admitted.
    this.streamed = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
    this.bundle = response.headers.get("x-headpond-bundle");
    this.requestId = response.headers.get("x-request-id");
  }

  /** Return its body, read as JSON. */
  json() {
    return this.#response.json();
  }

  /** Return its body as text. */
  text() {
    return this.#response.text();
  }

  /** Yield the events of a stream, read as JSON; its phases are known after the last. */
  async *events() {
    for await (const { data, comment } of eventsOf(this.#response.body)) {
      if (TIMING.test(comment)) this.phases = phasesOf(comment.replace(TIMING, ""));
      if (!data || data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error) throw Problem.streamed(event.error);
      yield event;
    }
  }
}
