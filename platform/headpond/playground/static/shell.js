// The shell: finds what is served, and gives each workload a tab.
// A panel is a module with `mount(root, platform)`; see `Platform`.

import { make } from "./kit/make.js";
import { told } from "./kit/problem.js";
import { TabList } from "./kit/tablist.js";
import { Key } from "./key.js";
import { Platform } from "./platform.js";
import { themeButton } from "./theme.js";

const OWN = {
  overview: "How busy each model is, how well it keeps its promises, and whom it turns away.",
  batches: "Files of requests, computed while nobody waits; each record's result exactly once.",
};

const panels = document.getElementById("panels");
const status = document.getElementById("status");
const key = new Key(open);
const views = new Map();
const tabs = new TabList("Workloads", (tab) => {
  history.replaceState(null, "", `#${views.get(tab).name}`);
  reveal(tab);
});
const change = make("button.quiet", { type: "button", hidden: true, click: close }, "Change key");
document.getElementById("actions").append(change, themeButton());
document.getElementById("nav").append(tabs.element);

/** Show a tab for what the key opens; say what is wrong otherwise. */
async function open(given) {
  const served = new Platform({ name: "served" }, [], given);
  status.className = "";
  status.textContent = "Looking for what is served…";
  try {
    const { secured, jobs } = await (await served.get("playground/server.json")).json();
    if (secured && !given) {
      status.textContent = "";
      key.ask();
      return;
    }
    const [records, models] = await Promise.all(
      ["v1/workloads", "v1/models"].map(async (path) => (await served.get(path)).json()),
    );
    if (given) key.keep(given);
    change.hidden = !given;
    fill(records.data, models.data, given, jobs);
  } catch (error) {
    status.className = "alert";
    status.textContent = told(error);
    if (error.status === 401) key.ask();
  }
}

/** Forget the key and what it opened, and ask for another. */
function close() {
  tabs.clear();
  views.clear();
  panels.replaceChildren();
  change.hidden = true;
  key.ask();
}

function fill(records, models, given, jobs) {
  const modelsOf = (name) => models.filter((model) => model.workload === name);
  const all = records.filter(({ name }) => modelsOf(name).length);
  const own = (name, entry) =>
    add({ name, summary: OWN[name] }, new Platform({ name, records: all }, models, given), entry);
  own("overview", "./overview/overview.js");
  for (const record of all) {
    const platform = new Platform(record, modelsOf(record.name), given);
    add(record, platform, record.panel ? platform.asset("panel.js") : "./generic.js");
  }
  if (jobs) own("batches", "./batches/batches.js");
  status.textContent = all.length ? "" : "No model is served here yet.";
  follow();
}

function add({ name, summary }, platform, entry) {
  const title = name[0].toUpperCase() + name.slice(1);
  const root = make("div.panel", {});
  const view = make(
    "section",
    {},
    make("header.panel-head", {}, make("h2", {}, title), make("p.summary", {}, summary)),
    root,
  );
  panels.append(view);
  const tab = tabs.add(title, view, `tab-${name}`);
  views.set(tab, { name, platform, root, entry, mounted: false });
}

/** Open the tab that the address names, else the first. */
function follow() {
  const named = tabs.tabs.find((tab) => `#${views.get(tab).name}` === location.hash);
  const tab = named ?? tabs.tabs[0];
  if (tab) tabs.select(tab);
}

/** Mount a panel when it is first shown. */
async function reveal(tab) {
  const view = views.get(tab);
  tab.scrollIntoView({ block: "nearest", inline: "center" });
  if (view.mounted) return;
  view.mounted = true;
  try {
    const { mount } = await import(view.entry);
    await mount(view.root, view.platform);
  } catch (error) {
    view.root.textContent = `This panel can't be shown: ${error.message}`;
  }
}

addEventListener("hashchange", follow);
open(key.kept);
