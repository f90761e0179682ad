// The page: what is chosen, views, search, addresses and keys.

const heatOf = (k) => (longest > 0 ? Math.sqrt(timeOf(k) / longest) : 0);
const lastPart = (name) => (name.length > 30 ? `…${name.slice(name.length - 29)}` : name);

const legendOf = (...parts) => parts.map(([kind, text]) => el("span", {}, el("i", { class: kind }), text));

const panes = {
  model: new Pane({
    title: "The model as read", name: "node", drawn: data.model.drawn,
    look: (i) => ({
      lines: [model[i].op, lastPart(model[i].name)], kind: model[i].state, heat: 0,
      title: `${model[i].name}: ${model[i].op} ${model[i].ty}`,
    }),
    legend: legendOf(["", "kept"], ["gone", "gone"], ["known", "computed before the first run"], ["end", "input, output"]),
    pick: (i, isSecond) => pick({ kind: "node", at: i }, isSecond),
  }),
  planned: new Pane({
    title: "The result as planned", name: "kernel", drawn: data.planned.drawn,
    look: (k) => ({
      lines: [planned[k].op, isKernel(k) ? `${seconds(timeOf(k))}  ${lastPart(planned[k].nodes[0] ?? "")}` : planned[k].nodes[0]],
      kind: isKernel(k) ? (planned[k].kernel === "view" ? "view" : "") : planned[k].op, heat: isKernel(k) ? heatOf(k) : 0,
      title: `${kernelName(k)}: ${seconds(timeOf(k))} ${timeIs}`,
    }),
    legend: legendOf(["heat", `${timeIs} time: none to ${seconds(longest)}`], ["known", "a view"]),
    pick: (k, isSecond) => pick({ kind: "kernel", at: k }, isSecond),
  }),
};

const VIEWS = { graph: "Graphs", time: "Time", laws: "Laws", gone: "Gone", history: "Saturation" };
const DRAWS = { time: timeView, laws: lawView, gone: goneView, history: historyView };
const view = document.getElementById("view");
const panel = document.getElementById("panel");

let chosen = null;
let first = null;

function show(name) {
  document.querySelectorAll("#views button").forEach((b) => {
    if (b.dataset.view === name) b.setAttribute("aria-current", "page"); else b.removeAttribute("aria-current");
  });
  view.className = name === "graph" ? "graphs" : "table";
  view.replaceChildren(...(name === "graph" ? [panes.model.element, panes.planned.element] : [el("div", {}, DRAWS[name]())]));
}

function fill(...content) {
  panel.replaceChildren(el("div", {}, content));
  panel.scrollTop = 0;
  // What is chosen is said to those who do not see it.
  document.getElementById("said").textContent = panel.querySelector("h2")?.textContent ?? "";
}
const showPanel = () => { panel.focus(); panel.scrollIntoView({ block: "nearest" }); };

// Marks what is chosen and its counterparts on both sides, and tells of it.
function choose(what) {
  chosen = what;
  const [left, right] = [new Map(), new Map()];
  const put = (side, all, how) => (all ?? []).forEach((i) => { if (side.get(i) !== "strong") side.set(i, how); });
  if (what?.kind === "node") {
    const copy = modelCopy(what.at);
    put(left, [what.at], "strong");
    put(right, model[what.at].kernels, "strong");
    if (copy !== undefined) { put(right, kernelsOfCopy.get(copy), "weak"); put(left, modelsOfCopy.get(copy), "weak"); }
  } else if (what?.kind === "kernel") {
    const copy = kernelCopy(what.at);
    put(right, [what.at], "strong");
    put(left, planned[what.at].nodes.map((n) => modelByName.get(n)).filter((i) => i !== undefined), "strong");
    if (copy !== undefined) { put(left, modelsOfCopy.get(copy), "weak"); put(right, kernelsOfCopy.get(copy), "weak"); }
  } else if (what?.kind === "law") {
    const law = data.laws[what.at];
    const regions = new Set(data.regions.map((_, r) => r).filter((r) => data.regions[r].laws.includes(law.name) || data.regions[r].steps.includes(law.name)));
    put(left, law.steps.flatMap((s) => data.steps[s].nodes), "strong");
    put(right, kernels.filter((k) => planned[k].region !== null && regions.has(planned[k].region)), "weak");
  }
  const leftFirst = what?.kind === "node" ? what.at : firstOf(left);
  const rightFirst = what?.kind === "kernel" ? what.at : firstOf(right);
  panes.model.mark(left, what?.kind === "node" ? what.at : null);
  panes.planned.mark(right, what?.kind === "kernel" ? what.at : null);
  if (leftFirst !== undefined) panes.model.reveal(leftFirst);
  if (rightFirst !== undefined) panes.planned.reveal(rightFirst);
}

function firstOf(marks) {
  const strong = [...marks].filter(([, how]) => how === "strong").map(([i]) => i);
  const all = strong.length ? strong : [...marks.keys()];
  return all.length ? Math.min(...all) : undefined;
}

// A box was clicked: the second of two that are compared, or one to be told of.
function pick(what, isSecond) {
  if ((isSecond && chosen && chosen.kind !== "law") || first) {
    const one = first ?? chosen;
    first = null;
    location.hash = `#compare=${[one, what].map((x) => `${x.kind}:${x.at}`).join(",")}`;
    return;
  }
  go(what.kind, what.kind === "node" ? model[what.at].name : what.at);
}

// On a narrow screen details are below the graphs.
const isNarrow = () => matchMedia("(max-width: 800px)").matches;

// The next box that is clicked is held against the one that is chosen, or against the one before it.
function compare() {
  show("graph");
  if (chosen && chosen.kind !== "law") {
    first = chosen;
    fill(crumbs(), el("h2", {}, "Compare"), el("p", {}, `${nameOf(first)} with … click another box, on either side.`));
  } else {
    fill(crumbs(), el("h2", {}, "Compare"), el("p", {}, "Click a box, then another one while you hold Shift, on either side."));
  }
}

// Does what the address says.
function follow() {
  const [, kind, text] = /^#([a-z]+)=(.*)$/s.exec(location.hash) ?? [null, "", ""];
  let name = text;
  try { name = decodeURIComponent(text); } catch { /* As it is. */ }
  const at = Number(name);
  if (kind !== "compare") first = null;
  if (kind === "view" && name in VIEWS) { show(name); return; }
  if (kind === "node" && modelByName.has(name)) { tell({ kind, at: modelByName.get(name) }, nodePanel); return; }
  const left = data.left_out.findIndex((l) => l.name === name);
  if ((kind === "node" || kind === "read") && left >= 0) { keepGraph(); choose(null); fill(leftOutPanel(left)); return; }
  if (kind === "kernel" && planned[at] !== undefined && name !== "") { tell({ kind, at }, kernelPanel); return; }
  if (kind === "law" && lawByName.has(name)) { tell({ kind, at: lawByName.get(name) }, lawPanel); return; }
  if (kind === "compare") {
    const both = name.split(",").map((x) => ({ kind: x.split(":")[0], at: Number(x.split(":")[1]) }));
    const isKnown = ({ kind: k, at: i }) => (k === "node" ? model : planned)[i] !== undefined;
    if (both.length === 2 && both.every(isKnown)) { keepGraph(); choose(both[0]); fill(comparePanel(...both)); return; }
  }
  keepGraph();
  choose(null);
  fill(kind ? el("p", { class: "note" }, `There is no ${kind} “${name}” on this page.`) : null, overview());
}

const keepGraph = () => { if (!view.firstChild) show("graph"); };

function tell(what, content) {
  keepGraph();
  choose(what);
  fill(content(what.at));
  if (isNarrow()) panel.scrollIntoView();
}

// Search: words that all are found in a name, an operator or the text of a law.
const search = document.getElementById("search");
const hits = document.getElementById("hits");
const entries = [
  ...model.map((it) => ({ kind: "node", at: it.name, name: it.name, about: `${it.op}, ${it.state}` })),
  ...data.left_out.map((it) => ({ kind: "read", at: it.name, name: it.name, about: `${it.op}, left out when read` })),
  ...kernels.map((k) => ({ kind: "kernel", at: k, name: kernelName(k), about: `kernel ${planned[k].kernel}` })),
  ...data.laws.map((l) => ({ kind: "law", at: l.name, name: l.name, about: `law, ${l.class}. ${l.doc[0] ?? ""}` })),
].map((e) => ({ ...e, text: `${e.name} ${e.about} ${e.kind}`.toLowerCase() }));
const HITS = 40;
let found = [];
let active = 0;

function lookUp() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  // Names that begin with what is typed come first, then names that have it.
  const rank = (e) => (e.name.toLowerCase().startsWith(words[0]) ? 0 : e.name.toLowerCase().includes(words[0]) ? 1 : 2);
  found = words.length ? entries.filter((e) => words.every((w) => e.text.includes(w))) : [];
  found = found.map((e, i) => [rank(e), i, e]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , e]) => e);
  active = 0;
  drawHits(words.length > 0);
}

function drawHits(isOpen) {
  hits.hidden = !isOpen;
  search.setAttribute("aria-expanded", String(isOpen));
  const more = found.length - HITS;
  hits.replaceChildren(...found.slice(0, HITS).map((e, i) => el("li", {
    role: "option", id: `hit-${i}`, "aria-selected": String(i === active), onmousedown: (event) => { event.preventDefault(); open(e); },
  }, e.name, " ", el("small", {}, e.about))));
  if (isOpen && !found.length) hits.append(el("li", {}, "Nothing is called that."));
  if (more > 0) hits.append(el("li", {}, el("small", {}, `… and ${more} more: type on`)));
  if (found.length) search.setAttribute("aria-activedescendant", `hit-${active}`); else search.removeAttribute("aria-activedescendant");
  document.getElementById(`hit-${active}`)?.scrollIntoView({ block: "nearest" });
}

function open(entry) {
  drawHits(false);
  search.blur();
  show("graph");
  go(entry.kind, entry.at);
}

search.addEventListener("input", lookUp);
search.addEventListener("focus", () => { if (search.value) lookUp(); });
search.addEventListener("blur", () => drawHits(false));
search.addEventListener("keydown", (e) => {
  const shown = Math.min(found.length, HITS);
  if (e.key === "ArrowDown" || e.key === "ArrowUp") {
    e.preventDefault();
    if (shown) { active = (active + (e.key === "ArrowDown" ? 1 : shown - 1)) % shown; drawHits(true); }
  } else if (e.key === "Escape") { e.stopPropagation(); search.value = ""; found = []; drawHits(false); search.blur(); }
});
document.getElementById("find").addEventListener("submit", (e) => { e.preventDefault(); if (found[active]) open(found[active]); });

// Light or dark: what the system says, until the button says otherwise.
function turnTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
}

const KEYS = [
  ["/", "search"], ["↑ ↓", "in a graph: to what a box reads, or what reads it"], ["← →", "in a graph: to the neighbours of a layer"],
  ["Enter", "in a graph: to the details of the box"], ["Shift + click, or c", "compare two boxes: why they are not one kernel"],
  ["f", "fold or unfold repeated blocks"], ["t", "light or dark"], ["1 … 5", "the views"], ["Esc", "back to the overview"], ["?", "this list"],
];
const showKeys = () => { fill(crumbs(), el("h2", {}, "Keys"), table([["key"], ["does"]], KEYS)); showPanel(); };

function unfoldBoth() {
  const isOpen = panes.model.isOpen || panes.planned.isOpen;
  Object.values(panes).filter((p) => p.drawn.open && p.isOpen === isOpen).forEach((p) => p.toggle());
}

document.addEventListener("keydown", (e) => {
  if (e.target.matches?.("input") || e.ctrlKey || e.metaKey || e.altKey) return;
  const number = Object.keys(VIEWS)[Number(e.key) - 1];
  const does = {
    "/": () => { search.focus(); search.select(); }, Escape: () => { first = null; location.hash = ""; follow(); },
    t: turnTheme, f: unfoldBoth, c: compare, "?": showKeys,
  }[e.key] ?? (number && (() => go("view", number)));
  if (!does) return;
  e.preventDefault();
  does();
});

document.getElementById("theme").addEventListener("click", turnTheme);
document.getElementById("help").addEventListener("click", showKeys);
document.getElementById("views").append(...Object.entries(VIEWS).map(([name, text]) => el("button", {
  type: "button", "data-view": name, onclick: () => { if (location.hash === `#view=${name}`) show(name); else go("view", name); },
}, text)));
document.getElementById("headline").textContent = `${seconds(data.summary.cost[0])} → ${seconds(data.summary.cost[1])} estimated for ${data.summary.target}; `
  + `${data.summary.kernels[0]} → ${data.summary.kernels[1]} kernels`;
window.addEventListener("hashchange", follow);
show("graph");
follow();
if (location.hash.startsWith("#view=")) fill(overview());
