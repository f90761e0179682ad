// The page: what is chosen, views, search, addresses and keys.

const heatOf = (k) => (longest > 0 ? Math.sqrt(timeOf(k) / longest) : 0);

const panes = {
  model: new Pane({
    title: "The model as read", name: "node", drawn: data.model.drawn,
    look: (i) => {
      const op = keptAsItIs.has(i) ? `${data.left_out[keptAsItIs.get(i)].op}, kept as it is` : model[i].op;
      return { lines: [op.split(",")[0], lastPart(model[i].name)], kind: model[i].state, heat: 0, title: `${model[i].name}: ${op} ${model[i].ty}` };
    },
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

let chosen = null;
let first = null;

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
  if (what?.kind === "read") {
    const { node, inputs } = data.left_out[what.at];
    put(left, node === null ? inputs : [node, ...inputs], "strong");
  }
  const leftFirst = what?.kind === "node" ? what.at : firstOf(left);
  const rightFirst = what?.kind === "kernel" ? what.at : firstOf(right);
  panes.model.mark(left, what?.kind === "node" ? what.at : null);
  panes.planned.mark(right, what?.kind === "kernel" ? what.at : null);
  if (leftFirst !== undefined) panes.model.reveal(leftFirst);
  if (rightFirst !== undefined) panes.planned.reveal(rightFirst);
}

const isBox = (what) => what?.kind === "node" || what?.kind === "kernel";

// A box was clicked: the second of two that are compared, or one to be told of.
function pick(what, isSecond) {
  if ((isSecond && isBox(chosen)) || first) {
    const one = first ?? chosen;
    first = null;
    location.hash = `#compare=${[one, what].map((x) => `${x.kind}:${x.at}`).join(",")}`;
    return;
  }
  go(what.kind, what.kind === "node" ? model[what.at].name : what.at);
}

// The next box that is clicked is held against the one that is chosen, or against the one before it.
function compare() {
  show("graph");
  if (isBox(chosen)) {
    first = chosen;
    fill(crumbs(), el("h2", {}, "Compare"), el("p", {}, `${nameOf(first)} with … click another box, on either side.`));
  } else {
    fill(crumbs(), el("h2", {}, "Compare"), el("p", {}, "Click a box, then another one while you hold Shift, on either side."));
  }
}

// Does what the address says.
function follow() {
  const [kind, name] = address();
  const at = Number(name);
  if (kind !== "compare") first = null;
  if (kind === "view" && name in VIEWS) { show(name); return; }
  if (kind === "node" && modelByName.has(name)) { tell({ kind, at: modelByName.get(name) }, nodePanel); return; }
  const left = data.left_out.findIndex((l) => l.name === name);
  if ((kind === "node" || kind === "read") && left >= 0) { keepGraph(); choose({ kind: "read", at: left }); fill(leftOutPanel(left)); return; }
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

// What search finds.
const entries = [
  ...model.map((it) => ({ kind: "node", at: it.name, name: it.name, about: `${it.op}, ${it.state}` })),
  ...data.left_out.map((it) => ({ kind: "read", at: it.name, name: it.name, about: `${it.op}, left out when read` })),
  ...kernels.map((k) => ({ kind: "kernel", at: k, name: kernelName(k), about: `kernel ${planned[k].kernel}` })),
  ...data.laws.map((l) => ({ kind: "law", at: l.name, name: l.name, about: `law, ${l.class}. ${l.doc[0] ?? ""}` })),
].map((e) => ({ ...e, text: `${e.name} ${e.about} ${e.kind}`.toLowerCase() }));

const KEYS = [
  ["/", "search"], ["↑ ↓", "in a graph: to what a box reads, or what reads it"], ["← →", "in a graph: to the neighbours of a layer"],
  ["Enter", "in a graph: to the details of the box"], ["Shift + click, or c", "compare two boxes: why they are not one kernel"],
  ["f", "fold or unfold repeated blocks"], ["t", "light or dark"], ["1 … 5", "the views"], ["Esc", "back to the overview"], ["?", "this list"],
];

begin(`${seconds(data.summary.cost[0])} → ${seconds(data.summary.cost[1])} estimated for ${data.summary.target}; `
  + `${data.summary.kernels[0]} → ${data.summary.kernels[1]} kernels`, {
  c: compare, Escape: () => { first = null; location.hash = ""; follow(); },
});
