// A place to drop a file on, to choose one at, or to paste one into.

import { make } from "./make.js";

/** Return a drop zone; `take` is called with each file. */
export function dropZone({ label, accept, hint, take }) {
  const input = make("input.pick", {
    type: "file",
    accept,
    change: () => {
      const [file] = input.files;
      input.value = "";
      if (file) take(file);
    },
  });
  const zone = make(
    "label.drop",
    {},
    make("span.drop-title", {}, label),
    make("span.hint", {}, hint),
    input,
  );
  const over = (on) => (event) => {
    event.preventDefault();
    zone.classList.toggle("over", on);
  };
  zone.addEventListener("dragenter", over(true));
  zone.addEventListener("dragover", over(true));
  zone.addEventListener("dragleave", over(false));
  zone.addEventListener("drop", (event) => {
    over(false)(event);
    const [file] = event.dataTransfer.files;
    if (file) take(file);
  });
  return zone;
}
