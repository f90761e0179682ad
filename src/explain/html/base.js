// What all parts of all pages use: the data, elements, and numbers as people read them.

const data = JSON.parse(document.getElementById("data").textContent);

const DRAWN = new Set(["svg", "g", "rect", "path", "text", "circle", "title"]);

// An element with attributes, handlers (`onclick`) and children. Texts never become markup.
function el(tag, attributes = {}, ...children) {
  const node = DRAWN.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

function seconds(s) {
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toFixed(2)} ms`;
  return `${(s * 1e6).toFixed(2)} µs`;
}

function saved(s) {
  if (s > 1e-12) return `saves ${seconds(s)}`;
  if (s < -1e-12) return `costs ${seconds(-s)} more`;
  return "takes the same time";
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i += 1; }
  return i === 0 ? `${n} B` : `${n.toFixed(1)} ${units[i]}`;
}

const percent = (part) => `${(100 * part).toFixed(part < 0.0995 ? 1 : 0)} %`;
const scientific = (x) => (x === 0 ? "0" : x.toExponential(1));
const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

function grouped(count, key) {
  const out = new Map();
  for (let i = 0; i < count; i += 1) {
    const k = key(i);
    if (k === undefined) continue;
    if (!out.has(k)) out.set(k, []);
    out.get(k).push(i);
  }
  return out;
}
const lawByName = new Map(data.laws.map((l, i) => [l.name, i]));

// What the laws of a list are in the order of what they may change: approximations, regroupings, equal bits.
function classRank(name) {
  if (name.startsWith("approx")) return 0;
  return name.startsWith("reorder") ? 1 : 2;
}
const classTag = (name) => el("span", { class: `tag ${name.split(/[ (]/)[0]}` }, name);

// A text of this tool, in which backticks set off names.
const marked = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

// The anchor of a thing: it works in the address, too.
const anchor = (kind, name) => `#${kind}=${encodeURIComponent(name)}`;

function link(kind, name, text, title) {
  const go = () => { location.hash = anchor(kind, name); };
  return el("button", { type: "button", class: "link", title, onclick: go }, text ?? String(name));
}
const lawLink = (name) => (lawByName.has(name) ? link("law", name) : el("span", {}, name));

// The first entries of a list, and a button for the others.
function some(list, draw, most = 6) {
  const ul = el("ul", { class: "plain" }, list.slice(0, most).map((x) => el("li", {}, draw(x))));
  if (list.length > most) {
    const rest = () => {
      last.remove();
      ul.append(...list.slice(most).map((x) => el("li", {}, draw(x))));
    };
    const last = el("li", {}, el("button", { type: "button", class: "link", onclick: rest }, `… and ${list.length - most} more`));
    ul.append(last);
  }
  return ul;
}
