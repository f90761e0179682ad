// Drawings of layered graphs. Places are computed before; here only what is visible becomes elements.

const LAYER = 76;
const BOX = 42;
const TOP = 14;
const SIDE = 16;
// Pixels drawn beyond what is visible, so that scrolling seldom draws.
const BEYOND = 400;

// A way through points with upright ends.
function curve(points) {
  let d = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length; i += 1) {
    const [x0, y0] = points[i - 1];
    const [x1, y1] = points[i];
    const middle = (y0 + y1) / 2;
    d += x0 === x1 ? `V${y1}` : `C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}`;
  }
  return d;
}

const topOf = (layer) => TOP + layer * LAYER;

// The points of an edge of a view.
function wayOf(view, [from, to, bends]) {
  const [, x0, layer0] = view.boxes[from];
  const [, x1, layer1] = view.boxes[to];
  const points = [[x0 + SIDE, topOf(layer0) + BOX]];
  (bends ?? []).forEach((x, i) => {
    const y = topOf(layer0 + 1 + i);
    points.push([x + SIDE, y], [x + SIDE, y + BOX]);
  });
  points.push([x1 + SIDE, topOf(layer1)]);
  return points;
}

// At most so many characters of a text that is to fit into so many pixels.
function fitted(text, width, character) {
  const most = Math.max(3, Math.floor((width - 12) / character));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function boxOf([, x, layer, width], lines, attributes) {
  const y = topOf(layer);
  const [first, second] = lines;
  return el("g", attributes,
    el("rect", { x: x + SIDE - width / 2, y, width, height: BOX, rx: 6 }),
    el("text", { x: x + SIDE, y: y + (second ? 18 : 26) }, fitted(first, width, 6.6)),
    second ? el("text", { class: "small", x: x + SIDE, y: y + 33 }, fitted(second, width, 6)) : null);
}

const heightOf = (view) => topOf(view.boxes.reduce((most, b) => Math.max(most, b[2]), 0)) + BOX + TOP;

// A small graph, drawn whole: a side of a step.
function drawnTerm(term, label) {
  const { view, boxes } = term;
  const [width, height] = [view.width + 2 * SIDE, heightOf(view)];
  const svg = el("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  view.edges.forEach((e) => svg.append(el("path", { class: "edge", d: curve(wayOf(view, e)) })));
  view.boxes.forEach((box) => {
    const [text, ty, isSame] = boxes[box[0]];
    const g = boxOf(box, [text, ty], { class: `box ${isSame ? "same" : "changed"}` });
    g.append(el("title", {}, `${text}: ${ty}`));
    svg.append(g);
  });
  return el("div", { class: "term" }, svg);
}

// One of the two graphs: it folds, zooms, scrolls, and shows what is marked.
class Pane {
  // `look` says what a box of an item looks like: its lines, classes and colour.
  constructor({ title, name, drawn, look, legend, pick }) {
    Object.assign(this, { name, drawn, look, pick, zoom: 0.9, marks: new Map(), chosen: null, unfolded: null });
    this.sheet = el("div", {
      class: "sheet", tabindex: 0, role: "group", "aria-label": `${title}: arrows move, Enter shows`,
      onscroll: () => this.later(), onkeydown: (e) => this.key(e), onwheel: (e) => this.wheel(e),
    });
    this.fold = el("button", { type: "button", onclick: () => this.toggle() }, "");
    const zoom = (by) => () => this.scale(this.zoom * by);
    this.element = el("section", { class: "pane", id: `pane-${name}` },
      el("div", { class: "bar" }, el("h2", {}, title),
        drawn.repeats.length ? this.fold : null,
        el("button", { type: "button", title: "Smaller", "aria-label": "Smaller", onclick: zoom(1 / 1.25) }, "−"),
        el("button", { type: "button", title: "Larger", "aria-label": "Larger", onclick: zoom(1.25) }, "+")),
      this.sheet, el("div", { class: "legend" }, legend));
    this.show();
    new ResizeObserver(() => { this.centre(); this.draw(); }).observe(this.sheet);
  }

  // At first the topmost box is in the middle.
  centre() {
    if (this.isPlaced || !this.sheet.clientWidth || !this.view.boxes.length) return;
    this.isPlaced = true;
    const top = this.view.boxes[Math.min(...this.boxRows[0])];
    this.draw();
    this.sheet.scrollTo((top[1] + SIDE) * this.zoom - this.sheet.clientWidth / 2, 0);
  }

  // What is unfolded: nothing, one repeated block by its number, or all.
  get isOpen() { return this.unfolded !== null; }

  // Prepares a drawing: boxes and edges by layer.
  show() {
    const { folded, open, repeats } = this.drawn;
    const shown = this.unfolded === null ? folded : repeats[this.unfolded]?.alone ?? open;
    this.view = shown ?? folded;
    this.fold.textContent = this.isOpen ? "Fold copies" : "Unfold all copies";
    this.boxAt = new Map(this.view.boxes.map((b, i) => [b[0], i]));
    const layers = this.view.boxes.reduce((most, b) => Math.max(most, b[2]), 0) + 1;
    const rows = () => Array.from({ length: layers }, () => []);
    [this.boxRows, this.edgeRows, this.above, this.below] = [rows(), rows(), [], []];
    this.view.boxes.forEach((b, i) => { this.boxRows[b[2]].push(i); this.above.push([]); this.below.push([]); });
    this.boxRows.forEach((row) => row.sort((a, b) => this.view.boxes[a][1] - this.view.boxes[b][1]));
    this.far = [];
    this.view.edges.forEach((edge, e) => {
      const [from, to, bends] = edge;
      this.below[from].push(to);
      this.above[to].push(from);
      if (bends === null) { this.far.push(e); return; }
      for (let l = this.view.boxes[from][2]; l <= this.view.boxes[to][2]; l += 1) this.edgeRows[l].push(e);
    });
    this.draw();
  }

  toggle() {
    this.unfolded = this.isOpen ? null : "all";
    this.show();
    if (this.chosen !== null && this.boxAt.has(this.chosen)) this.reveal(this.chosen);
  }

  // Unfolds a block, and folds the others.
  unfold(n) {
    this.unfolded = n;
    this.show();
    this.reveal(this.drawn.repeats[n].first + this.drawn.repeats[n].period);
  }

  scale(zoom) {
    const { sheet } = this;
    const [old, next] = [this.zoom, Math.min(2, Math.max(0.2, zoom))];
    const middle = [(sheet.scrollLeft + sheet.clientWidth / 2) / old, (sheet.scrollTop + sheet.clientHeight / 2) / old];
    this.zoom = next;
    this.draw();
    sheet.scrollTo(middle[0] * next - sheet.clientWidth / 2, middle[1] * next - sheet.clientHeight / 2);
    this.draw();
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.scale(this.zoom * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
  }

  later() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => { this.waits = false; this.draw(); });
  }

  // Marks items, the chosen one among them.
  mark(marks, chosen) {
    [this.marks, this.chosen] = [marks, chosen];
    this.draw();
  }

  // Brings an item into view, unfolding what hides it.
  reveal(item) {
    if (!this.boxAt.has(item)) {
      const hides = ({ first, period, count }) => item >= first + period && item < first + period * count;
      const n = this.drawn.repeats.findIndex(hides);
      if (n < 0 || this.unfolded === n) return;
      this.unfolded = n;
      this.show();
    }
    const [, x, layer] = this.view.boxes[this.boxAt.get(item)];
    const { sheet, zoom } = this;
    this.isPlaced ||= sheet.clientWidth > 0;
    const [left, top] = [(x + SIDE) * zoom, (topOf(layer) + BOX / 2) * zoom];
    const isSeen = left > sheet.scrollLeft + 40 && left < sheet.scrollLeft + sheet.clientWidth - 40
      && top > sheet.scrollTop + 20 && top < sheet.scrollTop + sheet.clientHeight - 20;
    if (!isSeen) sheet.scrollTo(left - sheet.clientWidth / 2, top - sheet.clientHeight / 2);
    this.draw();
  }

  draw() {
    const { sheet, view, zoom } = this;
    const [width, height] = [view.width + 2 * SIDE, heightOf(view)];
    const row = (y) => Math.floor((y / zoom - TOP) / LAYER);
    const first = Math.max(0, row(sheet.scrollTop - BEYOND));
    const last = Math.min(this.boxRows.length - 1, row(sheet.scrollTop + sheet.clientHeight + BEYOND));
    const left = (sheet.scrollLeft - BEYOND) / zoom;
    const right = (sheet.scrollLeft + sheet.clientWidth + BEYOND) / zoom;
    const [edges, boxes] = [new Set(this.far), []];
    for (let l = first; l <= last; l += 1) {
      this.edgeRows[l].forEach((e) => edges.add(e));
      boxes.push(...this.boxRows[l].filter((b) => Math.abs(view.boxes[b][1] - (left + right) / 2) < (right - left) / 2 + 230));
    }
    const inner = el("g", { transform: `scale(${zoom})` });
    const isMarked = (b) => this.marks.get(view.boxes[b][0]) === "strong";
    for (const e of edges) {
      const [from, to, bends] = view.edges[e];
      const isNear = isMarked(from) || isMarked(to);
      // An edge far across is drawn only where one looks at its ends.
      if (bends === null && !isNear) {
        if (view.boxes[from][2] >= first && view.boxes[from][2] <= last) inner.append(this.stub(view.boxes[from], BOX + 4));
        if (view.boxes[to][2] >= first && view.boxes[to][2] <= last) inner.append(this.stub(view.boxes[to], -4));
        continue;
      }
      inner.append(el("path", { class: isNear ? "edge near" : "edge", d: curve(wayOf(view, view.edges[e])) }));
    }
    boxes.forEach((b) => inner.append(this.box(view.boxes[b])));
    sheet.replaceChildren(el("svg", { width: width * zoom, height: height * zoom }, inner));
  }

  stub([, x, layer], below) {
    return el("circle", { class: "stub", cx: x + SIDE, cy: topOf(layer) + below, r: 2.5 });
  }

  box(box) {
    const id = box[0];
    if (id < 0) {
      const { period, count } = this.drawn.repeats[-1 - id];
      const lines = [`${count - 1} more of these`, `${plural(period, "box", "boxes")} each: unfold`];
      return boxOf(box, lines, { class: "box fold", onclick: () => this.unfold(-1 - id) });
    }
    const { lines, kind, heat, title } = this.look(id);
    const mark = this.marks.get(id) ?? "";
    const chosen = id === this.chosen ? "chosen" : "";
    const hot = !mark && heat > 0.55 ? "hot" : "";
    const g = boxOf(box, lines, {
      class: `box ${kind} ${mark} ${chosen} ${hot}`, id: `${this.name}-${id}`,
      onclick: (e) => { this.sheet.focus({ preventScroll: true }); this.pick(id, e.shiftKey); },
    });
    if (heat > 0 && !mark) {
      g.firstChild.style.fill = `color-mix(in oklab, var(--hot) ${Math.round(100 * heat)}%, var(--box))`;
    }
    g.append(el("title", {}, title));
    return g;
  }

  // Arrows go along edges and within a layer; Enter shows what is chosen.
  key(event) {
    const { view, chosen } = this;
    const at = chosen === null ? undefined : this.boxAt.get(chosen);
    const row = at === undefined ? [] : this.boxRows[view.boxes[at][2]];
    // Where nothing is chosen: the first box that something reads.
    const start = () => this.boxRows[0].find((b) => this.below[b].length) ?? this.boxRows[0][0];
    const next = {
      ArrowDown: () => (at === undefined ? start() : this.below[at][0]),
      ArrowUp: () => (at === undefined ? start() : this.above[at][0]),
      ArrowLeft: () => row[row.indexOf(at) - 1],
      ArrowRight: () => row[row.indexOf(at) + 1],
    }[event.key];
    if (event.key === "Enter" && chosen !== null) { event.preventDefault(); showPanel(); return; }
    if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const found = next();
    if (found === undefined) return;
    const id = view.boxes[found][0];
    if (id < 0) { this.unfold(-1 - id); return; }
    this.pick(id, event.shiftKey);
  }
}
