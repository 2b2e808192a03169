// Documents as cards, which move to where they rank.

import { make } from "../../kit/make.js";

const MOVE_MS = 450;
const MOST_SHOWN = 200; // cards: a browser is busy for seconds with thousands of them
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Cards {
  #cards = [];

  constructor() {
    this.element = make("ol.ranked", { "aria-label": "Documents, the best first" });
  }

  /** Show documents in the order that they were given in. */
  show(documents) {
    this.#cards = documents.map(card);
    this.#place(this.#cards.map(({ element }) => element));
  }

  /** Move the cards to their places; `results` has the index and score of each, best first. */
  rank(results) {
    const shown = this.#cards.slice(0, MOST_SHOWN);
    const before = new Map(shown.map(({ element }) => [element, element.offsetTop]));
    const most = Math.max(...results.map(({ relevance_score: score }) => score), 1e-9);
    const ranked = results.map(({ index, relevance_score: score }, place) => {
      const { element, placeText, scoreText, moved, bar } = this.#cards[index];
      placeText.textContent = String(place + 1);
      scoreText.textContent = score.toFixed(3);
      moved.textContent = moves(index, place);
      bar.value = Math.max(0, score / most);
      return element;
    });
    this.#place(ranked);
    if (still.matches) return;
    for (const element of ranked.slice(0, MOST_SHOWN)) {
      if (!before.has(element)) continue;
      const distance = before.get(element) - element.offsetTop;
      const from = { transform: `translateY(${distance}px)` };
      element.animate([from, { transform: "none" }], { duration: MOVE_MS, easing: "ease-in-out" });
    }
  }

  #place(elements) {
    const more = elements.length - MOST_SHOWN;
    this.element.replaceChildren(...elements.slice(0, MOST_SHOWN));
    if (more > 0) this.element.append(make("li.more", {}, `and ${more} more`));
  }
}

function card(text, at) {
  const placeText = make("span.place", {}, String(at + 1));
  const scoreText = make("span.score", {});
  const moved = make("span.moved", {}, "as given");
  const bar = make("progress", { max: 1, value: 0, "aria-label": "Score beside the best" });
  const element = make("li", {}, placeText, make("span.text", {}, text), scoreText, bar, moved);
  return { element, placeText, scoreText, moved, bar };
}

function moves(from, to) {
  if (from === to) return "stays";
  return from > to ? `▲ up ${from - to}` : `▼ down ${to - from}`;
}
