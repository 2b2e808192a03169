// Light or dark: as the system has it, until the button says otherwise for this tab.

import { make } from "./kit/make.js";

const STORED = "headpond-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Return the button, and bring back what was chosen before. */
export function themeButton() {
  const button = make("button.quiet", { type: "button", click: () => choose(other()) });
  const root = document.documentElement;
  function current() {
    return root.dataset.theme ?? (dark.matches ? "dark" : "light");
  }
  function other() {
    return current() === "dark" ? "light" : "dark";
  }
  function choose(theme) {
    root.dataset.theme = theme;
    store(theme);
    label();
  }
  function label() {
    button.textContent = other() === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to ${other()} colours`);
    // Canvases paint with colours that they read once.
    document.dispatchEvent(new CustomEvent("themechange"));
  }
  dark.addEventListener("change", label);
  const kept = stored();
  if (kept) root.dataset.theme = kept;
  label();
  return button;
}

function stored() {
  try {
    return sessionStorage.getItem(STORED);
  } catch {
    return null;
  }
}

function store(theme) {
  try {
    sessionStorage.setItem(STORED, theme);
  } catch {
    // Then it holds for this page.
  }
}
