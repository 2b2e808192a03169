// The shell: finds what is served, and gives the panel of each workload a tab.
// A panel is a module with `mount(root, platform)`; see `Platform`.

const BASE = new URL("..", import.meta.url);

/** What a panel may use: the models of its workload, its own files, and the API. */
class Platform {
  #key;

  constructor(workload, models, key) {
    this.workload = workload;
    this.models = models;
    this.#key = key;
  }

  /** Return the address of one of the panel's own files. */
  asset(name) {
    return new URL(`playground/panels/${this.workload}/${name}`, BASE).href;
  }

  /** Ask for a path of the API, as `fetch` does. */
  fetch(path, options = {}) {
    return ask(path, this.#key, options);
  }

  /** Open a WebSocket of the API; browsers can't set headers, so the key is a subprotocol. */
  socket(path, query, protocol) {
    const url = new URL(path, BASE);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.search = new URLSearchParams(query);
    const key = this.#key ? [`openai-insecure-api-key.${this.#key}`] : [];
    return new WebSocket(url, [protocol, ...key]);
  }
}

function ask(path, key, options = {}) {
  const headers = new Headers(options.headers);
  if (key) headers.set("authorization", `Bearer ${key}`);
  return fetch(new URL(path, BASE), { ...options, headers });
}

const tabs = document.getElementById("tabs");
const panels = document.getElementById("panels");
const status = document.getElementById("status");
const form = document.getElementById("key-form");

/** Show a tab for each workload that has a panel and a model; say what is wrong otherwise. */
async function open(key) {
  try {
    const answers = await Promise.all(
      ["v1/workloads", "v1/models"].map((path) => ask(path, key)),
    );
    const refused = answers.find((answer) => !answer.ok);
    if (refused) {
      form.hidden = refused.status !== 401;
      const { error } = await refused.json();
      status.textContent = error.message;
      if (!form.hidden) document.getElementById("key").focus();
      return;
    }
    const [workloads, models] = await Promise.all(answers.map((answer) => answer.json()));
    form.hidden = true;
    status.textContent = "";
    for (const { name, panel } of workloads.data) {
      const served = models.data.filter((model) => model.workload === name);
      if (panel && served.length) add(name, new Platform(name, served, key));
    }
    if (tabs.firstElementChild) select(tabs.firstElementChild);
    else status.textContent = "None of the models here has a panel.";
  } catch (error) {
    status.textContent = `The server can't be reached: ${error.message}`;
  }
}

const views = new Map();

function add(name, platform) {
  const tab = document.createElement("button");
  tab.type = "button";
  tab.id = `tab-${name}`;
  tab.textContent = name[0].toUpperCase() + name.slice(1);
  tab.setAttribute("role", "tab");
  tab.setAttribute("aria-controls", `panel-${name}`);
  const panel = document.createElement("section");
  panel.id = `panel-${name}`;
  panel.setAttribute("role", "tabpanel");
  panel.setAttribute("aria-labelledby", tab.id);
  tabs.append(tab);
  panels.append(panel);
  views.set(tab, { panel, platform, mounted: false });
  tab.addEventListener("click", () => select(tab));
}

/** Show one tab's panel, which is mounted when it is first shown; the others keep what they hold. */
function select(chosen) {
  for (const [tab, view] of views) {
    const shown = tab === chosen;
    tab.setAttribute("aria-selected", shown);
    tab.tabIndex = shown ? 0 : -1;
    view.panel.hidden = !shown;
    if (shown && !view.mounted) {
      view.mounted = true;
      mount(view.panel, view.platform);
    }
  }
}

async function mount(panel, platform) {
  try {
    const { mount } = await import(platform.asset("panel.js"));
    await mount(panel, platform);
  } catch (error) {
    panel.textContent = `The panel can't be shown: ${error.message}`;
  }
}

tabs.addEventListener("keydown", (event) => {
  const all = [...tabs.children];
  const at = all.indexOf(event.target);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const tab = all[(to + all.length) % all.length];
  tab.focus();
  tab.click();
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  open(document.getElementById("key").value.trim());
});

open("");
