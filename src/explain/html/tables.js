// The views beside the graphs, and the overview: where time goes, what laws do, what is gone, and how the search went.

// Kernels that do the same, together; those that take longest first.
function times() {
  const groups = new Map();
  for (const k of kernels) {
    const it = planned[k];
    const key = [it.kernel, it.op, it.limit, data.summary.is_measured ? "" : seconds(it.seconds)].join("\n");
    if (!groups.has(key)) groups.set(key, { first: k, all: [], time: 0 });
    const group = groups.get(key);
    group.all.push(k);
    group.time += timeOf(k);
  }
  return [...groups.values()].sort((a, b) => b.time - a.time);
}

function timeView() {
  const longestGroup = Math.max(...times().map((g) => g.time), 1e-30);
  const rows = times().filter((g) => g.time > 0).map((g) => {
    const it = planned[g.first];
    return {
      text: `${it.op} ${it.kernel} ${g.all.flatMap((k) => planned[k].nodes).join(" ")}`,
      pick: () => go("kernel", g.first),
      cells: () => [
        [g.all.length > 1 ? `${g.all.length} × ` : "", link("kernel", g.first, it.op), el("div", { class: "faint" }, it.nodes.slice(0, 3).join(", "))],
        seconds(g.time),
        [el("span", { class: "share", style: `width:${Math.max(1, 90 * g.time / longestGroup)}px` }), ` ${percent(wholeTime > 0 ? g.time / wholeTime : 0)}`],
        it.roofline === null ? "–" : percent(it.roofline), it.limit, bytes(Math.round(it.bytes)),
      ],
    };
  });
  return [
    el("h2", {}, "Where does the time go?"),
    el("p", {}, `Kernels of the result by ${timeIs} time, ${seconds(wholeTime)} in all, for target ${data.summary.target}. Kernels that do the same are one row.`),
    data.summary.is_measured ? null : el("p", { class: "faint" }, "Estimates are from the target's figures. A page with measured times: mlc-rewrite explain MODEL --target cpu --measure --html report.html"),
    filtered([["kernel"], [timeIs, "number"], ["share", "whole"], ["of the roofline", "number"], ["limited by", "whole"], ["bytes", "number"]], rows, "Filter kernels"),
  ];
}

// Laws, those that may change numbers most first.
const byChange = () => data.laws.map((_, i) => i).sort((a, b) => {
  const [x, y] = [data.laws[a], data.laws[b]];
  return classRank(x.class) - classRank(y.class) || (y.error?.between ?? -1) - (x.error?.between ?? -1) || y.equations - x.equations;
});

// What the self-check found of the whole result.
function wholeError() {
  const check = data.summary.self_check;
  if (!check || check.not_checked) return el("p", { class: "faint" }, `The whole result was not compared${check ? `: ${check.not_checked}` : ""}.`);
  const against = { bits: "equal bits", reference: "the f64 interpreter", model: "the model as read" };
  const sets = check.sets.filter((s) => !s.unused);
  return [
    el("p", {}, "The result as a whole, on the inputs of the self-check: largest difference from the model as read ",
      el("b", {}, data.summary.self_check_error === null ? "unknown" : scientific(data.summary.self_check_error)), " of an output's largest element."),
    table([["inputs"], ["held against"], ["error of the result", "number"], ["of the model as read", "number"], ["elements", "number"]],
      sets.map((s) => [s.name, against[s.against], scientific(s.error), s.against === "reference" ? scientific(s.source_error) : "–", s.compared])),
  ];
}

function lawView() {
  const rows = byChange().map((i) => {
    const law = data.laws[i];
    return {
      text: `${law.name} ${law.class} ${law.doc.join(" ")} ${law.text}`,
      pick: () => go("law", law.name),
      cells: () => [
        [link("law", law.name), el("div", { class: "faint" }, law.doc[0] ?? "")], classTag(law.class),
        law.error ? el("span", { title: errorHelp }, scientific(law.error.between)) : "–",
        law.equations, saved(law.saved), law.without === null ? "–" : seconds(law.without - data.summary.cost[1]),
      ],
    };
  });
  return [
    el("h2", {}, "Which law changed my numbers?"),
    el("p", {}, "Laws that the result rests on: approximations first, then those that regroup or round otherwise, then those with equal bits; within a class by how far both sides of their steps differ on the inputs of the self-check, relative to the largest element."),
    wholeError(),
    filtered([["law"], ["class"], ["measured change", "number"], ["equations", "number"], ["where it was used"], ["without it", "number"]], rows, "Filter laws"),
    el("h2", {}, "What would --fp approx give?"), approx(),
  ];
}

function approx() {
  const command = el("pre", {}, "mlc-rewrite explain MODEL --fp approx --html approx.html");
  if (data.summary.fp === "approx") return [el("p", {}, "This page is of --fp approx. Compare:"), el("pre", {}, "mlc-rewrite explain MODEL --fp reorder --html reorder.html")];
  const n = data.barred.length;
  return [
    el("p", {}, n ? `${plural(n, "law")} of a coarser error class ${n === 1 ? "has" : "have"} operators that this model has, and ${n === 1 ? "was" : "were"} not searched under --fp ${data.summary.fp}:`
      : `No law of a coarser error class than --fp ${data.summary.fp} admits has operators that this model has: nothing is to be expected.`),
    n ? some(data.barred, (l) => [el("b", {}, l.name), " ", classTag(l.class), " ", el("span", { class: "faint" }, l.doc)], 8) : null,
    el("p", {}, n ? "Whether they gain anything takes a search of its own to say:" : "To be sure:"), command,
  ];
}

function goneView() {
  const rows = [];
  data.left_out.forEach((it, i) => rows.push({
    text: `${it.name} ${it.op} ${it.why}`, pick: () => go("read", it.name),
    cells: () => [link("read", it.name), it.op, el("span", {}, "left out when read: ", marked(it.why))],
  }));
  model.forEach((it, i) => {
    if (it.state !== "gone" && it.state !== "known") return;
    const r = it.region === null ? null : data.regions[it.region];
    const by = r ? [...r.laws, ...r.steps] : [];
    const why = it.state === "known" ? "computed from constants, once, before the first run" : by.length ? `by ${by.slice(0, 6).join(", ")}${by.length > 6 ? " …" : ""}` : "the result does without its value";
    rows.push({ text: `${it.name} ${it.op} ${why}`, pick: () => go("node", it.name), cells: () => [link("node", it.name), it.op, why] });
  });
  return [
    el("h2", {}, "Why is a node gone?"),
    el("p", {}, `${goneCounts()} All other nodes have a kernel that computes their value.`),
    filtered([["node"], ["operator", "whole"], ["why"]], rows, "Filter nodes"),
  ];
}

function goneCounts() {
  const count = (state) => model.filter((i) => i.state === state).length;
  return `${plural(data.left_out.length, "node is", "nodes are")} left out when the model is read, ${count("known")} computed from constants before the first run, and ${count("gone")} replaced by laws or by the plan.`;
}

function bars(values, label) {
  const most = Math.max(1, ...values);
  const [step, height] = [Math.min(60, Math.max(14, Math.floor(600 / Math.max(1, values.length)))), 110];
  const svg = el("svg", { width: step * values.length + 10, height: height + 34, role: "img", "aria-label": `${label}: ${values.join(", ")}` });
  values.forEach((v, i) => {
    const h = (v / most) * height;
    svg.append(
      el("g", {}, el("title", {}, `round ${i + 1}: ${v}`),
        el("rect", { x: 5 + i * step, y: 14 + height - h, width: step - 4, height: Math.max(h, 1), style: "fill: var(--accent)" }),
        step >= 36 ? el("text", { class: "small", x: 5 + i * step + (step - 4) / 2, y: 10 + height - h }, String(v)) : null,
        el("text", { class: "small", x: 5 + i * step + (step - 4) / 2, y: height + 28 }, String(i + 1))));
  });
  return el("div", { style: "overflow-x:auto" }, svg);
}

function historyView() {
  return [
    el("h2", {}, "How the search went"),
    data.searches.length ? null : el("p", {}, "No search led to the result."),
    data.searches.map((s, i) => [
      data.searches.length > 1 ? el("h2", {}, `Search ${i + 1} of ${data.searches.length}`) : null,
      el("p", {}, `${plural(s.rounds.length, "round")}; ended: ${s.stop}. At the end ${plural(s.nodes, "node")} in ${plural(s.classes, "class", "classes")}.`),
      el("h3", {}, "Nodes of the e-graph after each round"), bars(s.rounds, "nodes by round"),
      el("h3", {}, "Equations that laws asserted in each round"), bars(s.equations, "equations by round"),
      el("h3", {}, "By law"),
      table([["law"], ["matches", "number"], ["equations", "number"]], s.laws.slice(0, 60).map(([name, matches, equations]) => [lawLink(name), matches, equations])),
      s.laws.length > 60 ? el("p", { class: "faint" }, `and ${s.laws.length - 60} laws with fewer equations`) : null,
    ]),
  ];
}

const change = (before, after, tell) => `${tell(before)} → ${tell(after)}`;

function overview() {
  const s = data.summary;
  const [before, after] = s.cost;
  const question = (text, ...answer) => el("section", { class: "question" }, el("h3", {}, text), answer);
  const more = (view, text) => el("p", {}, el("button", { type: "button", class: "link", onclick: () => go("view", view) }, text));
  const top = times().filter((g) => g.time > 0).slice(0, 5);
  return [
    el("h2", {}, "Overview"),
    s.is_kept ? el("p", { class: "note" }, "Nothing better was found, or could be trusted: the result is the program as read.") : null,
    s.notes.map((n) => el("p", { class: "note" }, marked(n))),
    question("What changed?", table([["", ""], ["before", "number"], ["after", "number"]], [
      [`time (estimated, ${s.target})`, seconds(before), seconds(after)],
      ["kernels", s.kernels[0], s.kernels[1]],
      ["operators", s.operators[0], s.operators[1]],
      s.peak_bytes ? ["peak memory", bytes(s.peak_bytes[0]), bytes(s.peak_bytes[1])] : null,
      ["weights", bytes(s.weights_bytes[0]), bytes(s.weights_bytes[1])],
    ].filter(Boolean)),
      some([...data.regions].filter((r) => !r.unchanged).slice(0, 40), (r) => [
        el("b", { class: r.saved > 0 ? "good" : "bad" }, saved(r.saved)), r.alike.length ? ` (${1 + r.alike.length} times)` : "", ": ",
        r.nodes.length && modelByName.has(r.nodes[0]) ? nodeLink(modelByName.get(r.nodes[0])) : "inputs",
        r.nodes.length > 1 ? ` and ${r.nodes.length - 1} more` : "", el("span", { class: "faint" }, ` by ${[...r.laws, ...r.steps].slice(0, 4).join(", ")}`)], 4)),
    question("Where does the time go?", some(top, (g) => [`${percent(wholeTime > 0 ? g.time / wholeTime : 0)}  ${g.all.length > 1 ? `${g.all.length} × ` : ""}`, link("kernel", g.first, planned[g.first].op)]), more("time", "All kernels by time")),
    question("Why is a node gone?", el("p", {}, goneCounts()), el("p", { class: "faint" }, "Search its name ( / ), or click it on the left."), more("gone", "All nodes that are gone, with reasons")),
    question("Why are two nodes not fused?", el("p", {}, "Click one, then hold Shift and click the other; or:"), el("p", {}, el("button", { type: "button", onclick: () => compare() }, "Compare two …"))),
    question("Which law changed my numbers?", some(byChange().slice(0, 3), (i) => [lawLink(data.laws[i].name), " ", classTag(data.laws[i].class), data.laws[i].error ? ` changes values by ${scientific(data.laws[i].error.between)}` : ""]),
      s.self_check_error === null ? null : el("p", {}, `All together: ${scientific(s.self_check_error)} on the self-check's inputs.`), more("laws", "All laws, with errors")),
    question("What would --fp approx give?", approx()),
  ];
}
