// The panel and tables of a page of two models: a node and its partner, a place that differs, a law, the verdict.

const { found: comparison } = data;
const items = data.sides.map((s) => s.items);
const SIDES = { a: 0, b: 1 };
const KINDS = ["a", "b"];
const WHICH = ["first", "second"];

// Items of a side by name; names of inputs and outputs may be those of nodes, which come first.
const isEnd = (item) => item.state === "input" || item.state === "output";
const itemByName = items.map((all) => {
  const byName = new Map();
  for (const wanted of [false, true]) {
    all.forEach((item, i) => { if (isEnd(item) === wanted && !byName.has(item.name)) byName.set(item.name, i); });
  }
  return byName;
});
const itemLink = (side, i) => link(KINDS[side], items[side][i].name, items[side][i].name, `${items[side][i].op} ${items[side][i].ty}`);
const named = (side, name) => (itemByName[side].has(name) ? itemLink(side, itemByName[side].get(name)) : el("code", {}, name));

const STATES = {
  input: "An input, which both models have.",
  output: "An output, which both models have.",
  same: "Both models compute this value by the same operators from the same values.",
  proved: "Both models compute this value: it is proved by laws that its partner is equal.",
  behind: "Equal to its partner if the values of the marked places before it were equal.",
  alone: "The other model has no value that is known to be this one. It is computed on the way.",
  known: "Computed from constants alone.",
  open: "In a place that is not proved to be equal.",
  differs: "In a place where the models differ.",
};

const answerClass = { equal: "good", differ: "bad", not_proved: "" }[comparison.answer];
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const placeLink = (p) => link("place", p + 1, `place ${p + 1}`, placeName(p));
const placeName = (p) => comparison.regions[p].b.value;

// A number of a report: those that are not finite come as words.
const number = (x) => (typeof x === "string" ? x : Math.abs(x) >= 1e6 || (x !== 0 && Math.abs(x) < 1e-4) ? x.toExponential(6) : String(Number(x.toPrecision(9))));

// Sets of inputs have short names.
const inputsName = (name) => `inputs “${name}”`;

// Where two values differ, on which inputs, and by how much.
function differenceTable(d) {
  const rows = [
    ["on inputs", `“${d.inputs}”, below`], ["element", `number ${d.element}, from 0, of ${d.of}`],
    ["first model", el("b", {}, number(d.a))], ["second model", el("b", {}, number(d.b))],
    ["apart", d.absolute === null ? "one is not finite" : scientific(d.absolute)],
    d.relative !== null ? ["as a part of it", scientific(d.relative)] : null,
    d.units !== null ? ["units of the last place", scientific(d.units)] : null,
    ["elements that differ", `${d.elements} of ${d.of}`],
  ];
  // Where the shapes differ there are no elements.
  return d.of === 0 ? el("p", {}, d.words) : table([["", "whole"], ["", ""]], rows.filter(Boolean));
}

// The inputs that are called so, in short.
function sample(name) {
  const known = data.samples.find((s) => s.name === name);
  if (!known) return el("p", { class: "faint" }, `They are drawn by the seed of the command, as their name says.`);
  const range = (i) => (i.least === i.most ? `all ${number(i.least)}` : `${number(i.least)} … ${number(i.most)}`);
  return table([["input"], ["type"], ["range"], ["begins with"]], known.inputs.map((i) => [el("code", {}, i.name), i.ty, range(i), i.first]));
}

function constants(list) {
  return some(list, (c) => [el("code", {}, c.a), c.a === c.b ? "" : [" (in the second ", el("code", {}, c.b), ")"],
    `: ${c.elements} of ${plural(c.of, "element")} differ; element ${c.element} is ${number(c.values[0])} in the first and ${number(c.values[1])} in the second`]);
}

// What became of a place when it was run.
function verdict(r) {
  if (r.difference) return el("b", { class: "bad" }, "The models differ here.");
  if (r.agrees_on !== null) return `Not proved. The values agree within rounding on ${plural(r.agrees_on, "set")} of inputs, at most ${scientific(r.largest)} of the largest element apart.`;
  return `Not proved, and not run: ${r.not_run}.`;
}

function placePanel(p) {
  const r = comparison.regions[p];
  const count = comparison.regions.length;
  const step = (by, text) => el("button", { type: "button", disabled: p + by < 0 || p + by >= count, onclick: () => go("place", p + 1 + by) }, text);
  const side = (s, it) => [
    el("h3", {}, `In the ${WHICH[s]} model`),
    it.nodes.length ? some(it.nodes, (n) => named(s, n)) : el("p", {}, named(s, it.value), el("span", { class: "faint" }, " is there already: nothing is computed here")),
    it.operators.length ? el("p", { class: "faint" }, it.operators.join(", ")) : null,
  ];
  const others = r.difference ? r.difference.differs_on.filter((n) => n !== r.difference.inputs) : [];
  return [
    crumbs(step(-1, "‹ Place before"), step(1, "Next place ›")),
    el("h2", {}, `Place ${p + 1} of ${count}`),
    el("p", {}, verdict(r)),
    r.difference ? [differenceTable(r.difference), others.length ? el("p", { class: "faint" }, `They differ on other inputs, too: ${others.map((n) => `“${n}”`).join(", ")}.`) : null] : null,
    r.constants.length ? [el("h3", {}, "Constants that differ"), constants(r.constants)] : null,
    side(0, r.a), side(1, r.b),
    r.from.length ? [el("h3", {}, "Both are computed from"), some(r.from, (n) => named(0, n)), el("p", { class: "faint" }, "These values are equal in both models, or taken to be where a place before this one differs.")] : null,
    r.difference ? [el("h3", {}, `The inputs “${r.difference.inputs}” of both models`), sample(r.difference.inputs)] : null,
  ];
}

// The proofs of an item's values: laws, steps, constants.
function proofsOf(list) {
  const all = list.map((p) => data.proofs[p]);
  const laws = [...new Set(all.flatMap((p) => p.steps.map((s) => data.steps[s].law)))];
  const rounded = all.flatMap((p) => p.rounded);
  if (!list.length) return null;
  return [
    el("h3", {}, "Proved by"),
    laws.length ? some(laws, (l) => [lawLink(data.laws[l].name), " ", classTag(data.laws[l].class), data.laws[l].doc.length ? el("div", { class: "faint" }, marked(data.laws[l].doc[0])) : null])
      : el("p", {}, "no law: the same operators on values that are proved equal"),
    rounded.length ? [el("p", {}, "if constants that were computed elsewhere are taken for what the other model computes in their place:"), some(rounded, roundedLine)] : null,
    steps(all.flatMap((p) => p.steps)),
  ];
}
const roundedLine = ([name, off]) => [el("code", {}, name), off === 0 ? " has the same numbers" : ` is ${scientific(off)} of its largest element apart`];

function itemPanel(side, i) {
  const item = items[side][i];
  return [
    crumbs(),
    el("h2", {}, item.name),
    el("p", {}, el("b", {}, item.op), el("span", { class: "faint" }, `  ${item.ty}, in the ${WHICH[side]} model`)),
    el("p", { class: item.state === "differs" ? "bad" : "" }, STATES[item.state]),
    item.places.length ? el("p", {}, "See ", item.places.map((p, n) => [n ? ", " : "", placeLink(p)]), ".") : null,
    item.partners.length ? [el("h3", {}, `In the ${WHICH[1 - side]} model`), some(item.partners, (j) => itemLink(1 - side, j))]
      : [el("h3", {}, "Around it"), around(side, i)],
    proofsOf(item.proofs),
    item.text.length ? [el("h3", {}, "Read as"), el("pre", {}, item.text.join("\n"))] : null,
  ];
}

// The nearest values that both models have, before and after an item.
function around(side, i) {
  const { before, after } = nearest(side, i);
  const line = (word, list) => (list.length ? el("p", {}, `${word} `, list.map((j, n) => [n ? ", " : "", itemLink(side, j)])) : null);
  return [line("From", before), line("Leads to", after), el("p", { class: "faint" }, "which the other model has, too: they are marked on its side.")];
}

function lawPanel(i) {
  const law = data.laws[i];
  const at = [...new Set(law.steps.map((s) => data.steps[s].proof))].map((p) => data.proofs[p]);
  const known = at.filter((p) => p.items[1] !== null);
  return [
    crumbs(),
    el("h2", {}, law.name, " ", classTag(law.class)),
    law.doc.map((d) => el("p", {}, marked(d))),
    law.text ? [el("h3", {}, "The law"), el("pre", {}, law.text)] : null,
    law.declared ? el("p", { class: "faint" }, `declared in ${law.declared}; ${law.direction}`) : null,
    el("p", {}, `${plural(law.equations, "equation")} in the proofs of ${plural(at.length, "value")}.`),
    steps(law.steps),
    known.length ? [el("h3", {}, "Values of the second model that it proves"), some(known, (p) => itemLink(1, p.items[1]))] : null,
  ];
}

const summaryOf = (r) => (r.difference
  ? r.difference.of === 0 ? r.difference.words : [el("b", {}, number(r.difference.a)), " in the first, ", el("b", {}, number(r.difference.b)), ` in the second, on ${inputsName(r.difference.inputs)}`]
  : verdict(r));

function placesView() {
  const rows = comparison.regions.map((r, p) => ({
    text: `${r.a.value} ${r.b.value} ${r.a.nodes.join(" ")} ${r.b.nodes.join(" ")}`, pick: () => { show("graph"); go("place", p + 1); },
    cells: () => [placeLink(p), r.difference ? el("b", { class: "bad" }, "differs") : "not proved", r.a.value, r.b.value, summaryOf(r)],
  }));
  return [
    el("h2", {}, "Where do they differ?"),
    rows.length ? filtered([["place"], ["", "whole"], ["first"], ["second"], ["what was found"]], rows, "Filter places")
      : el("p", { class: answerClass }, `${capital(data.headline)}: there is no such place.`),
  ];
}

function lawView() {
  const order = data.laws.map((_, i) => i).sort((x, y) => classRank(data.laws[x].class) - classRank(data.laws[y].class) || data.laws[y].equations - data.laws[x].equations);
  const rows = order.map((i) => {
    const law = data.laws[i];
    return {
      text: `${law.name} ${law.class} ${law.doc.join(" ")} ${law.text}`, pick: () => go("law", law.name),
      cells: () => [[link("law", law.name), el("div", { class: "faint" }, marked(law.doc[0] ?? ""))], classTag(law.class), law.equations, new Set(law.steps.map((s) => data.steps[s].proof)).size],
    };
  });
  return [
    el("h2", {}, "Which laws make them equal?"),
    rows.length ? filtered([["law"], ["class"], ["equations", "number"], ["values", "number"]], rows, "Filter laws")
      : el("p", {}, "None are needed: what is equal has the same operators on the same values."),
    comparison.rounded.length ? [el("h2", {}, "Constants that were computed elsewhere"), some(comparison.rounded, (r) => roundedLine([r.constant, r.difference]), 20)] : null,
  ];
}

function aloneView() {
  const rows = items.flatMap((all, side) => all.map((item, i) => ({ item, i, side }))).filter(({ item }) => ["alone", "open", "differs"].includes(item.state));
  return [
    el("h2", {}, "Which nodes have no partner?"),
    el("p", {}, "Nodes whose value the other model is not known to have: parts of what is computed otherwise there, which need no partner where what they lead to is proved equal, and of places that differ."),
    filtered([["node"], ["model"], ["operator", "whole"], ["what it is"]], rows.map(({ item, i, side }) => ({
      text: `${item.name} ${item.op} ${WHICH[side]}`, pick: () => go(KINDS[side], item.name),
      cells: () => [itemLink(side, i), WHICH[side], item.op, { alone: "on the way", open: "not proved", differs: "differs" }[item.state]],
    })), "Filter nodes"),
  ];
}

// That a difference does not show at the end, where it does not.
const unseen = () => (comparison.answer === "differ" && comparison.outputs.length && comparison.outputs.every((o) => o.relative === 0)
  ? el("p", {}, "What differs inside did not reach the outputs on the inputs that were tried; on others it may.") : null);

const apartBy = (o) => (o.relative === null ? "finite in one model alone" : o.relative === 0 ? "the same" : `${scientific(o.relative)} of its largest element`);

function outputsView() {
  return [
    el("h2", {}, "How far are the outputs apart?"),
    comparison.outputs.length ? [
      el("p", {}, "Both models run as they are, on all inputs: where they are furthest apart."),
      unseen(),
      table([["output"], ["at most apart"], ["on"]], comparison.outputs.map((o) => [named(0, o.output), apartBy(o), o.relative === 0 ? "all inputs" : inputsName(o.inputs)])),
    ] : el("p", {}, comparison.answer === "equal" ? "They were not run: the same operators read the same values." : "They were not run."),
    data.samples.length ? [el("h2", {}, "The inputs"), data.samples.map((s) => el("details", {}, el("summary", {}, s.name), sample(s.name)))] : null,
  ];
}

function overview() {
  const question = (text, ...answer) => el("section", { class: "question" }, el("h3", {}, text), answer);
  const more = (name, text) => el("p", {}, el("button", { type: "button", class: "link", onclick: () => go("view", name) }, text));
  const counted = `${comparison.equal} of ${plural(comparison.values, "value")} that the second model computes are values of the first`;
  const rest = comparison.equal < comparison.values ? "; the others are steps on the way to these" : "";
  return [
    el("h2", { class: answerClass }, capital(data.headline)),
    comparison.answer === "equal" ? el("p", {}, `Every output of the second model is proved to be that of the first. ${counted}${rest}.`)
      : el("p", {}, `${counted}, if the places that are marked are left aside.`),
    comparison.notes.map((n) => el("p", { class: "note" }, marked(n))),
    comparison.regions.length ? question("Where do they differ?", some(comparison.regions.map((_, p) => p), (p) => [placeLink(p), ": ", el("code", {}, placeName(p)), ". ", summaryOf(comparison.regions[p])], 5), more("places", "All places")) : null,
    question("Which laws make the rest equal?", data.laws.length ? some([...data.laws].sort((x, y) => y.equations - x.equations), (l) => [lawLink(l.name), " ", classTag(l.class)], 5) : el("p", {}, "None are needed: the same operators read the same values."), data.laws.length ? more("laws", "All laws, with their steps") : null),
    comparison.outputs.length ? question("How far are the outputs apart?", some(comparison.outputs, (o) => [named(0, o.output), `: ${apartBy(o)}`], 4), unseen(), more("outputs", "All outputs, and the inputs that were tried")) : null,
    question("How do I read this?", el("p", {}, "The first model is on the left, the second on the right. Click a box: what is equal to it is marked on the other side. Boxes with a thick frame are where the models differ.")),
  ];
}
