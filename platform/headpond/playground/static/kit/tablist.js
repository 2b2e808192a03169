// Tabs as ARIA has them: one of them is in the tab order, arrows go to the others.

import { fresh, make } from "./make.js";

export class TabList {
  #panels = new Map();
  #onSelect;

  /** `onSelect` is told of each tab that is chosen. */
  constructor(label, onSelect = () => {}) {
    this.#onSelect = onSelect;
    this.element = make("div", { role: "tablist", "aria-label": label });
    this.element.addEventListener("keydown", (event) => this.#move(event));
  }

  get tabs() {
    return [...this.#panels.keys()];
  }

  get chosen() {
    return this.tabs.find((tab) => tab.getAttribute("aria-selected") === "true");
  }

  clear() {
    this.#panels.clear();
    this.element.replaceChildren();
  }

  /** Add a tab with its panel; the first is chosen. */
  add(text, panel, id = fresh("tab")) {
    panel.id ||= fresh("panel");
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", id);
    const attributes = { type: "button", role: "tab", id, "aria-controls": panel.id };
    const tab = make("button", { ...attributes, click: () => this.select(tab) }, text);
    this.element.append(tab);
    this.#panels.set(tab, panel);
    this.#mark(tab, this.#panels.size === 1);
    return tab;
  }

  /** Show one tab's panel; the others keep what they hold. */
  select(chosen) {
    for (const tab of this.tabs) this.#mark(tab, tab === chosen);
    this.#onSelect(chosen);
  }

  #mark(tab, shown) {
    tab.setAttribute("aria-selected", shown);
    tab.tabIndex = shown ? 0 : -1;
    this.#panels.get(tab).hidden = !shown;
  }

  #move(event) {
    const at = this.tabs.indexOf(event.target);
    const [next, last] = [at + 1, this.tabs.length - 1];
    const to = { ArrowRight: next, ArrowDown: next, ArrowLeft: at - 1, ArrowUp: at - 1 };
    const target = { ...to, Home: 0, End: last }[event.key];
    if (at < 0 || target === undefined) return;
    event.preventDefault();
    const tab = this.tabs.at(target % this.tabs.length);
    tab.focus();
    this.select(tab);
  }
}
