// The panel: what is known of the node, kernel or law that is chosen, and why two things are apart.

// Where another choice would be as good: at which multiples of the target's figures.
function flip({ bandwidth, launch }) {
  const at = (f, what) => (f > 1 ? `at ${f.toFixed(2)} times the ${what} or more` : `at ${f.toPrecision(2)} of the ${what} or less`);
  const all = [bandwidth !== null && at(bandwidth, "memory bandwidth"), launch !== null && at(launch, "cost of a launch")].filter(Boolean);
  return all.length ? `The choice would flip ${all.join(", or ")}.` : "No bandwidth and no cost of a launch within a factor of 128 would flip the choice.";
}

// What another choice takes, and where it would be as good.
function rival(other, whatItIs) {
  const more = other.other - other.own;
  return [
    el("p", {}, `${whatItIs}: estimated ${seconds(other.other)} instead of ${seconds(other.own)} (${more >= 0 ? "+" : "−"}${seconds(Math.abs(more))}).`),
    el("p", {}, flip(other)),
  ];
}

function kernelLine({ operators, seconds: time }) {
  const more = operators.length > 10 ? ` + ${operators.length - 8} more` : "";
  return `${operators.slice(0, more ? 8 : 10).join(" + ")}${more} — ${seconds(time)}`;
}

// Equal kernels once, counted.
function counted(lines) {
  const all = new Map();
  lines.map(kernelLine).forEach((text) => all.set(text, (all.get(text) ?? 0) + 1));
  return [...all].map(([text, n]) => (n > 1 ? `${n} × ${text}` : text));
}

// What happened in a region: kernels before and after, by which laws, what that gains and where it would not.
function region(r, isShort) {
  const it = data.regions[r];
  const times = 1 + it.alike.length;
  const by = [...it.laws, ...it.steps];
  const nothing = el("p", { class: "faint" }, "nothing: it is known before a run");
  return [
    el("h3", {}, "What happened around here"),
    el("p", {}, el("b", { class: it.saved > 1e-12 ? "good" : it.saved < -1e-12 ? "bad" : "" }, it.unchanged && times === 1 && Math.abs(it.saved) < 1e-12 ? "unchanged" : saved(it.saved)),
      times > 1 ? `, over ${times} places that are alike` : ""),
    el("p", { class: "faint" }, "before"), it.before.length ? some(counted(it.before), (t) => t, 8) : nothing,
    it.unchanged ? null : [el("p", { class: "faint" }, "after"), it.after.length ? some(counted(it.after), (t) => t, 8) : nothing.cloneNode(true)],
    by.length ? [el("h3", {}, "By"), some(by, (name) => lawHere(name, it.proof), 12)] : null,
    it.as_read && it.as_read.other > 0 && it.as_read.own > 0
      ? [el("h3", {}, "If it had been left as read"), rival(it.as_read, "The kernels as read")] : null,
    isShort ? null : steps(it.proof, "Steps of the proof here"),
  ];
}

// A law that was used in a region: its equation, what its steps here gain by themselves, and what they change.
function lawHere(name, proof) {
  const law = data.laws[lawByName.get(name)];
  if (!law) return name;
  const costs = proof.map((s) => data.steps[s]).filter((s) => data.laws[s.law] === law && s.drawing !== null)
    .map((s) => data.drawings[s.drawing].cost).filter(Boolean);
  const gain = costs.reduce((sum, [before, after]) => sum + before - after, 0);
  return el("details", {},
    el("summary", {}, law.name, " ", classTag(law.class), law.error ? el("span", { class: "faint", title: errorHelp }, ` changes ${scientific(law.error.between)}`) : null,
      law.doc.length ? el("div", { class: "faint" }, marked(law.doc[0])) : null),
    law.text ? el("pre", {}, law.text) : null,
    costs.length ? el("p", {}, `Its ${plural(costs.length, "step")} here, by ${costs.length === 1 ? "itself" : "themselves"}: ${saved(gain)}.`) : null,
    el("p", {}, lawLink(name), " and all its steps"));
}

const compareButton = () => el("button", {
  type: "button", title: "Why is this not fused with …? (c, or click the other one while holding Shift)", onclick: () => compare(),
}, "Compare with …");

const STATES = {
  input: "An input of the model.",
  output: "An output of the model.",
  kept: "Kept: a kernel of the result computes its value.",
  gone: "Gone: no kernel of the result computes its value. What reads it is computed another way.",
  known: "Gone: it is computed from constants alone, once, before the first run.",
};

function nodePanel(i) {
  const item = model[i];
  const kept = item.kernels.length > 0;
  const fused = item.kernels.some((k) => planned[k].nodes.length > 1);
  const near = (kernelsOfCopy.get(modelCopy(i)) ?? []).filter((k) => !item.kernels.includes(k));
  return [
    crumbs(compareButton()),
    el("h2", {}, item.name),
    el("p", {}, el("b", {}, item.op), el("span", { class: "faint" }, `  ${item.ty}`)),
    keptAsItIs.has(i) ? keptPanel(data.left_out[keptAsItIs.get(i)]) : el("p", {}, item.state === "kept" && fused ? "Kept: a kernel of the result computes its value together with other nodes." : STATES[item.state]),
    kept ? [el("h3", {}, "Computed by"), some(item.kernels, kernelLink)] : null,
    !kept && near.length ? [el("h3", {}, "Its place was taken by"), some(near, kernelLink)] : null,
    item.region === null ? null : region(item.region),
    bodiesOf(bodiesNamed(item.name)),
    item.text.length ? [el("h3", {}, "Read as"), el("pre", {}, item.text.join("\n"))] : null,
  ];
}

function kernelPanel(k) {
  const item = planned[k];
  if (!isKernel(k)) return [crumbs(), el("h2", {}, item.nodes[0]), el("p", {}, `An ${item.op} of the model.`)];
  const time = timeOf(k);
  const apart = data.links.filter((l) => l.from === k || l.to === k);
  const roof = item.roofline === null ? "" : `, ${percent(item.roofline)} of the roofline`;
  return [
    crumbs(compareButton()),
    el("h2", {}, item.op),
    el("p", {}, `Kernel ${item.kernel}. ${seconds(time)} ${timeIs}, ${percent(wholeTime > 0 ? time / wholeTime : 0)} of the whole${roof}; limited by ${item.limit}.`),
    item.measured !== null ? el("p", { class: "faint" }, `Estimated ${seconds(item.seconds)}, measured ${seconds(item.measured)}.`) : null,
    el("p", { class: "faint" }, `${bytes(Math.round(item.bytes))} read and written, ${(item.flops / 1e6).toFixed(2)} million operations.`),
    el("h3", {}, "Nodes of the model"),
    some(item.nodes, (n) => (modelByName.has(n) ? nodeLink(modelByName.get(n)) : n)),
    el("h3", {}, "What it computes"), el("pre", {}, item.text),
    el("h3", {}, "Runner-up"),
    item.apart ? rival(item.apart, "Its operators, each in a kernel of its own")
      : el("p", {}, "It has one operator: the other choices known are those of other programs, as below."),
    item.region === null ? null : region(item.region),
    apart.length ? [el("h3", {}, "Why its neighbours are kernels of their own"), some(apart, (l) => {
      const other = l.from === k ? l.to : l.from;
      return [l.from === k ? "read by " : "reads ", kernelLink(other), ": ", el("span", { class: "faint" }, marked(data.reasons[l.why]))];
    }, 4)] : null,
  ];
}

function lawPanel(i) {
  const law = data.laws[i];
  const nodes = [...new Set(law.steps.flatMap((s) => data.steps[s].nodes))].sort((a, b) => a - b);
  return [
    crumbs(),
    el("h2", {}, law.name, " ", classTag(law.class)),
    law.doc.map((d) => el("p", {}, marked(d))),
    law.text ? [el("h3", {}, "The law"), el("pre", {}, law.text)] : null,
    law.declared ? el("p", { class: "faint" }, `declared in ${law.declared}; ${law.direction}`) : null,
    el("h3", {}, "What it did"),
    el("p", {}, `${plural(law.equations, "equation")} of the proof. The regions where it was used, with whatever else was used there: ${saved(law.saved)}.`),
    law.without !== null ? el("p", {}, `Without it the result is estimated to take ${seconds(law.without)} in place of ${seconds(data.summary.cost[1])}.`)
      : law.text ? el("p", { class: "faint" }, "What it gains by itself: mlc-rewrite explain MODEL --gains") : null,
    el("h3", { title: errorHelp }, "What it does to numbers"),
    law.error ? el("p", { title: errorHelp }, `Measured, at most: ${errorText(law.error)}.`)
      : el("p", { class: "faint" }, law.class === "exact" ? "Its sides have equal bits." : "Not measured: its steps are of integers, or the model is too large for a page. mlc-rewrite explain MODEL --replay runs them."),
    steps(law.steps),
    nodes.length ? [el("h3", {}, "At"), some(nodes, nodeLink)] : null,
  ];
}

const bodiesNamed = (name) => (Object.hasOwn(data.bodies, name) ? data.bodies[name] : []);

// The bodies of a node, as the file has them: folded, and drawn when they are opened.
function bodiesOf(bodies, title = "Its bodies") {
  if (!bodies.length) return null;
  const one = (body) => {
    const holder = el("div", {});
    const draw = () => {
      if (holder.firstChild) return;
      holder.append(body.drawn ? drawnTerm(body.drawn, `${body.name}: ${plural(body.nodes, "node")}`) : el("p", { class: "faint" }, "It is too large to be drawn here."));
      body.inner.forEach(([name, inner]) => holder.append(...bodiesOf(inner, `Bodies of ${name}`)));
    };
    return el("details", { class: "body", ontoggle: draw }, el("summary", {}, `${body.name}: ${plural(body.nodes, "node")}`), holder);
  };
  return [el("h3", {}, title), ...bodies.map(one)];
}

// A node that is kept as it is, of which only the results are drawn.
const keptPanel = (it) => [
  el("p", {}, "A result of ", link("read", it.name), ` (${it.op}), which is kept as it is: the rest of the model is optimised around it.`),
  bodiesOf(bodiesNamed(it.name)),
];

function leftOutPanel(i) {
  const it = data.left_out[i];
  return [
    crumbs(),
    el("h2", {}, it.name),
    el("p", {}, el("b", {}, it.op)),
    el("p", {}, "Left out when the model was read: ", marked(it.why), "."),
    it.node !== null ? [el("h3", {}, "See"), nodeLink(it.node)] : null,
    bodiesOf(bodiesNamed(it.name)),
  ];
}

// The kernels that a chosen thing stands for.
const kernelsOf = ({ kind, at }) => (kind === "kernel" ? [at] : model[at].kernels);
const nameOf = ({ kind, at }) => (kind === "kernel" ? kernelName(at) : model[at].name);

// The shortest way from one kernel to another along the values between them.
function way(from, to) {
  const next = new Map();
  data.links.forEach((l) => { if (!next.has(l.from)) next.set(l.from, []); next.get(l.from).push(l); });
  const came = new Map([[from, null]]);
  const open = [from];
  for (let i = 0; i < open.length && !came.has(to); i += 1) {
    for (const l of next.get(open[i]) ?? []) {
      if (!came.has(l.to)) { came.set(l.to, l); open.push(l.to); }
    }
  }
  if (!came.has(to)) return null;
  const out = [];
  for (let l = came.get(to); l; l = came.get(l.from)) out.unshift(l);
  return out;
}

function comparePanel(a, b) {
  const said = [];
  for (const x of [a, b]) {
    if (x.kind === "node" && !kernelsOf(x).length) {
      said.push(el("p", {}, link("node", nameOf(x)), ": ", STATES[model[x.at].state]));
    }
  }
  const [ka, kb] = [kernelsOf(a), kernelsOf(b)];
  const both = ka.find((k) => kb.includes(k));
  if (both !== undefined) {
    said.push(el("p", { class: "good" }, "They are fused: one kernel computes both."), el("p", {}, kernelLink(both)));
  } else if (ka.length && kb.length) {
    const found = way(ka[0], kb[0]) ?? way(kb[0], ka[0]);
    if (!found) {
      said.push(el("p", {}, "Neither is computed from the other. A kernel joins values that are computed from each other; these meet at most at a common operand."));
    } else if (found.length === 1) {
      said.push(el("p", {}, el("b", {}, "Not fused: "), marked(data.reasons[found[0].why]), "."));
    } else {
      said.push(el("p", {}, el("b", {}, "Not fused: "), `${plural(found.length - 1, "kernel")} between them, and each border has its reason.`));
    }
    if (found && found.length > 1) {
      said.push(el("ul", { class: "plain" }, found.slice(0, 12).map((l) => el("li", {},
        kernelLink(l.from), " → ", kernelLink(l.to), el("p", { class: "faint" }, marked(data.reasons[l.why]))))));
      if (found.length > 12) said.push(el("p", { class: "faint" }, `… and ${found.length - 12} more`));
    }
  }
  return [
    crumbs(),
    el("h2", {}, "Why are these not one kernel?"),
    el("p", {}, link(a.kind, a.kind === "node" ? model[a.at].name : a.at, nameOf(a)), " and ", link(b.kind, b.kind === "node" ? model[b.at].name : b.at, nameOf(b))),
    ...said,
    el("h3", {}, "If one operator should be known for both"),
    el("pre", {}, "mlc-rewrite explain MODEL --why-not OPERATOR --at NODE"),
    el("p", { class: "faint" }, "says for a law, layer or operator by its name what kept it from being used there."),
  ];
}
