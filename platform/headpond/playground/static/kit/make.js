// Elements, made of text and other elements: no markup is ever read from a string.

/** Return an element; attributes that are false or absent are left out, functions are listeners. */
export function make(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.classList.add(...classes);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Return an element of SVG. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  element.append(...children.flat());
  return element;
}

/** Resolve when a style sheet is in force. */
export function styled(href) {
  if (document.querySelector(`link[href="${href}"]`)) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const link = make("link", { rel: "stylesheet", href });
    link.addEventListener("load", () => resolve());
    link.addEventListener("error", () => reject(new Error(`${href} can't be read`)));
    document.head.append(link);
  });
}

let numbered = 0;

/** Return an identifier that no other element has. */
export function fresh(name) {
  numbered += 1;
  return `${name}-${numbered}`;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value != null && value !== false) element.setAttribute(name, value);
  }
}
