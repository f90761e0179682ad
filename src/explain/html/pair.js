// The page of two models: both graphs, what is chosen, addresses and keys.

const legend = () => legendOf(["", "the same in both"], ["proved", "equal by laws"], ["alone", "in this model alone"],
  ...(comparison.regions.some((r) => r.difference) ? [["differs", "differs"]] : []),
  ...(comparison.regions.some((r) => !r.difference) ? [["open", "not proved"]] : []),
  ...(comparison.regions.length ? [["behind", "equal if the places before it were"]] : []));

const paneOf = (side) => new Pane({
  title: `${capital(WHICH[side])}: ${data.titles[side]}`, name: KINDS[side], drawn: data.sides[side].drawn,
  look: (i) => {
    const item = items[side][i];
    return { lines: [item.op, lastPart(item.name)], kind: item.state, heat: 0, title: `${item.name}: ${item.op} ${item.ty}. ${STATES[item.state]}` };
  },
  legend: legend(),
  pick: (i) => go(KINDS[side], items[side][i].name),
});
const panes = { a: paneOf(0), b: paneOf(1) };

const VIEWS = { graph: "Graphs", places: "Differences", laws: "Laws", alone: "Only in one", outputs: "Outputs" };
const DRAWS = { places: placesView, laws: lawView, alone: aloneView, outputs: outputsView };

// Who reads whom, by side: the whole drawing has all edges.
const neighbours = data.sides.map(({ items: all, drawn }) => {
  const { boxes, edges } = drawn.open ?? drawn.folded;
  const [above, below] = [all.map(() => []), all.map(() => [])];
  edges.forEach(([from, to]) => { above[boxes[to][0]].push(boxes[from][0]); below[boxes[from][0]].push(boxes[to][0]); });
  return { above, below };
});

// The nearest items with a partner, before and after one.
function nearest(side, i) {
  const walk = (next) => {
    const [seen, open, out] = [new Set([i]), [i], []];
    while (open.length) {
      for (const j of next[open.pop()]) {
        if (seen.has(j)) continue;
        seen.add(j);
        if (items[side][j].partners.length) out.push(j); else open.push(j);
      }
    }
    return out.sort((a, b) => a - b);
  };
  return { before: walk(neighbours[side].above), after: walk(neighbours[side].below) };
}

// Marks what is chosen and its partners.
function choose(what) {
  const marks = [new Map(), new Map()];
  const put = (side, all, how) => all.forEach((i) => { if (marks[side].get(i) !== "strong") marks[side].set(i, how); });
  const own = what ? SIDES[what.kind] : undefined;
  if (own !== undefined) {
    const item = items[own][what.at];
    put(own, [what.at], "strong");
    put(1 - own, item.partners, "strong");
    if (!item.partners.length) {
      const { before, after } = nearest(own, what.at);
      [...before, ...after].forEach((i) => { put(own, [i], "weak"); put(1 - own, items[own][i].partners, "weak"); });
    }
  } else if (what?.kind === "place") {
    data.places[what.at].forEach((all, side) => put(side, all, "strong"));
    // A side that computes nothing here has the value already.
    data.places[what.at].forEach((all, side) => {
      const name = comparison.regions[what.at][KINDS[side]].value;
      if (!all.length && itemByName[side].has(name)) put(side, [itemByName[side].get(name)], "weak");
    });
  } else if (what?.kind === "law") {
    data.laws[what.at].steps.map((s) => data.proofs[data.steps[s].proof]).forEach((p) => p.items.forEach((i, side) => { if (i !== null) put(side, [i], "strong"); }));
  }
  KINDS.forEach((kind, side) => {
    const chosen = side === own ? what.at : null;
    panes[kind].mark(marks[side], chosen);
    const shown = chosen ?? firstOf(marks[side]);
    if (shown !== undefined) panes[kind].reveal(shown);
  });
}

// Does what the address says.
function follow() {
  const [kind, name] = address();
  const place = Number(name) - 1;
  if (kind === "view" && name in VIEWS) { show(name); return; }
  if (kind in SIDES && itemByName[SIDES[kind]].has(name)) { tell({ kind, at: itemByName[SIDES[kind]].get(name) }, (at) => itemPanel(SIDES[kind], at)); return; }
  if (kind === "place" && data.places[place] !== undefined) { tell({ kind, at: place }, placePanel); return; }
  if (kind === "law" && lawByName.has(name)) { tell({ kind, at: lawByName.get(name) }, lawPanel); return; }
  keepGraph();
  choose(data.places.length ? { kind: "place", at: 0 } : null);
  fill(kind ? el("p", { class: "note" }, `There is no ${kind} “${name}” on this page.`) : null, overview());
}

// What search finds.
const entries = [
  ...items.flatMap((all, side) => all.map((it) => ({ kind: KINDS[side], at: it.name, name: it.name, about: `${it.op}, ${it.state}, in the ${WHICH[side]} model` }))),
  ...data.places.map((_, p) => ({ kind: "place", at: p + 1, name: `place ${p + 1}`, about: `${placeName(p)}, ${comparison.regions[p].difference ? "differs" : "not proved"}` })),
  ...data.laws.map((l) => ({ kind: "law", at: l.name, name: l.name, about: `law, ${l.class}. ${l.doc[0] ?? ""}` })),
].map((e) => ({ ...e, text: `${e.name} ${e.about} ${e.kind}`.toLowerCase() }));

const KEYS = [
  ["/", "search"], ["↑ ↓", "in a graph: to what a box reads, or what reads it"], ["← →", "in a graph: to the neighbours of a layer"],
  ["Enter", "in a graph: to the details of the box"], ["n, p", "the next marked place, and the one before"],
  ["f", "fold or unfold repeated blocks"], ["t", "light or dark"], ["1 … 5", "the views"], ["Esc", "back to the overview"], ["?", "this list"],
];

// The place that is next to the one that is told of.
function walk(by) {
  const [kind, name] = address();
  const at = kind === "place" ? Number(name) - 1 + by : 0;
  if (data.places[at] !== undefined) { show("graph"); go("place", at + 1); }
}

// The verdict in a line, with the first difference.
const headline = comparison.regions.length
  ? [": ", summaryOf(comparison.regions[0])]
  : comparison.answer === "equal" ? ": every output of the second model is proved to be that of the first" : "";
begin([el("b", { class: answerClass }, capital(data.headline)), headline].flat(), { n: () => walk(1), p: () => walk(-1) });
