// The frame of every page: views, the panel, tables, search, addresses, keys and colour schemes. What is in it is said by the page:
// `panes`, `VIEWS` and `DRAWS`, `entries` to be found, `KEYS`, `choose`, `overview` and `follow`.

const lastPart = (name) => (name.length > 30 ? `…${name.slice(name.length - 29)}` : name);

const legendOf = (...parts) => parts.map(([kind, text]) => el("span", {}, el("i", { class: kind }), text));

const view = document.getElementById("view");
const panel = document.getElementById("panel");

function show(name) {
  document.querySelectorAll("#views button").forEach((b) => {
    if (b.dataset.view === name) b.setAttribute("aria-current", "page"); else b.removeAttribute("aria-current");
  });
  view.className = name === "graph" ? "graphs" : "table";
  view.replaceChildren(...(name === "graph" ? Object.values(panes).map((p) => p.element) : [el("div", {}, DRAWS[name]())]));
}

function fill(...content) {
  panel.replaceChildren(el("div", {}, content));
  panel.scrollTop = 0;
  // What is chosen is said to those who do not see it.
  document.getElementById("said").textContent = panel.querySelector("h2")?.textContent ?? "";
}
const showPanel = () => { panel.focus(); panel.scrollIntoView({ block: "nearest" }); };

const crumbs = (...buttons) => el("div", { class: "crumbs" },
  el("button", { type: "button", onclick: () => { location.hash = ""; } }, "Overview"),
  el("button", { type: "button", class: "narrow", onclick: () => { show("graph"); scrollTo(0, 0); } }, "Graphs"), buttons);

function firstOf(marks) {
  const strong = [...marks].filter(([, how]) => how === "strong").map(([i]) => i);
  const all = strong.length ? strong : [...marks.keys()];
  return all.length ? Math.min(...all) : undefined;
}

// On a narrow screen details are below the graphs.
const isNarrow = () => matchMedia("(max-width: 800px)").matches;

const go = (kind, name) => { location.hash = anchor(kind, name); };

// What the address asks for: a kind and a name, both empty of none.
function address() {
  const [, kind, text] = /^#([a-z]+)=(.*)$/s.exec(location.hash) ?? [null, "", ""];
  try { return [kind, decodeURIComponent(text)]; } catch { return [kind, text]; }
}

const keepGraph = () => { if (!view.firstChild) show("graph"); };

function tell(what, content) {
  keepGraph();
  choose(what);
  fill(content(what.at));
  if (isNarrow()) panel.scrollIntoView();
}

const table = (head, rows, pick) => el("table", {},
  el("thead", {}, el("tr", {}, head.map(([text, kind]) => el("th", { class: kind ?? "", scope: "col" }, text)))),
  el("tbody", {}, rows.map((cells, i) => el("tr", pick ? { class: "pick", onclick: (e) => { if (!e.target.closest("button")) pick(i); } } : {},
    cells.map((c, j) => el("td", { class: head[j][1] ?? "" }, c))))));

// Rows of a table shown at first.
const ROWS = 200;

// A table of many rows, with a filter over what they say.
function filtered(head, rows, about) {
  const holder = el("div", {});
  let most = ROWS;
  const input = el("input", { class: "filter", type: "search", placeholder: "Filter", "aria-label": about, oninput: () => { most = ROWS; draw(); } });
  const draw = () => {
    const wanted = input.value.toLowerCase();
    const found = rows.filter((r) => r.text.toLowerCase().includes(wanted));
    holder.replaceChildren(
      el("p", { class: "faint" }, `${found.length} of ${rows.length}`),
      table(head, found.slice(0, most).map((r) => r.cells()), (i) => found[i].pick()));
    if (found.length > most) {
      holder.append(el("button", { type: "button", onclick: () => { most *= 5; draw(); } }, "Show more"));
    }
  };
  draw();
  return [input, holder];
}

function errorText(e) {
  const told = (x) => `${scientific(x)} (${(x / e.roundoff).toFixed(1)} u)`;
  const sides = e.sides ? `; from what f64 makes of it, what was there is off by ${told(e.sides[0])} and what it equals by ${told(e.sides[1])}` : "";
  return `both sides differ by ${told(e.between)}${sides}`;
}
const errorHelp = "Largest distances, relative to the largest element, computed from the inputs that the self-check draws; u is the unit roundoff of the type.";

// A slider over steps of the proof: both sides of each, drawn.
function steps(list, title = "Steps of the proof") {
  if (!list.length) return null;
  const body = el("div", {});
  const input = el("input", {
    type: "range", min: 1, max: list.length, value: 1, "aria-label": `${title}: 1 to ${list.length}`, oninput: () => draw(),
  });
  const move = (by) => () => { input.value = Number(input.value) + by; draw(); };
  const draw = () => {
    const at = Number(input.value) - 1;
    const step = data.steps[list[at]];
    const drawing = step.drawing === null ? null : data.drawings[step.drawing];
    input.setAttribute("aria-valuetext", `step ${at + 1} of ${list.length}`);
    const place = step.round === 0 ? "while it was read" : `round ${step.round}`;
    const when = step.round === undefined ? null : el("span", { class: "faint" }, ` search ${step.search + 1}, ${place}`);
    body.replaceChildren(
      el("p", {}, `${at + 1} of ${list.length}: `, lawLink(data.laws[step.law].name), " ", classTag(data.laws[step.law].class),
        when),
      ...(drawing ? [
        el("p", { class: "faint" }, "what was there"), drawnTerm(drawing.left, "before the step"),
        el("p", { class: "faint" }, "what it equals"), drawnTerm(drawing.right, "after the step"),
        drawing.cost ? el("p", {}, `By itself: estimated ${seconds(drawing.cost[0])} before, ${seconds(drawing.cost[1])} after.`) : null,
        drawing.error ? el("p", { title: errorHelp }, `Measured: ${errorText(drawing.error)}.`) : null,
      ] : [el("pre", {}, step.text[0]), el("p", { class: "faint" }, "equals"), el("pre", {}, step.text[1])]).filter(Boolean));
  };
  draw();
  return [
    el("h3", {}, title),
    el("div", { class: "slider" },
      el("button", { type: "button", "aria-label": "Step before", onclick: move(-1) }, "‹"), input,
      el("button", { type: "button", "aria-label": "Next step", onclick: move(1) }, "›")),
    body,
  ];
}

// Search: words that all are found in a name, an operator or the text of a law.
const search = document.getElementById("search");
const hits = document.getElementById("hits");
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

const showKeys = () => { fill(crumbs(), el("h2", {}, "Keys"), table([["key"], ["does"]], KEYS)); showPanel(); };

function unfoldBoth() {
  const isOpen = Object.values(panes).some((p) => p.isOpen);
  Object.values(panes).filter((p) => p.drawn.open && p.isOpen === isOpen).forEach((p) => p.toggle());
}

// Begins when all parts are read; `does` says what further keys do.
function begin(headline, does) {
  document.addEventListener("keydown", (e) => {
    if (e.target.matches?.("input") || e.ctrlKey || e.metaKey || e.altKey) return;
    const number = Object.keys(VIEWS)[Number(e.key) - 1];
    const action = {
      "/": () => { search.focus(); search.select(); }, Escape: () => { location.hash = ""; follow(); },
      t: turnTheme, f: unfoldBoth, "?": showKeys, ...does,
    }[e.key] ?? (number && (() => go("view", number)));
    if (!action) return;
    e.preventDefault();
    action();
  });
  document.getElementById("theme").addEventListener("click", turnTheme);
  document.getElementById("help").addEventListener("click", showKeys);
  document.getElementById("views").append(...Object.entries(VIEWS).map(([name, text]) => el("button", {
    type: "button", "data-view": name, onclick: () => { if (location.hash === `#view=${name}`) show(name); else go("view", name); },
  }, text)));
  document.getElementById("headline").append(...[headline].flat(Infinity));
  window.addEventListener("hashchange", follow);
  show("graph");
  follow();
  if (location.hash.startsWith("#view=")) fill(overview());
}
