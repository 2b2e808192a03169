// What is going on, and what went wrong; said aloud by screen readers when it changes.

import { make } from "./make.js";
import { told } from "./problem.js";

export class Notice {
  constructor(text = "") {
    this.status = make("p.status", { role: "status" }, text);
    this.alert = make("p.alert", { role: "alert" });
    this.element = make("div.notice", {}, this.status, this.alert);
  }

  /** Say what goes on; errors said before are over. */
  say(text) {
    this.alert.textContent = "";
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  /** Say what went wrong, after what became of it. */
  fail(error, outcome = "") {
    const words = told(error);
    this.status.textContent = words === undefined ? "Stopped." : "";
    this.alert.textContent = words === undefined ? "" : `${outcome} ${words}`.trim();
  }
}
