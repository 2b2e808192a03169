// The API key: asked for where the server wants one, and kept for as long as the tab is open.

const STORED = "headpond-key";

export class Key {
  #form = document.getElementById("key-form");
  #input = document.getElementById("key");

  /** `open` is called with each key that is entered. */
  constructor(open) {
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      open(this.#input.value.trim());
    });
  }

  /** The key that was entered before in this tab, or nothing. */
  get kept() {
    try {
      return sessionStorage.getItem(STORED) ?? "";
    } catch {
      return ""; // storage is closed to this page: the key lives as long as the page
    }
  }

  /** Keep a key that opens the server. */
  keep(key) {
    this.#form.hidden = true;
    this.#input.value = "";
    try {
      sessionStorage.setItem(STORED, key);
    } catch {
      // See `kept`.
    }
  }

  /** Ask for a key, and forget the one that was kept. */
  ask() {
    try {
      sessionStorage.removeItem(STORED);
    } catch {
      // See `kept`.
    }
    this.#form.hidden = false;
    this.#input.focus();
  }
}
